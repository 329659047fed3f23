"""`python -m tests.soak --hours 8`: shake the house, and see that the invariants hold.

A seed repeats the sequence of actions. Exit code 1 if an invariant did not hold: what was done
just before is printed, and all of it is in `build/soak.txt`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import TextIO, cast

from rich.console import Console
from rich.table import Table

from fettle.cli.demo.served import ended_by_signals
from tests.controlplane import building
from tests.controlplane.fettle_process import REPOSITORY
from tests.controlplane.processes import Process
from tests.controlplane.test_tenants import tenant
from tests.soak.actions import ACTIONS, Step, say_repaired, steps
from tests.soak.house import FAILING_DRA, FAILING_GPU, House, insist, running_house
from tests.soak.invariants import Watch
from tests.soak.working import Work

REPORT = REPOSITORY / "build" / "soak.txt"
ACTION_WITHIN_S = 150.0
LATEST = 20
LEFT_OUT = (
    "left out, since they need root or another host: jumps of the host's clock and the monotonic "
    "one (here time.time() of one process jumps), a full file system (here the size of files is "
    "limited), and the extender's TLS, which loopback does without"
)


class Soak:
    def __init__(self, seed: str, console: Console) -> None:
        self.seed = seed
        self.violations: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._console = console
        self._latest: deque[str] = deque(maxlen=LATEST)

    def say(self, text: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False, highlight=False)

    def violated(self, invariant: str, what: str) -> None:
        self.violations[invariant] += 1
        before = "\n".join(f"    {one}" for one in self._latest)
        self.say(f"VIOLATED: {invariant}: {what}\n  before it:\n{before}")

    async def run(self, binary: Path, folder: Path, for_s: float) -> None:
        async with AsyncExitStack() as stack:
            house = await stack.enter_async_context(running_house(binary, folder))
            house.tenant = await stack.enter_async_context(await tenant(house.plane, house.api))
            port = house.extender_url.rpartition(":")[2]
            command = [sys.executable, "-m", "tests.soak.asking", port]
            asking = Process("asking", command, folder, env={"PYTHONPATH": str(REPOSITORY)})
            stack.callback(asking.kill)
            watch, work = Watch(house, asking, self.violated), Work(house, self.seed)
            began = time.monotonic()
            self.say("everything runs")
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch.run())
                working = group.create_task(work.run())
                await self._act(house, time.monotonic() + for_s)
                working.cancel()
                await self._mend(house, work, watch)
                watching.cancel()
            watch.judge_memory(work.begun / (time.monotonic() - began))
            self._tell(house, watch, work)

    async def _act(self, house: House, until: float) -> None:
        for step in steps(self.seed):
            await asyncio.sleep(step.pause_s)
            if time.monotonic() > until:
                return
            await self._take(house, step)

    async def _take(self, house: House, step: Step) -> None:
        action, began = ACTIONS[step.name], time.monotonic()
        at = time.strftime("%H:%M:%S")
        self._latest.append(f"{at} {step.number} {step.name} (seed {step.seed}) ...")
        try:
            with (
                house.disturbed(action.calm_after_s)
                if action.disturbs
                else contextlib.nullcontext()
            ):
                async with asyncio.timeout(ACTION_WITHIN_S):
                    what = await action.run(house, Random(step.seed))
        except Exception as error:  # the action's own trouble, with an API server that is away
            what = f"not done: {error!r}"[:300]
            self.done["not done"] += 1
        self.done[step.name] += 1
        took_s = time.monotonic() - began
        self._latest[-1] = f"{at} {step.number} {step.name} (seed {step.seed}): {what}"
        self.say(f"{step.number} {step.name}: {what} [{took_s:.1f} s]")

    async def _mend(self, house: House, work: Work, watch: Watch) -> None:
        self.say("mending everything")
        await house.mend_all()
        await work.stop()
        for node in FAILING_GPU + FAILING_DRA:
            await insist(lambda node=node: say_repaired(house, node))  # type: ignore[misc]
        await watch.until_undone(switched_off=False, within_s=90)
        self.say("switching off what writes")
        with house.disturbed(), house.taken(*house.replicas):
            for one in house.replicas.values():
                one.write_settings()
            await watch.until_undone(switched_off=True, within_s=90)

    def _tell(self, house: House, watch: Watch, work: Work) -> None:
        table = Table("what", "figure", title=f"soak with --seed {self.seed}")
        for name in ACTIONS:
            table.add_row(f"action: {name}", str(self.done[name]))
        p50, p99, slowest = watch.percentiles_ms()
        rows = {
            "actions not done": self.done["not done"],
            "pods and Jobs of the work": work.begun,
            "filter calls": len(watch.calls),
            "filter p50, p99, max": f"{p50:.1f}, {p99:.1f}, {slowest:.1f} ms",
            "filter calls that broke beside a kill": watch.broken,
            "filter answered Error": str(watch.errors or 0),
            "pods explained while they waited": watch.explained,
            "looks at them in vain": watch.explained_in_vain,
            "longest wait though a node would do": f"{watch.waits.longest_s:.1f} s",
        }
        for key, samples in watch.memory.items():
            first, last = samples[0], samples[-1]
            if last.at - first.at > 60:
                every = samples[:: max(1, len(samples) // 12)]
                rows[f"RSS of {key}"] = (
                    f"{first.mb:.0f} to {last.mb:.0f} MB in {last.at - first.at:.0f} s: "
                    + " ".join(f"{sample.mb:.0f}" for sample in every)
                )
        for name, figure in rows.items():
            table.add_row(name, str(figure))
        for name, count in self.violations.items():
            table.add_row(f"VIOLATED: {name}", str(count))
        self._console.print(table)
        if house.prometheus is None:
            self.say("no Prometheus is installed, so none was killed")
        self.say(LEFT_OUT)


class Both:
    """What is printed is also in the report."""

    def __init__(self, file: TextIO) -> None:
        self._files = (sys.stdout, file)

    def write(self, text: str) -> int:
        for file in self._files:
            file.write(text)
        return len(text)

    def flush(self) -> None:
        for file in self._files:
            file.flush()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    lasts = parser.add_mutually_exclusive_group(required=True)
    lasts.add_argument("--hours", type=float)
    lasts.add_argument("--minutes", type=float)
    parser.add_argument("--seed", default="", help="of an earlier run, whose actions to repeat")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for logs (default: none stay)")
    asked = parser.parse_args(argv)
    for_s = asked.minutes * 60 if asked.minutes is not None else asked.hours * 3600
    if (binary := building.binary()) is None:
        parser.error(building.GO_ABSENT)
    REPORT.parent.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(REPORT.open("w"))
        console = Console(file=cast("TextIO", Both(file)), width=120, soft_wrap=True)
        soak = Soak(asked.seed or secrets.token_hex(4), console)
        soak.say(f"--seed {soak.seed}, {for_s:.0f} s")
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-"))
        stack.enter_context(ended_by_signals())
        asyncio.run(soak.run(binary, asked.keep or Path(temporary), for_s))
    print(f"written to {REPORT}")
    return bool(soak.violations)


if __name__ == "__main__":
    sys.exit(main())
