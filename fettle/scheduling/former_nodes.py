"""Where the pods of a workload ran before, so that one that comes back finds its way.

A node where a pod ran has its images and caches; one where it failed may have a fault that nobody
sees. Which pod comes back is known by its workload and its index or, where its controller gives it
a lasting one, its name. Pods without either take the place of any pod that has left. After a
restart this is what the API still shows.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cachetools import LRUCache

from fettle.api import core, workload_of
from fettle.api.annotations import COMPLETION_INDEX
from fettle.api.kinds import WireObject
from fettle.api.meta import unix_s
from fettle.cluster import View
from fettle.dra import uses_devices
from fettle.model import DEVICE_FAILED
from fettle.scheduling.owner_refusals import is_refused

KEEP_S = 86_400.0
"""How long a node is remembered as one where a pod ran."""
MOST_PLACES = 20_000
MOST_NODES = 32
"""How many nodes are remembered for one place of a workload: the last ones."""


class FormerStay(NamedTuple):
    """A pod's time on a node: which pod (`namespace/name`), when it was last seen or failed there,
    in Unix seconds, and whether it failed or was failing. `on_failed_device`: Fettle told it of its
    device, so it failed there, however it ended."""

    pod: str
    uid: str
    at: float
    failed: bool = False
    on_failed_device: bool = False


_NONE: Mapping[str, FormerStay] = {}


class FormerNodes:
    """Follows pods with devices. `clock` is in Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._stays: LRUCache[str, dict[str, FormerStay]] = LRUCache(MOST_PLACES)
        """For each place of a workload, the last stay on each node; the last node comes last."""

    def observe(self, new: WireObject) -> None:
        """An object as it is now, before a view shows it."""
        if not isinstance(new, core.Pod) or not new.node_name or not uses_devices(new):
            return
        if is_refused(new) or not (place := place_of(new)):
            return
        nodes = self._stays.setdefault(place, {})
        metadata, now = new.metadata, self._clock()
        before = nodes.pop(new.node_name, None)
        mark = new.condition(DEVICE_FAILED)
        on_failed_device = mark is not None and mark.status == "True"
        if on_failed_device:
            failed = True
        elif metadata.deletion_timestamp is not None:  # by then a kubelet ends it, often as Failed
            failed = before is not None and before.uid == metadata.uid and before.failed
        else:
            failed = _fails(new)
        at = _ended_at(new, now) if failed else now
        nodes[new.node_name] = FormerStay(metadata.key, metadata.uid, at, failed, on_failed_device)
        if len(nodes) > MOST_NODES:
            del nodes[next(iter(nodes))]

    def of(self, pod: core.Pod, view: View) -> Mapping[str, FormerStay]:
        """By node: the last stay there of a pod in whose place this one comes, the last one last;
        not of pods that are still there."""
        nodes = self._stays.get(place_of(pod)) if self._stays else None
        if not nodes:
            return _NONE
        since = self._clock() - KEEP_S
        return {
            node: stay
            for node, stay in nodes.items()
            if stay.at > since and (stay.failed or not _is_there(stay, pod, view))
        }


def place_of(pod: core.Pod) -> str:
    """What a pod has in common with the one that comes after it; "" if none does."""
    if (workload := workload_of(pod)) is None:
        return ""
    metadata = pod.metadata
    controller = metadata.controller
    index = pod.annotation(COMPLETION_INDEX)
    if index is not None and controller is not None:
        return f"{workload.uid}/{controller.name}/{index}"  # a JobSet has several Jobs
    if not metadata.generate_name or (controller is not None and controller.kind == "StatefulSet"):
        return f"{workload.uid}/{metadata.name}"
    return f"{workload.uid}/"


def _is_there(stay: FormerStay, pod: core.Pod, view: View) -> bool:
    """Whether a stay lasts, as far as the view shows; a pod of the same name or index is proof that
    not."""
    is_only_one = stay.pod == pod.metadata.key or pod.annotation(COMPLETION_INDEX)
    if is_only_one and stay.uid != pod.metadata.uid:
        return False
    known = view.pods.get(stay.pod)
    return (
        known is not None
        and known.metadata.uid == stay.uid
        and known.metadata.deletion_timestamp is None
    )


def _fails(pod: core.Pod) -> bool:
    """Whether the pod failed, other than by a disruption, or a container fails again and again."""
    status = pod.status
    if status is None:
        return False
    if status.phase == "Failed":
        return not pod.disruption
    return any(
        one.state is not None
        and one.state.waiting is not None
        and one.state.waiting.reason == "CrashLoopBackOff"
        for one in pod.container_statuses()
    )


def _ended_at(pod: core.Pod, now: float) -> float:
    """When the pod last changed, as far as its conditions say."""
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    told = max((unix_s(c.last_transition_time, 0.0) for c in conditions), default=0.0)
    return min(now, told or now)
