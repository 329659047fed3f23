"""What single runs gave, and their medians over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from tests.goodput.plan import Scenario
from tests.goodput.replay import Figures

BACKOFF_LIMIT = 6
"""Failed pods that a Job bears, if it says nothing else (Kubernetes' default)."""
MINDED_BY_FETTLE = ("observe", "steer", "enforce", "frees", "evicts", "stragglers", "taints")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    - `useful`, `lost`, `slow`, `idle_bad`, `idle_beside_bad`, `idle_sound`: percent of capacity,
      100 together: work that stayed done; work that has to be done again; what occupied devices
      did less than sound ones; what idled (see `Figures`). `avoidable` is in `lost` and `slow`.
    - `usable`: percent of sound device-hours: those that did not idle while fitting work waited.
    - `changes`: of state, as Fettle saw it, for each real fault. `held`: device-hours in which
      Fettle called a sound device bad.
    - `gave_up`: training jobs with more failed pods than a Job bears by default. Here they go on.
      `gangs`: jobs of which a gang was placed.
    - `wait_h`: how long a job's pods waited, all attempts together; the mean over the jobs.
      `whole_wait_h`: the same for jobs whose pods ask for a whole node. `scheduler_s`: processor
      time of the scheduler.
    """

    setting: str
    driver: str
    """`plugin` or `dra`."""
    engine: str
    """`packer` or `scheduler`."""
    contender: str
    seed: int
    useful: float
    starts: int
    visible: int
    failures: int
    gave_up: int
    usable: float
    changes: float
    wait_h: float
    whole_wait_h: float
    refused: int
    lost: float
    slow: float
    avoidable: float
    idle_bad: float
    idle_beside_bad: float
    idle_sound: float
    gangs: int
    held: float = 0.0
    evictions: int = 0
    scheduler_s: float = 0.0

    @property
    def row(self) -> Row:
        return Row(self.setting, self.driver, self.engine, self.contender)


class Row(NamedTuple):
    """What a median is taken over the seeds of."""

    setting: str
    driver: str
    engine: str
    contender: str


class Gain(NamedTuple):
    """Points: the median of the differences, the least and the most."""

    median: float
    least: float
    most: float


class Numbers(NamedTuple):
    """The fields of `Result` that are measured."""

    useful: float
    starts: float
    visible: float
    failures: float
    gave_up: float
    usable: float
    changes: float
    wait_h: float
    whole_wait_h: float
    refused: float
    lost: float
    slow: float
    avoidable: float
    idle_bad: float
    idle_beside_bad: float
    idle_sound: float
    gangs: float
    held: float
    evictions: float
    scheduler_s: float


def result(
    setting: str, scenario: Scenario, engine: str, contender: str, seed: int, figures: Figures
) -> Result:
    def share(device_hours: float) -> float:
        return 100 * device_hours / scenario.capacity_h

    return Result(
        setting=setting,
        driver="dra" if scenario.dra else "plugin",
        engine=engine,
        contender=contender,
        seed=seed,
        useful=share(figures.useful),
        starts=figures.starts,
        visible=figures.starts_on_visibly_bad,
        failures=figures.failures,
        evictions=figures.evictions,
        gave_up=sum(count > BACKOFF_LIMIT for count in figures.failures_by_job.values()),
        usable=100 - 100 * figures.stranded / max(1.0, figures.sound),
        changes=figures.state_changes / max(1, figures.faults),
        wait_h=fmean(figures.waits_h.values() or [0.0]),
        whole_wait_h=fmean(figures.whole_waits_h.values() or [0.0]),
        refused=figures.refused,
        lost=share(figures.lost),
        slow=share(figures.occupied - figures.useful - figures.lost),
        avoidable=share(figures.avoidable),
        idle_bad=share(figures.idle_bad),
        idle_beside_bad=share(figures.idle_beside_bad),
        idle_sound=share(figures.idle_sound),
        gangs=len(figures.gangs),
        held=sum(figures.called_bad_while_sound.values()),
        scheduler_s=figures.scheduler_s,
    )


def medians(results: Iterable[Result]) -> dict[Row, Numbers]:
    """In the order in which the rows come first."""
    of: dict[Row, list[Result]] = defaultdict(list)
    for each in results:
        of[each.row].append(each)
    return {
        row: Numbers(*(median(getattr(one, name) for one in same) for name in Numbers._fields))
        for row, same in of.items()
    }


def gains(results: Iterable[Result]) -> dict[Row, Gain]:
    """Useful percent more than `default` has on the same seed, where both ran."""
    results = [*results]
    base = {
        (each.row[:3], each.seed): each.useful for each in results if each.contender == "default"
    }
    of: dict[Row, list[float]] = defaultdict(list)
    for each in results:
        if each.contender != "default" and (each.row[:3], each.seed) in base:
            of[each.row].append(each.useful - base[each.row[:3], each.seed])
    return {row: Gain(median(each), min(each), max(each)) for row, each in of.items()}


def append(file: Path, results: Iterable[Result]) -> None:
    """One line each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as lines:
        lines.writelines(msgspec.json.encode(each) + b"\n" for each in results)


def read(file: Path) -> list[Result]:
    """Of runs that were made twice, the last."""
    lines = file.read_bytes().splitlines()
    results = [msgspec.json.decode(line, type=Result) for line in lines]
    return [*{(one.row, one.seed): one for one in results}.values()]
