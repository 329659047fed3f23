"""SignalReport: what one object says about health at one moment, what its silence means, and how
that compares with what it said before.

Reports are made by the other modules here. The ledger folds them in, and keeps what each reporter
said.

A device has one taint per key and a condition has one reason, so a new fault displaces the one
before it without ending it. A latched fault therefore stands beside the new report until the same
source says nothing more of the subject, the boot id changes, or a remediation is reported. A
remediation covers the faults that were there when it was first reported, and none that come later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

import msgspec

from fettle.api import core, kinds
from fettle.model import (
    Evidence,
    EvidenceKind,
    Family,
    Hold,
    NodeId,
    ReporterId,
    Source,
    Standing,
    Subject,
    UnitId,
    UnknownSignal,
)

TEXT_LIMIT = 240
"""Maximum length of an explanation in characters. What producers write can be far longer."""
_LOOKED_AT = 8 * TEXT_LIMIT
"""Characters of a text that make its line."""


class Fault(NamedTuple):
    """Evidence, with an identity that stays the same as long as it is the same fault."""

    identity: str
    evidence: Evidence


class StatedRepair(NamedTuple):
    """Everything on `subject` was mended `at` a time; `how` that was said."""

    subject: Subject
    at: float
    how: str


class SignalReport(NamedTuple):
    """What one object says now: the faults that stand, and explicit all-clears.

    - `cleared`: each (subject, source) that is said to be fine, whoever reported it before.
    - `settled`: sources about which this report is complete. What this reporter said earlier under
      such a source, and does not repeat, is over. `absent_is_clear`: true of all sources.
    - Otherwise silence is not an all-clear: a level fault that is no longer reported decays.
    - `retracted`: subjects of which this reporter was wrong. What it said of them, and does not
      repeat, is gone without a trace.
    - `silent`: subjects of which nothing is known now: what was said of them is not over.
    - `stale`: level faults whose producer fell silent. They decay from their `observed_at`.
    - `uid`: a reporter with another UID is another object of the same name.
    - `boot`: a changed boot id clears what was latched and is not repeated, and each (subject,
      source) in `ended_by_repair`, whoever reported it, as one of `repairs` of that subject does
      with what came before it. What a source says counts as repeated only if it was `renewed`
      since, by the node's clock.
    - `remediated`: the faults that a remediation has dealt with, unless they came after it; None if
      the object mentions no remediation.
    - `unknown_signals`: what it says that no rule names.
    - `node`: the node that it speaks for. `repairs`: what an operator says was mended on it.
    - `named`: units of which it says nothing but their names.
    - `holds`: an operator's holds that are in force. Their evidence is among the rest.
    """

    reporter: ReporterId
    evidence: tuple[Evidence, ...]
    cleared: frozenset[tuple[Subject, Source]] = frozenset()
    absent_is_clear: bool = False
    settled: frozenset[Source] = frozenset()
    retracted: frozenset[Subject] = frozenset()
    uid: str = ""
    boot: str = ""
    ended_by_repair: frozenset[tuple[Subject, Source]] = frozenset()
    stale: tuple[Evidence, ...] = ()
    remediated: tuple[Fault, ...] | None = None
    unknown_signals: tuple[UnknownSignal, ...] = ()
    holds: tuple[Hold, ...] = ()
    node: NodeId | None = None
    repairs: tuple[StatedRepair, ...] = ()
    silent: frozenset[Subject] = frozenset()
    named: frozenset[UnitId] = frozenset()
    renewed: Mapping[Source, float] = {}

    @property
    def units(self) -> frozenset[UnitId]:
        """The units that it names."""
        remediated = (fault.evidence for fault in self.remediated or ())
        said = (one.subject for one in (*self.evidence, *self.stale, *remediated))
        return self.named.union(subject for subject in said if isinstance(subject, UnitId))


class NodeReport(NamedTuple):
    """One part of a Node's report: evidence, the sources that it settles, stale faults, remediated
    faults (None without a remediation), conditions that no rule names, and when faulty ones were
    renewed."""

    evidence: tuple[Evidence, ...]
    settled: frozenset[Source]
    stale: tuple[Evidence, ...] = ()
    remediated: tuple[Fault, ...] | None = None
    unknown_signals: tuple[UnknownSignal, ...] = ()
    renewed: Mapping[Source, float] = {}


def is_part(node: core.Node, *fields: str) -> bool:
    """Whether not all entries of one of these lists and mappings were read."""
    return any(cut.startswith(tuple(f"{field}:" for field in fields)) for cut in node.cut)


def node_reporter(node: str) -> ReporterId:
    """A Node that reports."""
    return ReporterId(kinds.NODE.name, node)


def unread_annotation(node: str, source: Source, said: str, now: float) -> Evidence:
    """Evidence without weight that says how to write what an operator meant by an annotation of a
    Node."""
    return Evidence(
        subject=NodeId(node),
        family=Family.OPERATOR,
        kind=EvidenceKind.LEVEL,
        weight=0.0,
        source=source,
        reporter=node_reporter(node),
        said=one_line(said),
        observed_at=now,
        planned=True,
    )


def heaviest(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """The heaviest evidence for each subject, source and family.

    It stands for all the others of its group, so it gets the taints of all: it is tolerated only
    together with them.
    """
    chosen: dict[object, Evidence] = {}
    for one in evidence:
        key = (one.subject, one.source, one.family, one.kind is EvidenceKind.UNKNOWN)
        other = chosen.get(key)
        if other is None:
            chosen[key] = one
            continue
        weightier = max(one, other, key=_rank)
        taints = tuple(sorted({*one.taints, *other.taints}))
        chosen[key] = msgspec.structs.replace(weightier, taints=taints)
    return tuple(chosen.values())


def _rank(one: Evidence) -> tuple[float, bool, str]:
    return one.weight, one.kind is EvidenceKind.LATCHED, one.said


STEP_S = 600.0
"""In such steps it comes nearer when planned work begins: with each, verdicts on its node are made
again."""


def in_steps(begins_in_s: float | None) -> float | None:
    return None if begins_in_s is None else begins_in_s // STEP_S * STEP_S


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, characters that change the direction of text, and halves of surrogate
pairs."""


