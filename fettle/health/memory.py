"""Evidence as a DeviceHealth stores it, and back. What is stored is what the ledger knows of one
subject, in public words. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from fettle.api.meta import unix_s
from fettle.api.own_group import (
    LARGEST_SUM,
    LONGEST_HALF_LIFE_S,
    StoredDevice,
    StoredEvidence,
    StoredReport,
    StoredSubject,
    StoredTaint,
    StoredUnit,
)
from fettle.health.fading import Fading
from fettle.health.signals.reports import Reporter, one_line
from fettle.model import (
    DeviceId,
    Evidence,
    EvidenceKind,
    Health,
    ReporterId,
    Source,
    SourceKind,
    Standing,
    Subject,
    TaintRef,
    UnitId,
    utc,
)

MOST_REPORTS = 16
"""Reporters that are stored with one sum. Of more, the latest are."""
CLOCKS_APART_S = 60.0
"""Another replica's clock may be ahead of ours by this much. Later times are no times."""


_KINDS = frozenset(SourceKind)
_STORED = ReporterId("DeviceHealth")
"""Stands for reporters that are not stored."""


def time_of(at: float) -> datetime | None:
    """None for a time that is not known: 0, or before."""
    return utc(at) if at > 0 else None


def stored_report(
    who: ReporterId, uid: str, at: datetime | None = None, *, left: bool = False
) -> StoredReport:
    return StoredReport(
        by=str(who),
        kind=who.kind,
        name=who.name,
        node=who.node,
        namespace=who.namespace,
        alert=who.alert,
        uid=uid,
        at=at,
        left=left,
    )


def reporter_of(report: StoredReport) -> ReporterId:
    parts = (report.kind, report.name, report.node, report.namespace, report.alert)
    return ReporterId(*map(one_line, parts))


def stored_standing(reporter: Reporter, evidence: Evidence) -> StoredEvidence:
    report = stored_report(reporter.id, reporter.uid)
    return _stored(
        evidence,
        first_seen=time_of(evidence.observed_at),
        reports=(report,),
        gone=reporter.gone,
        silence_clears=reporter.absent_is_clear,
    )


def stored_sum(one: Fading, reports: Iterable[StoredReport]) -> StoredEvidence:
    """`reports`: who has told of it and may do so again, in any order."""
    latest = sorted(reports, key=lambda r: (r.left, unix_s(r.at, 0.0), r.by), reverse=True)
    total = round(min(LARGEST_SUM, one.strength), 6)
    return _stored(
        one.evidence,
        sum=None if total == one.evidence.weight else total,
        first_seen=time_of(one.first_at),
        last_seen=time_of(one.at),
        count=one.count,
        reports=tuple(latest[:MOST_REPORTS]),
    )


def _stored(evidence: Evidence, **more: object) -> StoredEvidence:
    return StoredEvidence(
        source=str(evidence.source),
        source_kind=evidence.source.kind,
        source_name=evidence.source.name,
        over=evidence.source.is_over,
        family=evidence.family,
        kind=evidence.kind,
        weight=evidence.weight,
        cap=evidence.cap,
        together=evidence.together,
        half_life_seconds=min(evidence.half_life_s, LONGEST_HALF_LIFE_S),
        message=evidence.text,
        said=evidence.said if evidence.said != evidence.text else "",
        standing=evidence.standing,
        unlisted=evidence.unlisted,
        namespace=evidence.reporting_namespace,
        taints=tuple(
            StoredTaint(key=t.key, value=t.value, effect=t.effect) for t in evidence.taints
        ),
        domain=evidence.domain,
        planned=evidence.planned,
        began=time_of(evidence.began_at),
        **more,  # type: ignore[arg-type]
    )


def is_fading(stored: StoredEvidence) -> bool:
    return stored.kind is EvidenceKind.DECAYING


def is_possible(stored: StoredEvidence, now: float) -> bool:
    """Whether it can have been observed: a fact has a reporter, its source is of a kind that there
    is, and no time lies in the future."""
    if stored.source_kind not in _KINDS:
        return False
    seen = stored.last_seen if is_fading(stored) else stored.first_seen
    return (
        bool(stored.reports or is_fading(stored)) and 0 < unix_s(seen, 0.0) <= now + CLOCKS_APART_S
    )


def evidence_of(stored: StoredEvidence, subject: Subject) -> Evidence:
    reporter = reporter_of(stored.reports[0]) if stored.reports else _STORED
    return Evidence(
        subject=subject,
        family=stored.family,
        kind=stored.kind,
        weight=stored.weight,
        source=Source(SourceKind(stored.source_kind), one_line(stored.source_name), stored.over),
        reporter=reporter,
        said=one_line(stored.said or stored.message),
        standing=stored.standing or Standing.REPORTED,
        unlisted=one_line(stored.unlisted),
        observed_at=unix_s(stored.last_seen or stored.first_seen, 0.0),
        half_life_s=stored.half_life_seconds,
        cap=stored.cap,
        reporting_namespace=stored.namespace,
        together=stored.together,
        taints=tuple(TaintRef(t.key, t.value, t.effect) for t in stored.taints),
        domain=stored.domain,
        planned=stored.planned,
        began_at=unix_s(stored.began, 0.0),
    )


def sum_of(stored: StoredEvidence, evidence: Evidence, now: float) -> Fading:
    at = min(evidence.observed_at, now)
    strength = stored.weight if stored.sum is None else stored.sum
    first = min(unix_s(stored.first_seen, at), at)
    return Fading(evidence, strength, at, max(1, stored.count), first)


def stored_subject(
    key: Subject,
    health: Health,
    evidence: tuple[StoredEvidence, ...],
    faults: tuple[float, ...] = (),
) -> StoredSubject:
    unit = device = None
    if isinstance(key, UnitId):
        unit = StoredUnit(resource=key.resource, id=key.unit, other_names=key.others)
    elif isinstance(key, DeviceId):
        device = StoredDevice(driver=key.driver, pool=key.pool, name=key.device)
    return StoredSubject(
        unit=unit,
        device=device,
        score=health.score,
        proven_score=health.proven if health.tenant_caused else None,
        state=health.state,
        since=time_of(health.since),
        evidence=evidence,
        faults=tuple(utc(round(at)) for at in faults),
    )


def faults_of(stored: StoredSubject) -> tuple[float, ...]:
    """When grave faults of the last 28 days were over."""
    return tuple(unix_s(at, 0.0) for at in stored.faults)
