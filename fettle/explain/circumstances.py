"""What there is to know of a pod beside each node's verdict: where it is, what holds it back, what
it holds. Pure.
"""

from collections.abc import Iterator, Mapping

from fettle.api import core, resource
from fettle.cluster import NodeView, View
from fettle.dra import allocated_devices, claim_name, entries_with_claims, is_for_entry
from fettle.model import reasons
from fettle.model.reasons import Reason
from fettle.scheduling import Demand, Verdict, is_usable

_CORDON = "node.kubernetes.io/unschedulable"
"""The taint of cordoned nodes."""


def notes(
    pod: core.Pod | None, asked: Demand | None, view: View, verdicts: Mapping[str, Verdict]
) -> Iterator[Reason]:
    """About a pod as the view has it, its demand, and the nodes' verdicts."""
    yield from _whereabouts(pod)
    yield from _holdings(pod, view)
    if pod is not None and asked is not None:
        yield from _unused(pod, asked, view, verdicts)
    yield from _ended(verdicts)


def is_cordoned(node: NodeView) -> bool:
    return any(taint.key == _CORDON for taint in node.taints)


def _whereabouts(pod: core.Pod | None) -> Iterator[Reason]:
    """What there is to know of a pod that does not wait for a node as the view has it."""
    if pod is None:
        yield reasons.PodNotInView()
    elif not pod.node_name:
        yield from _held_back(pod)
    else:
        running = pod.status is not None and pod.status.phase == "Running"
        yield reasons.PodPlaced(pod.node_name, running, any(_own(pod)))


def _held_back(pod: core.Pod) -> Iterator[Reason]:
    """Why the scheduler looks at no node for it yet, whatever the verdicts say."""
    if gates := pod.scheduling_gates:
        yield reasons.PodGated(tuple(gates))
    unmade = [e.name for e in entries_with_claims(pod) if claim_name(pod, e) is None]
    if unmade:
        yield reasons.ClaimsNotCreated(tuple(unmade))


def _own(pod: core.Pod) -> Iterator[core.PodResourceClaim]:
    """The entries of a pod whose claims are made for it alone."""
    return (entry for entry in entries_with_claims(pod) if entry.resource_claim_name is None)


def _holdings(pod: core.Pod | None, view: View) -> Iterator[reasons.PodHolds]:
    """What a pod that has a node was given by claims of its own, and by classes that stand behind
    its extended resources: the verdicts are about what another one would get."""
    node = view.nodes.get(pod.node_name) if pod is not None else None
    if pod is None or node is None:
        return
    for entry in _own(pod):
        claim = view.claims.get(f"{pod.metadata.namespace}/{claim_name(pod, entry)}")
        if claim is not None and is_for_entry(pod, entry, claim):
            yield from _held(entry.name, claim, node)
    if (claim := view.extended_claims.get(pod.metadata.uid)) is not None:
        yield from _held("", claim, node)


def _held(name: str, claim: resource.ResourceClaim, node: NodeView) -> Iterator[reasons.PodHolds]:
    """The devices of a claim, with their health; `name` is "" for extended resources."""
    known = {d.id: d.health for pool in node.pools for d in (*pool.devices, *pool.withheld)}
    for admin_access in (False, True):
        used = allocated_devices(claim) or ()
        devices = dict.fromkeys(held.device for held in used if held.admin_access is admin_access)
        if devices:
            held = tuple(reasons.HeldDevice(id_, known.get(id_)) for id_ in devices)
            yield reasons.PodHolds(name, held, admin_access)


def _unused(
    pod: core.Pod, asked: Demand, view: View, verdicts: Mapping[str, Verdict]
) -> Iterator[Reason]:
    """What becomes of claims that are allocated and that no other pod uses, where no node fits.

    `PostFilter` of the scheduler's DRA plugin: it revokes those that its filter found unusable on
    a node, of the nodes that its other filters left.
    """
    looked_at = [view.nodes[name] for name in verdicts if not is_cordoned(view.nodes[name])]
    fit = (verdicts[node.name].can_be_placed for node in looked_at)
    if pod.node_name or any(fit):
        return
    allocated = {bound.name: bound for bound in asked.bound}
    for entry in entries_with_claims(pod):
        bound = allocated.get(entry.name)
        claim = view.claims.get(f"{pod.metadata.namespace}/{claim_name(pod, entry)}")
        if bound is None or claim is None or set(claim.reserved_for) - {pod.metadata.uid}:
            continue
        if all(is_usable(bound, node) for node in looked_at):
            made = entry.resource_claim_name is None
            yield reasons.ClaimStaysAllocated(entry.name, "" if made else claim.metadata.key)
        else:
            yield reasons.ClaimWillBeReallocated(entry.name)


def _ended(verdicts: Mapping[str, Verdict]) -> Iterator[reasons.NodeEndsAttempt]:
    """Where one node is enough for the pod to be placed on none."""
    found = {
        name: error for name, verdict in verdicts.items() if (error := _error(verdict)) is not None
    }
    if found and len(found) < len(verdicts):
        first, cause = next(iter(found.items()))
        yield reasons.NodeEndsAttempt(first, len(found) - 1, cause)


def _error(verdict: Verdict) -> Reason | None:
    """What ends the scheduler's attempt in an error, if anything does."""
    errors = (r for r in verdict.rejected if isinstance(r, reasons.SchedulingError))
    return next((error.cause for error in errors), None)
