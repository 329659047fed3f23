"""How long a filter call takes at rest, and while strangers do to all listeners of the process at
once what `tests/soak/attacks.py` has: first what takes connections and memory (silent and half
connections, bodies and heads without an end), then what takes time, too (questions without a pause,
requests ahead, packed bodies). In turns, in one run.

All roles are in one process here, as nowhere in `deploy/`, and everybody may ask the extender.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count as numbers

from tests.bench import calling, fleets
from tests.bench.figures import Figure, compared
from tests.bench.houses import House, start
from tests.bench.usage import resident_mb
from tests.controlplane.fettle_process import REPOSITORY, FettleProcess
from tests.soak.attacks import AT_LISTENERS, UNFINISHED

ATTACKS = {
    "what takes connections and memory": len(UNFINISHED),
    "that and what takes time": len(AT_LISTENERS),
}
"""How many of the attacks, which are in this order."""
ROUNDS = 7
SIZE = 500
CALLS = 4000
WARMUP = 40
UNDER_WAY_S = 6.0
"""By then each attack has filled what it fills."""
AFTERWARDS_S = 2.0
"""By then the connections of attackers are gone."""
P99_SHARE = 2.0
MORE_MB = 256.0

_numbers = numbers()


async def measure(house: House) -> list[Figure]:
    snapshot = house.folder / "attacked"
    fleets.write_snapshot(snapshot)
    settings = house.folder / "attacked.yaml"
    settings.write_text("extender: {replies: compact}\n")
    fettle = FettleProcess(
        house.folder / "attacked-fettle",
        roles=["extender", "webhook"],
        settings=settings,
        arguments=["--snapshot", snapshot],
    )
    try:
        await start(fettle, fleets.name_of(1))
        return await _rounds(house, fettle)
    finally:
        fettle.kill()


async def _rounds(house: House, fettle: FettleProcess) -> list[Figure]:
    attacked: dict[str, list[calling.Outcome]] = {what: [] for what in ATTACKS}
    rest, held_mb = [], []
    for _ in range(ROUNDS):
        rest.append(await _call(house, fettle))
        before_mb = resident_mb(fettle.process.pid)
        for what, kinds in ATTACKS.items():
            async with _under_attack(fettle, kinds):
                attacked[what].append(await _call(house, fettle))
                held_mb.append(resident_mb(fettle.process.pid) - before_mb)
            await asyncio.sleep(AFTERWARDS_S)
    figures: list[Figure] = []
    for what, outcomes in attacked.items():
        for percentile, share in (("p50_ms", None), ("p99_ms", P99_SHARE)):
            ours, theirs = compared(
                [getattr(one, percentile) for one in outcomes],
                [getattr(one, percentile) for one in rest],
            )
            target = share * theirs if share is not None else None
            name = f"filter, {SIZE} names, under {what}, {percentile[:3]}"
            figures.append(Figure(name, ours, "ms", theirs, target))
    return [*figures, Figure("memory that attackers take", max(held_mb), "MB", target=MORE_MB)]


@asynccontextmanager
async def _under_attack(fettle: FettleProcess, kinds: int) -> AsyncIterator[None]:
    ports = (fettle.extender_port, fettle.webhook_port, fettle.browse_port)
    attackers = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.attackers", str(kinds), *map(str, ports)),
        cwd=REPOSITORY,
    )
    try:
        await asyncio.sleep(UNDER_WAY_S)
        yield
        if attackers.returncode is not None:
            raise RuntimeError(f"the attackers ended with {attackers.returncode}")
    finally:
        if attackers.returncode is None:
            attackers.kill()
        await attackers.wait()


async def _call(house: House, fettle: FettleProcess) -> calling.Outcome:
    names = fleets.names_spread(SIZE)
    bodies = (fleets.body(f"train-{next(_numbers)}", names) for _ in range(WARMUP + 100))
    url = f"{fettle.extender_url}/filter"
    (outcome,) = await calling.alternate(house.binary, [url], bodies, count=CALLS, warmup=WARMUP)
    return outcome
