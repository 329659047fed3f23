"""Which nodes do not suit a workload: their kubelets refused its pods, or the pods do not start.

A kubelet that refuses one pod of a Job or ReplicaSet usually refuses the next one too, and that one
comes at once. Whether or not the node's health shows it, the workload's own pods go elsewhere. They
are only its own word, so they count for its own pods and nobody else's (decisions 0010, 0040 and
0054).
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from cachetools import LRUCache, TTLCache

from fettle.api import core, known_as
from fettle.api.kinds import WireObject
from fettle.api.meta import OwnerReference, unix_s
from fettle.model.reasons import KubeletRefusedWorkload, PodsDoNotStart, Reason
from fettle.scheduling.judge.verdicts import Verdict

KEEP_S = 600.0
"""How long a node is avoided: a Job pauses up to six minutes before it tries again. Also the
half-life of what it loses of its score, from all of it at first."""
NEGLIGIBLE = 0.05
"""The share of a score that is not worth the trouble."""
ANSWERED_S = 60.0
"""How long after an answer the kubelet's word on that pod is awaited."""
MOST_OWNERS = 2000
MOST_NODES = 100
"""How many nodes are remembered for one owner: the last ones."""
_NOBODY = OwnerReference()
_NONE: Mapping[str, Reason] = {}
_ALL: Mapping[str, float] = {}
_REFUSED = frozenset(("UnexpectedAdmissionError", "TopologyAffinityError"))
_REJECTED = "Pod was rejected"
"""Begins the message of every refusal of a kubelet since Kubernetes 1.28."""


class _Last(NamedTuple):
    """When a node last refused or failed a workload, and which of the two it was."""

    at: float
    reason: type[KubeletRefusedWorkload | PodsDoNotStart]


class OwnerRefusals:
    """Follows pods, by what they have in common with the next ones. `clock` is in Unix seconds."""

    def __init__(
        self, clock: Callable[[], float] = time.time, most_owners: int = MOST_OWNERS
    ) -> None:
        self._clock = clock
        self._refused: LRUCache[str, dict[str, _Last]] = LRUCache(most_owners)
        """For each owner, what each node last did to a pod of its; the last node comes last."""
        self._given_nodes: TTLCache[str, str] = TTLCache(most_owners, ANSWERED_S)
        """For each owner, the UID of the pod that was given nodes last."""

    def observe(self, new: WireObject) -> None:
        """An object as it is now, before a view shows it."""
        if not isinstance(new, core.Pod) or not is_refused(new):
            return
        at = refused_at(new, self._clock())
        self._note(known_as(new), new.node_name, _Last(at, KubeletRefusedWorkload))

    def does_not_start(self, workload: OwnerReference, node: str, at: float) -> None:
        """A pod of the workload did not start on the node."""
        self._note(workload, node, _Last(at, PodsDoNotStart))

    def _note(self, owner: OwnerReference, node: str, last: _Last) -> None:
        if self._clock() - last.at >= KEEP_S:
            return
        nodes = self._refused.setdefault(owner.uid, {})
        nodes[node] = max(last, nodes.pop(node, last), key=lambda one: one.at)
        if len(nodes) > MOST_NODES:
            del nodes[next(iter(nodes))]

    def nodes_for(self, pod: core.Pod) -> Mapping[str, Reason]:
        """The nodes that lately refused or failed a pod of this pod's owner, each as a reason."""
        owner, nodes = self._about(pod)
        if not nodes:
            return _NONE
        since = self._clock() - KEEP_S
        return {
            name: last.reason(f"{owner.kind}/{owner.name}", last.at, last.at + KEEP_S)
            for name, last in nodes.items()
            if last.at > since
        }

    def shares_for(self, pod: core.Pod) -> Mapping[str, float]:
        """What each such node keeps of its score: nothing as long as it is avoided, then more and
        more. Nodes that are not listed keep all."""
        _, nodes = self._about(pod)
        return self.shares_since({n: last.at for n, last in nodes.items()}) if nodes else _ALL

    def shares_since(self, failed: Mapping[str, float]) -> Mapping[str, float]:
        """The same for nodes that failed the pod at these times."""
        now = self._clock()
        lost = {name: 2 ** ((at - now) / KEEP_S) for name, at in failed.items()}
        return {
            name: 0.0 if share > 0.5 else 1.0 - share
            for name, share in lost.items()
            if share > NEGLIGIBLE
        }

    def _about(self, pod: core.Pod) -> tuple[OwnerReference, Mapping[str, _Last]]:
        if not self._refused:
            return _NOBODY, {}
        owner = known_as(pod)
        return owner, self._refused.get(owner.uid) or {}

    def note_nodes_given(self, pod: core.Pod) -> None:
        """Filter gave this pod nodes, so soon a kubelet may refuse it."""
        self._given_nodes[known_as(pod).uid] = pod.metadata.uid

    def may_replace_another(self, pod: core.Pod) -> bool:
        """Whether this pod may be in the place of one that was given nodes a moment ago."""
        before = self._given_nodes.get(known_as(pod).uid)
        return before is not None and before != pod.metadata.uid


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
    return status.reason in _REFUSED or status.message.startswith(_REJECTED)


def refused_at(pod: core.Pod, now: float) -> float:
    """When, by the node's clock as far as that is possible."""
    created = unix_s(pod.metadata.creation_timestamp, 0.0)
    started = pod.status.start_time if pod.status is not None else None
    return min(max(created, unix_s(started, created)), now)
