"""The ledger: all evidence that stands or fades, by subject and by reporter.

Reports come in per reporter. Its silence is an all-clear only where its report says so; else what
stood fades, and what was latched stays. Knows nothing of scores and states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping

import msgspec

from fettle.health import fading
from fettle.health.fading import Fading
from fettle.health.reporters import (
    EvidenceIndex,
    EvidenceTopic,
    Reporter,
    Topic,
    effective_evidence,
    is_rebooted,
    is_same_evidence,
    settles,
    topic_of,
)
from fettle.health.score import weigh
from fettle.health.signals.reports import SignalReport
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import Evidence, EvidenceKind, Family, NodeId, Subject, UnitId, Weighed

MILD = 0.10
"""The all-clear of something that weighs no more is not worth judging afresh."""


class Ledger:
    """Evidence by subject; every change is also noted in the set that `report` returns."""

    def __init__(self, rules: SignalRules, orphan_half_life_s: float) -> None:
        self._rules = rules
        self._orphan_half_life_s = orphan_half_life_s
        self._reporters: dict[str, Reporter] = {}
        self._boots: dict[str, str] = {}
        self._standing, self._events = EvidenceIndex(), EvidenceIndex()
        self._fading = FadingSums()
        self._eased: dict[Subject, int] = {}
        self._units: dict[str, set[UnitId]] = defaultdict(set)
        self._changed: set[Subject] = set()
        self._traced: set[tuple[Subject, str, Family]] = set()

    # -- what is said

    def report(self, report: SignalReport, now: float) -> set[Subject]:
        """What one object says now; returns the subjects whose evidence changed."""
        self._begin()
        known = self._reporters.get(report.reporter) or Reporter(
            report.reporter, boot=self._boots.get(report.reporter, "")
        )
        if known.uid and report.uid and known.uid != report.uid:
            self._silence(known, now)
            known.remediated = None
        remediated = self._rules.signals["remediated"]
        saying = effective_evidence(known, report, remediated.weight)
        for said in [s for s in known.left if s not in saying and settles(report, s)]:
            self._clear_left(known, said, now)
        for left in report.left:
            if self._withdraw(known, topic_of(left)) is not None:
                self._note(left.subject)
            self._leave(known, left, now)
        self._end(known, report, saying, now)
        rebooted = is_rebooted(known, report)
        for subject, source in report.cleared | (report.of_boot if rebooted else frozenset()):
            self._clear_others(subject, source, now)
        for said, evidence in saying.items():
            if evidence.kind is EvidenceKind.DECAYING:
                self._count(known, said, evidence, now)
            else:
                self._stand(known, said, evidence)
        if report.boot:
            self._boots[report.reporter] = report.boot
        known.absent_is_clear = report.absent_is_clear
        known.uid, known.boot, known.gone = report.uid, report.boot, False
        self._keep(known)
        return self._changed

    def vanish(self, reporter: str, now: float) -> set[Subject]:
        """The messenger is gone: what it said fades, or is clear where its silence says so."""
        self._begin()
        self._boots.pop(reporter, None)
        if (known := self._reporters.get(reporter)) is not None:
            self._silence(known, now)
            known.gone, known.remediated = True, None
            self._keep(known)
        return self._changed

    def forget(self, subject: Subject, now: float, since: float = float("-inf")) -> set[Subject]:
        """The subject is gone, a node with its units; returns those of which anything was known.

        What reporters that are still there say is kept for its return, but for events from before
        `since`.
        """
        gone: set[Subject] = set()
        if self.knows(subject) or subject in self._eased:
            gone.add(subject)
        if isinstance(subject, NodeId):
            gone |= self._units.pop(subject.node, set())
        for one in gone:
            self._eased.pop(one, None)
            self._fading.forget(one)
            for name, said in list(self._standing.of(one)):
                if self._reporters[name].gone:
                    self._withdraw(self._reporters[name], said)
                    self._keep(self._reporters[name])
            for event in self._events.of(one).values():
                if event.observed_at >= since and not fading.starting(event, now).is_negligible(
                    now
                ):
                    self._fade(event, now)
            if isinstance(one, UnitId) and self.knows(one):
                self._units[one.node].add(one)
        return gone

    # -- what is asked

    def knows(self, subject: Subject) -> bool:
        return subject in self._standing or subject in self._fading

    def weighed(self, subject: Subject, now: float) -> Iterator[Weighed]:
        """All that counts about a subject."""
        standing = self._standing.of(subject)
        yield from map(weigh, standing.values())
        yield from self._fading.unhidden(subject, standing, now)

    def fading(self, subject: Subject, now: float) -> Iterator[Fading]:
        return (one for _, one in self._fading.of(subject, now))

    def eased(self, subject: Subject) -> int:
        """How many all-clears that matter there have been about a subject."""
        return self._eased.get(subject, 0)

    def units(self, node: str) -> set[UnitId]:
        return set(self._units.get(node, ()))

    def sweep(
        self, now: float, followed: Container[Subject], remembered: Container[Subject]
    ) -> set[UnitId]:
        """Let go of what has faded, of the events that made it, and of units not remembered.

        Also of what reporters that are gone have latched, if their subject is not followed.
        Returns the units.
        """
        self._fading.sweep(now)
        for known in list(self._reporters.values()):
            known.left = {s for s in known.left if self._fading.about(s)}
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
            over = {u for u in units if u not in remembered and not self.knows(u)}
            let_go |= over
            units -= over
            if not units:
                del self._units[node]
        return let_go

    # -- one piece of evidence

    def _end(
        self,
        known: Reporter,
        report: SignalReport,
        saying: dict[EvidenceTopic, Evidence],
        now: float,
    ) -> None:
        """What stood and is said no more: said otherwise now, over, still latched, or fading."""
        rebooted = is_rebooted(known, report)
        for said, evidence in known.by_weight():
            if said in saying:
                continue
            if said.counterpart in saying:
                self._withdraw(known, said)
                self._replace(evidence, saying[said.counterpart])
            elif settles(report, said) or (rebooted and said.latched):
                self._clear(known, said, now)
            else:
                self._unsaid(known, said, now)

    def _replace(self, old: Evidence, new: Evidence) -> None:
        self._note(old.subject)
        if old.weight - new.weight > MILD:
            self._ease(new)

    def _stand(self, known: Reporter, said: EvidenceTopic, evidence: Evidence) -> None:
        old = known.standing.get(said)
        if old is not None:
            if is_same_evidence(evidence, old):
                return  # said again: it stands since it was first said
            if evidence.text == fading.as_said(old.text):
                evidence = msgspec.structs.replace(evidence, observed_at=old.observed_at)
            self._replace(old, evidence)
        known.left.discard(said)
        known.standing[said] = evidence
        self._standing.put(known, said, evidence)
        self._note(said.subject)

    def _count(self, known: Reporter, said: EvidenceTopic, event: Evidence, now: float) -> None:
        """An event, once per reporter; it takes the place of a fault that stood."""
        if self._withdraw(known, said) is not None:
            self._note(said.subject)
        if said in known.events:
            return
        known.events[said] = event
        self._events.put(known, said, event)
        if not fading.starting(event, now).is_negligible(now):
            self._fade(event, now)

    def _clear(self, known: Reporter, said: EvidenceTopic, now: float) -> None:
        if (evidence := self._withdraw(known, said)) is not None:
            self._fading.pop(said)
            self._after_clear(evidence, now)

    def _clear_left(self, known: Reporter, said: EvidenceTopic, now: float) -> None:
        known.left.discard(said)
        for one in self._fading.pop(said):
            self._after_clear(one.evidence, now)

    def _clear_others(self, subject: Subject, source: str, now: float) -> None:
        """What vanished messengers left behind; the living speak for themselves."""
        for one in self._fading.pop_source(subject, source):
            self._after_clear(one.evidence, now)

    def _after_clear(self, evidence: Evidence, now: float) -> None:
        """An explicit all-clear: at once, but for a light trace that repeats add up."""
        self._note(evidence.subject)
        if evidence.weight > MILD and evidence.kind is not EvidenceKind.UNKNOWN:
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
        others = self._standing.of(cleared.subject)
        if cleared.family is Family.OPERATOR or cleared.planned or mark in self._traced:
            return False
        unknown = cleared.kind is EvidenceKind.UNKNOWN
        if any(
            said.topic == topic and (unknown or not said.unknown) and not other.planned
            for (_, said), other in others.items()
        ):
            return False
        self._traced.add(mark)
        return True

    def _unsaid(self, known: Reporter, said: EvidenceTopic, now: float) -> None:
        """No longer said, and no all-clear: it fades, or stands if it is latched."""
        if said.latched:
            self._latch(known, said)
        else:
            self._orphan(known, said, now)

    def _latch(self, known: Reporter, said: EvidenceTopic) -> None:
        before = known.standing[said]
        text = fading.as_said(before.text) + fading.LATCHED
        if text != before.text:
            known.standing[said] = latched = msgspec.structs.replace(before, text=text)
            self._standing.put(known, said, latched)
            self._note(said.subject)

    def _orphan(self, known: Reporter, said: EvidenceTopic, now: float) -> None:
        evidence = self._withdraw(known, said)
        if evidence is None:
            return
        self._note(said.subject)
        if evidence.kind is EvidenceKind.LEVEL:
            self._leave(known, msgspec.structs.replace(evidence, observed_at=now), now)

    def _leave(self, known: Reporter, evidence: Evidence, now: float) -> None:
        """A level fault that is no longer reported fades from its `observed_at`.

        That is reckoned anew with every look at a silent one's object; the first counts.
        """
        said = topic_of(evidence)
        left = fading.orphaned(evidence, self._orphan_half_life_s)
        is_known = said in known.left and any(
            is_same_evidence(left, one.evidence) for one in self._fading.about(said)
        )
        if not is_known and not fading.starting(left, now).is_negligible(now):
            known.left.add(said)
            self._fade(left, now, renew=True)

    def _silence(self, known: Reporter, now: float) -> None:
        for said, _ in known.by_weight():
            if known.absent_is_clear:
                self._clear(known, said, now)
            else:
                self._unsaid(known, said, now)
        for said in list(known.events):
            self._uncount(known, said)

    def _uncount(self, known: Reporter, said: EvidenceTopic) -> None:
        """The event stays in what fades, but no longer belongs to a present reporter."""
        del known.events[said]
        self._events.drop(known, said)

    def _withdraw(self, known: Reporter, said: EvidenceTopic) -> Evidence | None:
        self._standing.drop(known, said)
        return known.standing.pop(said, None)

    def _fade(self, event: Evidence, now: float, *, renew: bool = False) -> None:
        self._fading.add(event, now, renew=renew)
        self._note(event.subject)

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


_SumKey = tuple[Topic, float, str]


class FadingSums:
    """What does not count any more stays until it is swept."""

    def __init__(self) -> None:
        self._sums: dict[Subject, dict[_SumKey, Fading]] = {}

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._sums

    def of(self, subject: Subject, now: float) -> Iterator[tuple[_SumKey, Fading]]:
        """Those that still count."""
        for key, one in self._sums.get(subject, {}).items():
            if not one.is_negligible(now):
                yield key, one

    def unhidden(
        self, subject: Subject, standing: Mapping[tuple[str, EvidenceTopic], Evidence], now: float
    ) -> Iterator[Weighed]:
        """Those that count beside what stands: that hides what is weaker on its topic.

        Witnesses add up, so what has one hides, and is hidden by, the word of the same one only.
        """
        heaviest: dict[tuple[Topic, str], Evidence] = {}
        for (_, said), evidence in standing.items():
            if not said.unknown:
                key = (said.topic, evidence.witness)
                heaviest[key] = max(evidence, heaviest.get(key, evidence), key=_weight)
        for (topic, _, witness), one in self.of(subject, now):
            weighed = one.weighed(now)
            if not _hides(heaviest.get((topic, witness)), weighed):
                yield weighed

    def about(self, said: EvidenceTopic) -> list[Fading]:
        """Those on its topic."""
        sums = self._sums.get(said.subject, {})
        return [] if said.unknown else [one for key, one in sums.items() if key[0] == said.topic]

    def add(self, event: Evidence, now: float, *, renew: bool = False) -> None:
        """One more event; with `renew` the same fact once more."""
        sums = self._sums.setdefault(event.subject, {})
        key = ((event.source, event.family), event.half_life_s, event.witness)
        if key not in sums:
            sums[key] = fading.starting(event, now)
        elif renew:
            sums[key].renew(event, now)
        else:
            sums[key].add(event, now)

    def pop(self, said: EvidenceTopic) -> list[Fading]:
        """Those on its topic, which are over."""
        sums = self._sums.get(said.subject, {})
        over = [] if said.unknown else [key for key in sums if key[0] == said.topic]
        return [sums.pop(key) for key in over]

    def pop_source(self, subject: Subject, source: str) -> list[Fading]:
        """Those of one source, which are over."""
        sums = self._sums.get(subject, {})
        return [sums.pop(key) for key in [key for key in sums if key[0][0] == source]]

    def forget(self, subject: Subject) -> None:
        self._sums.pop(subject, None)

    def sweep(self, now: float) -> None:
        """Let go of what has faded."""
        for subject, sums in list(self._sums.items()):
            for key in [key for key, one in sums.items() if one.is_negligible(now)]:
                del sums[key]
            if not sums:
                del self._sums[subject]


def _weight(evidence: Evidence) -> float:
    return evidence.weight


def _hides(standing: Evidence | None, fading: Weighed) -> bool:
    """Whether the score is the same without what fades."""
    if standing is None or fading.weight > standing.weight:
        return False
    return fading.evidence.together <= standing.together
