"""Decaying evidence: one running sum for each subject, source, family and half-life.

`Σ weight · 2^(−age / half-life)`, at most the cap. It is stored as one strength at one time, so a
thousand events cost as much as one, in whatever order they arrive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

import msgspec

from fettle.health.signals.reports import Cause, EvidenceTopic
from fettle.model import (
    Evidence,
    EvidenceKind,
    Family,
    ReporterId,
    Source,
    SourceKind,
    Standing,
    Subject,
    Weighed,
)

NEGLIGIBLE = 0.005
"""Fading evidence below this weight is forgotten."""

RECURRING = 3
"""What was over so often, and came back, is a fault that keeps coming back."""
REPAIR_SHOWS_S = 3600.0
"""The all-clear of what was repaired comes within so long."""


class Repair(NamedTuple):
    """That faults of some families were mended `at` a time, and `how` that was said."""

    at: float
    how: str
    families: frozenset[Family] = frozenset(Family)


class Past(NamedTuple):
    """How traces count.

    - `quiet_s`: the half-life of a trace by the time that it has been quiet, if the fault did not
      take longer to come back.
    - `recurring_s`: a fault that keeps coming back is believed to be over only when it was quiet
      for as long as it usually takes, at most this.
    - `repaired`: the most that a trace weighs after one of the `repairs`.
    """

    quiet_s: float = math.inf
    recurring_s: float = 0.0
    repaired: float = 1.0
    repairs: tuple[Repair, ...] = ()

    def repair_of(self, one: Fading) -> Repair | None:
        """The repair that ended a fault, unless it has come back since."""
        return next((each for each in self.repairs if _is_mended(one, each)), None)


def _is_mended(one: Fading, repair: Repair) -> bool:
    trace = one.evidence
    came_before = trace.began_at <= repair.at and one.at <= repair.at + REPAIR_SHOWS_S
    return came_before and trace.family in repair.families


LASTING = Past()
"""Traces count as long as they are remembered."""


class Fading(msgspec.Struct, gc=False):
    """The `strength` of `count` events at time `at`. `evidence` is the latest of them, the first
    was at `first_at`."""

    evidence: Evidence
    strength: float
    at: float
    count: int = 1
    first_at: float = math.inf

    def __post_init__(self) -> None:
        self.first_at = min(self.first_at, self.at)

    def add(self, event: Evidence, now: float) -> None:
        """One more event, which may be older than those before it."""
        self._set_back(now)
        when = min(event.observed_at, now)
        self.first_at = min(self.first_at, when)
        if when >= self.at:
            self.strength = self._strength(when) + event.weight
            self.at = when
        else:
            age_s = self.at - when
            self.strength += event.weight * math.exp2(-age_s / self.evidence.half_life_s)
        self.count += 1
        self.evidence = self._latest(event)

    def renew(self, evidence: Evidence, now: float) -> None:
        """The same fact again, left by another reporter or at another time: it is fresh again, but
        not worse."""
        self._set_back(now)
        other = starting(evidence, now)
        at = max(self.at, other.at)
        self.strength = max(self._strength(at), other._strength(at))
        self.at = at
        self.evidence = self._latest(evidence)

    def weighed(self, now: float, past: Past = LASTING) -> Weighed:
        shown, weight = self.evidence, self._strength(now)
        weight = min(shown.cap, weight)
        repaired = ""
        if is_trace(shown):
            weight *= math.exp2(-(now - self.at) / self._calms_s(past))
            if (repair := past.repair_of(self)) is not None:
                weight = min(weight, past.repaired)
                repaired = repair.how
        if self.count > 1 or repaired:
            shown = msgspec.structs.replace(shown, count=self.count, repaired=repaired)
        return Weighed(shown, weight)

    def falls_by(self, now: float, past: Past) -> float:
        """How much weight it loses in a second, now."""
        halvings = 1.0 / self.evidence.half_life_s
        if is_trace(self.evidence):
            halvings += 1.0 / self._calms_s(past)
        return self.weighed(now, past).weight * halvings * math.log(2)

    def mended_at(self, past: Past) -> float:
        """When it was repaired. The end of what a tenant could cause changes no state."""
        repair = past.repair_of(self) if is_trace(self.evidence) else None
        return -math.inf if repair is None or self.evidence.reporting_namespace else repair.at

    def recurring_until(self, past: Past) -> float:
        """Until when a fault that keeps coming back is not believed to be over."""
        counts = is_trace(self.evidence) and not self.evidence.reporting_namespace
        if self.count < RECURRING or not counts or past.repair_of(self):
            return -math.inf
        return self.at + min(past.recurring_s, self._returns_s)

    @property
    def _returns_s(self) -> float:
        """How long it usually took to come back and be over again."""
        return (self.at - self.first_at) / max(1, self.count - 1)

    def _calms_s(self, past: Past) -> float:
        return max(past.quiet_s, self._returns_s)

    def is_negligible(self, now: float) -> bool:
        return self._strength(now) < NEGLIGIBLE

    def negligible_at(self, past: Past = LASTING) -> float:
        """When it no longer counts, though a trace is remembered for longer."""
        if min(self.strength, self.evidence.cap) <= NEGLIGIBLE:
            return self.at
        halvings = math.log2(self.strength / NEGLIGIBLE)
        if not is_trace(self.evidence):
            return self.at + self.evidence.half_life_s * halvings
        calms_s = self._calms_s(past)
        together_s = 1.0 / (1.0 / self.evidence.half_life_s + 1.0 / calms_s)
        at_most_s = calms_s * math.log2(self.evidence.cap / NEGLIGIBLE)
        return self.at + min(together_s * halvings, at_most_s)

    def _strength(self, now: float) -> float:
        self._set_back(now)
        age_s = now - self.at
        return self.strength * math.exp2(-age_s / self.evidence.half_life_s)

    def _set_back(self, now: float) -> None:
        """Corrects a time in the future: the clock was ahead when the event arrived."""
        self.at = min(self.at, now)

    def _latest(self, other: Evidence) -> Evidence:
        latest = max(self.evidence, other, key=lambda e: (e.observed_at, e.reporter, e.said))
        return msgspec.structs.replace(latest, cap=max(self.evidence.cap, other.cap))


def starting(event: Evidence, now: float) -> Fading:
    """A new sum with one event."""
    return Fading(event, event.weight, min(event.observed_at, now))


def is_same_sum(one: Fading, other: Fading, now: float) -> bool:
    """Whether they say and weigh the same, but for rounding."""
    return (
        one.count == other.count
        and one.evidence.text == other.evidence.text
        and abs(one.weighed(now).weight - other.weighed(now).weight) < NEGLIGIBLE / 10
    )


def orphaned(evidence: Evidence, half_life_s: float) -> Evidence:
    """A level fault whose reporter has been gone since `observed_at`, without an all-clear."""
    return msgspec.structs.replace(
        evidence,
        kind=EvidenceKind.DECAYING,
        standing=Standing.NOT_REPORTED,
        half_life_s=half_life_s,
        cap=evidence.weight,
    )


def trace(
    evidence: Evidence, weight: float, cap: float, half_life_s: float, now: float
) -> Evidence:
    """What remains of a fault that was said to be over: at most a quarter of its weight.

    However often the fault comes back, its traces add up to no more than its own cap.
    """
    return msgspec.structs.replace(
        evidence,
        kind=EvidenceKind.DECAYING,
        weight=min(weight, evidence.weight / 4),
        source=msgspec.structs.replace(evidence.source, is_over=True),
        standing=Standing.REPORTED,
        observed_at=now,
        began_at=evidence.observed_at,
        half_life_s=half_life_s,
        cap=min(cap, evidence.cap),
    )


def is_trace(evidence: Evidence) -> bool:
    return evidence.source.is_over


RECORD_SOURCE = Source(SourceKind.RECORD)
"""The source of what is held against something for how often it failed lately."""


def is_past(evidence: Evidence) -> bool:
    """Whether it is about what is over."""
    return is_trace(evidence) or evidence.source == RECORD_SOURCE


def source_of(evidence: Evidence) -> Source:
    """The rule or field that evidence comes from; of a trace, that of the fault that is over."""
    source = evidence.source
    return msgspec.structs.replace(source, is_over=False) if source.is_over else source


# All that fades, by subject

SumKey = tuple[Cause, float, str]
"""Cause, half-life in seconds, and reporting namespace."""


def sum_key(event: Evidence) -> SumKey:
    return (event.source, event.family), event.half_life_s, event.reporting_namespace


class FadingSums:
    """All that fades, by subject: one running sum for each cause, half-life and namespace.

    Negligible sums stay until they are swept.
    """

    def __init__(self) -> None:
        self._sums: dict[Subject, dict[SumKey, Fading]] = {}

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._sums

    def knows_none(self, subjects: Iterable[Subject]) -> bool:
        return self._sums.keys().isdisjoint(subjects)

    def of(self, subject: Subject, now: float) -> Iterator[tuple[SumKey, Fading]]:
        """The sums that still count."""
        for key, one in self._sums.get(subject, {}).items():
            if not one.is_negligible(now):
                yield key, one

    def unhidden(
        self,
        subject: Subject,
        standing: Mapping[tuple[ReporterId, EvidenceTopic], Evidence],
        now: float,
        past: Past,
    ) -> Iterator[Weighed]:
        """The sums that count beside what stands. What stands hides weaker sums of the same cause.

        Namespaces add up, so evidence of a namespace hides, and is hidden by, only that of the
        same one.
        """
        heaviest: dict[tuple[Cause, str], Evidence] = {}
        for (_, topic), evidence in standing.items():
            if not topic.unknown:
                key = (topic.cause, evidence.reporting_namespace)
                heaviest[key] = max(evidence, heaviest.get(key, evidence), key=attrgetter("weight"))
        for (cause, _, namespace), one in self.of(subject, now):
            weighed = one.weighed(now, past)
            counts = weighed.weight >= NEGLIGIBLE or not is_trace(one.evidence)
            if counts and not _hides(heaviest.get((cause, namespace)), weighed):
                yield weighed

    def about(self, topic: EvidenceTopic) -> list[Fading]:
        """The sums of this topic's cause."""
        sums = self._sums.get(topic.subject, {})
        return [] if topic.unknown else [one for key, one in sums.items() if key[0] == topic.cause]

    def add(self, event: Evidence, now: float, *, renew: bool = False) -> None:
        """One more event; with `renew`, the same fact again."""
        sums = self._sums.setdefault(event.subject, {})
        key = sum_key(event)
        if key not in sums:
            sums[key] = starting(event, now)
        elif renew:
            sums[key].renew(event, now)
        else:
            sums[key].add(event, now)

    def pop(self, topic: EvidenceTopic) -> list[Fading]:
        """Removes and returns the sums of this topic's cause, which are over."""
        sums = self._sums.get(topic.subject, {})
        over = [] if topic.unknown else [key for key in sums if key[0] == topic.cause]
        return [sums.pop(key) for key in over]

    def pop_source(self, subject: Subject, source: Source, until: float) -> list[Fading]:
        """Removes and returns the sums of one source which are over: whose latest event was not
        after that time."""
        sums = self._sums.get(subject, {})
        over = [key for key, one in sums.items() if key[0][0] == source and one.at <= until]
        return [sums.pop(key) for key in over]

    def pop_unreported(self, subject: Subject, before: float) -> list[Fading]:
        """Removes and returns the sums of what stood before a time and nobody reports any more."""
        sums = self._sums.get(subject, {})
        left = [
            key
            for key, one in sums.items()
            if one.evidence.standing is Standing.NOT_REPORTED and one.first_at <= before
        ]
        return [sums.pop(key) for key in left]

    def replace(self, subject: Subject, sums: Mapping[SumKey, Fading], now: float) -> bool:
        """Set all that fades of a subject; whether that changes anything."""
        before = dict(self.of(subject, now))
        after = {key: one for key, one in sums.items() if not one.is_negligible(now)}
        if before.keys() == after.keys() and all(
            is_same_sum(before[key], after[key], now) for key in after
        ):
            return False
        self._sums[subject] = after
        if not after:
            del self._sums[subject]
        return True

    def forget(self, subject: Subject) -> None:
        self._sums.pop(subject, None)

    def sweep(self, now: float) -> None:
        """Forget what has faded."""
        for subject, sums in list(self._sums.items()):
            for key in [key for key, one in sums.items() if one.is_negligible(now)]:
                del sums[key]
            if not sums:
                del self._sums[subject]


def _hides(standing: Evidence | None, fading: Weighed) -> bool:
    """Whether the score would be the same without what fades."""
    if standing is None or fading.weight > standing.weight:
        return False
    return fading.evidence.together <= standing.together
