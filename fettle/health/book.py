"""The health book: reports in, health out.

Keeps nothing for subjects about which nothing is said: 40,000 sound devices cost nothing. Only
the writer task touches it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from fettle.config import HealthSettings
from fettle.health import memory, scoring
from fettle.health.fading import Fading
from fettle.health.ledger import Ledger
from fettle.health.memory import Assessment, Remembered
from fettle.health.signals.reports import SignalReport
from fettle.health.signals.rules import SignalRules
from fettle.health.states import START, afresh
from fettle.model import SOUND, Health, State, Subject, UnitId

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
        if known is not None and memory.is_same(known.health, health):
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
            if memory.is_same(known.health, judged.health):
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
        said = scoring.ordered(w for s in subjects for w in self._ledger.weighed(s, now))
        stay = known.stay if known is not None else START
        all_clear = known is not None and any(
            self._ledger.eased(s) > count or (s not in subjects and self._ledger.knows(s))
            for s, count in known.eased.items()
        )
        return memory.judge(said, stay, self._settings, now, all_clear=all_clear)

    def _due_at(
        self, judged: Assessment, shown: Health, subjects: tuple[Subject, ...], now: float
    ) -> float:
        return memory.due_at(judged, shown, self._fading(subjects, now), self._settings, now)

    def _fading(self, subjects: tuple[Subject, ...], now: float) -> Iterator[Fading]:
        for subject in subjects:
            yield from self._ledger.fading(subject, now)
