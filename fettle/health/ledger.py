"""The ledger: all evidence that stands or fades, by subject and by reporter.

Reports come in per reporter. Silence is an all-clear only where the report says so. Otherwise what
stood fades, and what was latched stays. Knows nothing of scores and states.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Set
from copy import copy
from math import inf

import msgspec

from fettle.api.meta import unix_s
from fettle.api.own_group import StoredEvidence, StoredReport
from fettle.health import fading, former, memory, probation
from fettle.health.fading import Fading, FadingSums, Past, SumKey, sum_key
from fettle.health.score import weigh
from fettle.health.signals.metrics import MetricSource, is_of_metrics, metric_source_of
from fettle.health.signals.operator_words import NodeRepairs
from fettle.health.signals.reports import (
    EvidenceIndex,
    EvidenceTopic,
    Reporter,
    SignalReport,
    StatedRepair,
    effective_evidence,
    is_rebooted,
    is_same_evidence,
    settles,
    topic_of,
    without_outdated,
)
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import (
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    NodeId,
    ReporterId,
    Source,
    Standing,
    Subject,
    UnitId,
    Weighed,
)

MILD = 0.10
"""The all-clear of something that weighs no more than this does not change a state."""
NOTED_S = 3600.0
"""After so long nobody writes what it was before."""


class Ledger:
    """Evidence by subject. Every change is also recorded in the set that `report` returns."""

    def __init__(self, rules: SignalRules, orphan_half_life_s: float) -> None:
        self._rules = rules
        self._orphan_half_life_s = orphan_half_life_s
        self._reporters: dict[ReporterId, Reporter] = {}
        self._boots: dict[ReporterId, str] = {}
        self._standing, self._events = EvidenceIndex(), EvidenceIndex()
        self._fading = FadingSums()
        self._all_clears: dict[Subject, int] = {}
        self._faults: dict[Subject, tuple[float, ...]] = {}
        """When grave faults of the last 28 days were over."""
        self._units: dict[str, set[UnitId]] = defaultdict(set)
        self._changed: set[Subject] = set()
        self._with_trace: set[tuple[Subject, Source, Family]] = set()
        self._now = 0.0
        self._noted_at: dict[Subject, float] = {}
        """When we last saw something change about a subject."""
        self.repairs = NodeRepairs(rules.mended_by_reboot)
        self._metric_reporters: dict[MetricSource, set[ReporterId]] = defaultdict(set)
        """By rule or alert, reporters that only the process that asks for metrics reads. The others
        adopt what it stores."""
        self.polls = False
        """Whether this process asks for metrics itself. If not, it adopts what another stores."""
        self._unconfirmed: set[ReporterId] = set()
        """Reporters of what was remembered, which may be gone meanwhile."""

    # -- reports in

    def report(self, report: SignalReport, now: float) -> set[Subject]:
        """What one object says now. Returns the subjects whose evidence changed."""
        self._begin(now)
        self._unconfirmed.discard(report.reporter)
        reporter = self._reporters.get(report.reporter) or Reporter(
            report.reporter, boot=self._boots.get(report.reporter, "")
        )
        if reporter.uid and report.uid and reporter.uid != report.uid:
            self._silence(reporter, now)
            reporter.remediated = None
        rebooted = is_rebooted(reporter, report)
        node = report.node
        if node is not None and self.repairs.take_report(report, node, now, rebooted=rebooted):
            for subject in (node, *self._units.get(node.node, ())):
                self._note_change(subject)
        remediated = self._rules.signals["remediated"]
        report = without_outdated(reporter, report, self.repairs.mended_by_reboot)
        current = effective_evidence(reporter, report, remediated.weight)
        for topic in [s for s in reporter.orphaned if s not in current and settles(report, s)]:
            self._clear_orphan(reporter, topic, now)
        for stale in report.stale:
            if self._withdraw(reporter, topic_of(stale)) is not None:
                self._note(stale.subject)
            self._leave_orphan(reporter, stale, now)
        self._end(reporter, report, current, now)
        for subject, source in report.cleared | (
            report.ended_by_repair if rebooted else frozenset()
        ):
            self._clear_others(subject, source, now)
        for topic, evidence in current.items():
            if evidence.kind is EvidenceKind.DECAYING:
                self._count(reporter, topic, evidence, now)
            else:
                self._stand(reporter, topic, evidence)
        if report.boot:
            self._boots[report.reporter] = report.boot
        reporter.absent_is_clear = report.absent_is_clear
        reporter.uid, reporter.boot, reporter.gone = report.uid, report.boot, False
        self._keep(reporter)
        for repair in report.repairs:
            self._end_unreported(repair, now)
            for subject, source in report.ended_by_repair:
                if subject == repair.subject:
                    self._clear_others(subject, source, now, until=repair.at)
        if rebooted and report.node is not None:
            self._end_unmeasured(report.node.node, now)
        return self._changed

    def vanish(self, who: ReporterId, now: float) -> set[Subject]:
        """A reporter is gone. What it said fades, or is over where its silence means that."""
        self._begin(now)
        self._unconfirmed.discard(who)
        self._boots.pop(who, None)
        if (reporter := self._reporters.get(who)) is not None:
            self._silence(reporter, now)
            reporter.gone, reporter.remediated = True, None
            self._keep(reporter)
        return self._changed

    def forget(self, subject: Subject, now: float, since: float = float("-inf")) -> set[Subject]:
        """The subject is gone; a node takes its units along. Returns those about which anything was
        known.

        What living reporters say is kept for the subject's return, except events from before
        `since`.
        """
        gone: set[Subject] = set()
        if self.knows(subject) or subject in self._all_clears:
            gone.add(subject)
        if isinstance(subject, NodeId):
            self.repairs.forget(subject)
            gone |= self._units.pop(subject.node, set())
            self._forget_faults(subject.node)
        for one in gone:
            self._all_clears.pop(one, None)
            self._fading.forget(one)
            for who, topic in list(self._standing.of(one)):
                if self._reporters[who].gone:
                    self._withdraw(self._reporters[who], topic)
                    self._keep(self._reporters[who])
            for event in self._events.of(one).values():
                if event.observed_at >= since and not fading.starting(event, now).is_negligible(
                    now
                ):
                    self._fade(event, now)
            if isinstance(one, UnitId) and self.knows(one):
                self._units[one.node].add(one)
        return gone

    # -- evidence out

    def knows(self, subject: Subject) -> bool:
        return subject in self._standing or subject in self._fading

    def knows_none(self, subjects: Collection[Subject]) -> bool:
        return self._standing.knows_none(subjects) and self._fading.knows_none(subjects)

    def stands(self, subject: Subject) -> bool:
        """Whether anybody says something of it now."""
        return subject in self._standing

    def weighed(self, subject: Subject, now: float, past: Past) -> Iterator[Weighed]:
        """All that counts about a subject."""
        standing = self._standing.of(subject)
        yield from map(weigh, standing.values())
        yield from self._fading.unhidden(subject, standing, now, past)

    def fading(self, subject: Subject, now: float) -> Iterator[Fading]:
        return (one for _, one in self._fading.of(subject, now))

    def faults(self, subjects: Iterable[Subject], now: float) -> tuple[float, ...]:
        """When distinct grave faults of the last 28 days of something with these names were
        over."""
        if self._faults.keys().isdisjoint(subjects):
            return ()
        times = [at for s in subjects for at in self._faults.get(s, ())]
        return probation.faults(times, now)

    def foreseen_traces(self, over: Collection[Evidence], now: float) -> list[Fading]:
        """The traces that there will be if this evidence is over, with those that are there."""
        found: dict[SumKey, Fading] = {}
        for one in over:
            standing = self._standing.of(one.subject).values()
            still = any(
                topic_of(e).cause == topic_of(one).cause and e not in over for e in standing
            )
            if one.weight > 0.0 and not still and leaves_trace(one):
                left = self._trace_of(one, now)
                there = dict(self._fading.of(one.subject, now)).get(sum_key(left))
                trace = fading.starting(left, now) if there is None else copy(there)
                if there is not None:
                    trace.add(left, now)
                found.setdefault(sum_key(left), trace)
        return list(found.values())

    def _trace_of(self, cleared: Evidence, now: float) -> Evidence:
        row = self._rules.signals["trace"]
        half_life_s = self._rules.half_life_s(cleared.family)
        return fading.trace(cleared, row.weight, row.cap, half_life_s, now)

    def all_clears(self, subject: Subject) -> int:
        """How many all-clears that matter there have been about a subject."""
        return self._all_clears.get(subject, 0)

    def units(self, node: str) -> set[UnitId]:
        """Device-plugin units on a node about which something is said, or was lately."""
        return set(self._units.get(node, ()))

    def named_units(self, node: str) -> list[UnitId]:
        """The units of which somebody says something now, and gives them more than one name."""
        return [unit for unit in self.units(node) if unit.others and self.stands(unit)]

    def sweep(
        self, now: float, stored: Container[Subject], remembered: Container[Subject]
    ) -> set[UnitId]:
        """Forget what has faded, the events behind it, and units not remembered. Returns those
        units.

        Also forget what reporters that are gone have latched, of subjects that are not `stored`.
        """
        self._fading.sweep(now)
        for subject, times in list(self._faults.items()):
            if not probation.faults(times, now):
                del self._faults[subject]
        for reporter in list(self._reporters.values()):
            reporter.orphaned = {s for s in reporter.orphaned if self._fading.about(s)}
            for topic, event in list(reporter.events.items()):
                if fading.starting(event, now).is_negligible(now):
                    self._uncount(reporter, topic)
            if reporter.gone:
                for topic in [s for s in reporter.standing if s.subject not in stored]:
                    self._withdraw(reporter, topic)
            self._keep(reporter)
        for subject in [s for s in self._all_clears if s not in stored and not self.knows(s)]:
            del self._all_clears[subject]
        for subject in [s for s, at in self._noted_at.items() if now - at > NOTED_S]:
            del self._noted_at[subject]
        let_go: set[UnitId] = set()
        for node, units in list(self._units.items()):
            over = {u for u in units if u not in remembered and not self.knows(u)}
            let_go |= over
            units -= over
            if not units:
                del self._units[node]
        return let_go

    # -- memory, out and in

    def recall(self, subject: Subject, now: float) -> Iterator[StoredEvidence]:
        """All that is known of a subject, as it is stored."""
        for (who, _), evidence in sorted(self._standing.of(subject).items()):
            yield memory.stored_standing(self._reporters[who], evidence)
        told: dict[SumKey, list[tuple[Evidence, StoredReport]]] = defaultdict(list)
        for (who, _), event in self._events.of(subject).items():
            uid, at = self._reporters[who].uid, memory.time_of(event.observed_at)
            told[sum_key(event)].append((event, memory.stored_report(who, uid, at)))
        for key, one in self._fading.of(subject, now):
            reports = [report for _, report in told.pop(key, ())]
            yield memory.stored_sum(one, reports + self._left(subject, one))
        for counted in told.values():  # it is over, and whoever told of it is still there
            latest = max((event for event, _ in counted), key=lambda event: event.observed_at)
            over = Fading(latest, 0.0, min(latest.observed_at, now), len(counted))
            yield memory.stored_sum(over, [report for _, report in counted])

    def _left(self, subject: Subject, one: Fading) -> list[StoredReport]:
        """The reporter that left it without an all-clear, if it is still there."""
        last = self._reporters.get(one.evidence.reporter)
        if last is None:
            return []
        left = any(
            (t.subject, t.cause) == (subject, sum_key(one.evidence)[0]) for t in last.orphaned
        )
        return [memory.stored_report(last.id, last.uid, left=True)] if left else []

    def recall_remediated(self, who: ReporterId) -> tuple[str, ...]:
        """The faults of a reporter that a remediation has dealt with."""
        reporter = self._reporters.get(who)
        remediated = reporter.remediated if reporter is not None else None
        return tuple(sorted((remediated or Counter()).elements()))

    def adopt_reporter(
        self, who: ReporterId, uid: str, boot: str, remediated: Iterable[str]
    ) -> None:
        """What another process, or the one before, knew of an object that reports. Only at a start,
        before the object itself is heard."""
        self._boots[who] = boot
        if found := Counter(remediated):
            self._remember_reporter(who, uid).remediated = found

    def adopt(
        self,
        subject: Subject,
        stored: Iterable[StoredEvidence],
        observed_at: float,
        now: float,
        *,
        starting: bool,
    ) -> set[Subject]:
        """What another process, or the one before, knew of a subject at `observed_at`. Returns the
        subjects whose evidence changed.

        What we saw change since is ours to tell. Otherwise the word of the one that writes replaces
        what fades, so nothing is counted twice, and all replicas agree. At a start it also brings
        what stood: the objects that said so are read next, and `all_read` ends what nobody says.
        """
        self._begin(now)
        stored = tuple(map(former.in_values, stored))
        if not starting and not self.polls:
            self._adopt_measured(subject, stored, now)
        noted_at = self._noted_at.get(subject)
        if noted_at is not None and (starting or noted_at >= observed_at):
            return self._changed
        sums: dict[SumKey, Fading] = {}
        for one in stored:
            if not memory.is_possible(one, now):
                continue
            evidence = memory.evidence_of(one, subject)
            topic = topic_of(evidence)
            if memory.is_fading(one):
                sums[sum_key(evidence)] = memory.sum_of(one, evidence, now)
                for report in one.reports:
                    self._adopt_report(report, evidence, topic, now)
            elif starting and self._is_still_a_rule(evidence):
                self._adopt_standing(one, evidence, topic)
        if self._fading.replace(subject, sums, now) or starting:
            self._note_change(subject)
        return self._changed

    def _adopt_measured(
        self, subject: Subject, stored: Iterable[StoredEvidence], now: float
    ) -> None:
        """What metrics say stands is the word of the one that asks for them, and over by it."""
        said: dict[tuple[ReporterId, EvidenceTopic], StoredEvidence] = {}
        for one in stored:
            if one.reports and not memory.is_fading(one) and memory.is_possible(one, now):
                evidence = memory.evidence_of(one, subject)
                if is_of_metrics(evidence.reporter):
                    said[evidence.reporter, topic_of(evidence)] = one
        for who, topic in [key for key in self._standing.of(subject) if is_of_metrics(key[0])]:
            if (who, topic) not in said:
                reporter = self._reporters[who]
                ended = self._withdraw(reporter, topic)
                self._keep(reporter)
                if ended is not None and ended.weight > MILD:
                    self._count_all_clear(ended)
                self._note_change(subject)
        for (who, topic), one in said.items():
            evidence = memory.evidence_of(one, subject)
            before = self._standing.of(subject).get((who, topic))
            if before is None or not is_same_evidence(before, evidence):
                self._adopt_standing(one, evidence, topic)
                self._note_change(subject)

    def unmeasured(self, node: str, named: Set[Subject], now: float) -> set[Subject]:
        """Whoever asks for metrics stored all that they say on a node: nothing but of those that
        are `named`."""
        self._begin(now)
        if not self.polls:
            said = [self._reporters[who] for who in self.metric_reporters_on(node)]
            for subject in {topic.subject for each in said for topic in each.standing} - named:
                self._adopt_measured(subject, (), now)
        return self._changed

    def metric_reporters_on(self, node: str) -> list[ReporterId]:
        """The reporters of metrics and alerts on one node."""
        return [
            who for known in self._metric_reporters.values() for who in known if who.node == node
        ]

    def metric_reporters(self) -> Mapping[MetricSource, Set[ReporterId]]:
        """By rule or alert, the reporters that say something, or did lately."""
        return self._metric_reporters

    def reported_by(self, who: ReporterId) -> set[Subject]:
        """What a reporter said something of, and no all-clear since."""
        reporter = self._reporters.get(who)
        if reporter is None:
            return set()
        return {topic.subject for topic in (*reporter.standing, *reporter.orphaned)}

    def reporters_of(self, subject: Subject) -> set[ReporterId]:
        """Whoever said of it what stands, or what happened."""
        return {who for at in (self._standing, self._events) for who, _ in at.of(subject)}

    def standing(self, who: ReporterId) -> Mapping[EvidenceTopic, Evidence]:
        """What a reporter says stands."""
        reporter = self._reporters.get(who)
        return reporter.standing if reporter is not None else {}

    def _is_still_a_rule(self, evidence: Evidence) -> bool:
        return evidence.kind is not EvidenceKind.LATCHED or self._rules.may_latch(evidence.source)

    def _adopt_standing(
        self, stored: StoredEvidence, evidence: Evidence, topic: EvidenceTopic
    ) -> None:
        reporter = self._remember_reporter(evidence.reporter, stored.reports[0].uid)
        reporter.absent_is_clear, reporter.gone = stored.silence_clears, stored.gone
        reporter.standing[topic] = evidence
        self._standing.put(reporter, topic, evidence)
        if is_of_metrics(reporter.id):
            self._metric_reporters[metric_source_of(reporter.id)].add(reporter.id)
        elif not stored.gone:
            self._unconfirmed.add(reporter.id)

    def _adopt_report(
        self, report: StoredReport, evidence: Evidence, topic: EvidenceTopic, now: float
    ) -> None:
        """This reporter is part of the sum already: it is not counted again, and its all-clear
        counts."""
        who = memory.reporter_of(report)
        reporter = self._reporters.get(who)
        if reporter is not None and reporter.uid != report.uid:
            return
        if report.left:
            self._remember_reporter(who, report.uid).orphaned.add(topic)
        elif reporter is None or topic not in reporter.events:
            reporter = self._remember_reporter(who, report.uid)
            at = min(unix_s(report.at, evidence.observed_at), now)
            event = msgspec.structs.replace(evidence, reporter=who, observed_at=at)
            reporter.events[topic] = event
            self._events.put(reporter, topic, event)

    def _remember_reporter(self, who: ReporterId, uid: str) -> Reporter:
        reporter = self._reporters.get(who)
        if reporter is None:
            reporter = self._reporters[who] = Reporter(who, uid=uid, boot=self._boots.get(who, ""))
        return reporter

    def all_read(self, now: float) -> set[Subject]:
        """All objects have been read once: the reporters that were remembered, and are not among
        them, are gone."""
        changed: set[Subject] = set()
        for who in sorted(self._unconfirmed):
            changed |= self.vanish(who, now)
        return changed

    # -- repairs

    def adopt_faults(self, subject: Subject, times: Iterable[float], now: float) -> set[Subject]:
        """The record that another process, or the one before, knew of. Returns the subject if that
        is news."""
        before = self._faults.get(subject, ())
        found = probation.faults((*before, *times), now, memory.CLOCKS_APART_S)
        if len(found) == len(before):
            return set()
        self._faults[subject] = found
        if len(found) > 1 and isinstance(subject, UnitId):
            self._units[subject.node].add(subject)
        return {subject}

    def _forget_faults(self, node: str) -> None:
        """The node is another one, and so are its devices: drivers name their pools after it."""
        for subject in list(self._faults):
            if (subject.pool if isinstance(subject, DeviceId) else subject.node) == node:
                del self._faults[subject]

    def _end_unreported(self, repair: StatedRepair, now: float) -> None:
        """An operator's word ends what was there before and nobody reports any more."""
        node = repair.subject
        units = self._units.get(node.node, ()) if isinstance(node, NodeId) else ()
        for subject in (repair.subject, *units):
            for (who, topic), evidence in [*self._standing.of(subject).items()]:
                if evidence.standing is Standing.LATCHED and evidence.observed_at <= repair.at:
                    reporter = self._reporters[who]
                    self._clear(reporter, topic, now)
                    self._keep(reporter)
            for one in self._fading.pop_unreported(subject, repair.at):
                self._after_clear(one.evidence, now)

    def _end_unmeasured(self, node: str, now: float) -> None:
        """A reboot ends what metrics latched, if it mends that and they do not show it any more."""
        for reporter in [self._reporters[who] for who in self.metric_reporters_on(node)]:
            for topic, evidence in reporter.by_weight():
                is_mended = topic.family in self.repairs.mended_by_reboot
                if is_mended and evidence.standing is Standing.LATCHED:
                    self._clear(reporter, topic, now)
            self._keep(reporter)

    # -- one piece of evidence

    def _end(
        self,
        reporter: Reporter,
        report: SignalReport,
        current: dict[EvidenceTopic, Evidence],
        now: float,
    ) -> None:
        """For what stood and is not repeated: it is replaced, was wrong, is over, is still latched,
        or fades."""
        for topic, evidence in reporter.by_weight():
            if topic in current:
                continue
            if topic.counterpart in current:
                self._withdraw(reporter, topic)
                self._replace(evidence, current[topic.counterpart])
            elif topic.subject in report.retracted:
                self._withdraw(reporter, topic)
                self._note(topic.subject)
            elif settles(report, topic) or self._went_with_a_reboot(report, evidence, now):
                self._clear(reporter, topic, now)
            else:
                self._no_longer_reported(reporter, topic, now)

    def _went_with_a_reboot(self, report: SignalReport, evidence: Evidence, now: float) -> bool:
        """Whether what a Node said before a reboot is gone with it. A monitor may take a condition
        back only once it runs again."""
        at = self.repairs.rebooted_at(report.node) if report.node is not None else None
        if at is None or at == now:  # rebooted just now: whatever the node's clock says
            return at is not None
        return evidence.observed_at <= at and now - at <= fading.REPAIR_SHOWS_S

    def _replace(self, old: Evidence, new: Evidence) -> None:
        self._note(old.subject)
        if old.weight - new.weight > MILD:
            self._count_all_clear(new)

    def _stand(self, reporter: Reporter, topic: EvidenceTopic, evidence: Evidence) -> None:
        old = reporter.standing.get(topic)
        if old is not None:
            if is_same_evidence(evidence, old):
                return  # repeated: it stands since it was first said
            if evidence.said == old.said:
                evidence = msgspec.structs.replace(evidence, observed_at=old.observed_at)
            self._replace(old, evidence)
        reporter.orphaned.discard(topic)
        reporter.standing[topic] = evidence
        self._standing.put(reporter, topic, evidence)
        self._note(topic.subject)

    def _count(self, reporter: Reporter, topic: EvidenceTopic, event: Evidence, now: float) -> None:
        """An event counts once per reporter. It replaces a fault that stood.

        A pod is refused once. When it is read again, nobody can tell any more who placed it, and
        the first report stays.
        """
        if self._withdraw(reporter, topic) is not None:
            self._note(topic.subject)
        refused_before = topic.family is Family.ADMISSION and any(
            known.family is Family.ADMISSION for known in reporter.events
        )
        if topic in reporter.events or refused_before:
            return
        reporter.events[topic] = event
        self._events.put(reporter, topic, event)
        if not fading.starting(event, now).is_negligible(now):
            self._fade(event, now)

    def _clear(self, reporter: Reporter, topic: EvidenceTopic, now: float) -> None:
        if (evidence := self._withdraw(reporter, topic)) is not None:
            self._fading.pop(topic)
            self._after_clear(evidence, now)

    def _clear_orphan(self, reporter: Reporter, topic: EvidenceTopic, now: float) -> None:
        reporter.orphaned.discard(topic)
        for one in self._fading.pop(topic):
            self._after_clear(one.evidence, now)

    def _clear_others(
        self, subject: Subject, source: Source, now: float, *, until: float = inf
    ) -> None:
        """Clears what vanished reporters left behind. Living ones speak for themselves."""
        for one in self._fading.pop_source(subject, source, until):
            self._after_clear(one.evidence, now)

    def _after_clear(self, evidence: Evidence, now: float) -> None:
        """An explicit all-clear takes effect at once, except for a light trace; traces of repeated
        faults add up."""
        self._note(evidence.subject)
        if evidence.weight > MILD and evidence.kind is not EvidenceKind.UNKNOWN:
            self._count_all_clear(evidence)
        if evidence.weight > 0.0 and self._is_recovery(evidence):
            if probation.is_on_record(evidence):
                self.adopt_faults(evidence.subject, (now,), now)
            self._fade(self._trace_of(evidence, now), now)

    def _is_recovery(self, cleared: Evidence) -> bool:
        """Whether a trace is due: one per recovery, when the last reporter of the fault stops."""
        cause = (cleared.source, cleared.family)
        mark = (cleared.subject, *cause)
        others = self._standing.of(cleared.subject)
        if not leaves_trace(cleared) or mark in self._with_trace:
            return False
        unknown = cleared.kind is EvidenceKind.UNKNOWN
        if any(
            topic.cause == cause and (unknown or not topic.unknown) and not other.planned
            for (_, topic), other in others.items()
        ):
            return False
        self._with_trace.add(mark)
        return True

    def _no_longer_reported(self, reporter: Reporter, topic: EvidenceTopic, now: float) -> None:
        """No longer reported, without an all-clear: it fades, or stands if it is latched."""
        if topic.latched:
            self._latch(reporter, topic)
        else:
            self._orphan(reporter, topic, now)

    def _latch(self, reporter: Reporter, topic: EvidenceTopic) -> None:
        before = reporter.standing[topic]
        if before.standing is not Standing.LATCHED:
            latched = msgspec.structs.replace(before, standing=Standing.LATCHED)
            reporter.standing[topic] = latched
            self._standing.put(reporter, topic, latched)
            self._note(topic.subject)

    def _orphan(self, reporter: Reporter, topic: EvidenceTopic, now: float) -> None:
        evidence = self._withdraw(reporter, topic)
        if evidence is None:
            return
        self._note(topic.subject)
        if evidence.kind is EvidenceKind.LEVEL:
            self._leave_orphan(reporter, msgspec.structs.replace(evidence, observed_at=now), now)

    def _leave_orphan(self, reporter: Reporter, evidence: Evidence, now: float) -> None:
        """A level fault that is no longer reported fades from its `observed_at`.

        For a silent producer that time is computed again with each report; the first one counts.
        """
        topic = topic_of(evidence)
        left = fading.orphaned(evidence, self._orphan_half_life_s)
        is_known = topic in reporter.orphaned and any(
            is_same_evidence(left, one.evidence) for one in self._fading.about(topic)
        )
        if not is_known and not fading.starting(left, now).is_negligible(now):
            reporter.orphaned.add(topic)
            self._fade(left, now, renew=True)

    def _silence(self, reporter: Reporter, now: float) -> None:
        for topic, _ in reporter.by_weight():
            if reporter.absent_is_clear:
                self._clear(reporter, topic, now)
            else:
                self._no_longer_reported(reporter, topic, now)
        for topic in list(reporter.events):
            self._uncount(reporter, topic)

    def _uncount(self, reporter: Reporter, topic: EvidenceTopic) -> None:
        """The event stays in the fading sums, but no longer belongs to a living reporter."""
        del reporter.events[topic]
        self._events.drop(reporter, topic)

    def _withdraw(self, reporter: Reporter, topic: EvidenceTopic) -> Evidence | None:
        self._standing.drop(reporter, topic)
        return reporter.standing.pop(topic, None)

    def _fade(self, event: Evidence, now: float, *, renew: bool = False) -> None:
        self._fading.add(event, now, renew=renew)
        self._note(event.subject)

    def _count_all_clear(self, evidence: Evidence) -> None:
        """Evidence that a tenant could cause never changes the state, so neither does its end."""
        if not evidence.reporting_namespace:
            self._all_clears[evidence.subject] = self._all_clears.get(evidence.subject, 0) + 1

    def _begin(self, now: float) -> None:
        self._changed, self._with_trace, self._now = set(), set(), now

    def _note(self, subject: Subject) -> None:
        self._noted_at[subject] = self._now
        self._note_change(subject)

    def _note_change(self, subject: Subject) -> None:
        self._changed.add(subject)
        if isinstance(subject, UnitId):
            self._units[subject.node].add(subject)

    def _keep(self, reporter: Reporter) -> None:
        if reporter.is_over():
            self._reporters.pop(reporter.id, None)
        else:
            self._reporters[reporter.id] = reporter
        if is_of_metrics(reporter.id):
            self._keep_metric_reporter(reporter)

    def _keep_metric_reporter(self, reporter: Reporter) -> None:
        metric_source = metric_source_of(reporter.id)
        if not reporter.is_over():
            self._metric_reporters[metric_source].add(reporter.id)
        elif metric_source in self._metric_reporters:
            self._metric_reporters[metric_source].discard(reporter.id)
            if not self._metric_reporters[metric_source]:
                del self._metric_reporters[metric_source]


def leaves_trace(cleared: Evidence) -> bool:
    """A planned state is not a fault to recover from."""
    return cleared.family is not Family.OPERATOR and not cleared.planned
