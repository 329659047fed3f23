"""Score to state, with hysteresis and dwell: worse at once, better only later; and when a state
leads to Healthy by time alone. Pure.

Hysteresis keeps a state until the score is clearly outside its band, and no state is left for a
better one before its minimum dwell is over. An explicit all-clear of something that weighed on the
state ends the dwell at once, but not the hysteresis: other evidence may hold that. Only light
traces of past faults do not hold it then, or nothing would become free at its all-clear. A fault
that keeps coming back is an exception to that: its state waits until it has been quiet for a while.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from fettle.config import HealthSettings
from fettle.model import Evidence, Health, Kept, State

_SEVERITY = {State.HEALTHY: 0, State.DEGRADED: 1, State.UNHEALTHY: 2}


class StateSince(NamedTuple):
    """A state (never Unknown, which is shown beside it) and since when."""

    state: State
    since: float


START = StateSince(State.HEALTHY, 0.0)


def afresh(score: float, latched: bool, settings: HealthSettings) -> State:
    """The state of something about which nothing was known before.

    >>> afresh(0.5, False, HealthSettings()), afresh(0.5, True, HealthSettings())
    (<State.DEGRADED: 'Degraded'>, <State.UNHEALTHY: 'Unhealthy'>)
    """
    if latched or score < settings.unhealthy_below:
        return State.UNHEALTHY
    return State.DEGRADED if score < settings.degraded_below else State.HEALTHY


def within_bands(state: State, score: float, latched: bool, settings: HealthSettings) -> State:
    """The state that follows `state` if time did not matter.

    >>> within_bands(State.HEALTHY, 0.85, False, HealthSettings())
    <State.HEALTHY: 'Healthy'>
    >>> within_bands(State.DEGRADED, 0.85, False, HealthSettings())  # until 0.90
    <State.DEGRADED: 'Degraded'>
    """
    plain = afresh(score, latched, settings)
    if state is State.UNHEALTHY and score < settings.unhealthy_until:
        return State.UNHEALTHY
    if state is not State.HEALTHY and plain is State.HEALTHY and score < settings.degraded_until:
        return State.DEGRADED
    return plain


def following(
    state_since: StateSince,
    score: float,
    latched: bool,
    settings: HealthSettings,
    now: float,
    *,
    fact_at: float,
    but_for_traces: float | None = None,
    recurring_until: float = -inf,
) -> StateSince:
    """The stay that follows this one. `fact_at`: when the latest fact behind the score was
    observed.

    `but_for_traces`, given only after an explicit all-clear, is the score without the traces of
    past faults. `recurring_until`: before that no better state is entered, even so.

    >>> since = StateSince(State.DEGRADED, 1000.0)
    >>> following(since, 1.0, False, HealthSettings(), 1100.0, fact_at=1090.0)  # dwells
    StateSince(state=<State.DEGRADED: 'Degraded'>, since=1000.0)
    >>> following(since, 1.0, False, HealthSettings(), 1700.0, fact_at=1090.0)
    StateSince(state=<State.HEALTHY: 'Healthy'>, since=1700.0)
    """
    all_clear = but_for_traces is not None
    if but_for_traces is None:
        state = within_bands(state_since.state, score, latched, settings)
    else:
        held = within_bands(state_since.state, but_for_traces, latched, settings)
        state = max(held, afresh(score, latched, settings), key=_SEVERITY.__getitem__)
    if state is state_since.state:
        return state_since
    if _SEVERITY[state] > _SEVERITY[state_since.state]:
        return StateSince(state, min(fact_at, now))
    if now >= recurring_until and (all_clear or now >= dwells_until(state_since, settings)):
        return StateSince(state, now)
    return state_since


def kept(
    state_since: StateSince,
    score: float,
    latched: bool,
    settings: HealthSettings,
    recurring_until: float = -inf,
) -> Kept | None:
    """Why a state is worse than the score alone would make it; None if it is not.

    >>> kept(StateSince(State.DEGRADED, 1000.0), 0.85, False, HealthSettings())
    Kept(then=<State.HEALTHY: 'Healthy'>, score=0.9, until=0.0, recurring=False)
    """
    bound = left_at(state_since.state, settings)
    if bound is None or state_since.state is afresh(score, latched, settings):
        return None
    then = within_bands(state_since.state, score, latched, settings)
    if then is not state_since.state:
        dwells = dwells_until(state_since, settings)
        recurring = recurring_until > dwells
        return Kept(then, until=max(dwells, recurring_until), recurring=recurring)
    return Kept(within_bands(state_since.state, bound, latched, settings), score=bound)


def dwells_until(state_since: StateSince, settings: HealthSettings) -> float:
    return state_since.since + settings.min_dwell_seconds


def left_at(state: State, settings: HealthSettings) -> float | None:
    """The score at which a state is left for a better one; None for the best state."""
    bounds = {State.UNHEALTHY: settings.unhealthy_until, State.DEGRADED: settings.degraded_until}
    return bounds.get(state)


# When something is Healthy again by time alone

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
    state_since: StateSince,
    foresee: Callable[[float], RecoveryStep],
    settings: HealthSettings,
    now: float,
) -> float | None:
    """When a stay in a state leads to Healthy by time alone; None if it does not.

    What is foreseen only gets better with time.

    >>> since, sound = StateSince(State.DEGRADED, 1000.0), RecoveryStep(1.0, False)
    >>> int(healthy_at(since, lambda at: sound, HealthSettings(), 1100.0))  # after 600 s in it
    1600
    """
    while state_since.state is not State.HEALTHY:
        now_or_then = _first_move(state_since, foresee, settings, now)
        if now_or_then is None:
            return None
        now, state_since = now_or_then
    return now


def _first_move(
    state_since: StateSince,
    foresee: Callable[[float], RecoveryStep],
    settings: HealthSettings,
    now: float,
) -> tuple[float, StateSince] | None:
    """When the state is left for a better one, and the stay that follows."""

    def after(at: float) -> StateSince:
        score, latched, recurring_until = foresee(at)
        return following(
            state_since, score, latched, settings, at, fact_at=at, recurring_until=recurring_until
        )

    early, late = now, now + _EVER_S
    if after(late) is state_since:
        return None
    if (at_once := after(early)) is not state_since:
        return early, at_once
    while late - early > _SOON_S:
        middle = (early + late) / 2
        early, late = (middle, late) if after(middle) is state_since else (early, middle)
    return late, after(late)
