"""Score to state, with hysteresis and dwell: worse at once, better only with room and time.

A band keeps a state until the score is clearly out of it, and no state is left for a better one
before its dwell is over. An explicit all-clear of something that weighed on it ends the dwell at
once, and not the band: that may be held by something else. Only the light traces of what is over
hold none then, else nothing would be free at its all-clear.
"""

from typing import NamedTuple

from fettle.config import HealthSettings
from fettle.model import Kept, State

_SEVERITY = {State.HEALTHY: 0, State.DEGRADED: 1, State.UNHEALTHY: 2}


class Stay(NamedTuple):
    """A state (never Unknown, which is shown beside it) and since when."""

    state: State
    since: float


START = Stay(State.HEALTHY, 0.0)


def afresh(score: float, latched: bool, settings: HealthSettings) -> State:
    """The state of something that nothing was known about before."""
    if latched or score < settings.unhealthy_below:
        return State.UNHEALTHY
    return State.DEGRADED if score < settings.degraded_below else State.HEALTHY


def within_bands(state: State, score: float, latched: bool, settings: HealthSettings) -> State:
    """The state that follows `state`, if time were no matter."""
    plain = afresh(score, latched, settings)
    if state is State.UNHEALTHY and score < settings.unhealthy_until:
        return State.UNHEALTHY
    if state is not State.HEALTHY and plain is State.HEALTHY and score < settings.degraded_until:
        return State.DEGRADED
    return plain


def following(
    stay: Stay,
    score: float,
    latched: bool,
    settings: HealthSettings,
    now: float,
    *,
    fact_at: float,
    but_for_traces: float | None = None,
) -> Stay:
    """Where a stay leads; `fact_at` is when the latest fact behind the score was observed.

    `but_for_traces`, after an explicit all-clear only, is the score without what is over.
    """
    all_clear = but_for_traces is not None
    if but_for_traces is None:
        state = within_bands(stay.state, score, latched, settings)
    else:
        held = within_bands(stay.state, but_for_traces, latched, settings)
        state = max(held, afresh(score, latched, settings), key=_SEVERITY.__getitem__)
    if state is stay.state:
        return stay
    if _SEVERITY[state] > _SEVERITY[stay.state]:
        return Stay(state, min(fact_at, now))
    if all_clear or now >= dwells_until(stay, settings):
        return Stay(state, now)
    return stay


def kept(stay: Stay, score: float, latched: bool, settings: HealthSettings) -> Kept | None:
    """What keeps a state that is worse than the score alone would make it; None if it is not."""
    bound = left_at(stay.state, settings)
    if bound is None or stay.state is afresh(score, latched, settings):
        return None
    then = within_bands(stay.state, score, latched, settings)
    if then is not stay.state:
        return Kept(then, until=dwells_until(stay, settings))
    return Kept(within_bands(stay.state, bound, latched, settings), score=bound)


def dwells_until(stay: Stay, settings: HealthSettings) -> float:
    return stay.since + settings.min_dwell_seconds


def left_at(state: State, settings: HealthSettings) -> float | None:
    """The score at which a state is left for a better one; None for the best."""
    bounds = {State.UNHEALTHY: settings.unhealthy_until, State.DEGRADED: settings.degraded_until}
    return bounds.get(state)
