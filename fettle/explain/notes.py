"""Notes about a pod besides each node's verdict: where it is, what holds it back, what it holds.

The notes are reasons, which `wording` turns into sentences. Pure.
"""

from collections.abc import Iterator, Mapping

from fettle.api import core, resource
from fettle.api.meta import rfc3339
from fettle.cluster import NodeView, View
from fettle.dra import allocated_devices, claim_name, entries_with_claims, is_for_entry
from fettle.model import DEVICE_FAILED, reasons
from fettle.model.reasons import Reason
from fettle.scheduling import Demand, Verdict, is_usable
from fettle.scheduling.placed import FinishedPod

_CORDON = "node.kubernetes.io/unschedulable"
"""The taint of cordoned nodes."""


def notes_about(
    pod: core.Pod | None,
    demand: Demand | None,
    view: View,
    verdicts: Mapping[str, Verdict],
    finished: FinishedPod | None = None,
) -> Iterator[Reason]:
    """Notes about a pod as the view has it, or as it `finished`, its demand, and the nodes'
    verdicts."""
    if pod is None and finished is not None:
        yield _how_it_finished(finished)
    else:
        yield from _whereabouts(pod)
    yield from _mark(pod, finished)
    yield from _holdings(pod, view)
    if pod is not None and demand is not None:
        yield from _unused_claims(pod, demand, view, verdicts)
    yield from _errors(verdicts)


def _mark(pod: core.Pod | None, finished: FinishedPod | None) -> Iterator[reasons.PodMarked]:
    """That the pod's device has failed, as the pod itself says."""
    if pod is None and finished is not None:
        pod = finished.pod
    found = pod.condition(DEVICE_FAILED) if pod is not None else None
    if found is not None and found.status == "True":
        yield reasons.PodMarked(found.reason, found.message, rfc3339(found.last_transition_time))


def is_cordoned(node: NodeView) -> bool:
    return any(taint.key == _CORDON for taint in node.taints)


def _whereabouts(pod: core.Pod | None) -> Iterator[Reason]:
    """Where a pod is, or why the scheduler does not try it yet."""
    if pod is None:
        yield reasons.PodNotInView()
    elif not pod.node_name:
        yield from _held_back(pod)
    else:
        running = pod.status is not None and pod.status.phase == "Running"
        yield reasons.PodPlaced(pod.node_name, running, any(_own_entries(pod)))


def _how_it_finished(finished: FinishedPod) -> reasons.PodFinished:
    pod, status = finished.pod, finished.pod.status or core.PodStatus()
    ended = (c.last_transition_time for c in status.conditions or () if c.type == "Ready")
    at = next(ended, None) or status.start_time
    return reasons.PodFinished(
        status.phase,
        pod.node_name,
        status.reason,
        status.message,
        rfc3339(at),
        tuple(held.device for bound in finished.claims for held in bound.held),
        finished.units,
    )


def _held_back(pod: core.Pod) -> Iterator[Reason]:
    """Why the scheduler does not try the pod yet, whatever the verdicts say."""
    if gates := pod.scheduling_gates:
        yield reasons.PodGated(tuple(gates))
    unmade = [e.name for e in entries_with_claims(pod) if claim_name(pod, e) is None]
    if unmade:
        yield reasons.ClaimsNotCreated(tuple(unmade))


def _own_entries(pod: core.Pod) -> Iterator[core.PodResourceClaim]:
    """The pod's entries whose claims are made for it alone."""
    return (entry for entry in entries_with_claims(pod) if entry.resource_claim_name is None)


def _holdings(pod: core.Pod | None, view: View) -> Iterator[reasons.PodHolds]:
    """The devices that a placed pod holds by its own claims and for its extended resources."""
    # Needed beside the verdicts, which are about another pod like it.
    node = view.nodes.get(pod.node_name) if pod is not None else None
    if pod is None or node is None:
        return
    for entry in _own_entries(pod):
        claim = view.claims.get(f"{pod.metadata.namespace}/{claim_name(pod, entry)}")
        if claim is not None and is_for_entry(pod, entry, claim):
            yield from _held_by(entry.name, claim, node)
    if (claim := view.extended_claims.get(pod.metadata.identity)) is not None:
        yield from _held_by("", claim, node)


def _held_by(
    name: str, claim: resource.ResourceClaim, node: NodeView
) -> Iterator[reasons.PodHolds]:
    """The devices of a claim, with their health; `name` is "" for extended resources."""
    known = {d.id: d.health for pool in node.pools for d in (*pool.devices, *pool.withheld)}
    for admin_access in (False, True):
        used = allocated_devices(claim) or ()
        devices = dict.fromkeys(held.device for held in used if held.admin_access is admin_access)
        if devices:
            held = tuple(reasons.HeldDevice(id_, known.get(id_)) for id_ in devices)
            yield reasons.PodHolds(name, held, admin_access)


def _unused_claims(
    pod: core.Pod, demand: Demand, view: View, verdicts: Mapping[str, Verdict]
) -> Iterator[Reason]:
    """If no node fits: what happens to allocated claims that no other pod uses."""
    # `PostFilter` of the scheduler's DRA plugin deallocates claims that its filter found unusable
    # on a node. It looks only at nodes that the other filters left.
    looked_at = [view.nodes[name] for name in verdicts if not is_cordoned(view.nodes[name])]
    fit = (verdicts[node.name].can_be_placed for node in looked_at)
    if pod.node_name or any(fit):
        return
    allocated = {bound.name: bound for bound in demand.bound}
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


def _errors(verdicts: Mapping[str, Verdict]) -> Iterator[reasons.NodeEndsAttempt]:
    """A note if an error on one node keeps the pod off all others."""
    found = {
        name: error for name, verdict in verdicts.items() if (error := _error(verdict)) is not None
    }
    if found and len(found) < len(verdicts):
        first, cause = next(iter(found.items()))
        yield reasons.NodeEndsAttempt(first, len(found) - 1, cause)


def _error(verdict: Verdict) -> Reason | None:
    """The cause of an error that ends the scheduler's attempt on a node, if there is one."""
    errors = (r for r in verdict.rejected if isinstance(r, reasons.SchedulingError))
    return next((error.cause for error in errors), None)
