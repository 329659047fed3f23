"""The way in: each kind of object to its report.

What the fold of the inventory calls; all pure, the clock is an argument. `now` stands in for
times that the API does not give.
"""

from collections.abc import Iterable, Iterator
from functools import cache

from fettle.api import core, resource
from fettle.api.meta import ObjectMeta
from fettle.health.signals import attributes, claims, nodes, pods, rules, taints
from fettle.health.signals.claims import speaks_of_devices
from fettle.health.signals.pods import claims_meant
from fettle.health.signals.reports import SignalReport, heaviest, short
from fettle.health.signals.rules import SignalRules
from fettle.health.signals.taints import selects
from fettle.model import HOLD, DeviceId, Evidence, EvidenceKind, Family, NodeId, Subject

__all__ = [
    "claims_meant",
    "of_claim",
    "of_node",
    "of_pod",
    "of_slice",
    "of_taint_rule",
    "selects",
    "speaks_of_devices",
]

HOLD_SOURCE = f"annotation {HOLD}"


def of_node(node: core.Node, rules: SignalRules, now: float) -> SignalReport:
    """Conditions, labels, withdrawn devices, and the operator's hold."""
    said = (
        nodes.of_conditions(node, rules, now),
        nodes.of_labels(node, rules, now),
        nodes.of_gaps(node, rules, now),
    )
    name = node.metadata.name
    held = _holds(node.metadata, f"Node {name}", (NodeId(name),), now)
    info = node.status.node_info if node.status is not None else None
    return SignalReport(
        reporter=f"Node {name}",
        evidence=heaviest((*(e for part in said for e in part.evidence), *held)),
        settled=frozenset((HOLD_SOURCE,)).union(*(part.settled for part in said)),
        uid=node.metadata.uid,
        boot=info.boot_id if info is not None else "",
        of_boot=frozenset((NodeId(name), source) for source in pods.refusals_on(node)),
        left=heaviest(e for part in said for e in part.left),
        remediated=said[0].remediated,
        unheard=said[0].unheard,
    )


def of_pod(
    pod: core.Pod,
    now: float,
    find_claim: pods.Claims,
    rules: SignalRules | None = None,
    before: core.Pod | None = None,
) -> SignalReport:
    """Its devices' health, or that the kubelet refused it; of most pods, nothing.

    `find_claim` finds a ResourceClaim by `namespace/name`; `before` is the pod as it was last seen.
    Without `rules`, the shipped ones.
    """
    return pods.of_pod(pod, rules if rules is not None else _shipped(), now, find_claim, before)


def of_claim(claim: resource.ResourceClaim, rules: SignalRules, now: float) -> SignalReport:
    """What drivers say in it of the devices it holds."""
    return claims.of_claim(claim, rules, now)


def of_slice(slice_: resource.ResourceSlice, rules: SignalRules, now: float) -> SignalReport:
    """Taints of its devices, attributes that say they are ill, and the operator's hold on all."""
    reporter = f"ResourceSlice {slice_.metadata.name}"
    devices = [
        DeviceId(slice_.spec.driver, slice_.spec.pool.name, device.name)
        for device in slice_.spec.devices or ()
    ]
    tainted = taints.of_slice_taints(slice_, reporter, rules, now)
    described = attributes.of_slice_attributes(slice_, reporter, rules, now)
    held = _holds(slice_.metadata, reporter, devices, now)
    evidence = heaviest((*tainted, *described, *held))
    return SignalReport(reporter, evidence, absent_is_clear=True)


def of_taint_rule(
    rule: resource.DeviceTaintRule, devices: Iterable[DeviceId], rules: SignalRules, now: float
) -> SignalReport:
    """The rule's taint on each of `devices`, those it selects."""
    reporter = f"DeviceTaintRule {rule.metadata.name}"
    taint = rule.spec.taint
    found = (taints.of_taint(d, taint, reporter, rules, now, by_rule=True) for d in devices)
    evidence = heaviest(e for e in found if e is not None)
    return SignalReport(reporter, evidence, absent_is_clear=True)


def _holds(
    metadata: ObjectMeta, reporter: str, subjects: Iterable[Subject], now: float
) -> Iterator[Evidence]:
    reason = metadata.annotation(HOLD)
    if reason is None or reason.strip().lower() == "false":
        return
    for subject in subjects:
        yield Evidence(
            subject=subject,
            family=Family.OPERATOR,
            kind=EvidenceKind.LATCHED,
            weight=1.0,
            source=HOLD_SOURCE,
            reporter=reporter,
            text=short(f"held by an operator: {reason.strip() or 'no reason given'}"),
            observed_at=now,
        )


@cache
def _shipped() -> SignalRules:
    return rules.load()
