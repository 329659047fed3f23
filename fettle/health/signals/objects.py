"""What any object of the cluster says, by rows with expressions in CEL, which a worker evaluates.

An object in a namespace is the word of that namespace, unless the row trusts it: whoever may write
such objects there decides what they say. A row that could not be evaluated says nothing new, and
what it said before fades, as what an object said that is gone.
"""

from collections.abc import Iterator

import msgspec

from fettle.api import ObjectReported
from fettle.cel import RowOutcome
from fettle.health.signals.object_rows import ObjectRow, quoted
from fettle.health.signals.operator_words import subject_called
from fettle.health.signals.reports import SignalReport, heaviest, one_line
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import Evidence, EvidenceKind, NodeId, ReporterId, Source, SourceKind, Subject


def object_reporter(kind: str, key: str) -> ReporterId:
    return ReporterId(kind, key)


def readable(outcome: RowOutcome) -> RowOutcome:
    """What a row says of an object; not known if it names a device in a way that nobody reads."""
    named = (one.device for one in outcome.facts if subject_called(one.device, NodeId("")) is None)
    if (odd := next(named, None)) is None:
        return outcome
    problem = f"device: {quoted(odd)} names none; it must be DRIVER/POOL/DEVICE or RESOURCE UNIT"
    return RowOutcome(problem=problem)


def report_of_object(reported: ObjectReported, rules: SignalRules, now: float) -> SignalReport:
    """What an object that exists says."""
    settled = (name for name in rules.objects if name not in reported.unknown)
    return SignalReport(
        object_reporter(reported.kind, reported.key),
        heaviest(_evidence(reported, rules, now)),
        uid=reported.uid,
        settled=frozenset(Source(SourceKind.OBJECT, name) for name in settled),
    )


def _evidence(reported: ObjectReported, rules: SignalRules, now: float) -> Iterator[Evidence]:
    for name, facts in reported.facts.items():
        row = rules.objects.get(name)
        if row is None:
            continue
        for fact in facts:
            subject = subject_called(fact.device, NodeId(fact.node))
            if subject is None:
                continue
            said = f"{reported.kind.partition('.')[0]} {reported.key}: {fact.said or name}"
            yield _fact(reported, row, rules, subject, said, now)


def _fact(
    reported: ObjectReported,
    row: ObjectRow,
    rules: SignalRules,
    subject: Subject,
    said: str,
    now: float,
) -> Evidence:
    namespace = reported.key.rpartition("/")[0]
    evidence = Evidence(
        subject=subject,
        family=row.family,
        kind=row.evidence,
        weight=row.weight,
        source=Source(SourceKind.OBJECT, row.name),
        reporter=object_reporter(reported.kind, reported.key),
        said=one_line(said),
        observed_at=now,
        half_life_s=rules.half_life_s(row.family),
    )
    if row.trusts(namespace):
        return evidence
    return _of_namespace(evidence, namespace, rules)


def _of_namespace(evidence: Evidence, namespace: str, rules: SignalRules) -> Evidence:
    """What a tenant may have caused: it is bounded, and neither latched nor Unknown."""
    bound = rules.signals["tenant-caused"]
    is_unknown = evidence.kind is EvidenceKind.UNKNOWN
    return msgspec.structs.replace(
        evidence,
        kind=EvidenceKind.LEVEL,
        weight=0.0 if is_unknown else min(evidence.weight, bound.cap),
        cap=bound.cap,
        reporting_namespace=namespace,
        together=bound.together,
    )
