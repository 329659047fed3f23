"""Acts on pods whose device has failed, as their policy's `failure.onDeviceFailure` says: marks
them with a condition, and evicts them. The mark goes when the failure ends; it always comes before
the eviction.

All that must outlast this process is on the pods: who leads next finds the condition, evicts what
is marked, and writes nothing twice. It needs the setting `deviceFailures` and the rights in
`deploy/rbac/optional/`.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from math import inf
from typing import NamedTuple

import structlog

from fettle.api import core
from fettle.api.meta import unix_s
from fettle.client import Event, EventRecorder, Regarding, Session
from fettle.cluster import EMPTY, View, changed_keys
from fettle.config import Settings
from fettle.explain import text
from fettle.model import BudgetSpent, ClusterError, Denied, OnDeviceFailure, Policy, Unreachable
from fettle.observing import StewardMetrics
from fettle.pacing import Backoff, pause, run_within
from fettle.records import Act, Recorder
from fettle.scheduling import (
    Answers,
    AtRisk,
    DeviceFailure,
    Failures,
    FinishedPods,
    devices_counted,
    devices_held,
    find_failures,
    resolve_policy,
    worst_first,
)
from fettle.steward.paced_writes import PacedWrites, Write
from fettle.steward.pod_events import once_name
from fettle.steward.pod_writes import MarkReason, condition_of, evict, is_ours, mark, unmark
from fettle.steward.replacements import Replacements

LOOK_S = 0.25
"""The shortest pause between two looks. A Job decides about a failed pod after a second."""
LATE_S = 15.0
"""A pod that failed so shortly ago is marked, too: the cause may be heard of after the failure."""
AGAIN_S = 1.0
REST = 4.0
"""After a look, pause for so many times as long."""
MARKS_PER_S, TRIES_PER_S = 10.0, 5.0
"""How many pods are marked a second, and how many evictions tried, at most."""
FIRST_WAIT_S, LONGEST_WAIT_S = 5.0, 60.0
"""Pauses between tries to evict one pod that is not to be evicted now."""
ENDS_WITHIN_S = 30.0
"""So long a pod counts as ending that would have been evicted: Kubernetes' usual grace period."""
STUCK_S = 300.0
"""A pod that should have ended so long ago holds up no other."""
SEEN_WITHIN_S = 30.0
"""A write that no view shows after so long is tried again."""
MARKED, EVICTED, WAITS = "DeviceFailed", "EvictedFromFailedDevice", "EvictionWaits"
"""Reasons of Events, an interface."""
UNMARKED = "DeviceFailedOver"
"""The code in the records of a mark that was taken away."""
_CONDITIONS = "deploy/rbac/optional/pod-conditions.yaml grants the rights"
_EVICTIONS = "deploy/rbac/optional/pod-evictions.yaml grants the rights"
_WHY: Mapping[MarkReason, str] = {
    MarkReason.NOWHERE_BETTER: "no other node would take its replacement now",
    MarkReason.NO_OTHER_NODE: "no other node that there is has what its replacement selects, "
    "tolerates and asks for",
    MarkReason.CLAIM_SHARED: "other pods use the same claim, so its replacement would be given the "
    "same device",
    MarkReason.NO_REPLACEMENT: "no controller would replace it on another node",
}

_LOG = structlog.get_logger(__name__)


class _Waiting:
    """Why a pod is not evicted now, and when it is tried again."""

    def __init__(self, reason: MarkReason, why: str) -> None:
        self.reason = reason
        self.why = why
        self.retry_at = -inf
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)

    def again(self, now: float) -> None:
        self.retry_at = now + self._backoff.next_s()


class _Step(NamedTuple):
    """What a pod's policy asks for, as far as it is allowed. Not `writes`: it is only recorded."""

    failure: DeviceFailure
    evicts: bool
    writes: bool

    @property
    def pod(self) -> core.Pod:
        return self.failure.pod


class _Due(NamedTuple):
    """What is due now. `evicted`: the worst first. `held`: how many devices of each pool are under
    pods that end by our eviction; without writes, also under those that would. `waits`: more may be
    due later, by time alone."""

    unmarked: list[core.Pod]
    marked: list[_Step]
    evicted: list[_Step]
    held: Mapping[bool, Counter[str]]
    waits: bool


