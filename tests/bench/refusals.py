"""What a refused pod costs that comes back again and again: Fettle's processor time per call."""

from __future__ import annotations

from collections.abc import Iterable

from tests.bench import calling, fleets
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.bench.usage import cpu_s
from tests.controlplane.fettle_process import FettleProcess

NAMES = 500
CALLS = 4000
TARGET_MS = 0.3


async def measure(house: House) -> list[Figure]:
    names = fleets.names_refused(NAMES)
    again = [fleets.body("refused", names)]
    async with house.fettle_on_snapshot() as fettle:
        same = await _cpu_ms(house, fettle, again)
        others = [fleets.body(f"refused-{i}", names) for i in range(CALLS)]
        fresh = await _cpu_ms(house, fettle, others)
    return [
        Figure("refusal repeated, 500 names, processor time", same, "ms", target=TARGET_MS),
        # As in a big cluster, where the scheduler samples other names at each attempt.
        Figure("refusal whose reply is not kept, processor time", fresh, "ms"),
    ]


async def _cpu_ms(house: House, fettle: FettleProcess, bodies: Iterable[bytes]) -> float:
    before_s = cpu_s(fettle.serving_pid)
    (outcome,) = await calling.alternate(
        house.binary, [f"{fettle.extender_url}/filter"], bodies, count=CALLS, warmup=0
    )
    if outcome.allowed or outcome.refused != NAMES:
        raise calling.CallFailed(f"{outcome.allowed} of {NAMES} refused nodes were allowed")
    return (cpu_s(fettle.serving_pid) - before_s) / CALLS * 1000
