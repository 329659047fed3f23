"""Score to state: bands, dwell, and what an all-clear does to both."""

import pytest

from fettle.config import HealthSettings
from fettle.health.states import Stay, afresh, following
from fettle.model import State

SETTINGS = HealthSettings()
H, D, U = State.HEALTHY, State.DEGRADED, State.UNHEALTHY
T0, DWELL_S = 1000.0, 600.0


@pytest.mark.parametrize(
    ("score", "latched", "state"),
    [
        (1.0, False, H),
        (0.80, False, H),
        (0.79, False, D),
        (0.30, False, D),
        (0.29, False, U),
        (0.95, True, U),
    ],
)
def test_what_is_new_is_judged_by_plain_thresholds(
    score: float, latched: bool, state: State
) -> None:
    assert afresh(score, latched, SETTINGS) is state


@pytest.mark.parametrize(
    ("was", "score", "becomes"),
    [
        (H, 0.79, D),
        (H, 0.29, U),
        (D, 0.29, U),
        (D, 0.89, D),
        (D, 0.90, H),
        (U, 0.44, U),
        (U, 0.45, D),
        (U, 0.89, D),
        (U, 0.90, H),
    ],
)
def test_after_its_dwell_a_state_is_left_where_its_band_ends(
    was: State, score: float, becomes: State
) -> None:
    now = T0 + DWELL_S
    stay = following(Stay(was, T0), score, False, SETTINGS, now, fact_at=now)
    assert stay.state is becomes
    assert stay.since == (T0 if becomes is was else now)


@pytest.mark.parametrize("was", [D, U])
def test_before_its_dwell_is_over_no_state_is_left_for_a_better_one(was: State) -> None:
    now = T0 + DWELL_S - 1
    stay = Stay(was, T0)
    assert following(stay, 1.0, False, SETTINGS, now, fact_at=now) == stay


def test_worse_comes_at_once_and_dates_from_the_fact() -> None:
    stay = following(Stay(D, T0), 0.1, False, SETTINGS, T0 + 30, fact_at=T0 + 10)
    assert stay == Stay(U, T0 + 10)


@pytest.mark.parametrize(
    ("was", "score", "but_for_traces", "latched", "becomes"),
    [
        (U, 0.88, 1.0, False, H),
        (D, 0.83, 0.90, False, H),
        (D, 0.79, 0.90, False, D),  # traces of what came back too often
        (D, 0.79, 0.89, False, D),  # by what else it is ill with, it would not be left
        (D, 0.83, 0.89, False, D),
        (U, 0.83, 0.89, False, D),
        (U, 0.40, 0.44, False, U),
        (U, 0.40, 0.45, False, D),
        (U, 0.20, 0.45, False, U),
        (U, 1.0, 1.0, True, U),
    ],
)
def test_an_all_clear_waives_the_dwell_and_its_traces_hold_no_band(
    was: State, score: float, but_for_traces: float, latched: bool, becomes: State
) -> None:
    now = T0 + 1
    stay = following(
        Stay(was, T0), score, latched, SETTINGS, now, fact_at=now, but_for_traces=but_for_traces
    )
    assert stay.state is becomes
