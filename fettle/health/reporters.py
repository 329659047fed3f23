"""Who says what: the words of one reporter, and what it means that it does not say one any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fettle.health.fading import NOT_CLEARED, as_said
from fettle.health.signals.reports import SignalReport, heaviest
from fettle.model import Evidence, EvidenceKind, Family, Subject


class EvidenceTopic(NamedTuple):
    """What one piece of evidence is about; one reporter says at most one thing about it."""

    subject: Subject
    source: str
    family: Family
    unknown: bool
    latched: bool

    @property
    def topic(self) -> Topic:
        return self.source, self.family

    @property
    def of(self) -> tuple[Subject, str]:
        """Subject and source, whatever is said."""
        return self.subject, self.source

    @property
    def counterpart(self) -> EvidenceTopic:
        """The same thing, latched where this is not, and the other way round."""
        return self._replace(latched=not self.latched)


Topic = tuple[str, Family]
"""Source and family, whoever says it."""


class Reporter(msgspec.Struct, gc=False):
    """One reporter: what it says, its events already counted, and what it left unsettled.

    `remediated` are the words of faults that a remediation has dealt with; None where the reporter
    tells of none. `gone`: the object is not there any more, only what it latched still stands.
    """

    name: str
    standing: dict[EvidenceTopic, Evidence] = {}
    events: dict[EvidenceTopic, Evidence] = {}
    left: set[EvidenceTopic] = set()
    remediated: Counter[str] | None = None
    absent_is_clear: bool = False
    uid: str = ""
    boot: str = ""
    gone: bool = False

    def is_over(self) -> bool:
        """Whether nothing is left to remember of it."""
        return self.remediated is None and not (self.standing or self.events or self.left)

    def by_weight(self) -> list[tuple[EvidenceTopic, Evidence]]:
        """What stands, the lightest first: what ends last is remembered."""
        return sorted(self.standing.items(), key=lambda item: item[1].weight)


class EvidenceIndex:
    """What reporters say, by subject."""

    def __init__(self) -> None:
        self._words: dict[Subject, dict[tuple[str, EvidenceTopic], Evidence]] = {}

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._words

    def of(self, subject: Subject) -> Mapping[tuple[str, EvidenceTopic], Evidence]:
        """By the reporter's name and what it is about."""
        return self._words.get(subject, {})

    def put(self, known: Reporter, said: EvidenceTopic, evidence: Evidence) -> None:
        self._words.setdefault(said.subject, {})[known.name, said] = evidence

    def drop(self, known: Reporter, said: EvidenceTopic) -> None:
        about = self._words.get(said.subject, {})
        about.pop((known.name, said), None)
        if not about:
            self._words.pop(said.subject, None)


def topic_of(evidence: Evidence) -> EvidenceTopic:
    return EvidenceTopic(
        evidence.subject,
        evidence.source,
        evidence.family,
        unknown=evidence.kind is EvidenceKind.UNKNOWN,
        latched=evidence.kind is EvidenceKind.LATCHED,
    )


def is_rebooted(known: Reporter, report: SignalReport) -> bool:
    return bool(known.boot and report.boot and known.boot != report.boot)


def is_same_evidence(one: Evidence, other: Evidence) -> bool:
    """Whether they say the same, whenever it was observed."""
    return msgspec.structs.replace(one, observed_at=other.observed_at) == other


def settles(report: SignalReport, about: EvidenceTopic) -> bool:
    """Whether a report that does not say it any more means that it is over."""
    return (
        report.absent_is_clear
        or about.source in report.settled
        or (about.subject, about.source) in report.cleared
    )


def effective_evidence(
    known: Reporter, report: SignalReport, remediated_weight: float
) -> dict[EvidenceTopic, Evidence]:
    """What a report says, in the light of what its reporter said before.

    Remembers which faults a remediation has dealt with: those that were there when it was first
    told of.
    """
    released = _released(known, report)
    known.remediated = _remediated(known, report)
    said = {topic_of(e): e for e in _counting(known, report, remediated_weight)}
    if is_rebooted(known, report):
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
