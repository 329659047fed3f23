"""The health book: reports in, health out.

Keeps nothing for subjects about which nothing is said: 40,000 sound devices cost nothing. Only
the writer task touches it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec

from fettle.config import HealthSettings
from fettle.health import states
from fettle.health.fading import Fading, is_trace
from fettle.health.ledger import Ledger
from fettle.health.score import (
    DIGITS,
    is_held,
    is_latched,
    is_unknown,
    known_score,
    ordered,
    proven_evidence,
)
from fettle.health.signals.reports import SignalReport
from fettle.health.signals.rule_tables import SignalRules
from fettle.health.states import START, Stay, afresh
from fettle.model import SOUND, UNKNOWN_SCORE, EvidenceKind, Health, State, Subject, UnitId, Weighed

SWEEP_EVERY_S = 600.0


class HealthBook:
    """All evidence, and what has been answered by it."""

    def __init__(self, settings: HealthSettings, rules: SignalRules) -> None:
        self._settings = settings
        self._ledger = Ledger(rules, settings.orphan_half_life_seconds)
        self._memory: dict[Subject, Remembered] = {}
        self._swept_at = 0.0

    def report(self, report: SignalReport, now: float) -> set[Subject]:
        """What one object says now; returns the subjects whose evidence changed."""
        return self._ledger.report(report, now)

    def vanish(self, reporter: str, now: float) -> set[Subject]:
        """The messenger is gone; what it said fades, or is clear where its silence says so."""
        return self._ledger.vanish(reporter, now)

    def forget(
        self, subjects: Collection[Subject], now: float, since: float = float("-inf")
    ) -> None:
        """These subjects are gone, or are others now; a node takes its device-plugin units along.

        What messengers that are still there say of one counts when it is asked about again, and so
        does nothing else: as after a restart. What fades meanwhile, or was latched by a messenger
        that is gone, is let go by a sweep, so that a subject which never comes back costs nothing.
        Events from before `since` befell another of that name.
        """
        gone = {subject for subject in subjects if subject in self._memory}
        for subject in subjects:
            if known := self._ledger.forget(subject, now, since):
                gone |= {subject, *known}
        if gone:
            for judged in [k for k, m in self._memory.items() if not gone.isdisjoint(m.subjects)]:
                del self._memory[judged]

    def units(self, node: str) -> set[UnitId]:
        """Device-plugin units on a node about which something is said, or lately was."""
        return self._ledger.units(node)

    def assess(self, key: Subject, subjects: Iterable[Subject], now: float) -> Health:
        """The health of `key` by all that is said of `subjects`, following its health before."""
        subjects = tuple(subjects)
        known = self._memory.get(key)
        if known is None and not any(self._ledger.knows(s) for s in subjects):
            return SOUND
        judged = self._judge(known, subjects, now)
        if not judged.health.evidence and judged.stay.state is State.HEALTHY:
            self._memory.pop(key, None)
            return SOUND
        health = judged.health
        if known is not None and is_same_health(known.health, health):
            health = known.health
        self._memory[key] = Remembered(
            subjects=subjects,
            stay=judged.stay,
            eased={s: self._ledger.eased(s) for s in subjects},
            health=health,
            due_at=self._due_at(judged, health, subjects, now),
        )
        return health

    def moving(self, now: float) -> set[Subject]:
        """Keys whose health time alone has changed since they were assessed, or of which there is
        nothing left to say."""
        moved: set[Subject] = set()
        if not 0 <= now - self._swept_at < SWEEP_EVERY_S:  # a clock may be set back
            self._swept_at = now
            moved |= self._sweep(now)
        for key, known in self._memory.items():
            if known.due_at > now:
                continue
            judged = self._judge(known, known.subjects, now)
            if is_same_health(known.health, judged.health):
                known.due_at = self._due_at(judged, known.health, known.subjects, now)
            else:
                moved.add(key)
        return moved

    def _sweep(self, now: float) -> set[UnitId]:
        """Let go of what has faded, and of units that are as they would be without it.

        A unit is kept by what is remembered of itself alone: the device that it was may stay ill,
        and would ask about it for as long.
        """
        for key in [key for key, known in self._memory.items() if self._is_spent(key, known, now)]:
            del self._memory[key]
        followed = {s for known in self._memory.values() for s in known.subjects}
        return self._ledger.sweep(now, followed, self._memory)

    def _is_spent(self, key: Subject, known: Remembered, now: float) -> bool:
        """Whether nothing is said of a unit, nor is it held in a state by what was."""
        if not isinstance(key, UnitId) or self._ledger.knows(key):
            return False
        judged = self._judge(known, known.subjects, now)
        return judged.stay.state is afresh(judged.score, judged.latched, self._settings)

    def _judge(
        self, known: Remembered | None, subjects: tuple[Subject, ...], now: float
    ) -> Assessment:
        """That what is said of one of the subjects is about something else is an all-clear too."""
        said = ordered(w for s in subjects for w in self._ledger.weighed(s, now))
        stay = known.stay if known is not None else START
        all_clear = known is not None and any(
            self._ledger.eased(s) > count or (s not in subjects and self._ledger.knows(s))
            for s, count in known.eased.items()
        )
        return assess(said, stay, self._settings, now, all_clear=all_clear)

    def _due_at(
        self, judged: Assessment, shown: Health, subjects: tuple[Subject, ...], now: float
    ) -> float:
        return due_at(judged, shown, self._fading(subjects, now), self._settings, now)

    def _fading(self, subjects: tuple[Subject, ...], now: float) -> Iterator[Fading]:
        for subject in subjects:
            yield from self._ledger.fading(subject, now)


NOTICEABLE = 0.01
"""A score that moved by less is not worth a new view."""
_LEAST_STEP = 0.0005
"""How late a change may be noticed, as a share of the score."""
NEVER = math.inf


class Remembered(msgspec.Struct, gc=False):
    """`eased` counts the all-clears seen so far; before `due_at` time cannot change the answer."""

    subjects: tuple[Subject, ...]
    stay: Stay
    eased: dict[Subject, int]
    health: Health
    due_at: float = 0.0


class Assessment(NamedTuple):
    """`score` and `latched` are those that the stay follows from: by what is known, and proven."""

    health: Health
    stay: Stay
    score: float
    latched: bool


def assess(
    said: tuple[Weighed, ...], stay: Stay, settings: HealthSettings, now: float, *, all_clear: bool
) -> Assessment:
    """Health by what is said, following a stay in a state.

    What a tenant could bring about lowers the score and moves no state.
    """
    sure = proven_evidence(said)
    score, latched = known_score(sure), is_latched(sure)
    shown = score if len(sure) == len(said) else known_score(said)
    after = states.following(
        stay,
        score,
        latched,
        settings,
        now,
        fact_at=max((w.evidence.observed_at for w in sure if w.weight > 0), default=now),
        but_for_traces=_but_for_traces(sure) if all_clear else None,
    )
    state, since, most = after.state, after.since, score
    if is_unknown(said):
        shown, most = min(shown, UNKNOWN_SCORE), min(most, UNKNOWN_SCORE)
        if state is State.HEALTHY:
            state = State.UNKNOWN
            since = min(
                w.evidence.observed_at for w in said if w.evidence.kind is EvidenceKind.UNKNOWN
            )
    provoked = round(most - shown, DIGITS)
    kept = states.kept(after, score, latched, settings)
    health = Health(shown, state, since, said, is_held(sure), provoked, kept)
    return Assessment(health, after, score, latched)


def _but_for_traces(said: tuple[Weighed, ...]) -> float:
    return known_score(w for w in said if not is_trace(w.evidence))


def is_same_health(old: Health, new: Health) -> bool:
    """Whether a new Health says nothing that matters beyond the old one."""
    return (
        old.state is new.state
        and old.since == new.since
        and old.held == new.held
        and _moved(old, new) < NOTICEABLE
        and (old.score < 1.0) == (new.score < 1.0)
        and _told(old) == _told(new)
    )


def _moved(old: Health, new: Health) -> float:
    """How far the score has moved, or its proven part."""
    return max(abs(old.score - new.score), abs(old.proven - new.proven))


def _told(health: Health) -> set[object]:
    return {w.evidence for w in health.evidence}


def due_at(
    judged: Assessment,
    shown: Health,
    fading: Iterable[Fading],
    settings: HealthSettings,
    now: float,
) -> float:
    """A time before which time alone changes nothing that matters in `shown`.

    Weights only fall with time, and fall ever slower, so the score rises at most at the rate it
    rises now.
    """
    stay = judged.stay
    due, rate = NEVER, 0.0
    for one in fading:
        due = min(due, one.negligible_at())
        rate += one.weighed(now).weight * math.log(2) / one.evidence.half_life_s
    leads = states.within_bands(stay.state, judged.score, judged.latched, settings)
    if leads is not stay.state:
        due = min(due, states.dwells_until(stay, settings))
    if rate > 0.0:
        room = NOTICEABLE - _moved(judged.health, shown)
        bound = states.left_at(stay.state, settings)
        if bound is not None and judged.score < bound:
            room = min(room, bound - judged.score)
        due = min(due, now + max(room, _LEAST_STEP) / rate)
    return max(due, now)
