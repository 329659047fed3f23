"""What can be asked of `python -m tests.goodput`, and what it says of what cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.goodput import cluster, results
from tests.goodput.__main__ import Run, main, make_parser, runs_of
from tests.goodput.packer import CONTENDERS, WITHOUT_SCHEDULER
from tests.goodput.plan import SETTINGS, Scenario
from tests.goodput.replay import Figures

TINY = "--hours 1 --warmup-h 0.5 --seeds 1 --contenders default"
Refusal = Callable[..., str]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """The one line, after the usage, in which the command refuses what is asked."""

    def refused(asked: str, *more: object) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*asked.split(), *map(str, more)])
        told = capsys.readouterr()
        _usage, said = told.err.splitlines()
        assert (ended.value.code, told.out) == (2, "")
        return said.removeprefix("python -m tests.goodput: error: ")

    return refused


def runs(asked: str, *more: str) -> list[Run]:
    return [*runs_of(make_parser().parse_args([*asked.split(), *more]))]


def kept(file: Path, *settings: str) -> Path:
    of_each = [
        results.result(setting, Scenario(), "packer", "default", 1, Figures())
        for setting in settings
    ]
    results.append(file, of_each)
    return file


# --- contenders


def test_all_contenders_run_unless_some_are_named() -> None:
    assert [run.contender for run in runs("--seeds 1")] == [*CONTENDERS]
    assert [run.contender for run in runs("--seeds 1 --contenders steer")] == ["steer"]


def test_the_oracle_does_not_run_on_the_real_scheduler(refusal: Refusal) -> None:
    there = [run.contender for run in runs("--seeds 1 --control-plane")]
    assert there == [one for one in CONTENDERS if one not in WITHOUT_SCHEDULER]
    said = refusal("--control-plane --contenders default oracle")
    assert said == "oracle works without --control-plane only: leave out one of them"


def test_settings_are_refused_where_they_would_be_ignored(refusal: Refusal) -> None:
    said = refusal("--control-plane --settings settings.yaml")
    assert said == "--settings works without --control-plane only: leave out one of them"


# --- titles


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        ("", "load 0.85"),
        ("--dra", "load 0.85"),
        ("--control-plane", "load 0.85"),
        ("--setting saturated --control-plane", "saturated"),
        ("--setting saturated --control-plane --hours 24", "saturated, hours 24"),
        ("--setting saturated --nodes 5", "saturated, nodes 5"),
        ("--setting saturated --hours 36 --nodes 40", "saturated, nodes 40, hours 36"),
        ("--load 1.15 --reboots", "load 1.15, reboots"),
        ("--packing LeastAllocated", "packing LeastAllocated"),
    ],
)
def test_a_title_says_what_was_given_besides_the_setting(asked: str, title: str) -> None:
    assert {run.setting for run in runs(asked)} == {title}


def test_a_title_says_whose_settings_fettle_had(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("health: {minDwellSeconds: 7}")
    (run,) = runs("--seeds 1 --contenders enforce --settings", str(file))
    assert run.setting == f"settings {file}"
    assert run.settings.health.min_dwell_seconds == 7


def test_runs_that_differ_in_a_number_are_kept_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "runs.jsonl"
    for nodes in "4", "5":
        asked = f"{TINY} --setting saturated --nodes {nodes}"
        assert main([*asked.split(), "--keep", str(file)]) == 0
    capsys.readouterr()
    assert main(["--show", str(file), "--plot", str(tmp_path / "svg" / "plot.svg")]) == 0
    told, plot = capsys.readouterr().out, (tmp_path / "svg" / "plot.svg").read_text()
    for nodes in "4", "5":
        assert f"**saturated, nodes {nodes}, hours 1, warmup_h 0.5 · device plugin" in told
        assert f"saturated, nodes {nodes}, hours 1" in plot


def test_kept_results_are_shown_of_the_setting_and_numbers_that_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = kept(tmp_path / "runs.jsonl", "saturated", "saturated, nodes 5")
    for asked in "saturated", "saturated, nodes 5":
        setting, _, nodes = asked.partition(", nodes ")
        more = ["--nodes", nodes] if nodes else []
        assert main(["--show", str(file), "--setting", setting, *more]) == 0
        told = capsys.readouterr().out
        assert [line for line in told.splitlines() if line.startswith("**")] == [
            f"**{asked} · device plugin · simulation**"
        ]


# --- numbers


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--nodes -3", "nodes -3: write 1 to 10000"),
        ("--nodes 0", "nodes 0: write 1 to 10000"),
        ("--load -1", "load -1.0: write 1e-09 to 10"),
        ("--load 0", "load 0.0: write 1e-09 to 10"),
        ("--rate -1", "rate -1.0: write 1e-09 to 1000"),
        ("--rate 0", "rate 0.0: write 1e-09 to 1000"),
        ("--rate inf", "rate inf: write 1e-09 to 1000"),
        ("--rate nan", "rate nan: write 1e-09 to 1000"),
        ("--false-signals -1", "false_signals -1.0: write 0 to 1"),
        ("--checkpoint-h 0", "checkpoint_h 0.0: write 0.001 to 10000"),
        ("--restart-h -1", "restart_h -1.0: write 0 to 10000"),
        ("--gangs 0.9", "gangs 0.9: write 0 to 0.55"),
        ("--warmup-h -1", "warmup_h -1.0: write 0 to 10000"),
        ("--hours 12", "hours 12.0: write more than warmup_h, 12.0"),
        ("--packing Foo", "packing 'Foo': write one of MostAllocated, LeastAllocated"),
        ("--control-plane --hours 6", "hours 6.0: write more than warmup_h, 6.0"),
    ],
)
def test_a_number_that_cannot_be_replayed_is_refused(
    refusal: Refusal, asked: str, said: str
) -> None:
    assert refusal(asked) == said


@pytest.mark.parametrize(
    "fields", [*SETTINGS.values(), cluster.SMALL, {"rate": 1e-9, "load": 1e-9, "gangs": 0}]
)
def test_what_is_reported_can_be_replayed(fields: dict[str, Any]) -> None:
    Scenario(**fields).validate()


def test_any_field_of_a_scenario_can_be_set() -> None:
    flags = make_parser().format_help()
    assert all(f"--{name.replace('_', '-')} " in flags for name in Scenario._fields)
    asked = "--seeds 1 --contenders default --dra --reboots --saves --nodes 7 --false-signals 0.1"
    (run,) = runs(asked)
    assert run.scenario == Scenario(dra=True, reboots=True, saves=True, nodes=7, false_signals=0.1)


# --- files


@pytest.mark.parametrize("option", ["--keep", "--plot"])
def test_a_file_that_cannot_be_written_is_told_before_anything_runs(
    refusal: Refusal, tmp_path: Path, option: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert refusal(TINY, option, tmp_path) == f"cannot open {tmp_path}: Is a directory"
    assert refusal(TINY, option, file / "runs").startswith(f"cannot open {file}")


def test_results_that_cannot_be_read_are_told_in_a_sentence(
    refusal: Refusal, tmp_path: Path
) -> None:
    absent = tmp_path / "absent.jsonl"
    assert refusal("--show", absent) == f"cannot open {absent}: No such file or directory"
    assert refusal("--show", tmp_path) == f"cannot open {tmp_path}: Is a directory"


@pytest.mark.parametrize("broken", [b"{", b'{"setting": "x"}', b"\xff", b'{"setting": "\xff"}'])
def test_a_broken_line_is_told_with_its_number(
    refusal: Refusal, tmp_path: Path, broken: bytes
) -> None:
    file = kept(tmp_path / "runs.jsonl", "saturated")
    file.write_bytes(file.read_bytes() + broken + b"\n")
    assert refusal("--show", file).startswith(f"{file}, line 2 is no result: ")


def test_what_is_there_is_told_if_no_result_matches(refusal: Refusal, tmp_path: Path) -> None:
    file = kept(tmp_path / "runs.jsonl", "saturated", "saturated, nodes 5")
    said = refusal("--setting saturated --nodes 6 --show", file)
    assert said == f"{file} has no such results; it has: saturated; saturated, nodes 5"
    empty = kept(tmp_path / "empty.jsonl")
    assert refusal("--show", empty) == f"{empty} has no such results; it has: nothing"


def test_settings_that_are_broken_are_told_in_a_sentence(refusal: Refusal, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    assert refusal("--settings", file).startswith(f"settings file {file}: No such file")
    file.write_text("health: {minDwellSecond: 7}")
    assert "unknown field `minDwellSecond` - at `$.health`" in refusal("--settings", file)
    file.write_text("health: {rulesFile: /absent/rules.yaml}")
    assert "/absent/rules.yaml" in refusal("--settings", file)
