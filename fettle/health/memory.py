"""What the book remembers of each subject it was asked about and that is not simply sound.

The last Health it answered (returned again, the same object, while nothing that matters changed),
the state's stay, and when time alone may next change the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from fettle.health import scoring, states
from fettle.health.fading import Fading
from fettle.health.states import Stay
from fettle.model import UNKNOWN_SCORE, Health, Kind, State, Subject, Weighed
from fettle.settings import HealthSettings

NOTICEABLE = 0.01
"""A score that moved by less is not worth a new view."""
_LEAST_STEP = 0.0005
"""How late a change may be noticed, as a share of the score."""
NEVER = math.inf


class Remembered(msgspec.Struct):
    """`eased` counts the all-clears seen so far; before `due_at` time cannot change the answer."""

    subjects: tuple[Subject, ...]
    stay: Stay
    eased: dict[Subject, int]
    health: Health
    due_at: float = 0.0


class Judged(NamedTuple):
    health: Health
    stay: Stay
    score: float
    """By what is known; `health.score` may be lower where something is unknown."""


def judge(
    said: tuple[Weighed, ...], stay: Stay, settings: HealthSettings, now: float, *, all_clear: bool
) -> Judged:
    """Health by what is said, following a stay in a state."""
    score, latched = scoring.known_score(said), scoring.is_latched(said)
    fact_at = max((w.evidence.observed_at for w in said if w.weight > 0), default=now)
    after = states.following(
        stay, score, latched, settings, now, fact_at=fact_at, all_clear=all_clear
    )
    state, since, shown = after.state, after.since, score
    if scoring.is_unknown(said):
        shown = min(score, UNKNOWN_SCORE)
        if state is State.HEALTHY:
            state = State.UNKNOWN
            since = min(w.evidence.observed_at for w in said if w.evidence.kind is Kind.UNKNOWN)
    return Judged(Health(shown, state, since, said, scoring.is_held(said)), after, score)


def is_same(old: Health, new: Health) -> bool:
    """Whether a new Health says nothing that matters beyond the old one."""
    return (
        old.state is new.state
        and old.since == new.since
        and old.held == new.held
        and abs(old.score - new.score) < NOTICEABLE
        and (old.score < 1.0) == (new.score < 1.0)
        and _told(old) == _told(new)
    )


def _told(health: Health) -> set[object]:
    return {w.evidence for w in health.evidence}


def due_at(
    judged: Judged,
    shown: Health,
    fading: Iterable[Fading],
    settings: HealthSettings,
    now: float,
) -> float:
    """A time before which time alone changes nothing that matters in `shown`.

    Weights only fall with time, and fall ever slower, so the score rises at most at the rate it
    rises now.
    """
    said, stay = judged.health.evidence, judged.stay
    due, rate = NEVER, 0.0
    for one in fading:
        due = min(due, one.negligible_at())
        rate += one.weighed(now).weight * math.log(2) / one.evidence.half_life_s
    latched = scoring.is_latched(said)
    leads = states.within_bands(stay.state, judged.score, latched, settings)
    if leads is not stay.state:
        due = min(due, states.dwells_until(stay, settings))
    if rate > 0.0:
        room = NOTICEABLE - abs(judged.health.score - shown.score)
        bound = states.left_at(stay.state, settings)
        if bound is not None and judged.score < bound:
            room = min(room, bound - judged.score)
        due = min(due, now + max(room, _LEAST_STEP) / rate)
    return max(due, now)
