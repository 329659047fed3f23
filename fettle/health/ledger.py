"""The ledger: all evidence that stands or fades, by subject and by reporter.

Reports come in per reporter. Its silence is an all-clear only where its report says so; else what
stood fades, and what was latched stays. Knows nothing of scores and states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator

import msgspec

from fettle.evidence.reports import Report
from fettle.evidence.rules import Rules
from fettle.health import fading, reporters, scoring
from fettle.health.fading import Fading
from fettle.health.reporters import Reporter, Said, Topic, settles
from fettle.model import Evidence, Family, Kind, NodeId, Subject, UnitId, Weighed

MILD = 0.10
"""The all-clear of something that weighs no more is not worth judging afresh."""


_Sum = tuple[Topic, float, str]
"""What fades adds up by topic, half-life and witness."""
_BySubject = dict[Subject, dict[tuple[str, Said], Evidence]]
"""By subject, then by the reporter's name and what it says."""


class Ledger:
    """Evidence by subject; every change is also noted in the set that `report` returns."""

    def __init__(self, rules: Rules, orphan_half_life_s: float) -> None:
        self._rules = rules
        self._orphan_half_life_s = orphan_half_life_s
        self._reporters: dict[str, Reporter] = {}
        self._standing: _BySubject = {}
        self._events: _BySubject = {}
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
        saying = {reporters.said(e): e for e in report.evidence}
        rebooted = bool(known.boot and report.boot and known.boot != report.boot)
        for said in [s for s in known.left if s not in saying and settles(report, s)]:
            self._clear_left(known, said, now)
        for left in report.left:
            if self._withdraw(known, reporters.said(left)) is not None:
                self._note(left.subject)
            self._leave(known, left, now)
        for said in [s for s in known.standing if s not in saying]:
            latched = known.standing[said].kind is Kind.LATCHED
            if settles(report, said) or (rebooted and latched):
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
        known.uid, known.boot, known.gone = report.uid, report.boot, False
        self._keep(known)
        return self._changed

    def vanish(self, reporter: str, now: float) -> set[Subject]:
        """The messenger is gone: what it said fades, or is clear where its silence says so."""
        self._begin()
        if (known := self._reporters.get(reporter)) is not None:
            self._silence(known, now)
            known.gone = True
            self._keep(known)
        return self._changed

    def forget(self, subject: Subject, now: float) -> set[Subject]:
        """The subject is gone, a node with its units; returns those of which anything was known.

        What reporters that are still there say is kept for its return.
        """
        gone: set[Subject] = set()
        if self.knows(subject) or subject in self._eased:
            gone.add(subject)
        if isinstance(subject, NodeId):
            gone |= self._units.pop(subject.node, set())
        for one in gone:
            self._eased.pop(one, None)
            self._fading.pop(one, None)
            for name, said in list(self._standing.get(one, ())):
                if self._reporters[name].gone:
                    self._withdraw(self._reporters[name], said)
                    self._keep(self._reporters[name])
            for event in self._events.get(one, {}).values():
                if not fading.starting(event, now).is_negligible(now):
                    self._fade(event, now)
            if isinstance(one, UnitId) and self.knows(one):
                self._units[one.node].add(one)
        return gone

    # -- what is asked

    def knows(self, subject: Subject) -> bool:
        return subject in self._standing or subject in self._fading

    def weighed(self, subject: Subject, now: float) -> Iterator[Weighed]:
        """All that counts about a subject; standing evidence hides weaker fading evidence on its
        topic.

        Witnesses add up, so what has one hides, and is hidden by, the word of the same one only.
        """
        standing: dict[tuple[Topic, str], Evidence] = {}
        for (_, said), evidence in self._standing.get(subject, {}).items():
            if not said.unknown:
                key = (said.topic, evidence.witness)
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

    def sweep(self, now: float, followed: Container[Subject]) -> set[UnitId]:
        """Let go of what has faded, of the events that made it, and of units not followed.

        Also of what reporters that are gone have latched, if their subject is not followed.
        Returns the units.
        """
        for subject, sums in list(self._fading.items()):
            for key in [k for k, one in sums.items() if one.is_negligible(now)]:
                del sums[key]
            if not sums:
                del self._fading[subject]
        for known in list(self._reporters.values()):
            known.left = {s for s in known.left if self._fades(s)}
            for said, event in list(known.events.items()):
                if fading.starting(event, now).is_negligible(now):
                    self._uncount(known, said)
            if known.gone:
                for said in [s for s in known.standing if s.subject not in followed]:
                    self._withdraw(known, said)
            self._keep(known)
        for subject in [s for s in self._eased if s not in followed and not self.knows(s)]:
            del self._eased[subject]
        let_go: set[UnitId] = set()
        for node, units in list(self._units.items()):
            over = {u for u in units if u not in followed and not self.knows(u)}
            let_go |= over
            units -= over
            if not units:
                del self._units[node]
        return let_go

    # -- one piece of evidence

    def _stand(self, known: Reporter, said: Said, evidence: Evidence) -> None:
        old = known.standing.get(said)
        if old is not None:
            if msgspec.structs.replace(evidence, observed_at=old.observed_at) == old:
                return  # said again: it stands since it was first said
            if old.weight - evidence.weight > MILD:
                self._ease(evidence)
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
        self._events.setdefault(said.subject, {})[known.name, said] = event
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
            self._ease(evidence)
        if evidence.weight > 0.0 and self._is_recovery(evidence):
            row = self._rules.signals["trace"]
            half_life_s = self._rules.half_life_s(evidence.family)
            self._fade(fading.trace(evidence, row.weight, row.cap, half_life_s, now), now)

    def _is_recovery(self, cleared: Evidence) -> bool:
        """Whether a trace is due: one for each recovery, when the last who said it stops.

        A planned state is not a fault to recover from.
        """
        topic = (cleared.source, cleared.family)
        mark = (cleared.subject, *topic)
        others = self._standing.get(cleared.subject, {})
        if cleared.family is Family.OPERATOR or cleared.planned or mark in self._traced:
            return False
        unknown = cleared.kind is Kind.UNKNOWN
        if any(
            said.topic == topic and (unknown or not said.unknown) and not other.planned
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
            self._leave(known, msgspec.structs.replace(evidence, observed_at=now), now)

    def _leave(self, known: Reporter, evidence: Evidence, now: float) -> None:
        """A level fault that is no longer reported fades from its `observed_at`."""
        said = reporters.said(evidence)
        left = fading.orphaned(evidence, self._orphan_half_life_s)
        is_known = any(
            left == self._fading[said.subject][key].evidence for key in self._fades(said)
        )
        if not is_known and not fading.starting(left, now).is_negligible(now):
            known.left.add(said)
            self._fade(left, now, renew=True)

    def _silence(self, known: Reporter, now: float) -> None:
        for said, evidence in list(known.standing.items()):
            if known.absent_is_clear:
                self._clear(known, said, now)
            elif evidence.kind is not Kind.LATCHED:
                self._orphan(known, said, now)
        for said in list(known.events):
            self._uncount(known, said)

    def _uncount(self, known: Reporter, said: Said) -> None:
        """The event stays in what fades, but no longer belongs to a present reporter."""
        del known.events[said]
        _drop(self._events, known, said)

    def _withdraw(self, known: Reporter, said: Said) -> Evidence | None:
        _drop(self._standing, known, said)
        return known.standing.pop(said, None)

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
        return [] if said.unknown else [k for k in sums if k[0] == said.topic]

    def _pop_fading(self, said: Said) -> list[Fading]:
        sums = self._fading.get(said.subject, {})
        return [sums.pop(key) for key in self._fades(said)]

    def _ease(self, evidence: Evidence) -> None:
        """What a tenant could cause never changed the state, so its end does not change it
        either.
        """
        if not evidence.witness:
            self._eased[evidence.subject] = self._eased.get(evidence.subject, 0) + 1

    def _begin(self) -> None:
        self._changed, self._traced = set(), set()

    def _note(self, subject: Subject) -> None:
        self._changed.add(subject)
        if isinstance(subject, UnitId):
            self._units[subject.node].add(subject)

    def _keep(self, known: Reporter) -> None:
        if known.is_over():
            self._reporters.pop(known.name, None)
        else:
            self._reporters[known.name] = known


def _drop(index: _BySubject, known: Reporter, said: Said) -> None:
    about = index.get(said.subject, {})
    about.pop((known.name, said), None)
    if not about:
        index.pop(said.subject, None)


def _weight(evidence: Evidence) -> float:
    return evidence.weight


def _hides(standing: Evidence | None, fading: Weighed) -> bool:
    """Whether the score is the same without what fades."""
    if standing is None or fading.weight > standing.weight:
        return False
    return fading.evidence.together <= standing.together
