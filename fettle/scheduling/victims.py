"""What victims of a preemption leave behind: the devices of claims that nobody else has reserved.

The scheduler names its victims before it evicts them. Once they are gone, a claim that only they
had reserved is deleted, if it was made for one of them, or else deallocated; one that some other
pod has reserved stays as it is. Stands between view and verdict; pure.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping

import msgspec

from fettle.api import core, resource
from fettle.cluster import NodeView, View
from fettle.dra import claim_name, entries_with_claims, held_devices, with_released
from fettle.pacing import pause

PIECE = 16
"""Objects looked at between two pauses."""

Claims = Mapping[str, resource.ResourceClaim]


class VictimsByNode:
    """The victims on each node, by their UIDs. Those that the view does not know hold nothing."""

    def __init__(self, view: View, by_node: Mapping[str, Collection[str]]) -> None:
        self._view = view
        self._by_node = {name: frozenset(uids) for name, uids in by_node.items()}
        wanted = frozenset[str]().union(*self._by_node.values())
        self._reserved: dict[str, list[resource.ResourceClaim]] = defaultdict(list)
        for looked_at, claim in enumerate(view.claims.values()):
            for uid in claim.reserved_for & wanted:
                self._reserved[uid].append(claim)
            if looked_at % PIECE == 0:
                pause()

    def left(self, name: str) -> Claims:
        """The claims, by key, that are reserved for nobody once a node's victims are gone."""
        gone = self._by_node[name]
        theirs = (claim for uid in gone for claim in self._reserved.get(uid, ()))
        return {claim.metadata.key: claim for claim in theirs if claim.reserved_for <= gone}


def lower(view: View, pod: core.Pod) -> Mapping[str, list[core.Pod]]:
    """The pods with devices that a waiting pod may preempt, by node."""
    found: dict[str, list[core.Pod]] = defaultdict(list)
    if pod.node_name or not pod.preempts:
        return found
    for looked_at, other in enumerate(view.pods.values()):
        if other.node_name and other.priority < pod.priority:
            found[other.node_name].append(other)
        if looked_at % PIECE == 0:
            pause()
    return found


def emptied(node: NodeView, left: Claims) -> NodeView:
    """The node once these claims hold nothing."""
    held = [one for claim in left.values() for one in held_devices(claim) or ()]
    return msgspec.structs.replace(node, pools=with_released(node.pools, held)) if held else node


def deallocated(view: View, pod: core.Pod, left: Claims) -> View | None:
    """The view to ask for the pod in, where some of its own claims are among these; else None."""
    own = _own(view, pod)
    if own.keys().isdisjoint(left):
        return None
    anew = {
        key: msgspec.structs.replace(claim, status=None) if key in left else claim
        for key, claim in own.items()
    }
    return msgspec.structs.replace(view, claims=anew)


def _own(view: View, pod: core.Pod) -> Claims:
    names = (claim_name(pod, entry) for entry in entries_with_claims(pod))
    keys = (f"{pod.metadata.namespace}/{name}" for name in names)
    return {key: view.claims[key] for key in keys if key in view.claims}
