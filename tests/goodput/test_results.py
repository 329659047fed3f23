"""Medians of runs, as a table and as a plot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from tests.goodput import results
from tests.goodput.plan import Scenario
from tests.goodput.plots import svg
from tests.goodput.replay import Figures
from tests.goodput.results import Result
from tests.goodput.tables import HEADER, markdown

SCENARIO = Scenario(nodes=1, hours=11.0, warmup_h=1.0)


def ran(contender: str, seed: int, useful_h: float) -> Result:
    figures = Figures(useful=useful_h, sound=80.0, stranded=8.0, faults=2, state_changes=5)
    return results.result("load 0.85", SCENARIO, "packer", contender, seed, figures)


def test_a_row_is_the_median_over_the_seeds() -> None:
    ((row, numbers),) = results.medians([ran("steer", n, 40.0 + n) for n in (0, 8, 24)]).items()
    assert row.contender == "steer"
    assert (numbers.useful, numbers.usable, numbers.changes) == (60.0, 90.0, 2.5)


def test_a_gain_is_the_median_of_differences_on_the_same_seed() -> None:
    default = [ran("default", n, useful) for n, useful in ((1, 40.0), (2, 56.0), (3, 48.0))]
    steer = [ran("steer", n, useful) for n, useful in ((1, 44.0), (2, 56.8), (3, 47.2), (4, 1.0))]
    ((row, gain),) = results.gains([*default, *steer]).items()
    assert row.contender == "steer"
    assert [round(each, 6) for each in gain] == [1.0, -1.0, 5.0]


def test_a_job_gave_up_that_failed_more_often_than_jobs_bear() -> None:
    figures = Figures(failures_by_job=Counter({"train8-1": 7, "train8-2": 6}))
    told = results.result("load 0.85", SCENARIO, "packer", "default", 1, figures)
    assert told.gave_up == 1


def test_a_run_that_was_made_again_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    results.append(file, [ran("steer", 1, 40.0), ran("steer", 2, 48.0)])
    results.append(file, [ran("steer", 1, 64.0)])
    assert [one.useful for one in results.read(file)] == [80.0, 60.0]


def test_a_table_says_nothing_of_fettle_where_there_is_none() -> None:
    told = markdown([ran("default", 1, 40.0), ran("enforce", 1, 40.0)]).splitlines()
    assert told[0] == "**load 0.85 · device plugin · simulation**"
    assert {line.count("|") for line in told[2:6]} == {len(HEADER) + 1}
    assert told[4].count("–") > told[5].count("–")


def test_a_plot_is_one_svg_that_needs_nothing_else() -> None:
    plot = svg([ran("default", 1, 40.0), ran("enforce", 1, 48.0)])
    root = ElementTree.fromstring(plot)
    assert root.tag.endswith("svg")
    assert {"default", "enforce", "50.0", "60.0"} <= {text.text for text in root.iter()}
    assert "href" not in plot