def without_middle(text: str, most: int = TEXT_LIMIT) -> str:
    """As `one_line`, of a text that says its cause at its end, as kubelets' do: what is too long
    lacks its middle.

    >>> without_middle("Allocate failed due to rpc error: no devices left", 33)
    'Allocate failed … no devices left'
    """
    if len(text) > _LOOKED_AT:
        text = f"{text[: _LOOKED_AT // 2]} … {text[-_LOOKED_AT // 2 :]}"
    line = " ".join(_CONTROL.sub(" ", text).split())
    half = (most - 3) // 2
    return line if len(line) <= most else f"{line[:half].rstrip()} … {line[-half:].lstrip()}"


def one_line(text: str) -> str:
    """The text as one line of at most TEXT_LIMIT characters, without any that could control a
    terminal."""
    line = " ".join(_CONTROL.sub(" ", text[:_LOOKED_AT]).split())
    is_whole = len(text) <= _LOOKED_AT and len(line) <= TEXT_LIMIT
    return line if is_whole else line[: TEXT_LIMIT - 1] + "…"


# What a reporter says, compared with what it said before


class EvidenceTopic(NamedTuple):
    """What one piece of evidence is about. One reporter says at most one thing about it."""

    subject: Subject
    source: Source
    family: Family
    unknown: bool
    latched: bool

    @property
    def cause(self) -> Cause:
        return self.source, self.family

    @property
    def subject_and_source(self) -> tuple[Subject, Source]:
        """Subject and source, whatever is said."""
        return self.subject, self.source

    @property
    def counterpart(self) -> EvidenceTopic:
        """The same topic, latched if this one is not, and the other way round."""
        return self._replace(latched=not self.latched)


Cause = tuple[Source, Family]
"""Source and family, whoever reports it."""


class Reporter(msgspec.Struct, gc=False):
    """One reporter: what stands, its events already counted, and the topics that it left without an
    all-clear (`orphaned`).

    `remediated` are the identities of faults that a remediation has dealt with; None if the
    reporter mentions no remediation. `gone`: the object no longer exists, and only what it latched
    still stands. `renewed`: when its sources were last renewed; `outdated`: of those that were not
    since the node booted.
    """

    id: ReporterId
    standing: dict[EvidenceTopic, Evidence] = {}
    events: dict[EvidenceTopic, Evidence] = {}
    orphaned: set[EvidenceTopic] = set()
    remediated: Counter[str] | None = None
    absent_is_clear: bool = False
    uid: str = ""
    boot: str = ""
    gone: bool = False
    renewed: Mapping[Source, float] = {}
    outdated: Mapping[Source, float] = {}

    def is_over(self) -> bool:
        """Whether nothing about it needs to be remembered."""
        held = (self.standing, self.events, self.orphaned, self.renewed)
        return self.remediated is None and not any(held)

    def by_weight(self) -> list[tuple[EvidenceTopic, Evidence]]:
        """What stands, the lightest first: what ends last is remembered."""
        return sorted(self.standing.items(), key=lambda item: item[1].weight)


