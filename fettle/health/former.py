"""Evidence that the version before this one stored in words alone, as values. Nothing else reads
words; the next version does not need this any more.
"""

import re

import msgspec

from fettle.api.own_group import StoredEvidence, StoredReport
from fettle.health.signals.rule_tables import UNKNOWN_FAULT
from fettle.health.signals.starts import STARTS
from fettle.model import OF_DOMAINS, ReporterId, Source, SourceKind, Standing

_STANDS = {
    "; no longer reported, latched until it is cleared": Standing.LATCHED,
    "; no longer reported": Standing.NOT_REPORTED,
    "; not cleared since": Standing.NOT_CLEARED,
}
_OVER = ("was until recently: ", ", lately")
"""Begins the message, and ends the source, of the trace of a fault that is over."""


def in_values(stored: StoredEvidence) -> StoredEvidence:
    """The same, with what its words say in fields."""
    if stored.standing is not None:
        return stored
    source = source_of(stored.source)
    is_over = source is not None and source.is_over
    message, standing = stored.message, Standing.REPORTED
    if is_over:
        message = message.removeprefix(_OVER[0])
    for ends, meant in _STANDS.items():
        if message.endswith(ends):
            message, standing = message.removesuffix(ends), meant
            break
    if source is not None:
        stored = msgspec.structs.replace(
            stored, source_kind=source.kind, source_name=source.name, over=source.is_over
        )
    reports = tuple(map(_with_reporter, stored.reports))
    found = _UNLISTED.search(message)
    return msgspec.structs.replace(
        stored,
        said=message,
        standing=standing,
        reports=reports,
        unlisted=found[1] if found is not None else "",
    )


_UNLISTED = re.compile(rf"XID ([\w.-]+): {re.escape(UNKNOWN_FAULT)}")


def _with_reporter(report: StoredReport) -> StoredReport:
    who = reporter_of(report.by)
    return msgspec.structs.replace(
        report,
        kind=who.kind,
        name=who.name,
        node=who.node,
        namespace=who.namespace,
        alert=who.alert,
    )


_OF_METRICS = re.compile(
    r"(Prometheus|Alertmanager) (\S+)(?: (\S+))??(?: by namespace (.+))? on (\S+)"
)


def reporter_of(words: str) -> ReporterId:
    """The reporter that reads so."""
    if (found := _OF_METRICS.fullmatch(words)) is not None:
        kind, rule, alert, namespace, node = (part or "" for part in found.groups())
        return ReporterId(kind, rule, node, namespace, alert)
    if words.startswith(f"{STARTS} "):
        return ReporterId(STARTS, words.removeprefix(f"{STARTS} "))
    kind, _, name = words.rpartition(" ")
    return ReporterId(kind, name) if kind else ReporterId(name)


def source_of(words: str) -> Source | None:
    """The source that reads so; None if there is none."""
    is_over = words.endswith(_OVER[1])
    words = words.removesuffix(_OVER[1])
    for kind in sorted(SourceKind, key=len, reverse=True):
        between = " for " if kind in OF_DOMAINS else " "
        if words == kind:
            return Source(kind, "", is_over)
        if words.startswith(kind + between):
            return Source(kind, words.removeprefix(kind + between), is_over)
    return None
