"""Which nodes' kubelets refused pods of a workload, for the next pods of that workload.

A kubelet that refuses one pod of a Job or ReplicaSet usually refuses the next one too, and that one
comes at once. Until the node's health shows it, the workload's own pods go elsewhere. They are only
its own word, so they count for its own pods and nobody else's (decisions 0010 and 0040).
"""

import time
from collections.abc import Callable, Mapping

import msgspec
from cachetools import LRUCache, TTLCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.api.meta import OwnerReference, unix_s
from fettle.model.reasons import KubeletRefusedWorkload, Reason
from fettle.scheduling.judge.verdicts import Verdict

KEEP_S = 600.0
"""How long a refusal counts: a Job pauses up to six minutes before it tries again."""
ANSWERED_S = 60.0
"""How long after an answer the kubelet's word on that pod is awaited."""
MOST_OWNERS = 2000
MOST_NODES = 100
"""How many nodes are remembered for one owner: the last ones."""
_OUTLIVING = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
}
"""Labels that name on each pod a workload that outlives the pod's controller, and its kind: to try
again, it makes a new Job or StatefulSet."""
_NONE: Mapping[str, Reason] = {}
_REFUSED = "UnexpectedAdmissionError"
_REJECTED = "Pod was rejected"
"""Begins the message of every refusal of a kubelet since Kubernetes 1.28."""


class OwnerRefusals:
    """Follows pods, by what manages them. `clock` is in Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._refused: LRUCache[str, dict[str, float]] = LRUCache(MOST_OWNERS)
        """For each owner, when each node last refused a pod of its; the last node comes last."""
        self._answered: TTLCache[str, None] = TTLCache(MOST_OWNERS, ANSWERED_S)

    def put(self, new: WireObject) -> None:
        """An object as it is now, before a view shows it."""
        if not isinstance(new, core.Pod) or not is_refused(new):
            return
        now, owner = self._clock(), _owner_of(new)
        at = _refused_at(new, now)
        if owner is None or now - at >= KEEP_S:
            return
        nodes = self._refused.setdefault(owner.uid, {})
        nodes[new.node_name] = max(at, nodes.pop(new.node_name, at))
        if len(nodes) > MOST_NODES:
            del nodes[next(iter(nodes))]

    def nodes_for(self, pod: core.Pod) -> Mapping[str, Reason]:
        """The nodes whose kubelets lately refused a pod of this pod's owner, each as a reason."""
        if not self._refused or (owner := _owner_of(pod)) is None:
            return _NONE
        if not (nodes := self._refused.get(owner.uid)):
            return _NONE
        since = self._clock() - KEEP_S
        return {
            name: KubeletRefusedWorkload(f"{owner.kind}/{owner.name}", at, at + KEEP_S)
            for name, at in nodes.items()
            if at > since
        }

    def answered(self, pod: core.Pod) -> None:
        """A node was found for this pod, so soon its kubelet may refuse it."""
        if (owner := _owner_of(pod)) is not None:
            self._answered[owner.uid] = None

    def may_follow(self, pod: core.Pod) -> bool:
        """Whether this pod may be in the place of one that was answered a moment ago."""
        return (owner := _owner_of(pod)) is not None and owner.uid in self._answered


def avoiding(verdicts: dict[str, Verdict], avoided: Mapping[str, Reason]) -> dict[str, Verdict]:
    """The verdicts on a pod as filter narrows them: these nodes are refused, unless the pod can be
    placed on no other one; then the reason is a note."""
    known = [name for name in avoided if name in verdicts]
    refuses = bool(known) and any(
        verdict.can_be_placed for name, verdict in verdicts.items() if name not in avoided
    )
    return verdicts | {name: _avoided(verdicts[name], avoided[name], refuses) for name in known}


def _avoided(verdict: Verdict, reason: Reason, refuses: bool) -> Verdict:
    if not refuses:
        return msgspec.structs.replace(verdict, notes=(*verdict.notes, reason))
    refusals = (*verdict.refusals, reason)
    return msgspec.structs.replace(verdict, fits=False, score=0, refusals=refusals)


def is_refused(pod: core.Pod) -> bool:
    """Whether the kubelet of its node refused the pod: none of its containers ever started."""
    status = pod.status
    if status is None or status.phase != "Failed" or not pod.node_name:
        return False
    return status.reason == _REFUSED or status.message.startswith(_REJECTED)


def _refused_at(pod: core.Pod, now: float) -> float:
    """When, by the node's clock as far as that is possible."""
    created = unix_s(pod.metadata.creation_timestamp, 0.0)
    started = pod.status.start_time if pod.status is not None else None
    return min(max(created, unix_s(started, created)), now)


def _owner_of(pod: core.Pod) -> OwnerReference | None:
    """A workload that outlives the pod's controller, else that; None if the pod is alone."""
    metadata = pod.metadata
    for label, kind in _OUTLIVING.items():
        # A tenant may write a label, but only its own namespace can be meant by it.
        if name := metadata.label(label):
            uid = f"{metadata.namespace}/{kind}/{name}"
            return OwnerReference(kind=kind, name=name, uid=uid)
    return metadata.controller
