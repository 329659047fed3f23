"""When something is Healthy again by time alone. Pure: it asks what will weigh at a time to come,
and lets the states follow.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from fettle.config import HealthSettings
from fettle.health import states
from fettle.health.states import StateSince
from fettle.model import Evidence, Health, State

_SOON_S, _EVER_S = 1.0, 10 * 365 * 86_400.0
"""How exact a time is, and how far ahead is looked: all that fades is gone by then."""


class RecoveryStep(NamedTuple):
    """What the state follows from at some time, as `states.following` takes it."""

    score: float
    latched: bool
    recurring_until: float = -inf


class Awaited(NamedTuple):
    """Evidence that must be over first. `clear`: what says so, as in `SignalRules.all_clear`."""

    evidence: Evidence
    clear: str


class Recovery(NamedTuple):
    """How healthy something is now, and when it is Healthy again.

    `at`: if nothing more is reported, in Unix seconds; the time of asking if it is Healthy already,
    or as soon as what is `awaited` is over. If something is awaited, it is the earliest time.
    """

    health: Health
    at: float
    awaited: tuple[Awaited, ...] = ()


def healthy_at(
    stay: StateSince, foresee: Callable[[float], RecoveryStep], settings: HealthSettings, now: float
) -> float | None:
    """When a stay in a state leads to Healthy by time alone; None if it does not.

    What is foreseen only gets better with time.
    """
    while stay.state is not State.HEALTHY:
        now_or_then = _first_move(stay, foresee, settings, now)
        if now_or_then is None:
            return None
        now, stay = now_or_then
    return now


def _first_move(
    stay: StateSince, foresee: Callable[[float], RecoveryStep], settings: HealthSettings, now: float
) -> tuple[float, StateSince] | None:
    """When the state is left for a better one, and the stay that follows."""

    def after(at: float) -> StateSince:
        score, latched, recurring_until = foresee(at)
        return states.following(
            stay, score, latched, settings, at, fact_at=at, recurring_until=recurring_until
        )

    early, late = now, now + _EVER_S
    if after(late) is stay:
        return None
    if (at_once := after(early)) is not stay:
        return early, at_once
    while late - early > _SOON_S:
        middle = (early + late) / 2
        early, late = (middle, late) if after(middle) is stay else (early, middle)
    return late, after(late)
