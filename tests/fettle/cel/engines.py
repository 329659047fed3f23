"""Engines with workers of their own, and fleets that they search."""

import contextlib
import sys
import textwrap
from collections.abc import AsyncIterator

from fettle.api.resource import Device
from fettle.cel.runtime.engine import SelectorEngine
from fettle.cel.runtime.protocol import Outcome
from fettle.cel.runtime.supervisor import COMMAND
from tests.fettle.cel.devices import DRIVER, GPU, MODEL, device

A = f'device.attributes["{DRIVER}"]'

SOUND = f'{A}.model == "A100"'


def worker(code: str) -> tuple[str, ...]:
    """The command of a worker process that runs this code first."""
    start = "from fettle.cel.runtime import worker\n"
    return (sys.executable, "-c", start + textwrap.dedent(code) + "\nworker.main()\n")


SPINNING = worker("""
    sound = worker.judge
    def judge(prepared, row):
        while row.driver == "spin.example.com":
            pass
        return sound(prepared, row)
    worker.judge = judge
""")


@contextlib.asynccontextmanager
async def engine(
    command: tuple[str, ...] = COMMAND,
    *,
    wait_s: float = 5.0,
    expressions: int = 1000,
    rows: int = 400_000,
) -> AsyncIterator[SelectorEngine]:
    made = SelectorEngine(command=command, wait_s=wait_s, expressions=expressions, rows=rows)
    try:
        yield made
    finally:
        await made.close()


def fleet(count: int) -> list[tuple[str, Device]]:
    return [(DRIVER, device({**MODEL, "uuid": {"string": f"GPU-{n}"}})) for n in range(count)]


async def decided(engine: SelectorEngine, expression: str = SOUND) -> Outcome | None:
    await engine.evaluate([expression], [(DRIVER, GPU)])
    return engine.outcome(expression, DRIVER, GPU)