class EvidenceIndex:
    """What reporters say, by subject."""

    def __init__(self) -> None:
        self._by_subject: dict[Subject, dict[tuple[ReporterId, EvidenceTopic], Evidence]] = {}

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._by_subject

    def knows_none(self, subjects: Iterable[Subject]) -> bool:
        return self._by_subject.keys().isdisjoint(subjects)

    def of(self, subject: Subject) -> Mapping[tuple[ReporterId, EvidenceTopic], Evidence]:
        """By the reporter and the topic."""
        return self._by_subject.get(subject, {})

    def put(self, reporter: Reporter, topic: EvidenceTopic, evidence: Evidence) -> None:
        self._by_subject.setdefault(topic.subject, {})[reporter.id, topic] = evidence

    def drop(self, reporter: Reporter, topic: EvidenceTopic) -> None:
        about = self._by_subject.get(topic.subject, {})
        about.pop((reporter.id, topic), None)
        if not about:
            self._by_subject.pop(topic.subject, None)


def topic_of(evidence: Evidence) -> EvidenceTopic:
    return EvidenceTopic(
        evidence.subject,
        evidence.source,
        evidence.family,
        unknown=evidence.kind is EvidenceKind.UNKNOWN,
        latched=evidence.kind is EvidenceKind.LATCHED,
    )


def is_rebooted(reporter: Reporter, report: SignalReport) -> bool:
    return bool(reporter.boot and report.boot and reporter.boot != report.boot)


def without_outdated(
    reporter: Reporter, report: SignalReport, mended: frozenset[Family]
) -> SignalReport:
    """The report without the faults that a reboot mends (latched ones, and the families `mended`)
    and that nobody has renewed since the node booted.

    Also remembers, in `reporter`, what was renewed when.
    """
    outdated = reporter.renewed if is_rebooted(reporter, report) else reporter.outdated
    reporter.renewed = report.renewed
    reporter.outdated = {
        source: at for source, at in outdated.items() if report.renewed.get(source, inf) <= at
    }
    if not reporter.outdated:
        return report

    def stands(one: Evidence) -> bool:
        is_mended = one.kind is EvidenceKind.LATCHED or one.family in mended
        return not (is_mended and one.source in reporter.outdated)

    remediated = report.remediated
    if remediated is not None:
        remediated = tuple(fault for fault in remediated if stands(fault.evidence))
    return report._replace(evidence=tuple(filter(stands, report.evidence)), remediated=remediated)


def is_same_evidence(one: Evidence, other: Evidence) -> bool:
    """Whether both say the same, whenever it was observed."""
    return msgspec.structs.replace(one, observed_at=other.observed_at) == other


def settles(report: SignalReport, about: EvidenceTopic) -> bool:
    """Whether it is over if the report no longer mentions it."""
    if about.subject in report.silent:
        return False
    return (
        report.absent_is_clear
        or about.source in report.settled
        or (about.subject, about.source) in report.cleared
    )


def effective_evidence(
    reporter: Reporter, report: SignalReport, remediated_weight: float
) -> dict[EvidenceTopic, Evidence]:
    """What a report says, combined with what its reporter said before.

    Also remembers, in `reporter`, which faults a remediation has dealt with: those that were there
    when it was first reported.
    """
    released = _released(reporter, report)
    reporter.remediated = _remediated(reporter, report)
    found = {topic_of(e): e for e in _counted(reporter, report, remediated_weight)}
    if is_rebooted(reporter, report):
        return found
    # Who is silent repeats nothing.
    reported = {about.subject_and_source for about in found if not about.unknown} - released
    for about, before in reporter.standing.items():
        if about.latched and about.subject_and_source in reported and not before.planned:
            now = found.get(about)
            if now is None or now.weight < before.weight:
                found[about] = msgspec.structs.replace(before, standing=Standing.NOT_CLEARED)
    return found


def _released(reporter: Reporter, report: SignalReport) -> set[tuple[Subject, Source]]:
    """What a remediation that is reported for the first time has dealt with, whatever was said
    before."""
    if reporter.remediated is not None:
        return set()
    return {(f.evidence.subject, f.evidence.source) for f in report.remediated or ()}


def _remediated(reporter: Reporter, report: SignalReport) -> Counter[str] | None:
    if report.remediated is None:
        return None
    there = Counter(fault.identity for fault in report.remediated)
    return there if reporter.remediated is None else there & reporter.remediated


def _counted(
    reporter: Reporter, report: SignalReport, remediated_weight: float
) -> tuple[Evidence, ...]:
    """The evidence; faults that a remediation has dealt with count for less."""
    if not report.remediated:
        return report.evidence
    counted, left = list(report.evidence), Counter(reporter.remediated)
    for identity, evidence in report.remediated:
        is_older = left[identity] > 0
        left[identity] -= 1
        counted.append(_capped(evidence, remediated_weight) if is_older else evidence)
    return heaviest(counted)


def _capped(evidence: Evidence, most: float) -> Evidence:
    if evidence.weight <= most:
        return evidence
    return msgspec.structs.replace(
        evidence, kind=EvidenceKind.LEVEL, weight=most, said=f"remediated since: {evidence.said}"
    )
