"""What the book remembers of each subject it was asked about and that is not simply sound.

The last Health it answered (returned again, the same object, while nothing that matters changed),
the state's stay, and when time alone may next change the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from fettle.config import HealthSettings
from fettle.health import scoring, states
from fettle.health.fading import Fading, is_trace
from fettle.health.states import Stay
from fettle.model import UNKNOWN_SCORE, EvidenceKind, Health, State, Subject, Weighed

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


def judge(
    said: tuple[Weighed, ...], stay: Stay, settings: HealthSettings, now: float, *, all_clear: bool
) -> Assessment:
    """Health by what is said, following a stay in a state.

    What a tenant could bring about lowers the score and moves no state.
    """
    sure = scoring.proven(said)
    score, latched = scoring.known_score(sure), scoring.is_latched(sure)
    shown = score if len(sure) == len(said) else scoring.known_score(said)
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
    if scoring.is_unknown(said):
        shown, most = min(shown, UNKNOWN_SCORE), min(most, UNKNOWN_SCORE)
        if state is State.HEALTHY:
            state = State.UNKNOWN
            since = min(
                w.evidence.observed_at for w in said if w.evidence.kind is EvidenceKind.UNKNOWN
            )
    provoked = round(most - shown, scoring.DIGITS)
    kept = states.kept(after, score, latched, settings)
    health = Health(shown, state, since, said, scoring.is_held(sure), provoked, kept)
    return Assessment(health, after, score, latched)


def _but_for_traces(said: tuple[Weighed, ...]) -> float:
    return scoring.known_score(w for w in said if not is_trace(w.evidence))


def is_same(old: Health, new: Health) -> bool:
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
