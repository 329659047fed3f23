"""What one reporter's words come to, beside what it said before.

One taint per key, one reason per condition: the last fault displaces the one before it and does
not end it. So what was latched stands beside the new word until the same source says no more of
the subject, the boot id changes, or a remediation is told of. What a remediation has dealt with
counts as that; what came after it does not.
"""

from collections import Counter

import msgspec

from fettle.health import reporters
from fettle.health.fading import NOT_CLEARED, as_said
from fettle.health.reporters import EvidenceTopic, Reporter
from fettle.health.signals.reports import SignalReport, heaviest
from fettle.model import Evidence, EvidenceKind, Subject


def saying(
    known: Reporter, report: SignalReport, remediated_weight: float
) -> dict[EvidenceTopic, Evidence]:
    """What a report says, in the light of what its reporter said before.

    Remembers which faults a remediation has dealt with: those that were there when it was first
    told of.
    """
    released = _released(known, report)
    known.remediated = _remediated(known, report)
    said = {reporters.said(e): e for e in _counting(known, report, remediated_weight)}
    if reporters.is_rebooted(known, report):
        return said
    spoken = {about.of for about in said} - released
    for about, before in known.standing.items():
        if about.latched and about.of in spoken and not before.planned:
            now = said.get(about)
            if now is None or now.weight < before.weight:
                said[about] = _not_cleared(before)
    return said


def _not_cleared(evidence: Evidence) -> Evidence:
    return msgspec.structs.replace(evidence, text=as_said(evidence.text) + NOT_CLEARED)


def _released(known: Reporter, report: SignalReport) -> set[tuple[Subject, str]]:
    """What a remediation that is told of for the first time has dealt with, whatever was said."""
    if known.remediated is not None:
        return set()
    return {(f.evidence.subject, f.evidence.source) for f in report.remediated or ()}


def _remediated(known: Reporter, report: SignalReport) -> Counter[str] | None:
    if report.remediated is None:
        return None
    there = Counter(fault.word for fault in report.remediated)
    return there if known.remediated is None else there & known.remediated


def _counting(
    known: Reporter, report: SignalReport, remediated_weight: float
) -> tuple[Evidence, ...]:
    """The evidence, with what a remediation has dealt with as it counts since."""
    if not report.remediated:
        return report.evidence
    counted, left = list(report.evidence), Counter(known.remediated)
    for word, evidence in report.remediated:
        is_older = left[word] > 0
        left[word] -= 1
        counted.append(_eased(evidence, remediated_weight) if is_older else evidence)
    return heaviest(counted)


def _eased(evidence: Evidence, most: float) -> Evidence:
    if evidence.weight <= most:
        return evidence
    return msgspec.structs.replace(
        evidence, kind=EvidenceKind.LEVEL, weight=most, text=f"remediated since: {evidence.text}"
    )
