"""Who says what: the words of one reporter, and what it means that it does not say one any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fettle.health.signals.reports import SignalReport
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


class Words:
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


def said(evidence: Evidence) -> EvidenceTopic:
    return EvidenceTopic(
        evidence.subject,
        evidence.source,
        evidence.family,
        unknown=evidence.kind is EvidenceKind.UNKNOWN,
        latched=evidence.kind is EvidenceKind.LATCHED,
    )


def is_rebooted(known: Reporter, report: SignalReport) -> bool:
    return bool(known.boot and report.boot and known.boot != report.boot)


def is_same(one: Evidence, other: Evidence) -> bool:
    """Whether they say the same, whenever it was observed."""
    return msgspec.structs.replace(one, observed_at=other.observed_at) == other


def settles(report: SignalReport, about: EvidenceTopic) -> bool:
    """Whether a report that does not say it any more means that it is over."""
    return (
        report.absent_is_clear
        or about.source in report.settled
        or (about.subject, about.source) in report.cleared
    )
