"""The health book: signal reports in, health out. Only the writer task touches it.

Nothing is stored for subjects without evidence, so 40,000 sound devices cost nothing. For others it
remembers the last Health it answered, since when it is in its state, and when time alone may next
change the answer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec

from fettle.api.meta import unix_s
from fettle.api.own_group import StoredSubject
from fettle.config import HealthSettings
from fettle.health import memory, probation, states
from fettle.health.fading import Fading, Past, is_past
from fettle.health.ledger import MILD, Ledger
from fettle.health.score import (
    DIGITS,
    corroborate,
    is_held,
    is_latched,
    is_unknown,
    known_score,
    ordered,
    reporting_namespaces,
    stating_evidence,
)
from fettle.health.signals.rule_tables import SignalRules
from fettle.health.states import (
    START,
    Awaited,
    Recovery,
    RecoveryStep,
    StateSince,
    afresh,
    healthy_at,
)
from fettle.model import (
    BAD_STATES,
    SOUND,
    UNKNOWN_SCORE,
    Evidence,
    EvidenceKind,
    Health,
    NodeId,
    State,
    Subject,
    UnitId,
    Weighed,
    proven_evidence,
)

SWEEP_EVERY_S = 600.0
"""How often what has faded is forgotten."""
NOTICEABLE = 0.01
"""A smaller change of the score is not worth a new view."""
_LEAST_STEP = 0.0005
"""How late a change may be noticed, as a share of the score."""
NEVER = math.inf


class HealthBook:
    """All evidence (`ledger`), and the last answer about each subject. To forget, adopt and recall
    concerns both, so it goes through here."""

    def __init__(self, settings: HealthSettings, rules: SignalRules) -> None:
        self._settings = settings
        self._rules = rules
        self.ledger = Ledger(rules, settings.orphan_half_life_seconds)
        self._memory: dict[Subject, Remembered] = {}
        self._swept_at = self._looked_at = 0.0
        self._past = Past(
            settings.quiet_half_life_seconds,
            settings.recurring_seconds,
            rules.signals["repaired"].weight,
        )

    def forget(
        self, subjects: Collection[Subject], now: float, since: float = float("-inf")
    ) -> None:
        """These subjects are gone, or are other ones now. A node takes its device-plugin units
        along.

        If a subject comes back, only what living reporters say of it counts, as after a restart. A
        sweep forgets what fades meanwhile or was latched by a reporter that is gone, so a subject
        that never comes back costs nothing. Events from before `since` happened to another subject
        of that name.
        """
        gone = {subject for subject in subjects if subject in self._memory}
        for subject in subjects:
            if remembered := self.ledger.forget(subject, now, since):
                gone |= {subject, *remembered}
        if gone:
            for key in [k for k, m in self._memory.items() if not gone.isdisjoint(m.subjects)]:
                del self._memory[key]

    # -- memory, out and in

    def recall(self, key: Subject, now: float) -> StoredSubject | None:
        """All that is known of a key, as it is stored; None if it is sound."""
        remembered, evidence = self._memory.get(key), tuple(self.ledger.recall(key, now))
        faults = self.ledger.faults([key], now)
        if remembered is None and not evidence and not faults:
            return None
        health = remembered.health if remembered is not None else SOUND
        return memory.stored_subject(key, health, evidence, faults)

    def adopt(
        self, key: Subject, stored: StoredSubject, observed_at: float, now: float, *, starting: bool
    ) -> set[Subject]:
        """What another process, or the one before, knew of a key at `observed_at`. Returns the
        subjects whose health may differ.

        At a start the state goes on from there, so it is left neither earlier nor later. Later each
        process follows its evidence. What is said from now on are news, all-clears too.
        """
        changed = self.ledger.adopt(key, stored.evidence, observed_at, now, starting=starting)
        changed |= self.ledger.adopt_faults(key, memory.faults_of(stored), now)
        since = unix_s(stored.since, 0.0)
        if starting and key in changed and 0 < since <= now + memory.CLOCKS_APART_S:
            state_since = StateSince(stored.state, min(since, now))
            if state_since.state is State.UNKNOWN:
                state_since = START
            proven = stored.score if stored.proven_score is None else stored.proven_score
            tenant_caused = round(max(0.0, proven - stored.score), DIGITS)
            before = Health(
                stored.score, state_since.state, state_since.since, tenant_caused=tenant_caused
            )
            self._memory[key] = Remembered(
                (key,), state_since, {key: 0}, before, adopted=True, mended_at=math.inf
            )
        return changed

    def assess(self, key: Subject, subjects: Iterable[Subject], now: float) -> Health:
        """The health of `key`, from all evidence about `subjects`, given its health before.

        While nothing that matters has changed, it returns the same object again.
        """
        subjects = tuple(subjects)
        remembered = self._memory.get(key)
        if remembered is not None and remembered.adopted:
            remembered.all_clears = dict.fromkeys(subjects, 0)
        if (
            remembered is None
            and self.ledger.knows_none(subjects)
            and len(self.ledger.faults(subjects, now)) < 2
        ):
            return SOUND
        assessed = self._reassess(remembered, subjects, now)
        if not assessed.health.evidence and assessed.state_since.state is State.HEALTHY:
            self._memory.pop(key, None)
            return SOUND
        health = assessed.health
        if remembered is not None and is_same_health(remembered.health, health):
            health = remembered.health
        self._memory[key] = Remembered(
            subjects=subjects,
            state_since=assessed.state_since,
            all_clears={s: self.ledger.all_clears(s) for s in subjects},
            health=health,
            due_at=self._due_at(assessed, health, subjects, now),
            mended_at=assessed.mended_at,
        )
        return health

    def recovery(self, key: Subject, now: float) -> Recovery:
        """How healthy a key is now, and what has to happen for it to be Healthy again."""
        remembered = self._memory.get(key)
        if remembered is None:
            return Recovery(SOUND, now)
        subjects = remembered.subjects
        health, state_since, *_ = self._reassess(remembered, subjects, now)
        awaited = [w.evidence for w in health.evidence if w.evidence.kind is EvidenceKind.UNKNOWN]
        standing = [
            one.evidence
            for one in stating_evidence(health.evidence)
            if one.evidence.kind is EvidenceKind.LATCHED
            or (one.evidence.kind is EvidenceKind.LEVEL and one.weight > 0.0)
        ]
        standing.sort(key=lambda e: e.kind is not EvidenceKind.LATCHED)
        while (at := self._healthy_at(state_since, subjects, awaited, now)) is None and standing:
            awaited.append(standing.pop(0))
        return Recovery(
            health,
            now if at is None else at,
            tuple(Awaited(e, self._rules.all_clear(e.source)) for e in awaited),
        )

    def _healthy_at(
        self,
        state_since: StateSince,
        subjects: tuple[Subject, ...],
        over: list[Evidence],
        now: float,
    ) -> float | None:
        """When a stay ends in Healthy, if this evidence is over now, and leaves its traces."""
        traces = [
            (trace, self._past_of(trace.evidence.subject, subjects))
            for trace in self.ledger.foreseen_traces(over, now)
        ]
        marks = {(one.evidence.subject, one.evidence.source) for one, _ in traces}

        def left(at: float) -> tuple[Weighed, ...]:
            found = (
                w
                for w in self._weighed(subjects, at)
                if w.evidence not in over and (w.evidence.subject, w.evidence.source) not in marks
            )
            then = (one.weighed(at, past) for one, past in traces)
            return stating_evidence((*found, *then))

        def foresee(at: float) -> RecoveryStep:
            found = left(at)
            fading = (*self._fading(subjects, at), *traces)
            recurring = max((one.recurring_until(past) for one, past in fading), default=-math.inf)
            return RecoveryStep(known_score(found), is_latched(found), recurring)

        if over:  # its traces may also make what was Healthy worse
            score, latched, recurring_until = foresee(now)
            clears = any(e.weight > MILD and e.kind is not EvidenceKind.UNKNOWN for e in over)
            state_since = states.following(
                state_since,
                score,
                latched,
                self._settings,
                now,
                fact_at=now,
                but_for_traces=_but_for_traces(left(now)) if clears else None,
                recurring_until=recurring_until,
            )
        return healthy_at(state_since, foresee, self._settings, now)

    def changed_by_time(self, now: float) -> set[Subject]:
        """Keys whose health has changed since their assessment by time alone, or about which
        nothing is left to say."""
        moved: set[Subject] = set()
        if now < self._looked_at:
            self._set_back(now)
        self._looked_at = now
        if not 0 <= now - self._swept_at < SWEEP_EVERY_S:  # the clock may be set back
            self._swept_at = now
            moved |= self._sweep(now)
        for key, remembered in self._memory.items():
            if remembered.due_at > now:
                continue
            assessed = self._reassess(remembered, remembered.subjects, now)
            if is_same_health(remembered.health, assessed.health):
                remembered.due_at = self._due_at(
                    assessed, remembered.health, remembered.subjects, now
                )
            else:
                moved.add(key)
        return moved

    def _set_back(self, now: float) -> None:
        """The clock was ahead: what it led to is looked at again, and no state began later than
        now."""
        for remembered in self._memory.values():
            remembered.due_at = now
            if remembered.state_since.since > now:
                remembered.state_since = remembered.state_since._replace(since=now)

    def _sweep(self, now: float) -> set[UnitId]:
        """Forget what has faded, and units that would be the same without it.

        Only a unit's own memory keeps the unit: the device that it was may stay ill, and would
        otherwise keep it as long.
        """
        for key in [
            key for key, remembered in self._memory.items() if self._is_spent(key, remembered, now)
        ]:
            del self._memory[key]
        stored = {s for remembered in self._memory.values() for s in remembered.subjects}
        return self.ledger.sweep(now, stored, self._memory)

    def _is_spent(self, key: Subject, remembered: Remembered, now: float) -> bool:
        """Whether nothing is said of a unit, and no past evidence holds its state."""
        if not isinstance(key, UnitId) or self.ledger.knows(key):
            return False
        if len(self.ledger.faults(remembered.subjects, now)) > 1:
            return False
        assessed = self._reassess(remembered, remembered.subjects, now)
        return assessed.state_since.state is afresh(
            assessed.score, assessed.latched, self._settings
        )

    def _reassess(
        self, remembered: Remembered | None, subjects: tuple[Subject, ...], now: float
    ) -> Assessment:
        """It is an all-clear too if evidence about one of the subjects now applies to another
        key, or a repair now to a trace."""
        evidence = self._weighed(subjects, now)
        recurring_until = mended_at = -math.inf
        for one, past in self._fading(subjects, now):
            recurring_until = max(recurring_until, one.recurring_until(past))
            mended_at = max(mended_at, one.mended_at(past))
        state_since = remembered.state_since if remembered is not None else START
        its = frozenset(subjects)
        all_clear = remembered is not None and any(
            self.ledger.all_clears(s) > count or (s not in its and self.ledger.knows(s))
            for s, count in remembered.all_clears.items()
        )
        is_mended = remembered is not None and mended_at > remembered.mended_at
        assessed = assess(
            evidence,
            state_since,
            self._settings,
            now,
            all_clear=all_clear or is_mended,
            recurring_until=recurring_until,
        )
        return assessed._replace(mended_at=mended_at)

    def _weighed(self, subjects: tuple[Subject, ...], now: float) -> tuple[Weighed, ...]:
        pasts = self._pasts(subjects)
        found = [w for s, past in pasts for w in self.ledger.weighed(s, now, past)]
        if faults := self.ledger.faults(subjects, now):
            record = probation.weighed(subjects[0], faults, self._rules.signals["record"])
            found += [record] if record is not None else []
        return ordered(corroborate(found))

    def _due_at(
        self, assessed: Assessment, shown: Health, subjects: tuple[Subject, ...], now: float
    ) -> float:
        lighter_at = probation.lighter_at(self.ledger.faults(subjects, now))
        due = due_at(assessed, shown, self._fading(subjects, now), self._settings, now)
        return min(due, max(lighter_at, now))

    def _fading(self, subjects: tuple[Subject, ...], now: float) -> Iterator[tuple[Fading, Past]]:
        for subject, past in self._pasts(subjects):
            for one in self.ledger.fading(subject, now):
                yield one, past

    def _pasts(self, names: tuple[Subject, ...]) -> Iterator[tuple[Subject, Past]]:
        """Each of the names of something, with how traces of it count."""
        shared = self._past_after(names)
        for name in names:
            yield name, self._past_after((name,)) if isinstance(name, NodeId) else shared

    def _past_of(self, subject: Subject, names: tuple[Subject, ...]) -> Past:
        """How traces of one of the names of something count: its node is mended by what is said of
        the node alone."""
        return self._past_after((subject,) if isinstance(subject, NodeId) else names)

    def _past_after(self, about: tuple[Subject, ...]) -> Past:
        repairs = self.ledger.repairs.of(about)
        return self._past._replace(repairs=repairs) if repairs else self._past


class Remembered(msgspec.Struct, gc=False):
    """The last answer about one key. `all_clears` counts the all-clears seen so far; before
    `due_at` time alone cannot change the answer. `adopted`: another process gave it, and all
    all-clears that are counted came later. `mended_at`: the latest repair that has been seen."""

    subjects: tuple[Subject, ...]
    state_since: StateSince
    all_clears: dict[Subject, int]
    health: Health
    due_at: float = 0.0
    adopted: bool = False
    mended_at: float = -math.inf


class Assessment(NamedTuple):
    """One assessment. The stay follows from `score` and `latched`, which use neither what a tenant
    could cause nor the record of 28 days."""

    health: Health
    state_since: StateSince
    score: float
    latched: bool
    mended_at: float = -math.inf


def assess(
    evidence: tuple[Weighed, ...],
    state_since: StateSince,
    settings: HealthSettings,
    now: float,
    *,
    all_clear: bool,
    recurring_until: float = -math.inf,
) -> Assessment:
    """Health from the evidence, following a stay in a state.

    What a tenant could cause, and the record of 28 days, lower the score, but do not change the
    state.
    """
    proven, stating = proven_evidence(evidence), stating_evidence(evidence)
    score, latched = known_score(stating), is_latched(stating)
    most = score if len(stating) == len(proven) else known_score(proven)
    shown = most if len(proven) == len(evidence) else known_score(evidence)
    after = states.following(
        state_since,
        score,
        latched,
        settings,
        now,
        fact_at=max((w.evidence.observed_at for w in stating if w.weight > 0), default=now),
        but_for_traces=_but_for_traces(stating) if all_clear else None,
        recurring_until=recurring_until,
    )
    state, since = after.state, after.since
    if is_unknown(evidence):
        shown, most = min(shown, UNKNOWN_SCORE), min(most, UNKNOWN_SCORE)
        if state is State.HEALTHY:
            state = State.UNKNOWN
            since = min(
                w.evidence.observed_at for w in evidence if w.evidence.kind is EvidenceKind.UNKNOWN
            )
    tenant_caused = round(most - shown, DIGITS)
    kept = states.kept(after, score, latched, settings, recurring_until)
    suspected = 0
    if tenant_caused and shown < settings.degraded_below and state not in BAD_STATES:
        suspected = len(reporting_namespaces(evidence))
    health = Health(shown, state, since, evidence, is_held(proven), tenant_caused, kept, suspected)
    return Assessment(health, after, score, latched)


def _but_for_traces(evidence: tuple[Weighed, ...]) -> float:
    return known_score(w for w in evidence if not is_past(w.evidence))


def is_same_health(old: Health, new: Health) -> bool:
    """Whether a new Health says nothing that matters beyond the old one."""
    return (
        old.state is new.state
        and old.since == new.since
        and old.held == new.held
        and old.suspected == new.suspected
        and _moved(old, new) < NOTICEABLE
        and (old.score < 1.0) == (new.score < 1.0)
        and _facts(old) == _facts(new)
    )


def _moved(old: Health, new: Health) -> float:
    """How far the score has moved, or its proven part."""
    return max(abs(old.score - new.score), abs(old.proven - new.proven))


def _facts(health: Health) -> set[object]:
    return {w.evidence for w in health.evidence}


def due_at(
    assessed: Assessment,
    shown: Health,
    fading: Iterable[tuple[Fading, Past]],
    settings: HealthSettings,
    now: float,
) -> float:
    """A time before which time alone changes nothing that matters in `shown`.

    Weights only fall, and ever more slowly, so the score rises at most at its present rate.
    """
    state_since = assessed.state_since
    due, rate = NEVER, 0.0
    recurring_until = -math.inf
    for one, past in fading:
        due = min(due, one.negligible_at(past))
        rate += one.falls_by(now, past)
        recurring_until = max(recurring_until, one.recurring_until(past))
    leads = states.within_bands(state_since.state, assessed.score, assessed.latched, settings)
    if leads is not state_since.state:
        due = min(due, max(states.dwells_until(state_since, settings), recurring_until))
    if rate > 0.0:
        room = NOTICEABLE - _moved(assessed.health, shown)
        bound = states.left_at(state_since.state, settings)
        if bound is not None and assessed.score < bound:
            room = min(room, bound - assessed.score)
        due = min(due, now + max(room, _LEAST_STEP) / rate)
    return max(due, now)
