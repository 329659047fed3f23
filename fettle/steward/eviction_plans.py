"""Which pods on failed devices are to be marked and evicted now, the worst first, and which are to
wait. Pure.

A mark is the condition `fettle.dev/DeviceFailed`. Its reason says what is done about the pod, so
every replica, and the leader that comes next, knows it from the pod alone. What is written about
some pods, and would be about others, is planned apart: so neither delays the other.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from enum import StrEnum
from math import inf
from typing import NamedTuple

from fettle.api import core
from fettle.api.meta import Condition, unix_s
from fettle.cluster import EMPTY, View, changed_keys
from fettle.config import DeviceFailureSettings
from fettle.model import DEVICE_FAILED, OnDeviceFailure
from fettle.pacing import Backoff, pause
from fettle.scheduling.placed import DeviceFailure, StartFailure, devices_held, worst_first

FIRST_WAIT_S, LONGEST_WAIT_S = 5.0, 60.0
"""Pauses between tries to evict one pod that is not to be evicted now."""
ENDS_WITHIN_S = 30.0
"""So long a pod counts as ending that would have been evicted: Kubernetes' usual grace period."""
STUCK_S = 300.0
"""A pod that should have ended so long ago holds up no other."""
SEEN_WITHIN_S = 30.0
"""A write that no view shows after so long is tried again."""
MARKED = "DeviceFailed"
"""An Event on a Pod: it was marked, since its device, unit or node has failed.

What to do: The reason of its condition says [what becomes of
it](failed-devices.md#pods-on-failed-devices)."""
EVICTED = "EvictedFromFailedDevice"
"""An Event on a Pod: it was evicted, since its device, unit or node has failed.

What to do: Mend the device: `fettle explain device`. Its controller makes another pod."""
WAITS = "EvictionWaits"
"""An Event on a Pod: it is to be evicted from its failed device, and why it is not yet.

What to do: Such as for a PodDisruptionBudget, or as no node is better
([reasons](failed-devices.md#pods-on-failed-devices)). Delete the pod if it should go at once."""
NOT_STARTED = "NotStarted"
"""An Event on a Pod: it was marked, since it does not start on its node.

What to do: `kubectl describe pod` has the kubelet's reason. It is evicted at [its policy's
deadline](failed-devices.md#pods-that-never-start)."""
EVICTED_NOT_STARTED = "EvictedNotStarted"
"""An Event on a Pod: it was evicted, since it did not start on its node.

What to do: Look at the node's driver and runtime. The workload avoids it for ten minutes."""
OF_STARTS = {MARKED: NOT_STARTED, EVICTED: EVICTED_NOT_STARTED}
"""How the same is told of a pod that does not start."""
OURS = "fettle: "
"""How the messages of our conditions begin. Others may set the condition too."""


class MarkReason(StrEnum):
    """What is done about a marked pod: the condition's reason, an interface."""

    MARKED = "DeviceUnhealthy"
    """Marked; if its policy says `Evict`, it will be evicted once that is confirmed."""
    NOT_STARTED = "PodDoesNotStart"
    """It does not start on its node, and is evicted next."""
    OVER_BUDGET = "EvictionAwaitsDisruptionBudget"
    """A PodDisruptionBudget allows no eviction now; the message names it."""
    DENIED = "EvictionDenied"
    """An admission policy or webhook denies the eviction; the message names it. It is tried
    again, less and less often."""
    NOWHERE_BETTER = "NoBetterNodeForReplacement"
    """No node would take its replacement now, and give it something better."""
    NO_OTHER_NODE = "NoOtherNodeForReplacement"
    """No other node would let its replacement in, or, where the device is dead, none has
    devices as it asks for."""
    CLAIM_SHARED = "ClaimIsShared"
    """Other pods use the same claim."""
    NO_REPLACEMENT = "NothingReplacesThePod"
    """It has no controller, or one that would start it on the same node."""
    FREED_BEFORE = "ReplacementDoesNotStartEither"
    """The pod before it was evicted because it did not start, and this one does not start
    either: its own image, configuration or claims are the likely cause."""


def condition_of(pod: core.Pod) -> Condition | None:
    """The pod's condition `fettle.dev/DeviceFailed` if it is True, whoever set it."""
    found = pod.condition(DEVICE_FAILED)
    return found if found is not None and found.status == "True" else None


def is_ours(condition: Condition) -> bool:
    return condition.message.startswith(OURS)


