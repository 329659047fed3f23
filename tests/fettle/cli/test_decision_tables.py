"""A decision in words."""

from typing import Any

import pytest

from fettle.cli.decision_tables import became, decided, why
from fettle.cli.report_pages import duration


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            {"decided": "refused", "nodes": 3, "refused": 3, "count": 7},
            "refused 3 of 3 nodes, 7 times",
        ),
        (
            {"decided": "narrowed", "mode": "observe", "nodes": 3, "refused": 1},
            "would be narrowed to 2 of 3 nodes",
        ),
        ({"decided": "passed", "mode": "observe", "nodes": 3}, "passed 3 of 3 nodes"),
        ({"decided": "injected", "mode": "steer"}, "injected"),
        ({"decided": "denied", "mode": "steer"}, "would be denied"),
        ({"decided": "wrote", "count": 2}, "wrote, 2 times"),
        ({"decided": "wouldWrite", "mode": "observe"}, "would write"),
    ],
)
def test_what_was_decided_says_whether_it_was_done(one: dict[str, Any], said: str) -> None:
    assert decided(one) == said


def test_the_commonest_reasons_come_first_and_else_what_was_preferred() -> None:
    reasons = {"A": 1, "B": 5, "C": 2, "D": 1}
    said = "B on 5 nodes, C on 2 nodes, A on 1 node, and 1 more"
    assert why({"reasons": reasons, "nodes": 6}) == said
    assert why({"verb": "validate", "reasons": {"FTL010": 2, "FTL001": 1}}) == (
        "FTL010 2 times, FTL001"
    )
    assert why({"preferred": {"w1": 12, "w2": 12}}) == "best: w1, w2 (score 12)"
    assert why({"why": "FTL010 too many"}) == "FTL010 too many"
    evicted = {"verb": "steward", "reasons": {"Evict": 1}, "why": "XID 79"}
    assert why(evicted) == "Evict: XID 79"


def test_an_end_says_why_and_what_fettle_said_of_the_node() -> None:
    placed = {"node": "w1", "reasons": ["NodeHeld"]}
    one = {"verb": "filter", "became": "failed", "end": "Evicted", "placed": placed}
    assert became(one) == "failed: Evicted (its node: NodeHeld)"
    assert became({"verb": "filter"}) == "pending"
    assert became({"verb": "validate"}) == ""


@pytest.mark.parametrize(
    ("seconds", "said"), [(5, "5 s"), (119, "119 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_durations_are_short(seconds: float, said: str) -> None:
    assert duration(seconds) == said
