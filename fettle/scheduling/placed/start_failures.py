"""Pods that do not start on their node, by the node's fault, and since when; and which of them come
after one that was evicted for that. Pure, but for who asks.

What counts is what the kubelet or a driver says of the pod's own devices, or a proven fault of
them. What other pods meet on the node counts never, so nobody's pods decide about somebody else's
(decision 0093). Stands between the failed starts of the view and what the steward does about them.
"""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from cachetools import TTLCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.api.meta import unix_s
from fettle.cluster import View
from fettle.model import DEVICE_FAILED
from fettle.model.reasons import PodDoesNotStart, Reason, StuckIn
from fettle.pacing import pause, run_within
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import resolve_policy
from fettle.scheduling.former_nodes import KEEP_S, MOST_PLACES, place_of
from fettle.scheduling.placed.at_risk import AtRisk, PlacedPod
from fettle.scheduling.placed.stuck_pods import stuck
from fettle.scheduling.waits import bound_at


class StartFailure(NamedTuple):
    """A pod that does not start on its node, and why, since `began_at` in Unix seconds."""

    placed: PlacedPod
    why: Reason
    began_at: float

    @property
    def pod(self) -> core.Pod:
        return self.placed.pod

    @property
    def due_at(self) -> float:
        """When its policy lets it be evicted for that."""
        return self.began_at + (self.placed.policy.failure.start_deadline_s or 0.0)


async def find_start_failures(answers: Answers, at_risk: AtRisk, now: float) -> list[StartFailure]:
    """In the newest view, the pods whose policy has a deadline for it. `now` is in Unix seconds."""
    view = answers.view
    said = await run_within(None, lambda: dict(_said(answers, view)))
    found = [
        StartFailure(one, said[one.key], max(said[one.key].since, bound_at(one.pod)))
        for one in await at_risk.placed([view.pods[key] for key in said])
    ]

    def by_proof() -> Iterator[StartFailure]:
        for key, placed in at_risk.found.items():
            pause()
            if key in said or placed.policy.failure.start_deadline is None or ran(placed.pod):
                continue
            why = stuck(placed, now)
            if why is not None and why.stuck_in is StuckIn.CREATING:
                yield StartFailure(placed, why, why.since)

    return found + await run_within(None, lambda: [*by_proof()])


def _said(answers: Answers, view: View) -> Iterator[tuple[str, PodDoesNotStart]]:
    """By pod, what is said of its devices, where its workload is not the likely cause."""
    for key, start in view.failed_starts.items():
        pause()
        pod = view.pods.get(key)
        if pod is None or pod.metadata.uid != start.pod.metadata.uid or ran(pod):
            continue
        if start.is_over or start.blamed or not start.message:
            continue
        policy = resolve_policy(pod, view, answers.policies).policy
        if policy.failure.start_deadline is not None:
            yield key, PodDoesNotStart(start.message, start.at)


def ran(pod: core.Pod) -> bool:
    """Whether one of its containers has run, but for init containers: then it did start."""
    statuses = (pod.status.container_statuses if pod.status is not None else None) or ()
    return any(map(_ran, statuses))


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
        if not isinstance(new, core.Pod) or not new.node_name or not (place := place_of(new)):
            return
        if (evicted_at := _evicted_at(new)) is not None:
            self._freed.setdefault(place, evicted_at)
        elif self.is_freed(new) and ran(new):
            del self._freed[place]

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
