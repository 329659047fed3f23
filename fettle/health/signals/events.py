"""What Events about Nodes say: warnings of monitors that make no condition.

An Event is kept for an hour after it was last seen, and stands as long. Whoever may write Events in
its namespace can write it, so it is evidence from that namespace.
"""

from collections.abc import Iterator

from fettle.api import core
from fettle.api.meta import unix_s
from fettle.health.signals import nvsentinel, patterns, xids
from fettle.health.signals.reports import SignalReport, heaviest, one_line
from fettle.health.signals.rule_rows import EventRow
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import (
    OWN_PREFIX,
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Subject,
    UnitId,
)

_NORMAL = "Normal"
"""The type of an Event that warns of nothing."""
_MOST_CODES = 16
"""Of DCGM's codes that are read of one message."""
KEPT_S = 3600.0
"""How long an API server keeps an Event (`--event-ttl`)."""
_UNLISTED = EventRow(
    name="of the driver's log",
    reason="*",
    family=Family.DRIVER,
    weight=0.0,
    xid=xids.KERNEL_LOG,
    source="the driver's own line is about a fault, whatever the Event is",
)
"""Stands for Events that no rule names, if they quote the driver's log."""


def report_of_event(
    event: core.WatchedEvent, reporter: ReporterId, rules: SignalRules, now: float
) -> SignalReport | None:
    """What an Event about a Node says; None if no rule names its reason and namespace, and it does
    not quote the driver's log, or if it is no warning."""
    component = event.source.component or event.reporting_component
    namespace = event.metadata.namespace
    row = rules.event(event.reason, component, namespace, event.message)
    if row is None and not component.startswith(OWN_PREFIX) and namespace in _UNLISTED.namespaces:
        row = _UNLISTED if xids.mentions(_UNLISTED.xid, "", event.message) else None
    if row is None or event.type == _NORMAL or not event.involved_object.name:
        return None
    at = unix_s(event.last_timestamp or event.event_time, 0.0) or unix_s(
        event.metadata.creation_timestamp, now
    )
    evidence = heaviest(
        _evidence(event, reporter, row, rules, min(at, now), *found)
        for found in _findings(event, row, rules)
    )
    stands = now - at < KEPT_S
    return SignalReport(
        reporter,
        evidence if stands else (),
        stale=() if stands else evidence,
        uid=event.metadata.uid,
    )


def _findings(
    event: core.WatchedEvent, row: EventRow, rules: SignalRules
) -> Iterator[tuple[Subject, Family, float, str, str]]:
    """What it says of which device or node, how much that weighs, the XID in words, and the XID if
    no row names it."""
    name = event.involved_object.name
    node = NodeId(name)
    if row.format:
        for entry in nvsentinel.parse(event.message).entries:
            found = nvsentinel.xids_of(entry) if row.xid else ()
            meanings = [(one.code, rules.xid(one.code, one.said)) for one in found]
            named = [code for code in entry.codes if not xids.is_code(code)]
            known = [code for code in map(rules.dcgm, named) if code is not None]
            if any(code.xid for code in known) and row.weight:
                told = xids.mentions(xids.ANY_FORM, "", entry.text)
                meanings += [(one.code, rules.xid(one.code, one.said)) for one in told]
                known = [code for code in known if not code.xid or not told]
            least = 0.0 if meanings else min((c.weight for c in known), default=row.weight)
            for subject in nvsentinel.unit_ids(name, entry, {}) or (node,):
                yield subject, row.family, min(row.weight, least), "", ""
                for number, xid in meanings:
                    yield subject, xid.family, xid.weight, xid.text, rules.unlisted_xid(number)
        return
    mentioned = xids.mentions(row.xid, event.reason, event.message) if row.xid else ()
    for one in mentioned:
        xid = rules.xid(one.code, one.said)
        subject = UnitId(name, nvsentinel.RESOURCE, one.gpu) if one.gpu else node
        weight = max(row.weight, xid.weight)
        yield subject, xid.family, weight, xid.text, rules.unlisted_xid(one.code)
    codes = [found[1] for found in patterns.find_each(row.dcgm, event.message)] if row.dcgm else []
    known = [code for code in map(rules.dcgm, dict.fromkeys(codes[:_MOST_CODES])) if code]
    for code in known:
        weight = min(row.weight, code.weight)
        yield node, code.family, weight, f"DCGM error {code.name}: {code.text}", ""
    if not mentioned and not known:
        yield node, row.family, row.weight, "", ""


def _evidence(
    event: core.WatchedEvent,
    reporter: ReporterId,
    row: EventRow,
    rules: SignalRules,
    at: float,
    subject: Subject,
    family: Family,
    weight: float,
    said: str,
    unlisted: str,
) -> Evidence:
    bound = rules.signals["tenant-caused"]
    told = f"Event {event.reason}: {event.message[: patterns.LONGEST]}"
    return Evidence(
        subject=subject,
        family=family,
        kind=EvidenceKind.LEVEL,
        weight=min(weight, bound.cap),
        source=Source(SourceKind.EVENT, row.name),
        reporter=reporter,
        said=one_line(f"{said}; {told}" if said else told),
        observed_at=at,
        half_life_s=rules.half_life_s(family),
        cap=bound.cap,
        reporting_namespace=event.metadata.namespace,
        together=bound.together,
    )
