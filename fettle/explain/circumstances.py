"""What there is to know of a pod beside each node's verdict: where it is, what holds it back, what
it holds. Sentences for people; pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fettle.api import core, resource
from fettle.cluster import NodeView, View
from fettle.dra import ENDS_IN_AN_ERROR, claims
from fettle.dra import pod_claims as entries
from fettle.scheduling import Demand, acceptance, claimed

Answer = Mapping[str, Any]
"""A node's verdict, as `explain` makes it."""
_CORDON = "node.kubernetes.io/unschedulable"
"""The taint of cordoned nodes."""
NOT_IN_VIEW = (
    "the pod was deleted, is finished, or has not been seen yet: this is about the pod as the "
    "scheduler last sent it"
)


def notes(
    pod: core.Pod | None, asked: Demand | None, view: View, nodes: Mapping[str, Answer]
) -> Iterator[str]:
    """About a pod as the view has it, its ask, and the nodes' answers as `explain` makes them."""
    yield from _whereabouts(pod)
    yield from _holdings(pod, view)
    if pod is not None and asked is not None:
        yield from _unused(pod, asked, view, nodes)
    yield from _ended(nodes)


def is_cordoned(node: NodeView) -> bool:
    return any(taint.key == _CORDON for taint in node.taints)


def _whereabouts(pod: core.Pod | None) -> Iterator[str]:
    """What there is to know of a pod that does not wait for a node as the view has it."""
    if pod is None:
        yield NOT_IN_VIEW
    elif not pod.node_name:
        yield from _held_back(pod)
    else:
        runs = pod.status is not None and pod.status.phase == "Running"
        where = "runs on" if runs else "is bound to"
        yet = "" if runs else " and does not run yet"
        new = ", which gets claims of its own" if any(_own(pod)) else ""
        yield (
            f"the pod {where} {pod.node_name}{yet}: the verdicts are for another pod like it{new}"
        )


def _held_back(pod: core.Pod) -> Iterator[str]:
    """Why the scheduler looks at no node for it yet, whatever the verdicts say."""
    if gates := pod.scheduling_gates:
        yield (
            f"the pod has scheduling gates ({', '.join(gates)}): the scheduler does not look at it "
            "before they are removed"
        )
    unmade = [e.name for e in entries.needed(pod) if entries.claim_name(pod, e) is None]
    if unmade:
        yield (
            f"the ResourceClaim for {', '.join(unmade)} has not been made from its template yet, "
            "for which the scheduler waits: events of the pod say why, such as a quota"
        )


def _own(pod: core.Pod) -> Iterator[core.PodResourceClaim]:
    """The entries of a pod whose claims are made for it alone."""
    return (entry for entry in entries.needed(pod) if entry.resource_claim_name is None)


def _holdings(pod: core.Pod | None, view: View) -> Iterator[str]:
    """What a pod that has a node was given by claims of its own, and by classes that stand behind
    its extended resources: the verdicts are about what another one would get."""
    node = view.nodes.get(pod.node_name) if pod is not None else None
    if pod is None or node is None:
        return
    for entry in _own(pod):
        claim = view.claims.get(f"{pod.metadata.namespace}/{entries.claim_name(pod, entry)}")
        if claim is not None and entries.is_for(pod, entry, claim):
            yield from _held(f"its claim {entry.name}", claim, node)
    if (claim := view.extended_claims.get(pod.metadata.uid)) is not None:
        yield from _held("its extended resources", claim, node)


def _held(what: str, claim: resource.ResourceClaim, node: NodeView) -> Iterator[str]:
    """The devices of a claim with their health."""
    known = {d.id: d.health for pool in node.pools for d in (*pool.devices, *pool.withheld)}
    for has, admin_access in (("holds", False), ("has admin access to", True)):
        used = claims.uses(claim) or ()
        devices = dict.fromkeys(held.device for held in used if held.admin_access is admin_access)
        told = (
            f"{id_}, {acceptance.describe_health(known[id_].state, known[id_])}"
            if id_ in known
            else f"{id_}, which is not published for this node"
            for id_ in devices
        )
        if devices:
            yield f"for {what} it {has} {'; '.join(told)}"


def _unused(pod: core.Pod, asked: Demand, view: View, nodes: Mapping[str, Answer]) -> Iterator[str]:
    """What becomes of claims that are allocated and that no other pod uses, where no node fits.

    `PostFilter` of the scheduler's DRA plugin: it revokes those that its filter found unusable on
    a node, of the nodes that its other filters left.
    """
    looked_at = [view.nodes[name] for name in nodes if not is_cordoned(view.nodes[name])]
    if pod.node_name or any(nodes[node.name]["fits"] for node in looked_at):
        return
    allocated = {bound.name: bound for bound in asked.bound}
    for entry in entries.needed(pod):
        bound = allocated.get(entry.name)
        claim = view.claims.get(f"{pod.metadata.namespace}/{entries.claim_name(pod, entry)}")
        if bound is None or claim is None or set(claim.reserved_for) - {pod.metadata.uid}:
            continue
        if all(claimed.is_usable(bound, node) for node in looked_at):
            made = entry.resource_claim_name is None
            what = "the pod" if made else f"ResourceClaim {claim.metadata.key}"
            yield (
                f"claim {entry.name} is allocated and no other pod uses it, but the scheduler "
                "revokes that only if it looks at a node where the claim cannot be used, and there "
                f"is none: delete {what} and create it again to have it anew"
            )
        else:
            yield (
                f"claim {entry.name} is allocated and no other pod uses it: as no node fits, the "
                "scheduler revokes the allocation and allocates again, unless taints, node "
                "selectors or a lack of cpu or memory keep the pod off the other nodes anyway"
            )


def _ended(nodes: Mapping[str, Answer]) -> Iterator[str]:
    """Where one node is enough for the pod to be placed on none."""
    found = {
        name: why
        for name, node in nodes.items()
        for why in node["unfit"]
        if ENDS_IN_AN_ERROR in why
    }
    if found and len(found) < len(nodes):
        first, why = next(iter(found.items()))
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        cause = why.partition(f"{ENDS_IN_AN_ERROR}: ")[2] or why
        yield (
            f"node {first}{more} can keep the pod off all other nodes: if the scheduler looks at "
            f"it, its attempt to place the pod ends in an error: {cause}"
        )
