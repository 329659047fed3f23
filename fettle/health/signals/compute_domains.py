"""What a ComputeDomain says of the nodes that it joins: that one is not ready.

A node is not ready while its domain forms, too, and whoever may create pods can bring that about.
The status has no time that would tell the two apart. So this is mild evidence from the domain's
namespace, over once the node is ready or the domain is gone.
"""

from fettle.api import kinds, resource
from fettle.health.signals.reports import SignalReport, heaviest, one_line
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import Evidence, EvidenceKind, NodeId, ReporterId, Source, SourceKind

_NOT_READY = "NotReady"


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
