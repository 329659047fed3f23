"""Who says what: the words of one reporter, and what it means that it does not say one any more."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from fettle.evidence.reports import Report
from fettle.model import Evidence, Family, Kind, Subject


class Said(NamedTuple):
    """What one piece of evidence is about; one reporter says at most one thing about it."""

    subject: Subject
    source: str
    family: Family
    unknown: bool

    @property
    def topic(self) -> Topic:
        return self.source, self.family


Topic = tuple[str, Family]
"""Source and family, whoever says it."""


class Reporter(msgspec.Struct, gc=False):
    """One reporter: what it says, its events already counted, and what it left unsettled.

    `gone`: the object is not there any more, only what it latched still stands.
    """

    name: str
    standing: dict[Said, Evidence] = {}
    events: dict[Said, Evidence] = {}
    left: set[Said] = set()
    absent_is_clear: bool = False
    uid: str = ""
    boot: str = ""
    gone: bool = False

    def is_over(self) -> bool:
        """Whether nothing is left to remember of it."""
        return not (self.standing or self.events or self.left)


def said(evidence: Evidence) -> Said:
    unknown = evidence.kind is Kind.UNKNOWN
    return Said(evidence.subject, evidence.source, evidence.family, unknown)


def settles(report: Report, about: Said) -> bool:
    """Whether a report that does not say it any more means that it is over."""
    return (
        report.absent_is_clear
        or about.source in report.settled
        or (about.subject, about.source) in report.cleared
    )
