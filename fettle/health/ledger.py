"""The ledger: all evidence that stands or fades, by subject and by reporter.

Reports come in per reporter. Its silence is an all-clear only where its report says so; else what
stood fades, and what was latched stays. Knows nothing of scores and states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from typing import NamedTuple

import msgspec

from fettle.evidence.reports import Report
from fettle.evidence.rules import Rules
from fettle.health import fading, scoring
from fettle.health.fading import Fading
from fettle.model import Evidence, Family, Kind, NodeId, Subject, UnitId, Weighed

MILD = 0.10
"""The all-clear of something that weighs no more is not worth judging afresh."""


class Said(NamedTuple):
    """What one piece of evidence is about; one reporter says at most one thing about it."""

    subject: Subject
    source: str
    family: Family
    unknown: bool


class Reporter(msgspec.Struct):
    """One reporter: what it says, its events already counted, and what it left unsettled."""

    name: str
    standing: dict[Said, Evidence] = {}
    events: dict[Said, Evidence] = {}
    left: set[Said] = set()
    absent_is_clear: bool = False
    uid: str = ""
    boot: str = ""


_Topic = tuple[str, Family]
"""Source and family, whoever says it."""
_Sum = tuple[_Topic, float, str]
"""What fades adds up by topic, half-life and witness."""


class Ledger:
    """Evidence by subject; every change is also noted in the set that `report` returns."""

    def __init__(self, rules: Rules, orphan_half_life_s: float) -> None:
        self._rules = rules
        self._orphan_half_life_s = orphan_half_life_s
        self._reporters: dict[str, Reporter] = {}
        self._standing: dict[Subject, dict[tuple[str, Said], Evidence]] = {}
        self._fading: dict[Subject, dict[_Sum, Fading]] = {}
        self._eased: dict[Subject, int] = {}
        self._units: dict[str, set[UnitId]] = defaultdict(set)
        self._changed: set[Subject] = set()
        self._traced: set[tuple[Subject, str, Family]] = set()

    # -- what is said

    def report(self, report: Report, now: float) -> set[Subject]:
        """What one object says now; returns the subjects whose evidence changed."""
        self._begin()
        known = self._reporters.get(report.reporter) or Reporter(report.reporter)
        if known.uid and report.uid and known.uid != report.uid:
            self._silence(known, now)
        saying = {_said(e): e for e in report.evidence}
        rebooted = bool(known.boot and report.boot and known.boot != report.boot)
        for said in [s for s in known.left if s not in saying and _settles(report, s)]:
            self._clear_left(known, said, now)
        for said in [s for s in known.standing if s not in saying]:
            latched = known.standing[said].kind is Kind.LATCHED
            if _settles(report, said) or (rebooted and latched):
                self._clear(known, said, now)
            elif not latched:
                self._orphan(known, said, now)
        for subject, source in report.cleared:
            self._clear_others(subject, source, now)
        for said, evidence in saying.items():
            if evidence.kind is Kind.DECAYING:
                self._count(known, said, evidence, now)
            else:
                self._stand(known, said, evidence)
        known.absent_is_clear = report.absent_is_clear
        known.uid, known.boot = report.uid, report.boot
        self._keep(known)
        return self._changed

    def vanish(self, reporter: str, now: float) -> set[Subject]:
        """The messenger is gone: what it said fades, or is clear where its silence says so."""
        self._begin()
        if (known := self._reporters.get(reporter)) is not None:
            self._silence(known, now)
            self._keep(known)
        return self._changed

    def forget(self, subject: Subject) -> set[Subject]:
        """The subject is gone, a node with its units; returns all that are forgotten by it."""
        gone: set[Subject] = {subject}
        if isinstance(subject, NodeId):
            gone |= self._units.pop(subject.node, set())
        for one in gone:
            for reporter, said in self._standing.pop(one, {}):
                self._reporters[reporter].standing.pop(said, None)
            self._fading.pop(one, None)
            self._eased.pop(one, None)
        return gone

    # -- what is asked

    def knows(self, subject: Subject) -> bool:
        return subject in self._standing or subject in self._fading

    def weighed(self, subject: Subject, now: float) -> Iterator[Weighed]:
        """All that counts about a subject; what stands hides what of its topic fades below it.

        Witnesses add up, so what has one hides, and is hidden by, the word of the same one only.
        """
        standing: dict[tuple[_Topic, str], Evidence] = {}
        for (_, said), evidence in self._standing.get(subject, {}).items():
            if not said.unknown:
                key = (_topic(said), evidence.witness)
                standing[key] = max(evidence, standing.get(key, evidence), key=_weight)
            yield scoring.weigh(evidence)
        for (topic, _, witness), one in self._fading.get(subject, {}).items():
            if not one.is_negligible(now):
                weighed = one.weighed(now)
                if not _hides(standing.get((topic, witness)), weighed):
                    yield weighed

    def fading(self, subject: Subject, now: float) -> Iterator[Fading]:
        for one in self._fading.get(subject, {}).values():
            if not one.is_negligible(now):
                yield one

    def eased(self, subject: Subject) -> int:
        """How many all-clears that matter there have been about a subject."""
        return self._eased.get(subject, 0)

    def units(self, node: str) -> set[UnitId]:
        return set(self._units.get(node, ()))

    def sweep(self, now: float, remembered: Container[Subject]) -> None:
        """Let go of what has faded, of the events that made it, and of units not remembered."""
        for subject, sums in list(self._fading.items()):
            for key in [k for k, one in sums.items() if one.is_negligible(now)]:
                del sums[key]
            if not sums:
                del self._fading[subject]
        for known in list(self._reporters.values()):
            known.left = {s for s in known.left if self._fades(s)}
            for said, event in list(known.events.items()):
                if fading.starting(event, now).is_negligible(now):
                    del known.events[said]
            self._keep(known)
        for node, units in list(self._units.items()):
            self._units[node] = {u for u in units if self.knows(u) or u in remembered}
            if not self._units[node]:
                del self._units[node]

    # -- one piece of evidence

    def _stand(self, known: Reporter, said: Said, evidence: Evidence) -> None:
        old = known.standing.get(said)
        if old is not None:
            if msgspec.structs.replace(evidence, observed_at=old.observed_at) == old:
                return  # said again: it stands since it was first said
            if old.weight - evidence.weight > MILD:
                self._ease(said.subject)
        known.standing[said] = evidence
        self._standing.setdefault(said.subject, {})[known.name, said] = evidence
        self._note(said.subject)

    def _count(self, known: Reporter, said: Said, event: Evidence, now: float) -> None:
        """An event, once per reporter; it takes the place of a fault that stood."""
        if self._withdraw(known, said) is not None:
            self._note(said.subject)
        if said in known.events:
            return
        known.events[said] = event
        if not fading.starting(event, now).is_negligible(now):
            self._fade(event, now)

    def _clear(self, known: Reporter, said: Said, now: float) -> None:
        if (evidence := self._withdraw(known, said)) is not None:
            self._pop_fading(said)
            self._after_clear(evidence, now)

    def _clear_left(self, known: Reporter, said: Said, now: float) -> None:
        known.left.discard(said)
        for one in self._pop_fading(said):
            self._after_clear(one.evidence, now)

    def _clear_others(self, subject: Subject, source: str, now: float) -> None:
        """What vanished messengers left behind; the living speak for themselves."""
        sums = self._fading.get(subject, {})
        for key in [k for k in sums if k[0][0] == source]:
            self._after_clear(sums.pop(key).evidence, now)

    def _after_clear(self, evidence: Evidence, now: float) -> None:
        """An explicit all-clear: at once, but for a light trace that repeats add up."""
        self._note(evidence.subject)
        if evidence.weight > MILD and evidence.kind is not Kind.UNKNOWN:
            self._ease(evidence.subject)
        if evidence.weight > 0.0 and self._is_recovery(evidence):
            row = self._rules.signals["trace"]
            half_life_s = self._rules.half_life_s(evidence.family)
            self._fade(fading.trace(evidence, row.weight, row.cap, half_life_s, now), now)

    def _is_recovery(self, cleared: Evidence) -> bool:
        """Whether a trace is due: one for each recovery, when the last who said it stops.

        What was planned is no fault that one could recover from.
        """
        topic = (cleared.source, cleared.family)
        mark = (cleared.subject, *topic)
        others = self._standing.get(cleared.subject, {})
        if cleared.family is Family.OPERATOR or cleared.planned or mark in self._traced:
            return False
        unknown = cleared.kind is Kind.UNKNOWN
        if any(
            _topic(said) == topic and (unknown or not said.unknown) and not other.planned
            for (_, said), other in others.items()
        ):
            return False
        self._traced.add(mark)
        return True

    def _orphan(self, known: Reporter, said: Said, now: float) -> None:
        """No longer said, and no all-clear: it fades."""
        evidence = self._withdraw(known, said)
        if evidence is None:
            return
        self._note(said.subject)
        if evidence.kind is Kind.LEVEL:
            known.left.add(said)
            self._fade(fading.orphaned(evidence, self._orphan_half_life_s, now), now, renew=True)

    def _silence(self, known: Reporter, now: float) -> None:
        for said, evidence in list(known.standing.items()):
            if known.absent_is_clear:
                self._clear(known, said, now)
            elif evidence.kind is not Kind.LATCHED:
                self._orphan(known, said, now)
        known.events.clear()

    def _withdraw(self, known: Reporter, said: Said) -> Evidence | None:
        evidence = known.standing.pop(said, None)
        about = self._standing.get(said.subject)
        if about is not None:
            about.pop((known.name, said), None)
            if not about:
                del self._standing[said.subject]
        return evidence

    def _fade(self, event: Evidence, now: float, *, renew: bool = False) -> None:
        sums = self._fading.setdefault(event.subject, {})
        key = ((event.source, event.family), event.half_life_s, event.witness)
        if key not in sums:
            sums[key] = fading.starting(event, now)
        elif renew:
            sums[key].renew(event, now)
        else:
            sums[key].add(event, now)
        self._note(event.subject)

    def _fades(self, said: Said) -> list[_Sum]:
        sums = self._fading.get(said.subject, {})
        return [] if said.unknown else [k for k in sums if k[0] == _topic(said)]

    def _pop_fading(self, said: Said) -> list[Fading]:
        sums = self._fading.get(said.subject, {})
        return [sums.pop(key) for key in self._fades(said)]

    def _ease(self, subject: Subject) -> None:
        self._eased[subject] = self._eased.get(subject, 0) + 1

    def _begin(self) -> None:
        self._changed, self._traced = set(), set()

    def _note(self, subject: Subject) -> None:
        self._changed.add(subject)
        if isinstance(subject, UnitId):
            self._units[subject.node].add(subject)

    def _keep(self, known: Reporter) -> None:
        if known.standing or known.events or known.left:
            self._reporters[known.name] = known
        else:
            self._reporters.pop(known.name, None)


def _said(evidence: Evidence) -> Said:
    unknown = evidence.kind is Kind.UNKNOWN
    return Said(evidence.subject, evidence.source, evidence.family, unknown)


def _topic(said: Said) -> _Topic:
    return said.source, said.family


def _weight(evidence: Evidence) -> float:
    return evidence.weight


def _hides(standing: Evidence | None, fading: Weighed) -> bool:
    """Whether the score is the same without what fades."""
    if standing is None or fading.weight > standing.weight:
        return False
    return fading.evidence.together <= standing.together


def _settles(report: Report, said: Said) -> bool:
    """Whether a report that does not say it any more means that it is over."""
    return (
        report.absent_is_clear
        or said.source in report.settled
        or (said.subject, said.source) in report.cleared
    )
