"""What a ResourceClaim says of the devices it holds, by the conditions in `status.devices`; and
what a ComputeDomain says of the nodes that it joins.

Drivers write the conditions. The rules say what `Ready` and others mean, with their polarity. A
binding failure condition needs no rule, since the driver declared it. A claim's own configuration
can cause most of these conditions, so they count as evidence from its namespace.

A node is not ready while its domain forms, too, and whoever may create pods can bring that about.
The status has no time that would tell the two apart. So this is mild evidence from the domain's
namespace, over once the node is ready or the domain is gone.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fettle.api import kinds, resource
from fettle.api.meta import Condition, unix_s
from fettle.health.signals.reports import SignalReport, heaviest, one_line
from fettle.health.signals.rule_rows import rule_of
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import (
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Subject,
)

_NOT_READY = "NotReady"


class _Meaning(NamedTuple):
    """What a condition means if it is faulty."""

    is_faulty: bool
    family: Family
    kind: EvidenceKind
    weight: float
    tenant_caused: bool
    rule: Source | None = None


def has_device_status(claim: resource.ResourceClaim | None) -> bool:
    return claim is not None and claim.status is not None and bool(claim.status.devices)


def report_of_claim(claim: resource.ResourceClaim, rules: SignalRules, now: float) -> SignalReport:
    """Faults of allocated devices, and all-clears where a driver says that they are over."""
    evidence: list[Evidence] = []
    cleared: set[tuple[Subject, Source]] = set()
    for device, condition, meaning in _conditions(claim, rules):
        if meaning.is_faulty:
            evidence.append(_evidence(claim, device, condition, meaning, rules, now))
        else:
            cleared.add((device, _source(condition)))
    still = {(e.subject, e.source) for e in evidence}
    return SignalReport(
        reporter=ReporterId(kinds.CLAIM.name, claim.metadata.key),
        evidence=heaviest(evidence),
        cleared=frozenset(cleared - still),
        uid=claim.metadata.uid,
    )


def _conditions(
    claim: resource.ResourceClaim, rules: SignalRules
) -> Iterator[tuple[DeviceId, Condition, _Meaning]]:
    """Conditions that are True or False and that a rule or the claim's allocation gives a
    meaning."""
    failures = _binding_failures(claim)
    for status in (claim.status.devices if claim.status is not None else None) or ():
        device = DeviceId(status.driver, status.pool, status.device)
        for condition in status.conditions or ():
            if condition.status in ("True", "False"):
                meaning = _meaning(device, condition, failures.get(device, frozenset()), rules)
                if meaning is not None:
                    yield device, condition, meaning


def _binding_failures(claim: resource.ResourceClaim) -> dict[DeviceId, frozenset[str]]:
    allocation = claim.status.allocation if claim.status is not None else None
    devices = allocation.devices if allocation is not None else None
    return {
        DeviceId(r.driver, r.pool, r.device): frozenset(r.binding_failure_conditions)
        for r in (devices.results if devices is not None else None) or ()
        if r.binding_failure_conditions
    }


def _meaning(
    device: DeviceId, condition: Condition, failures: frozenset[str], rules: SignalRules
) -> _Meaning | None:
    if condition.type in failures:
        signal = rules.signals["binding-failed"]
        return _Meaning(
            condition.status == "True",
            signal.family,
            EvidenceKind.LEVEL,
            signal.weight,
            tenant_caused=True,
        )
    row = rules.device_condition(device.driver, condition.type, condition.reason)
    if row is None:
        return None
    is_faulty = condition.status == ("True" if row.faulty else "False")
    rule = rule_of(SourceKind.CLAIM_CONDITION, row.type)
    return _Meaning(is_faulty, row.family, row.kind, row.weight, row.tenant_caused, rule)


def _source(condition: Condition) -> Source:
    return Source(SourceKind.CLAIM_CONDITION, condition.type)


def _evidence(
    claim: resource.ResourceClaim,
    device: DeviceId,
    condition: Condition,
    meaning: _Meaning,
    rules: SignalRules,
    now: float,
) -> Evidence:
    bound = rules.signals["tenant-caused"]
    weight = min(meaning.weight, bound.cap) if meaning.tenant_caused else meaning.weight
    detail = f" ({condition.reason})" if condition.reason else ""
    message = f": {condition.message}" if condition.message else ""
    statement = f"{device.driver} says {condition.type} is {condition.status}{detail}"
    return Evidence(
        subject=device,
        family=meaning.family,
        kind=meaning.kind,
        weight=weight,
        source=_source(condition),
        rule=meaning.rule,
        reporter=ReporterId(kinds.CLAIM.name, claim.metadata.key),
        said=one_line(f"{statement} in claim {claim.metadata.key}{message}"),
        observed_at=unix_s(condition.last_transition_time, now),
        half_life_s=rules.half_life_s(meaning.family),
        cap=bound.cap if meaning.tenant_caused else 1.0,
        reporting_namespace=claim.metadata.namespace if meaning.tenant_caused else "",
        together=bound.together if meaning.tenant_caused else 1.0,
    )


def report_of_compute_domain(
    domain: resource.ComputeDomain, rules: SignalRules, now: float
) -> SignalReport:
    """The nodes on which the domain's daemon is not ready."""
    key = domain.metadata.key
    who = ReporterId(kinds.COMPUTE_DOMAIN.name, key)
    signal, bound = rules.signals["domain-not-ready"], rules.signals["tenant-caused"]
    evidence = (
        Evidence(
            subject=NodeId(node.name),
            family=signal.family,
            kind=EvidenceKind.LEVEL,
            weight=min(signal.weight, bound.cap),
            source=Source(SourceKind.COMPUTE_DOMAIN),
            reporter=who,
            said=one_line(f"not ready in ComputeDomain {key}"),
            observed_at=now,
            half_life_s=rules.half_life_s(signal.family),
            cap=bound.cap,
            reporting_namespace=domain.metadata.namespace,
            together=bound.together,
        )
        for node in (domain.status.nodes if domain.status is not None else None) or ()
        if node.name and node.status == _NOT_READY
    )
    return SignalReport(who, heaviest(evidence), absent_is_clear=True, uid=domain.metadata.uid)
