"""What decisions amount to: who was kept from what, who waited, and where Fettle was wrong."""

from typing import Any

from fettle.cli.report_pages import html_page, tables
from fettle.model import Mode
from fettle.records import Became, Decided, Decision, Placed, Verb, make_report
from tests.fettle.records.building import decision

HOUR = 3600.0
NOW = 100 * HOUR


def report(*decisions: Decision, since: float = 0.0) -> dict[str, Any]:
    return make_report(decisions, since, NOW)


def placed(at: float, *reasons: str, withheld: int = 8) -> Placed:
    return Placed(node="w1", at=at, reasons=reasons, why="dead", withheld=withheld, devices=8)


def observed(pod: str = "p", decided: Decided = Decided.PASSED, **fields: Any) -> Decision:
    return decision(pod, decided, mode=Mode.OBSERVE, **fields)


def test_device_hours_are_those_that_pods_ran_on_what_would_have_been_refused() -> None:
    ran = observed(
        placed=placed(10 * HOUR, "NodeUnhealthy"), became=Became.SUCCEEDED, became_at=12 * HOUR
    )
    runs = observed("q", policy="inference", placed=placed(99 * HOUR, "NodeHeld", withheld=1))
    runs.became = Became.RUNNING
    sound = observed("r", placed=placed(HOUR), became=Became.RUNNING)
    enforced = decision("s", placed=placed(HOUR, "NodeHeld"), became=Became.RUNNING)
    found = report(ran, runs, sound, enforced)
    assert found["deviceHours"] == {"total": 17.0, "byPolicy": {"inference": 1.0, "training": 16.0}}
    assert {row["pod"] for row in found["landedOnRefused"]} == {
        "default/p",
        "default/q",
        "default/s",
    }


def test_device_hours_begin_where_the_report_does() -> None:
    runs = observed(placed=placed(10 * HOUR, "NodeHeld", withheld=2), became=Became.RUNNING)
    assert report(runs, since=98 * HOUR)["deviceHours"]["total"] == 4.0


def test_it_says_as_plainly_where_fettle_would_have_been_wrong() -> None:
    well = observed(placed=placed(HOUR, "NodeHeld"), became=Became.SUCCEEDED, became_at=2 * HOUR)
    runs = observed("runs", placed=placed(NOW - HOUR, "NodeHeld"), became=Became.RUNNING)
    soon = observed("soon", placed=placed(NOW - 60, "NodeHeld"), became=Became.RUNNING)
    right = observed("right", placed=placed(HOUR, "NodeHeld"), became=Became.FAILED, end="Xid")
    right.became_at = 2 * HOUR
    missed = observed("missed", placed=placed(HOUR), became=Became.FAILED, end="exit code 1")
    missed.became_at = 2 * HOUR
    wrong = report(well, runs, soon, right, missed)["wrong"]
    assert [row["pod"] for row in wrong["ranWell"]] == ["default/runs", "default/p"]
    assert [(row["pod"], row["end"]) for row in wrong["failedUnseen"]] == [
        ("default/missed", "exit code 1")
    ]


def test_a_pod_that_was_refused_everywhere_waited_until_it_was_bound() -> None:
    refused = decision(at=10 * HOUR, reasons={"NodeHeld": 3}, nodes=3)
    later = decision(decided=Decided.PASSED, at=11 * HOUR, placed=placed(11 * HOUR))
    (row,) = report(refused, later)["waiting"]
    assert (row["seconds"], row["until"]) == (HOUR, 11 * HOUR)


def test_one_that_only_was_observed_would_have_waited_until_a_node_was_allowed() -> None:
    refused = observed(decided=Decided.REFUSED, at=10 * HOUR, placed=placed(10 * HOUR, "NodeHeld"))
    (row,) = report(refused)["waiting"]
    assert (row["seconds"], row["until"]) == (90 * HOUR, None)
    refused.allowed_at = 13 * HOUR
    (row,) = report(refused)["waiting"]
    assert (row["seconds"], row["until"]) == (3 * HOUR, 13 * HOUR)


def test_pods_are_counted_by_reason_with_what_became_of_them() -> None:
    one = decision(decided=Decided.NARROWED, reasons={"NodeHeld": 2}, became=Became.SUCCEEDED)
    two = decision("q", decided=Decided.NARROWED, reasons={"NodeHeld": 5}, became=Became.RUNNING)
    one.became_at = 2000.0
    fewer = decision("q", reasons={"NodeHeld": 3}, at=1001.0, became=Became.RUNNING)
    (row,) = report(one, two, fewer)["keptAway"]
    assert (row["reason"], row["pods"], row["nodes"]) == ("NodeHeld", 2, 5)
    assert row["became"] == {"succeeded": 1, "running": 1}


def test_pods_that_ended_before_and_reviews_of_before_are_left_out() -> None:
    ended = observed(placed=placed(HOUR, "NodeHeld"), became=Became.SUCCEEDED, became_at=2 * HOUR)
    denied = decision(verb=Verb.VALIDATE, decided=Decided.DENIED, uid="", reasons={"FTL010": 1})
    found = report(ended, denied, since=50 * HOUR)
    assert (found["pods"], found["landedOnRefused"], found["webhook"]) == (0, [], [])
    assert report(denied)["webhook"] == [
        {
            "decided": "denied",
            "kind": "Pod",
            "policy": "training",
            "mode": "enforce",
            "rule": "FTL010",
            "count": 1,
        }
    ]


def test_the_page_loads_nothing_and_shows_text_as_text() -> None:
    evil = observed("p", placed=placed(HOUR, "NodeHeld"), became=Became.FAILED)
    evil.end, evil.became_at = "<script>alert(1)</script>", 2 * HOUR
    data = {**report(evil), "notes": [], "modes": ["mode: observe (setting mode)"]}
    page = html_page(data)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not any(word in page for word in ("src=", "href=", "url(", "@import", "http:"))
    assert all(part.heading in page for part in tables(data))


def test_with_no_decisions_every_part_says_so() -> None:
    data = {**report(), "notes": [], "modes": []}
    assert all(part.rows == [] and part.nothing for part in tables(data))
