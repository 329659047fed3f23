"""What there is to know of a pod beside each node's verdict: where it is, what holds it back, what
it holds. Sentences for people; pure.
"""

from collections.abc import Iterator
from typing import Any

from fettle.asks import claims, entries
from fettle.asks.allocated import ENDS_IN_AN_ERROR
from fettle.verdicts import acceptance
from fettle.view import View
from fettle.wire import core

NOT_IN_VIEW = (
    "the pod was deleted, is finished, or has not been seen yet: this is about the pod as the "
    "scheduler last sent it"
)


def notes(pod: core.Pod | None, view: View, nodes: dict[str, dict[str, Any]]) -> Iterator[str]:
    """About a pod as the view has it, and its nodes' answers as `explain` makes them."""
    yield from _whereabouts(pod)
    yield from _backed(pod, view)
    yield from _ended(nodes)


def _whereabouts(pod: core.Pod | None) -> list[str]:
    """What there is to know of a pod that does not wait for a node as the view has it."""
    if pod is None:
        return [NOT_IN_VIEW]
    if not pod.node_name:
        return [*_held_back(pod)]
    runs = pod.status is not None and pod.status.phase == "Running"
    where = (
        f"runs on {pod.node_name}" if runs else f"is bound to {pod.node_name} and does not run yet"
    )
    return [f"the pod {where}: the verdicts are for another pod like it"]


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


def _backed(pod: core.Pod | None, view: View) -> Iterator[str]:
    """What a pod that has a node was given by classes that stand behind its extended resources:
    the verdicts, which are about units, do not say so."""
    claim = view.extended_claims.get(pod.metadata.uid) if pod is not None else None
    if pod is None or claim is None:
        return
    node = view.nodes.get(pod.node_name)
    held = dict.fromkeys(held.device for held in claims.uses(claim) or ())
    if node is None or not held:
        return
    known = {d.id: d.health for pool in node.pools for d in (*pool.devices, *pool.withheld)}
    devices = [
        f"{id_}, {acceptance.told(known[id_].state, known[id_])}"
        if id_ in known
        else f"{id_}, which is not published for this node"
        for id_ in held
    ]
    yield f"for its extended resources it holds {'; '.join(devices)}"


def _ended(nodes: dict[str, dict[str, Any]]) -> Iterator[str]:
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
        yield (
            f"the pod is placed nowhere, wherever it fits, once the scheduler looks at node {first}"
            f"{more}: {why}"
        )
