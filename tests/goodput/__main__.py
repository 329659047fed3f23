"""`python -m tests.goodput`: a fleet by who minds its health, as a table of medians over seeds.

Without a scheduler it takes about 5 s a run; with `--control-plane`, on a real kube-scheduler,
`--nodes` 40 and `--hours` 36, two minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fettle.config import Settings, load_settings
from fettle.health import load_rules
from fettle.model import SettingsError
from tests.goodput import cluster, results, tables
from tests.goodput.packer import CONTENDERS, WITHOUT_SCHEDULER, play
from tests.goodput.plan import SETTINGS, Scenario
from tests.goodput.plots import svg

DEFAULT = "load 0.85"
"""The setting of which every field has its default."""


class Run(NamedTuple):
    setting: str
    scenario: Scenario
    engine: str
    contender: str
    seed: int
    settings: Settings


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    asked = parser.parse_args(argv)
    try:
        told = _kept(asked) if asked.show else []
        runs = [] if asked.show else [*runs_of(asked)]
        _open_for_writing(asked.keep, asked.plot)
    except OSError as error:
        parser.error(f"cannot open {error.filename}: {error.strerror}")
    except (ValueError, SettingsError) as error:
        parser.error(str(error))
    for number, one in enumerate(_results(runs, control_plane=asked.control_plane), 1):
        told.append(one)
        if asked.keep:
            results.append(asked.keep, [one])
        said = f"{number}/{len(runs)} {one.setting} {one.driver} {one.contender} {one.seed}"
        print(said, file=sys.stderr, flush=True)
    told = _in_order(told)
    print(tables.markdown(told))
    if asked.plot:
        asked.plot.write_text(svg(told))
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.goodput", usage="%(prog)s [option ...]", description=__doc__
    )
    seeds = "tune with 1 to 100 only, and report others (default: 1 2)"
    contenders = "(default: all; with --control-plane all but frees, evicts, stragglers and oracle)"
    setting = f"named settings (default: {DEFAULT})"
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help=seeds)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, help=contenders)
    parser.add_argument("--setting", nargs="+", choices=SETTINGS, help=setting)
    parser.add_argument("--control-plane", action="store_true", help="the real kube-scheduler")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--keep", type=Path, metavar="FILE", help="append the results to it")
    kept.add_argument("--show", type=Path, metavar="FILE", help="tell kept results; run nothing")
    parser.add_argument("--plot", type=Path, metavar="SVG")
    parser.add_argument("--settings", type=Path, help="Fettle's settings (without a scheduler)")
    fields = parser.add_argument_group("the scenario", argument_default=argparse.SUPPRESS)
    fields.add_argument("--dra", action="store_true", help="a DRA driver, no device plugin")
    fields.add_argument("--reboots", action="store_true", help="repairs fail the node's pods")
    fields.add_argument("--saves", action="store_true", help="evicted training saves its work")
    for name, default in Scenario._field_defaults.items():
        if name not in ("dra", "reboots", "saves"):
            flag, told = f"--{name.replace('_', '-')}", f"(default: {default})"
            fields.add_argument(flag, type=type(default), help=told)
    return parser


def _kept(asked: argparse.Namespace) -> list[results.Result]:
    """Of the settings that are asked for, or all. Raises ValueError, with the line."""
    for number, line in enumerate(asked.show.read_bytes().splitlines(), 1):
        try:
            msgspec.json.decode(line, type=results.Result)
        except ValueError as error:
            raise ValueError(f"{asked.show}, line {number} is no result: {error}") from error
    kept, titles = results.read(asked.show), _scenarios(asked)
    told = [one for one in kept if "" in titles or one.setting in titles]
    if not told:
        there = "; ".join(dict.fromkeys(one.setting for one in kept)) or "nothing"
        raise ValueError(f"{asked.show} has no such results; it has: {there}")
    return told


def _open_for_writing(*files: Path | None) -> None:
    """Raises OSError, before the runs, if one cannot be."""
    for file in filter(None, files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()


def runs_of(asked: argparse.Namespace) -> Iterator[Run]:
    """Raises ValueError or SettingsError if they are none that can be made."""
    if asked.control_plane and asked.settings:
        raise ValueError("--settings works without --control-plane only: leave out one of them")
    if asked.control_plane:
        for one in {*WITHOUT_SCHEDULER} & {*(asked.contenders or ())}:
            raise ValueError(f"{one} works without --control-plane only: leave out one of them")
    able = (one for one in CONTENDERS if one not in WITHOUT_SCHEDULER or not asked.control_plane)
    contenders = asked.contenders or [*able]
    settings = load_settings(asked.settings)
    load_rules(settings.health.rules_file)
    engine = "scheduler" if asked.control_plane else "packer"
    for (title, scenario), contender in itertools.product(_scenarios(asked).items(), contenders):
        scenario.validate()
        for seed in asked.seeds:
            yield Run(title or DEFAULT, scenario, engine, contender, seed, settings)


def _scenarios(asked: argparse.Namespace) -> dict[str, Scenario]:
    """By title, which says the named setting and what was given besides: "" if nothing was."""
    given = {name: getattr(asked, name) for name in Scenario._fields if name in asked}
    besides = [_said(*one) for one in given.items() if one[0] != "dra"]
    if asked.settings:
        besides.append(f"settings {asked.settings}")
    small = cluster.SMALL if asked.control_plane else {}
    return {
        ", ".join([name, *besides] if name else besides): Scenario(
            **{**small, **SETTINGS[name or DEFAULT], **given}
        )
        for name in asked.setting or [""]
    }


def _said(name: str, value: Any) -> str:
    return name if value is True else f"{name} {value}".removesuffix(".0")


def _in_order(told: list[results.Result]) -> list[results.Result]:
    """By setting as they come, in it by contender."""
    places = {table: n for n, table in enumerate(dict.fromkeys(one.row[:3] for one in told))}
    return sorted(told, key=lambda one: (places[one.row[:3]], CONTENDERS.index(one.contender)))


def _results(runs: list[Run], *, control_plane: bool) -> Iterator[results.Result]:
    if control_plane:  # one after the other: each takes what processors there are
        for run in runs:
            yield _measure(run)
        return
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as processes:
        for done in as_completed([processes.submit(_measure, run) for run in runs]):
            yield done.result()


def _measure(run: Run) -> results.Result:
    if run.engine == "scheduler":
        playing = cluster.play(run.scenario, run.seed, run.contender)
    else:
        playing = play(run.scenario, run.seed, run.contender, run.settings)
    figures = asyncio.run(playing)
    return results.result(run.setting, run.scenario, run.engine, run.contender, run.seed, figures)


if __name__ == "__main__":
    sys.exit(main())
