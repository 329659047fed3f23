"""Pods that do not start on their node, by the node's fault, and since when; and which of them come
after one that was evicted for that. Pure, but for who asks.

What counts is what the kubelet or a driver says of the pod's own devices, or a proven fault of
them. What other pods meet on the node counts never, so nobody's pods decide about somebody else's
(decision 0093). Stands between the failed starts of the view and what the steward does about them.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from cachetools import TTLCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.api.meta import unix_s
from fettle.cluster import View
from fettle.model import DEVICE_FAILED
from fettle.model.reasons import PodDoesNotStart, PodStuck, Reason, StuckIn
from fettle.pacing import pause, run_within
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import resolve_policy
from fettle.scheduling.former_nodes import KEEP_S, MOST_PLACES, place_of
from fettle.scheduling.placed.at_risk import AtRisk, PlacedPod
from fettle.scheduling.placed.stuck_pods import stuck
from fettle.scheduling.waits import bound_at


class StartFailure(NamedTuple):
    """A pod that does not start on its node, and why. From `due_at` on, in Unix seconds, its policy
    lets it be evicted for that."""

    placed: PlacedPod
    why: Reason
    due_at: float

    @property
    def pod(self) -> core.Pod:
        return self.placed.pod


class StartFailures(NamedTuple):
    """Those that are due, and whether time alone makes more due."""

    due: Sequence[StartFailure] = ()
    waits: bool = False


class _Failing(NamedTuple):
    pod: core.Pod
    why: PodDoesNotStart | PodStuck
    due_at: float


async def find_start_failures(answers: Answers, at_risk: AtRisk, now: float) -> StartFailures:
    """In the newest view. `now` is in Unix seconds."""
    view, found = answers.view, await at_risk.current()

    def find() -> list[_Failing]:
        return [*_by_words(answers, view), *_by_proof(found.values(), now)]

    failing = await run_within(None, find)
    due = {one.pod.metadata.key: one for one in failing if one.due_at <= now}
    placed = await at_risk.placed(one.pod for one in due.values())
    failures = [StartFailure(one, due[one.key].why, due[one.key].due_at) for one in placed]
    return StartFailures(failures, waits=len(due) < len(failing))


def _by_words(answers: Answers, view: View) -> Iterator[_Failing]:
    """By what is said of their devices, where their workload is not the likely cause."""
    for key, start in view.failed_starts.items():
        pause()
        pod = view.pods.get(key)
        if pod is None or pod.metadata.uid != start.pod.metadata.uid or ran(pod):
            continue
        if start.is_over or start.blamed or not start.message:
            continue
        deadline_s = resolve_policy(pod, view, answers.policies).policy.failure.start_deadline_s
        if deadline_s is not None:
            why = PodDoesNotStart(start.message, start.at)
            yield _Failing(pod, why, max(start.at, bound_at(pod)) + deadline_s)


def _by_proof(found: Iterable[PlacedPod], now: float) -> Iterator[_Failing]:
    """By a proven fault of what they certainly are on."""
    for placed in found:
        pause()
        deadline_s = placed.policy.failure.start_deadline_s
        if deadline_s is None or ran(placed.pod):
            continue
        why = stuck(placed, now)
        if why is not None and why.stuck_in is StuckIn.CREATING:
            yield _Failing(placed.pod, why, why.since + deadline_s)


def ran(pod: core.Pod) -> bool:
    """Whether one of its containers has run, but for init containers: then it did start."""
    statuses = (pod.status.container_statuses if pod.status is not None else None) or ()
    return any(map(_ran, statuses)) or _was_ready(pod)


def _was_ready(pod: core.Pod) -> bool:
    """A container's status tells of its last run alone, and that may be a restart that failed. Both
    conditions are first set at once, by the kubelet's clock; Ready changes later only if it was
    True."""
    ready, initialized = pod.condition("Ready"), pod.condition("Initialized")
    if ready is None or initialized is None:
        return False
    began = unix_s(initialized.last_transition_time, inf)
    return unix_s(ready.last_transition_time, 0.0) > began


def _ran(container: core.ContainerStatus) -> bool:
    if container.state is None:
        return False
    last = container.last_state.terminated if container.last_state is not None else None
    ended = container.state.terminated or last
    if ended is not None:
        return ended.reason not in core.START_FAILED
    return container.state.waiting is None


class FreedPlaces:
    """The places of workloads whose pod was evicted because it did not start, and in which none has
    run since. `put` each pod as it arrives.

    Every replica knows it from the pods; after a restart, only from those that still exist. Pods
    are compared by the API server's clock alone.
    """

    def __init__(self) -> None:
        self._freed: TTLCache[str, float] = TTLCache(MOST_PLACES, KEEP_S)
        """By place: when a pod was evicted first, in Unix seconds."""

    def put(self, new: WireObject) -> None:
        """An object as it is now, before a view shows it."""
        if not isinstance(new, core.Pod) or not new.node_name:
            return
        evicted_at = _evicted_at(new)
        if evicted_at is None and not self._freed:
            return
        if not (place := place_of(new)):
            return
        if evicted_at is not None:
            self._freed.setdefault(place, evicted_at)
        elif self.is_freed(new) and ran(new):
            self._freed.pop(place, None)

    def is_freed(self, pod: core.Pod) -> bool:
        """Whether it came after a pod that was evicted for that, in its place."""
        evicted_at = self._freed.get(place_of(pod), inf)
        return unix_s(pod.metadata.creation_timestamp, 0.0) >= evicted_at


def _evicted_at(pod: core.Pod) -> float | None:
    """When it was evicted with our mark before it ran; None if it was not."""
    mark, disruption = pod.condition(DEVICE_FAILED), pod.condition("DisruptionTarget")
    if mark is None or mark.status != "True" or not pod.disruption or ran(pod):
        return None
    return unix_s(disruption.last_transition_time if disruption is not None else None, 0.0)
