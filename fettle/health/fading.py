"""Decaying evidence: one running sum for each subject, source, family and half-life.

`Σ weight · 2^(−age / half-life)`, at most the cap. It is stored as one strength at one time, so a
thousand events cost as much as one, in whatever order they arrive.
"""

from __future__ import annotations

import math

import msgspec

from fettle.model import Evidence, EvidenceKind, Weighed

NEGLIGIBLE = 0.005
"""Fading evidence below this weight is forgotten."""
_LATELY = ", lately"
"""Ends the source of a trace."""
NOT_CLEARED, NOT_REPORTED = "; not cleared since", "; no longer reported"
LATCHED = f"{NOT_REPORTED}, latched until it is cleared"
"""These three end the text of evidence that is no longer reported, but still counts."""


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

    def weighed(self, now: float) -> Weighed:
        shown = self.evidence
        if self.count > 1:
            shown = msgspec.structs.replace(
                shown, text=f"{shown.text} (the latest of {self.count})"
            )
        return Weighed(shown, min(shown.cap, self._strength(now)))

    def is_negligible(self, now: float) -> bool:
        return self._strength(now) < NEGLIGIBLE

    def negligible_at(self) -> float:
        if self.strength <= NEGLIGIBLE:
            return self.at
        halvings = math.log2(self.strength / NEGLIGIBLE)
        return self.at + self.evidence.half_life_s * halvings

    def _strength(self, now: float) -> float:
        self._set_back(now)
        age_s = now - self.at
        return self.strength * math.exp2(-age_s / self.evidence.half_life_s)

    def _set_back(self, now: float) -> None:
        """Corrects a time in the future: the clock was ahead when the event arrived."""
        self.at = min(self.at, now)

    def _latest(self, other: Evidence) -> Evidence:
        latest = max(self.evidence, other, key=lambda e: (e.observed_at, e.reporter, e.text))
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
        text=f"{evidence.text}{NOT_REPORTED}",
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
        source=f"{evidence.source}{_LATELY}",
        text=f"was until recently: {as_said(evidence.text)}",
        observed_at=now,
        half_life_s=half_life_s,
        cap=min(cap, evidence.cap),
    )


def as_said(text: str) -> str:
    """The text, without what was added when it was no longer reported."""
    return text.removesuffix(LATCHED).removesuffix(NOT_REPORTED).removesuffix(NOT_CLEARED)


def is_trace(evidence: Evidence) -> bool:
    return evidence.source.endswith(_LATELY)


def source_of(evidence: Evidence) -> str:
    """The rule or field that evidence comes from; of a trace, that of the fault that is over."""
    return evidence.source.removesuffix(_LATELY)
