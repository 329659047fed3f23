"""`python -m tests.goodput`: the contenders on some seeds, as a table.

`held h`: device-hours in which Fettle called a sound device Degraded or Unhealthy; `turns`: changes
of state for each real fault.
"""

from __future__ import annotations

import argparse
import asyncio
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import median

from tests.goodput.packer import CONTENDERS, play
from tests.goodput.plan import Scenario
from tests.goodput.replay import Figures

REPORTED = (101, 102, 103, 104, 105)
"""Seeds that no setting was tuned on."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.goodput", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--contenders", nargs="+", default=CONTENDERS, choices=CONTENDERS)
    for name in ("hours", "load", "rate", "gangs", "checkpoint_h", "restart_h", "false_signals"):
        default = Scenario._field_defaults[name]
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=default)
    given = vars(parser.parse_args())
    seeds, contenders = given.pop("seeds"), given.pop("contenders")
    scenario = Scenario(**given)
    print(HEADER)
    with ProcessPoolExecutor() as processes:
        for contender in contenders:
            rows = [*processes.map(partial(measure, scenario, contender), seeds)]
            told = "".join(f"{median(column):>9.2f}" for column in zip(*rows, strict=True))
            print(f"{contender:14}{told}", flush=True)


def measure(scenario: Scenario, contender: str, seed: int) -> list[float]:
    return row(scenario, asyncio.run(play(scenario, seed, contender)))


COLUMNS = (
    "useful%",
    "starts",
    "on bad",
    "visible",
    "failures",
    "stranded%",
    "wait h",
    "lost%",
    "held h",
    "turns",
)
HEADER = f"{'':14}" + "".join(f"{column:>9}" for column in COLUMNS)


def row(scenario: Scenario, figures: Figures) -> list[float]:
    capacity = scenario.devices * (scenario.hours - scenario.warmup_h)
    return [
        100 * figures.useful / capacity,
        figures.starts,
        figures.starts_on_bad,
        figures.starts_on_visibly_bad,
        figures.failures,
        100 * figures.stranded / max(1.0, figures.sound),
        sum(figures.waits_h) / max(1, len(figures.waits_h)),
        100 * figures.lost / capacity,
        sum(figures.called_bad_while_sound.values()),
        figures.states_changed / max(1, figures.faults),
    ]


if __name__ == "__main__":
    main()
