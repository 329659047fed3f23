from collections import Counter
from itertools import combinations
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.model import Aggregate, Degraded
from fettle.scheduling.judge.scores import (
    MAX_SCORE,
    expected_worst,
    host_score,
    value_of_devices,
    value_of_draw,
)

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(SCORES, st.data())
def test_expected_worst_is_the_mean_of_the_worst_over_every_possible_draw(
    scores: list[float], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(scores)))
    by_hand = mean(min(draw) for draw in combinations(scores, count))
    assert expected_worst(Counter(scores), count) == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize(("count", "worth"), [(1, 0.9), (2, 0.8), (4, 0.6), (8, 0.2)])
def test_one_bad_device_among_eight_counts_more_if_more_are_drawn(count: int, worth: float) -> None:
    assert expected_worst({0.2: 1, 1.0: 7}, count) == pytest.approx(worth)


@pytest.mark.parametrize("count", [0, -1, 9])
def test_drawing_no_device_or_more_than_exist_raises_an_error(count: int) -> None:
    with pytest.raises(ValueError, match="cannot draw"):
        expected_worst({1.0: 8}, count)


@given(st.integers(1, 10**30), st.integers(1, 10**30), st.integers(0, 20))
def test_the_time_for_a_draw_does_not_grow_with_the_number_of_units(
    units: int, count: int, bad: int
) -> None:
    tally = {0.2: bad, 1.0: units + count}
    worth = expected_worst(tally, count)
    assert 0.2 - 1e-6 <= worth <= 1.0
    assert 0.2 - 1e-6 <= value_of_draw(tally, count, Aggregate.MEAN) <= 1.0


@given(st.floats(0, 1), st.sampled_from(Degraded))
def test_host_scores_are_whole_numbers_from_0_to_10(value: float, degraded: Degraded) -> None:
    score = host_score(value, degraded)
    assert isinstance(score, int)
    assert 0 <= score <= MAX_SCORE


def test_preferring_degraded_devices_reverses_the_order() -> None:
    assert host_score(1.0, Degraded.PREFER) < host_score(0.5, Degraded.PREFER)
    assert host_score(1.0, Degraded.ALLOW) > host_score(0.5, Degraded.ALLOW)


@pytest.mark.parametrize(("risk", "score"), [(0.0, 10), (0.125, 8), (0.25, 5), (0.5, 0), (1.0, 0)])
def test_a_risk_of_a_refused_device_costs_twice_its_share(risk: float, score: int) -> None:
    assert host_score(1.0, Degraded.ALLOW, risk=risk) == score


def test_a_node_is_not_preferred_for_a_device_that_is_refused() -> None:
    """A dead unit among eight lowers the value, but scavengers want degraded ones."""
    assert host_score(0.875, Degraded.PREFER, risk=0.125) < host_score(1.0, Degraded.PREFER)


def test_the_mean_counts_every_device_and_the_minimum_only_the_slowest() -> None:
    assert value_of_devices([0.2, 1.0], Aggregate.MEAN) == pytest.approx(0.6)
    assert value_of_devices([0.2, 1.0], Aggregate.MIN) == 0.2