class FailedDevices:
    """`keep` while leading; `notes` say what is amiss."""

    def __init__(
        self,
        session: Session,
        answers: Answers,
        at_risk: AtRisk,
        finished: FinishedPods,
        settings: Settings,
        events: EventRecorder,
        recorder: Recorder,
        metrics: StewardMetrics,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._answers = answers
        self._at_risk = at_risk
        self._finished = finished
        self._all_settings = settings
        self._settings = settings.device_failures
        self._events = events
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._now = monotonic
        self._replacements = Replacements(answers)
        self._marking = PacedWrites(
            "failed devices: pods cannot be marked, and so not evicted",
            _CONDITIONS,
            per_s=MARKS_PER_S,
            clock=monotonic,
        )
        self._evicting = PacedWrites(
            "failed devices: pods cannot be evicted", _EVICTIONS, per_s=TRIES_PER_S, clock=monotonic
        )
        # What would be written must not delay what is.
        self._trying = PacedWrites(
            "failed devices: evictions cannot be tried",
            _EVICTIONS,
            per_s=TRIES_PER_S,
            clock=monotonic,
        )
        self._notes: list[str] = []
        self._over_share = 0
        self._unasked = ""
        """Why no PodDisruptionBudget was asked whether it would allow an eviction."""
        self._next_eviction_at = {True: -inf, False: -inf}
        """Where it is written, and where it would be."""
        self._view = EMPTY
        self._marked: dict[str, core.Pod] = {}
        """By `namespace/name`, the pods with our condition in that view."""
        self._waiting: dict[str, _Waiting] = {}
        """By UID."""
        self._just_marked: dict[str, tuple[str, float]] = {}
        """By UID: the reason that was written, and when; until a view shows it."""
        self._just_evicted: dict[str, tuple[core.Pod, float]] = {}
        """By UID, likewise."""
        self._would_end: dict[str, tuple[core.Pod, float]] = {}
        """By UID: the pods that would be ending by our eviction, and since when."""
        self._would: set[tuple[str, str]] = set()
        """UIDs and what was recorded that would be written."""

    async def keep(self) -> None:
        """Never returns. Looks at each view, and once a second while time may change something."""

        async def look(_: View) -> float | None:
            return AGAIN_S if await self._look() else None

        publisher = self._answers.publisher
        await publisher.keep_looking("failed devices", look, every_s=LOOK_S, rest=REST)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        own = (f"failed devices: {said}" for said in self._notes)
        pacing = (self._marking, self._evicting, self._trying)
        return [*(note for each in pacing for note in each.notes()), *own]

    async def _look(self) -> bool:
        """Write what is due; whether time alone may make more due."""
        failures: Failures | None = Failures()
        if self._settings.allow is not None:
            ended = self._finished.failed_since(self._clock() - LATE_S)
            failures = await find_failures(self._answers, self._at_risk, ended)
        if failures is None:
            return True
        view = self._answers.view
        due = await run_within(None, lambda: self._plan(failures, view))
        all_marked = await self._marking.do(
            (partial(self._unmark, pod) for pod in due.unmarked),
            (partial(self._mark, step) for step in due.marked),
        )
        await self._evicting.do(self._tries(due, view, writes=True))
        await self._trying.do(self._tries(due, view, writes=False))
        self._note()
        return due.waits or not all_marked

    # --- what should be done

    def _plan(self, failures: Failures, view: View) -> _Due:
        self._follow(view)
        steps = {step.failure.placed.key: step for step in self._steps(failures.running.values())}
        ended = [*self._steps(failures.ended)]
        uids = {step.pod.metadata.uid for step in chain(steps.values(), ended)}
        self._waiting = {uid: one for uid, one in self._waiting.items() if uid in uids}
        self._would = {one for one in self._would if one[0] in uids}
        marked, evicted = [], {}
        for step in chain(steps.values(), ended):
            pause()
            if _is_lost(step.pod, view):
                continue
            if self._needs_mark(step):
                if step.writes:
                    marked.append(step)
                else:
                    self._record(step, MARKED, _words(step.failure))
            if step.evicts:
                evicted[step.failure.placed.key] = step
        ending = devices_held(self._ending(), view)
        would_end = devices_held((pod for pod, _ in self._would_end.values()), view)
        held = {True: ending, False: ending + would_end}
        due = [one.failure.placed for one in evicted.values() if self._is_due(one)]
        worst = [evicted[one.key] for one in worst_first(due, len(due))]
        within_share = [
            step for step in worst if self._is_within_share(step, held[step.writes], view)
        ]
        self._over_share = len(worst) - len(within_share)
        unwanted = [*self._unwanted(steps, view)]
        return _Due(unwanted, marked, within_share, held, bool(evicted))

    def _steps(self, failures: Iterable[DeviceFailure]) -> Iterator[_Step]:
        for failure in failures:
            if (step := self._step(failure)) is not None:
                yield step
            pause()

    def _unwanted(self, steps: Mapping[str, _Step], view: View) -> Iterator[core.Pod]:
        """The pods that are marked and should not be. One that is ending keeps its mark."""
        for key, pod in self._marked.items():
            wanted = key in steps and steps[key].writes
            ends = pod.metadata.deletion_timestamp is not None
            if not wanted and not ends and not _is_lost(pod, view):
                yield pod
            pause()

    def _follow(self, view: View) -> None:
        """Take in which pods have our condition, and which of our writes are seen."""
        for key in changed_keys(self._view.pods, view.pods):
            pod = view.pods.get(key)
            condition = condition_of(pod) if pod is not None else None
            if pod is not None and condition is not None and is_ours(condition):
                self._marked[key] = pod
            else:
                self._marked.pop(key, None)
            pause()
        self._view = view
        late = self._now() - SEEN_WITHIN_S
        self._just_evicted = {
            uid: (pod, at)
            for uid, (pod, at) in self._just_evicted.items()
            if at > late and (now := view.pods.get(pod.metadata.key)) is not None
            if now.metadata.uid == uid and now.metadata.deletion_timestamp is None
        }
        ended = self._now() - ENDS_WITHIN_S
        self._would_end = {u: one for u, one in self._would_end.items() if one[1] > ended}
        self._just_marked = {u: one for u, one in self._just_marked.items() if one[1] > late}

    def _step(self, failure: DeviceFailure) -> _Step | None:
        pod, wish = failure.pod, failure.placed.policy.failure.on_device_failure
        if wish is OnDeviceFailure.NONE or pod.metadata.deletion_timestamp is not None:
            return None
        evicts = wish is OnDeviceFailure.EVICT and self._settings.allow == "Evict"
        evicts = evicts and not (pod.terminal or failure.set_aside)
        return _Step(failure, evicts, self._all_settings.writes(self._answers.mode_of(pod)))

    # --- marking

    def _reason(self, step: _Step) -> tuple[MarkReason, str]:
        if (waiting := self._waiting.get(step.pod.metadata.uid)) is not None and step.writes:
            return waiting.reason, waiting.why
        return MarkReason.MARKED, ""

    def _needs_mark(self, step: _Step) -> bool:
        uid, (reason, _) = step.pod.metadata.uid, self._reason(step)
        written, _ = self._just_marked.get(uid, ("", 0.0))
        if written == reason or (there := condition_of(step.pod)) is None:
            return written != reason
        # What the leader before said of it counts until it is tried.
        untried = step.evicts and uid not in self._waiting
        return is_ours(there) and there.reason != reason and not untried

    async def _mark(self, step: _Step) -> None:
        pod, (reason, why) = step.pod, self._reason(step)
        words = f"{_words(step.failure)}{f'; {_stays(reason, why)}' if why else ''}"
        await mark(self._session, pod, reason, words, self._clock())
        self._metrics.wrote_pod("marked")
        self._just_marked[pod.metadata.uid] = reason, self._now()
        if reason is MarkReason.MARKED:
            self._tell(step, MARKED, words)

    async def _unmark(self, pod: core.Pod) -> None:
        await unmark(self._session, pod)
        self._metrics.wrote_pod("unmarked")
        self._marked.pop(pod.metadata.key, None)
        self._just_marked.pop(pod.metadata.uid, None)
        policy = resolve_policy(pod, self._answers.view, self._answers.policies).policy
        why = "it is on no failed device any more, or its policy or mode asks for no mark"
        self._recorder.acted(self._act(pod, policy, UNMARKED, why), written=True)
        _LOG.info("a pod is no longer marked", pod=pod.metadata.key)

    # --- evicting

    def _tries(self, due: _Due, view: View, *, writes: bool) -> Iterator[Write]:
        held = due.held[writes]
        for step in due.evicted:
            if self._now() < self._next_eviction_at[writes]:
                return
            if step.writes is writes and self._is_within_share(step, held, view):
                yield partial(self._try, step)
                if step.pod.metadata.uid in (self._just_evicted if writes else self._would_end):
                    held.update(devices_held([step.pod], view))

    def _is_within_share(self, step: _Step, held: Counter[str], view: View) -> bool:
        mine = devices_held([step.pod], view)
        return not any(held[pool] and held[pool] + n > self._most(pool) for pool, n in mine.items())

    def _is_due(self, step: _Step) -> bool:
        pause()
        failure, metadata = step.failure, step.pod.metadata
        confirmed_at = failure.began_at + self._settings.confirm_seconds
        if not failure.lasts or self._clock() < confirmed_at:
            return False
        told = not step.writes and (metadata.uid, EVICTED) in self._would
        if told or metadata.uid in self._just_evicted:
            return False
        waiting = self._waiting.get(metadata.uid)
        if waiting is not None and self._now() < waiting.retry_at:
            return False
        # Only once it is seen to be marked: a mark that comes later comes too late.
        return condition_of(step.pod) is not None or not step.writes

    def _ending(self) -> Iterator[core.Pod]:
        """The pods that end by our eviction now, but for those that are stuck."""
        yield from (pod for pod, _ in self._just_evicted.values())
        since = self._clock() - STUCK_S
        for pod in self._marked.values():
            # The time by which it should have ended.
            if unix_s(pod.metadata.deletion_timestamp, -inf) > since:
                yield pod
            pause()

    def _most(self, pool: str) -> float:
        """How many devices of a pool may be under pods that end at one time."""
        devices = devices_counted(self._answers, pool)
        return (devices or 0) * self._settings.max_share

    async def _try(self, step: _Step) -> None:
        """Evict a pod, or note why not."""
        pod, words = step.pod, _words(step.failure)
        if (reason := await self._replacements.why_in_vain(step.failure)) is not None:
            self._wait(step, reason, _WHY[reason])
            return
        try:
            await evict(self._session, pod, dry_run=not step.writes)
            self._unasked = ""
        except BudgetSpent as error:
            self._wait(step, MarkReason.OVER_BUDGET, str(error))
            return
        except Denied as error:
            self._wait(step, MarkReason.DENIED, str(error))
            return
        except ClusterError as error:
            if step.writes or isinstance(error, Unreachable):
                raise
            self._go_on_unasked(str(error))
        now = self._now()
        self._next_eviction_at[step.writes] = now + 1 / self._settings.evictions_per_second
        self._waiting.pop(pod.metadata.uid, None)
        if not step.writes:
            self._would_end[pod.metadata.uid] = pod, now
            self._record(step, EVICTED, words)
            return
        self._metrics.wrote_pod("evicted")
        self._just_evicted[pod.metadata.uid] = pod, now
        self._tell(step, EVICTED, words)

    def _go_on_unasked(self, why: str) -> None:
        if not self._unasked:
            _LOG.warning(
                "PodDisruptionBudgets cannot be asked what they would allow",
                reason=why,
                remedy=_EVICTIONS,
            )
        self._unasked = why

    def _wait(self, step: _Step, reason: MarkReason, why: str) -> None:
        uid = step.pod.metadata.uid
        waiting = self._waiting.get(uid)
        if waiting is None or waiting.reason is not reason:
            waiting = self._waiting[uid] = _Waiting(reason, why)
            words = f"{_words(step.failure)}; {_stays(reason, why)}"
            (self._tell if step.writes else self._record)(step, WAITS, words)
        waiting.again(self._now())

    # --- telling

    def _tell(self, step: _Step, what: str, words: str) -> None:
        """An Event on the pod, and what was written also in the records."""
        pod = step.pod
        metadata = pod.metadata
        about = Regarding("v1", "Pod", metadata.name, metadata.namespace, metadata.uid)
        name = once_name(pod, f"{what} {self._reason(step)[0]}")
        self._events.record(Event(about, what, "Evict", words, type="Warning", name=name))
        _LOG.warning("failed device", what=what, pod=metadata.key, reason=words)
        if what != WAITS:
            act = self._act(pod, step.failure.placed.policy, what, words)
            self._recorder.acted(act, written=True)

    def _record(self, step: _Step, what: str, words: str) -> None:
        """What would be written, once."""
        if (one := (step.pod.metadata.uid, what)) not in self._would:
            self._would.add(one)
            act = self._act(step.pod, step.failure.placed.policy, what, words)
            self._recorder.acted(act, written=False)

    def _act(self, pod: core.Pod, policy: Policy, what: str, words: str) -> Act:
        controller = pod.metadata.controller
        return Act(
            what,
            words,
            "Pod",
            pod.metadata.key,
            pod.metadata.uid,
            f"{controller.kind}/{controller.name}" if controller is not None else "",
            policy.name,
            self._answers.mode_of(pod),
        )

    def _note(self) -> None:
        found = []
        settings = self._all_settings
        if self._settings.allow is not None and not settings.writes(settings.mode):
            nothing = (
                "with steward.dryRun nothing is written"
                if settings.steward.dry_run
                else f"with mode {settings.mode} nothing is written, but where a policy or "
                "namespace says enforce"
            )
            found.append(f"{nothing}: `fettle decisions` lists what would be")
            if self._unasked:
                asked = "what PodDisruptionBudgets would allow is not known"
                found.append(f"{asked}: {self._unasked} ({_EVICTIONS})")
        if self._over_share:
            found.append(f"evicted later, by deviceFailures.maxShare: {self._over_share} pods")
        self._notes = found


def _words(failure: DeviceFailure) -> str:
    return f"on node {failure.pod.node_name}: {text(failure.why)}"


def _stays(reason: MarkReason, why: str) -> str:
    never = reason is MarkReason.NO_REPLACEMENT
    return f"not evicted{'' if never else ' yet'}: {why}"


def _is_lost(pod: core.Pod, view: View) -> bool:
    node = view.nodes.get(pod.node_name)
    return node is None or any(taint.key in core.LOST for taint in node.taints)