class FailureStep(NamedTuple):
    """What is to become of a pod in the end: it is marked, and evicted if `evicts`, from `due_at`
    on, in Unix seconds."""

    failure: DeviceFailure | StartFailure
    evicts: bool
    due_at: float

    @property
    def pod(self) -> core.Pod:
        return self.failure.pod

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def marked_as(self) -> MarkReason:
        """The reason of its mark, while nothing keeps it from being evicted."""
        is_device = isinstance(self.failure, DeviceFailure)
        return MarkReason.MARKED if is_device else MarkReason.NOT_STARTED

    @property
    def lasts(self) -> bool:
        """Whether what is wrong is so now."""
        return not isinstance(self.failure, DeviceFailure) or self.failure.lasts

    def told_as(self, what: str) -> str:
        """The reason of the Event that tells this of it."""
        return what if isinstance(self.failure, DeviceFailure) else OF_STARTS.get(what, what)


def steps_for_starts(due: Iterable[StartFailure]) -> Iterator[FailureStep]:
    """They are marked only to be evicted: a pod that is slow to start has not failed."""
    for failure in due:
        if failure.pod.metadata.deletion_timestamp is None:
            yield FailureStep(failure, True, failure.due_at)
        pause()


def steps_for(
    failures: Iterable[DeviceFailure], settings: DeviceFailureSettings
) -> Iterator[FailureStep]:
    """What the pods' policies ask for, as far as the settings allow it."""
    for failure in failures:
        pod, wish = failure.pod, failure.placed.policy.failure.on_device_failure
        if wish is not OnDeviceFailure.NONE and pod.metadata.deletion_timestamp is None:
            evicts = wish is OnDeviceFailure.EVICT and settings.allow == "Evict"
            evicts = evicts and not (pod.terminal or failure.set_aside)
            yield FailureStep(failure, evicts, failure.began_at + settings.confirm_seconds)
        pause()


class MarkedPods:
    """The pods with our condition in the newest view, by `namespace/name`."""

    def __init__(self) -> None:
        self._view = EMPTY
        self._found: dict[str, core.Pod] = {}

    def look(self, view: View) -> None:
        for key in changed_keys(self._view.pods, view.pods):
            pod = view.pods.get(key)
            condition = condition_of(pod) if pod is not None else None
            if pod is not None and condition is not None and is_ours(condition):
                self._found[key] = pod
            else:
                self._found.pop(key, None)
            pause()
        self._view = view

    def but(self, wanted: Container[str]) -> Iterator[core.Pod]:
        """Those whose mark is not wanted. One that is ending keeps its mark."""
        for key, pod in self._found.items():
            ends = pod.metadata.deletion_timestamp is not None
            if key not in wanted and not ends and not _is_lost(pod, self._view):
                yield pod
            pause()

    def ending(self, now: float) -> Iterator[core.Pod]:
        """Those that end by our eviction, but for those that are stuck."""
        for pod in self._found.values():
            # The time by which it should have ended.
            if unix_s(pod.metadata.deletion_timestamp, -inf) > now - STUCK_S:
                yield pod
            pause()

    def unmarked(self, pod: core.Pod) -> None:
        self._found.pop(pod.metadata.key, None)


class WaitingEviction:
    """Why a pod is not evicted now, and when it is tried again."""

    def __init__(self, reason: MarkReason, why: str) -> None:
        self.reason = reason
        self.why = why
        self.retry_at = -inf
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)

    def again(self, now: float) -> None:
        self.retry_at = now + self._backoff.next_s()


class DueEvictions(NamedTuple):
    """What is due now. `evicted`: the worst first. `held`: how many devices of each pool are under
    pods that end by our eviction. `over_share`: how many pods are evicted later, as these end.
    `waits`: more may be due later, by time alone."""

    marked: list[FailureStep]
    evicted: list[FailureStep]
    held: Counter[str]
    over_share: int
    waits: bool


