"""5000 nodes and 40,000 devices in a real API server: how soon Fettle is ready, what it holds, and
how soon it refuses a node after evidence was written."""

from __future__ import annotations

import asyncio
import json
import time
from statistics import median

import aiohttp

from tests.bench import fleets
from tests.bench.figures import Figure
from tests.bench.houses import READY_WITHIN_S, House, start
from tests.bench.usage import peak_mb, resident_mb
from tests.controlplane.api import Api
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.objects import node_condition

STARTS = 3
FAULTS = 15
READY_S = 10.0
RESIDENT_MB = 350.0
REFUSED_S = 1.0


async def measure(house: House) -> list[Figure]:
    plane = await house.plane()
    fettle = await house.fettle_on_plane()
    try:
        ready_s = []
        for _ in range(STARTS):
            fettle.kill()
            ready_s.append(await start(fettle, _name(0)))
        held_mb = resident_mb(fettle.serving_pid)
        refused_s = [await _refused_after(plane.tester, fettle, _name(i)) for i in range(FAULTS)]
        held_mb = max(held_mb, resident_mb(fettle.serving_pid))
        highest_mb = peak_mb(fettle.serving_pid)
    finally:
        fettle.kill()
        await asyncio.gather(*(_heal(plane.tester, _name(i)) for i in range(FAULTS)))
    size = f"{fleets.NODES} nodes, {fleets.NODES * fleets.GPUS} devices"
    return [
        Figure(f"{size}: start to ready", median(ready_s), "s", target=READY_S),
        Figure(f"{size}: resident, with its worker", held_mb, "MB", target=RESIDENT_MB),
        Figure(f"{size}: peak, without its worker", highest_mb, "MB"),
        Figure("node condition to first refusal", median(refused_s), "s", target=REFUSED_S),
        Figure("node condition to first refusal, the slowest", max(refused_s), "s"),
    ]


def _name(number: int) -> str:
    """As the loader names nodes."""
    return f"node-{number * 37:05d}"


async def _refused_after(api: Api, fettle: FettleProcess, node: str) -> float:
    """Seconds from before the condition is written until the node is refused."""
    asked = json.loads(fleets.body("waiting", [node]))
    async with aiohttp.ClientSession() as session:
        if await _refused(session, fettle, asked, node):
            raise RuntimeError(f"{node} is refused before there is evidence against it")
        began = time.monotonic()
        await _set(api, node, "True")
        while not await _refused(session, fettle, asked, node):
            if time.monotonic() - began > READY_WITHIN_S:
                raise TimeoutError(f"{node} is never refused")
            await asyncio.sleep(0.002)
        return time.monotonic() - began


async def _refused(
    session: aiohttp.ClientSession, fettle: FettleProcess, asked: object, node: str
) -> bool:
    async with session.post(f"{fettle.extender_url}/filter", json=asked) as reply:
        answer = await reply.json()
    if answer["Error"]:
        raise RuntimeError(f"Fettle answered Error: {answer['Error']}")
    return node in answer["FailedAndUnresolvableNodes"]


async def _heal(api: Api, node: str) -> None:
    await _set(api, node, "False")


async def _set(api: Api, node: str, status: str) -> None:
    condition = node_condition(fleets.FAULT, status, "CPERFatal", "memory error")
    await api.patch_status("nodes", node, {"conditions": [condition]}, form="strategic")
