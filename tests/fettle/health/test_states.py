"""Score to state: bands, dwell, all-clears, and why a state is worse than its score."""

import msgspec
import pytest

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.reports import SignalReport
from fettle.health.states import StateSince, afresh, following, kept
from fettle.model import (
    BUILT_IN,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    Kept,
    ReporterId,
    Source,
    SourceKind,
    State,
)
from tests.fettle.building import refusal
from tests.fettle.health.incidents import DEVICE

SETTINGS = HealthSettings()
H, D, U = State.HEALTHY, State.DEGRADED, State.UNHEALTHY
T0, DWELL_S = 1000.0, 600.0
UNTIL = T0 + DWELL_S


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
def test_a_new_subject_is_judged_by_plain_thresholds(
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
    stay = following(StateSince(was, T0), score, False, SETTINGS, now, fact_at=now)
    assert stay.state is becomes
    assert stay.since == (T0 if becomes is was else now)


@pytest.mark.parametrize("was", [D, U])
def test_before_its_dwell_is_over_no_state_is_left_for_a_better_one(was: State) -> None:
    now = T0 + DWELL_S - 1
    stay = StateSince(was, T0)
    assert following(stay, 1.0, False, SETTINGS, now, fact_at=now) == stay


def test_a_worse_state_comes_at_once_and_dates_from_the_fact() -> None:
    stay = following(StateSince(D, T0), 0.1, False, SETTINGS, T0 + 30, fact_at=T0 + 10)
    assert stay == StateSince(U, T0 + 10)


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
        StateSince(was, T0),
        score,
        latched,
        SETTINGS,
        now,
        fact_at=now,
        but_for_traces=but_for_traces,
    )
    assert stay.state is becomes


@pytest.mark.parametrize(
    ("state", "score", "latched", "why"),
    [
        (H, 1.0, False, None),
        (D, 0.79, False, None),
        (U, 0.29, False, None),
        (U, 1.0, True, None),
        (D, 0.85, False, Kept(H, score=0.9)),
        (U, 0.40, False, Kept(D, score=0.45)),
        (D, 0.95, False, Kept(H, until=UNTIL)),
        (U, 0.50, False, Kept(D, until=UNTIL)),
        (U, 1.0, False, Kept(H, until=UNTIL)),
    ],
)
def test_a_state_is_kept_by_its_band_or_else_by_its_dwell(
    state: State, score: float, latched: bool, why: Kept | None
) -> None:
    assert kept(StateSince(state, T0), score, latched, SETTINGS) == why


def test_health_says_what_keeps_its_state_until_nothing_does(book: HealthBook) -> None:
    """A fault that halves every half minute, is forgotten, and is outlived by its state."""
    fault = Evidence(
        subject=DEVICE,
        family=Family.BUS,
        kind=EvidenceKind.DECAYING,
        weight=0.9,
        source=Source(SourceKind.TAINT, "s"),
        reporter=ReporterId("r"),
        said="hot",
        observed_at=T0,
        half_life_s=30.0,
    )
    book.ledger.report(SignalReport(ReporterId("r"), (fault,)), T0)

    def at(now: float) -> Health:
        book.changed_by_time(now)
        return book.assess(DEVICE, (DEVICE,), now)

    assert (at(T0).state, at(T0).kept) == (U, None)
    assert at(T0 + 20).kept == Kept(D, score=0.45)
    assert at(T0 + 300).kept == Kept(H, until=UNTIL)
    assert (at(T0 + 599).evidence, at(T0 + 599).kept) == ((), Kept(H, until=UNTIL))
    assert at(T0 + 601).state is H


@pytest.mark.parametrize(
    ("health", "why"),
    [
        (Health(1.0, U, T0, kept=Kept(H, until=UNTIL)), "(1.00; held by the minimum dwell)"),
        (Health(0.4, U, T0, kept=Kept(D, score=0.45)), "(0.40; Degraded from 0.45)"),
        (Health(0.85, D, T0, kept=Kept(H, score=0.9)), "(0.85; Healthy again from 0.90)"),
        (Health(0.5, D, T0), "(0.50)"),
    ],
)
def test_a_refusal_for_a_state_says_what_keeps_it(health: Health, why: str) -> None:
    placement = BUILT_IN["training"].placement
    assert refusal(health, placement) == f"{health.state} {why}"


def test_a_refusal_for_a_score_does_not_speak_of_states() -> None:
    lenient = msgspec.structs.replace(BUILT_IN["inference"].placement, min_score=0.9)
    health = Health(0.85, D, T0, kept=Kept(H, score=0.9))
    assert refusal(health, lenient) == "score below 0.9 (0.85)"
