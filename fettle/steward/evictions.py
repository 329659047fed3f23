"""Marks pods on failed devices, and evicts those whose replacement would be better off. Where
nothing may be written, it finds out and records what would be.

Each write names the pod's UID, so that it never meets a later pod of the same name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

from fettle.api import core, kinds, known_as
from fettle.api.meta import rfc3339_at
from fettle.client import Event, EventRecorder, Regarding, Session
from fettle.cluster import View
from fettle.config import DeviceFailureSettings
from fettle.dra import claim_name, entries_with_claims
from fettle.explain import text
from fettle.logs import Logger
from fettle.model import (
    DEVICE_FAILED,
    BudgetSpent,
    ClusterError,
    Conflict,
    Denied,
    Mode,
    NotFound,
    Policy,
    Unreachable,
)
from fettle.observing import StewardMetrics
from fettle.pacing import pause, run_within
from fettle.records import Recorder
from fettle.scheduling import Answers, devices_counted, resolve_policy
from fettle.scheduling.placed import (
    Departure,
    DeviceFailure,
    FreedPlaces,
    StartFailure,
    devices_held,
)
from fettle.scheduling.plans import node_fit
from fettle.steward.allowed_nodes import AllowedNodes
from fettle.steward.eviction_plans import (
    EVICTED,
    MARKED,
    OURS,
    WAITS,
    DueEvictions,
    FailureStep,
    MarkedPods,
    MarkReason,
    PendingEvictions,
    condition_of,
)
from fettle.steward.paced_writes import PacedWrites, Write
from fettle.steward.pod_events import DOES_NOT_START, about_pod, act_on, event_name, once_name

MARKS_PER_S, TRIES_PER_S = 10.0, 5.0
"""How many pods are marked a second, and how many evictions tried, at most."""
UNMARKED = "DeviceFailedOver"
"""The code in the records of a mark that was taken away."""
CONDITIONS = "deploy/rbac/optional/pod-conditions.yaml grants the rights"
EVICTIONS = "deploy/rbac/optional/pod-evictions.yaml grants the rights"
_LONGEST = 1024
_PINNED = ("DaemonSet", "Node")
"""Controllers whose pods come back on the same node."""
_WHY: Mapping[MarkReason, str] = {
    MarkReason.NOWHERE_BETTER: "no other node would take its replacement now",
    MarkReason.NO_OTHER_NODE: "no other node that there is has what its replacement selects, "
    "tolerates and asks for",
    MarkReason.CLAIM_SHARED: "other pods use the same claim, so its replacement would be given the "
    "same device",
    MarkReason.NO_REPLACEMENT: "no controller would replace it on another node",
    MarkReason.FREED_BEFORE: "the pod before it was evicted because it did not start, and this one "
    "does not start either",
}

_LOG = Logger(__name__)


class FailureNews:
    """Tells what was done about pods on failed devices, or would have been."""

    def __init__(self, answers: Answers, events: EventRecorder, recorder: Recorder) -> None:
        self._answers = answers
        self._events = events
        self._recorder = recorder

    def wrote(self, step: FailureStep, what: str, reason: MarkReason, words: str) -> None:
        """By an Event on the pod, and what was written also in the records."""
        pod, what = step.pod, step.told_as(what)
        name = once_name(pod, f"{what} {reason}")
        self._events.record(Event(about_pod(pod), what, "Evict", words, type="Warning", name=name))
        _LOG.warning("failed device", what=what, pod=pod.metadata.key, reason=words)
        if what != WAITS:
            self._record(pod, step.failure.placed.policy, what, words, written=True)
        if reason is MarkReason.FREED_BEFORE:
            self._record_on_controller(pod, words)

    def would(self, step: FailureStep, what: str, words: str) -> None:
        policy = step.failure.placed.policy
        self._record(step.pod, policy, step.told_as(what), words, written=False)

    def _record_on_controller(self, pod: core.Pod, words: str) -> None:
        if (owner := pod.metadata.controller) is None:
            return
        about = Regarding(
            owner.api_version, owner.kind, owner.name, pod.metadata.namespace, owner.uid
        )
        note = f"pod {pod.metadata.name} {words}"
        name = event_name(owner.name, owner.uid, f"{DOES_NOT_START} {pod.metadata.uid}")
        self._events.record(
            Event(about, DOES_NOT_START, "Observe", note, type="Warning", name=name)
        )

    def unmarked(self, pod: core.Pod) -> None:
        policy = resolve_policy(pod, self._answers.view, self._answers.policies).policy
        why = (
            "it is on no failed device any more, or has started, or its policy or mode asks for no "
            "mark"
        )
        self._record(pod, policy, UNMARKED, why, written=True)
        _LOG.info("a pod is no longer marked", pod=pod.metadata.key)

    def _record(
        self, pod: core.Pod, policy: Policy, what: str, words: str, *, written: bool
    ) -> None:
        act = act_on(pod, policy, self._answers.mode_of(pod), what, words)
        self._recorder.acted(act, written=written)


class Evictions:
    """Of the pods about which is written; or, without `writes`, a dry run of those about which
    nothing is. `monotonic` is in seconds of a clock that nobody sets."""

    def __init__(
        self,
        session: Session,
        answers: Answers,
        settings: DeviceFailureSettings,
        marked: MarkedPods,
        freed: FreedPlaces,
        news: FailureNews,
        metrics: StewardMetrics,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        *,
        writes: bool,
    ) -> None:
        self._session = session
        self._marked = marked
        self._news = news
        self._metrics = metrics
        self._clock = clock
        self._now = monotonic
        self._writes = writes
        self._per_s = settings.evictions_per_second
        self._next_at = -inf
        self._replacements = Replacements(answers, freed)
        self.pending = PendingEvictions(settings, partial(devices_counted, answers), writes=writes)
        self._marking = PacedWrites(
            "failed devices: pods cannot be marked, and so not evicted",
            CONDITIONS,
            per_s=MARKS_PER_S,
            clock=monotonic,
        )
        cannot = "pods cannot be evicted" if writes else "evictions cannot be tried"
        self._evicting = PacedWrites(
            f"failed devices: {cannot}", EVICTIONS, per_s=TRIES_PER_S, clock=monotonic
        )
        self.unasked = ""
        """Why no PodDisruptionBudget was asked whether it would allow an eviction."""

    def notes(self) -> list[str]:
        return [*self._marking.notes(), *self._evicting.notes()]

    async def mark(self, due: DueEvictions, unmarked: Iterable[core.Pod] = ()) -> bool:
        """Mark what is due, and take away what is not to be there; false if not all was done."""
        if not self._writes:
            await run_within(lambda: self._record_marks(due.marked))
            return True
        return await self._marking.do(
            (partial(self._unmark, pod) for pod in unmarked),
            (partial(self._mark, step) for step in due.marked),
        )

    async def evict(self, due: DueEvictions, view: View) -> None:
        """Evict as many as may be evicted now."""
        await self._evicting.do(self._tries(due, view))

    # --- marking

    async def _mark(self, step: FailureStep) -> None:
        reason, why = self.pending.mark_of(step)
        words = f"{_words(step.failure)}{f'; {_stays(reason, why)}' if why else ''}"
        await _write_mark(self._session, step.pod, reason, words, self._clock())
        self._metrics.wrote_pod("marked")
        self.pending.marked(step, reason, self._now())
        if reason is step.marked_as:
            self._record_step(step, MARKED, words)

    async def _unmark(self, pod: core.Pod) -> None:
        await _remove_mark(self._session, pod)
        self._metrics.wrote_pod("unmarked")
        self._marked.unmarked(pod)
        self.pending.unmarked(pod)
        self._news.unmarked(pod)

    def _record_marks(self, steps: Iterable[FailureStep]) -> None:
        for step in steps:
            self._record_step(step, MARKED, _words(step.failure))
            pause()

    # --- evicting

    def _tries(self, due: DueEvictions, view: View) -> Iterator[Write]:
        for step in due.evicted:
            if self._now() < self._next_at:
                return
            if self.pending.is_within_share(step, due.held, view):
                yield partial(self._try, step)
                if self.pending.ends(step):
                    due.held.update(devices_held([step.pod], view))

    async def _try(self, step: FailureStep) -> None:
        """Evict a pod, or note why not."""
        if (reason := await self._replacements.why_in_vain(step.failure)) is not None:
            self._wait(step, reason, _WHY[reason])
            return
        as_it_is = isinstance(step.failure, StartFailure)
        try:
            await _create_eviction(
                self._session, step.pod, dry_run=not self._writes, as_it_is=as_it_is
            )
            self.unasked = ""
        except Conflict:  # it has changed: it may have started
            return
        except BudgetSpent as error:
            self._wait(step, MarkReason.OVER_BUDGET, str(error))
            return
        except Denied as error:
            self._wait(step, MarkReason.DENIED, str(error))
            return
        except ClusterError as error:
            if self._writes or isinstance(error, Unreachable):
                raise
            self._go_on_unasked(str(error))
        self._next_at = self._now() + 1 / self._per_s
        self.pending.evicted(step, self._now())
        if self._writes:
            self._metrics.wrote_pod("evicted")
        self._record_step(step, EVICTED, _words(step.failure))

    def _go_on_unasked(self, why: str) -> None:
        if not self.unasked:
            _LOG.warning(
                "PodDisruptionBudgets cannot be asked what they would allow",
                reason=why,
                remedy=EVICTIONS,
            )
        self.unasked = why

    def _wait(self, step: FailureStep, reason: MarkReason, why: str) -> None:
        if self.pending.waits(step, reason, why, self._now()):
            self._record_step(step, WAITS, f"{_words(step.failure)}; {_stays(reason, why)}")

    def _record_step(self, step: FailureStep, what: str, words: str) -> None:
        """What would be written, once."""
        if self._writes:
            self._news.wrote(step, what, self.pending.mark_of(step)[0], words)
        elif self.pending.would(step, what):
            self._news.would(step, what, words)


def _words(failure: DeviceFailure | StartFailure) -> str:
    return f"on node {failure.pod.node_name}: {text(failure.why)}"


def _stays(reason: MarkReason, why: str) -> str:
    never = reason is MarkReason.NO_REPLACEMENT
    return f"not evicted{'' if never else ' yet'}: {why}"


# --- whether anything would be gained


class Replacements:
    """Whether the replacement of a pod would be better off than the pod."""

    def __init__(self, answers: Answers, freed: FreedPlaces) -> None:
        self._answers = answers
        self._freed = freed
        self._allowed_nodes = AllowedNodes(answers)

    async def why_in_vain(self, failure: DeviceFailure | StartFailure) -> MarkReason | None:
        """Why nothing would be gained by an eviction; None if something would."""
        pod, view = failure.pod, self._answers.view
        controller = pod.metadata.controller
        if controller is None or controller.kind in _PINNED:
            return MarkReason.NO_REPLACEMENT
        if _shares_claims(pod, view):  # its replacement would be given the same device
            return MarkReason.CLAIM_SHARED
        if isinstance(failure, StartFailure) and self._freed.is_freed(pod):
            return MarkReason.FREED_BEFORE
        departure = await run_within(lambda: Departure(self._answers, view, pod))
        demand = departure.demand()
        fitting = await run_within(lambda: _fitting(pod, view))
        does_not_start = isinstance(failure, StartFailure)
        if pod.node_name in fitting:
            # Judged as it will be by then: a device that would be given again does not count.
            if demand is not None and not does_not_start and await departure.frees_a_place(demand):
                return None
            fitting.discard(pod.node_name)
        if not fitting:
            return MarkReason.NO_OTHER_NODE
        if isinstance(failure, DeviceFailure) and failure.is_dead:
            # It is no loss, and whoever waits for the pod waits in vain.
            found = demand is None or await departure.has_devices_elsewhere(demand, fitting)
            return None if found else MarkReason.NO_OTHER_NODE
        if does_not_start:
            fitting -= await run_within(lambda: {*_starting_nothing(pod, view)})
        allowed = await self._allowed_nodes.find(departure.copy, view, Mode.ENFORCE, demand)
        return None if fitting & allowed else MarkReason.NOWHERE_BETTER


def _fitting(pod: core.Pod, view: View) -> set[str]:
    """The nodes to which its own manifest lets the pod go."""
    fits, found = node_fit(pod), set()
    for name, node in view.nodes.items():
        if fits(node):
            found.add(name)
        pause()
    return found


def _starting_nothing(pod: core.Pod, view: View) -> Iterator[str]:
    """Nodes on which it would not start either: its own workload does not there, or others do not
    that are not to blame. While a driver fails everywhere, nobody is evicted for it."""
    workload = known_as(pod).uid
    for start in view.failed_starts.values():
        if start.workload.uid == workload or (start.message and not start.blamed):
            yield start.node
        pause()


def _shares_claims(pod: core.Pod, view: View) -> bool:
    """Whether another pod uses one of its claims."""
    names = (claim_name(pod, entry) for entry in entries_with_claims(pod))
    claims = (view.claims.get(f"{pod.metadata.namespace}/{name}") for name in names)
    return any(claim is not None and claim.reserved_for - {pod.metadata.uid} for claim in claims)


# --- the writes


async def _write_mark(
    session: Session, pod: core.Pod, reason: MarkReason, words: str, now: float
) -> None:
    """Set the condition, or change what it says. Raises ClusterError."""
    condition: dict[str, Any] = {
        "type": DEVICE_FAILED,
        "status": "True",
        "reason": str(reason),
        "message": (OURS + words)[:_LONGEST],
    }
    if condition_of(pod) is None:
        condition["lastTransitionTime"] = rfc3339_at(now)
    await _patch(session, pod, condition)


async def _remove_mark(session: Session, pod: core.Pod) -> None:
    """Take the condition away. Raises ClusterError."""
    await _patch(session, pod, {"type": DEVICE_FAILED, "$patch": "delete"})


async def _patch(session: Session, pod: core.Pod, condition: Mapping[str, Any]) -> None:
    body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
    with suppress(NotFound, Conflict):  # that pod is gone
        await session.patch(_path(pod, "status"), body, strategic=True)


async def _create_eviction(
    session: Session, pod: core.Pod, *, dry_run: bool, as_it_is: bool
) -> None:
    """Raises ClusterError: BudgetSpent if a PodDisruptionBudget allows it to nobody now; with
    `as_it_is` Conflict if the pod has changed. In a dry run nothing is written, and
    PodDisruptionBudgets and admission are asked all the same."""
    metadata = pod.metadata
    preconditions = {"uid": metadata.uid}
    if as_it_is:
        preconditions["resourceVersion"] = metadata.resource_version
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace},
        "deleteOptions": {"preconditions": preconditions},
    }
    gone = (NotFound,) if as_it_is else (NotFound, Conflict)
    with suppress(*gone):
        await session.create(_path(pod, "eviction"), eviction, dry_run=dry_run)


def _path(pod: core.Pod, subresource: str) -> str:
    return kinds.POD.path_of(pod.metadata.name, pod.metadata.namespace, subresource)
