"""Why something is in a worse state than its score alone would make it."""

import msgspec
import pytest

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.reports import SignalReport
from fettle.health.states import Stay, kept
from fettle.model import BUILT_IN, Evidence, EvidenceKind, Family, Health, Kept, State
from tests.fettle.building import refusal
from tests.fettle.health.incidents import DEVICE

H, D, U = State.HEALTHY, State.DEGRADED, State.UNHEALTHY
SETTINGS, T0, DWELL_S = HealthSettings(), 1000.0, 600.0
UNTIL = T0 + DWELL_S


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
    assert kept(Stay(state, T0), score, latched, SETTINGS) == why


def test_health_says_what_keeps_its_state_until_nothing_does(book: HealthBook) -> None:
    """A fault that halves every half minute, is forgotten, and is outlived by its state."""
    fault = Evidence(
        subject=DEVICE,
        family=Family.BUS,
        kind=EvidenceKind.DECAYING,
        weight=0.9,
        source="s",
        reporter="r",
        text="hot",
        observed_at=T0,
        half_life_s=30.0,
    )
    book.report(SignalReport("r", (fault,)), T0)

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
