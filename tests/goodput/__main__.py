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
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from fettle.config import load_settings
from tests.goodput import cluster, results, tables
from tests.goodput.packer import CONTENDERS, play
from tests.goodput.plan import SETTINGS, Scenario
from tests.goodput.plots import svg

OPTIONS = (
    "nodes",
    "hours",
    "warmup_h",
    "load",
    "rate",
    "gangs",
    "checkpoint_h",
    "restart_h",
    "false_signals",
    "packing",
)


class Run(NamedTuple):
    setting: str
    scenario: Scenario
    engine: str
    contender: str
    seed: int
    settings: Path | None = None


def main() -> int:
    asked = _parser().parse_args()
    if asked.show:
        kept = results.read(asked.show)
        told = [one for one in kept if not asked.setting or one.setting in asked.setting]
    else:
        told = []
        runs = [*_runs(asked)]
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.goodput",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    seeds = "tune with 1 to 100 only, and report others"
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help=seeds)
    parser.add_argument("--contenders", nargs="+", default=CONTENDERS, choices=CONTENDERS)
    parser.add_argument("--setting", nargs="+", choices=SETTINGS, help="named settings")
    parser.add_argument("--dra", action="store_true", help="a DRA driver, no device plugin")
    parser.add_argument("--control-plane", action="store_true", help="the real kube-scheduler")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="append the results to it")
    parser.add_argument("--show", type=Path, metavar="FILE", help="tell kept results; run nothing")
    parser.add_argument("--plot", type=Path, metavar="SVG")
    parser.add_argument("--settings", type=Path, help="Fettle's settings (without a scheduler)")
    for name in OPTIONS:
        default = Scenario._field_defaults[name]
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), help=f"(default: {default})")
    return parser


def _runs(asked: argparse.Namespace) -> Iterator[Run]:
    given = {name: value for name in OPTIONS if (value := getattr(asked, name)) is not None}
    if asked.control_plane:
        given = cluster.SMALL | given
    named = {name: SETTINGS[name] for name in asked.setting or ()}
    settings = named or {_title(given): {}}
    engine = "scheduler" if asked.control_plane else "packer"
    for (name, fields), contender in itertools.product(settings.items(), asked.contenders):
        scenario = Scenario(dra=asked.dra)._replace(**fields)._replace(**given)
        for seed in asked.seeds:
            yield Run(name, scenario, engine, contender, seed, asked.settings)


def _in_order(told: list[results.Result]) -> list[results.Result]:
    """By setting as they come, in it by contender."""
    places = {table: n for n, table in enumerate(dict.fromkeys(one.row[:3] for one in told))}
    return sorted(told, key=lambda one: (places[one.row[:3]], CONTENDERS.index(one.contender)))


def _title(given: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in given.items()) or "load 0.85"


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
        playing = play(run.scenario, run.seed, run.contender, load_settings(run.settings))
    figures = asyncio.run(playing)
    return results.result(run.setting, run.scenario, run.engine, run.contender, run.seed, figures)


if __name__ == "__main__":
    sys.exit(main())