class PendingEvictions:
    """What is due about pods, by what was done about them and no view shows yet; without `writes`,
    by what would have been done. `counted` says how many devices of a pool there are.

    `now` is in Unix seconds, `monotonic` in seconds of a clock that nobody sets.
    """

    def __init__(
        self,
        settings: DeviceFailureSettings,
        counted: Callable[[str], int | None],
        *,
        writes: bool,
    ) -> None:
        self._settings = settings
        self._counted = counted
        self._writes = writes
        self._waiting: dict[str, WaitingEviction] = {}
        """By UID."""
        self._just_marked: dict[str, tuple[str, float]] = {}
        """By UID: the reason that was written, and when; until a view shows it."""
        self._just_evicted: dict[str, tuple[core.Pod, float]] = {}
        """By UID, likewise. Without writes: until the pod would have ended."""
        self._would: set[tuple[str, str]] = set()
        """Without writes: UIDs, and what would have been written."""

    def due(
        self,
        steps: Sequence[FailureStep],
        ending: Iterable[core.Pod],
        view: View,
        now: float,
        monotonic: float,
    ) -> DueEvictions:
        """What is due of these steps. `ending`: pods that end by another's eviction."""
        self._forget({step.uid for step in steps}, view, monotonic)
        steps = [step for step in steps if not _is_lost(step.pod, view)]
        evicted = {step.failure.placed.key: step for step in steps if step.evicts}
        placed = [s.failure.placed for s in evicted.values() if self._is_due(s, now, monotonic)]
        worst = [evicted[one.key] for one in worst_first(placed, len(placed))]
        held = devices_held((*ending, *self.ending()), view)
        within_share = [step for step in worst if self.is_within_share(step, held, view)]
        return DueEvictions(
            [step for step in steps if self._needs_mark(step)],
            within_share,
            held,
            len(worst) - len(within_share),
            bool(evicted),
        )

    def ends(self, step: FailureStep) -> bool:
        """Whether the pod ends, or would, by our eviction, and no view shows it yet."""
        return step.uid in self._just_evicted

    def ending(self) -> Iterator[core.Pod]:
        """The pods that end, or would, by our eviction, and no view shows it yet."""
        return (pod for pod, _ in self._just_evicted.values())

    def is_within_share(self, step: FailureStep, held: Counter[str], view: View) -> bool:
        """Whether the pod may end while pods with so many devices do. One always may."""
        mine = devices_held([step.pod], view)
        return not any(held[pool] and held[pool] + n > self._most(pool) for pool, n in mine.items())

    def _most(self, pool: str) -> float:
        return (self._counted(pool) or 0) * self._settings.max_share

    def _forget(self, uids: Container[str], view: View, monotonic: float) -> None:
        """Forget what a view shows by now, what took too long, and all of pods but these."""
        self._waiting = {uid: one for uid, one in self._waiting.items() if uid in uids}
        self._would = {one for one in self._would if one[0] in uids}
        late = monotonic - SEEN_WITHIN_S
        self._just_marked = {u: one for u, one in self._just_marked.items() if one[1] > late}
        since = late if self._writes else monotonic - ENDS_WITHIN_S
        self._just_evicted = {
            uid: (pod, at)
            for uid, (pod, at) in self._just_evicted.items()
            if at > since and not (self._writes and _is_seen_to_end(pod, view))
        }

    # --- what is due

    def mark_of(self, step: FailureStep) -> tuple[MarkReason, str]:
        """The reason that its mark is to have, and why it is not evicted."""
        waiting = self._waiting.get(step.uid)
        return (waiting.reason, waiting.why) if waiting is not None else (step.marked_as, "")

    def _needs_mark(self, step: FailureStep) -> bool:
        pause()
        if not self._writes:
            return (step.uid, MARKED) not in self._would
        reason, _ = self.mark_of(step)
        written, _ = self._just_marked.get(step.uid, ("", 0.0))
        if written == reason or (there := condition_of(step.pod)) is None:
            return written != reason
        # What the leader before said of it counts until it is tried.
        untried = step.evicts and step.uid not in self._waiting
        return is_ours(there) and there.reason != reason and not untried

    def _is_due(self, step: FailureStep, now: float, monotonic: float) -> bool:
        """Whether it is time to try to evict the pod."""
        pause()
        if not step.lasts or now < step.due_at:
            return False
        waiting = self._waiting.get(step.uid)
        if waiting is not None and monotonic < waiting.retry_at:
            return False
        if not self._writes:
            return (step.uid, EVICTED) not in self._would
        # Only once it is seen to be marked: a mark that comes later comes too late.
        return step.uid not in self._just_evicted and condition_of(step.pod) is not None

    # --- what was done

    def marked(self, step: FailureStep, reason: MarkReason, monotonic: float) -> None:
        self._just_marked[step.uid] = reason, monotonic

    def unmarked(self, pod: core.Pod) -> None:
        self._just_marked.pop(pod.metadata.uid, None)

    def evicted(self, step: FailureStep, monotonic: float) -> None:
        self._waiting.pop(step.uid, None)
        self._just_evicted[step.uid] = step.pod, monotonic

    def waits(self, step: FailureStep, reason: MarkReason, why: str, monotonic: float) -> bool:
        """It was not evicted; whether that is for another reason than before."""
        waiting = self._waiting.get(step.uid)
        if is_new := waiting is None or waiting.reason is not reason:
            waiting = self._waiting[step.uid] = WaitingEviction(reason, why)
        waiting.again(monotonic)
        return is_new

    def would(self, step: FailureStep, what: str) -> bool:
        """It would have been done; whether that was not said before."""
        is_new = (one := (step.uid, what)) not in self._would
        self._would.add(one)
        return is_new


def _is_seen_to_end(pod: core.Pod, view: View) -> bool:
    now = view.pods.get(pod.metadata.key)
    if now is None or now.metadata.uid != pod.metadata.uid:
        return True
    return now.metadata.deletion_timestamp is not None


def _is_lost(pod: core.Pod, view: View) -> bool:
    pause()
    node = view.nodes.get(pod.node_name)
    return node is None or any(taint.key in core.LOST for taint in node.taints)
