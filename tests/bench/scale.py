"""5000 nodes and 40,000 devices in a real API server, then 15,000 and 120,000: how soon Fettle is
ready, what it holds, and how soon it refuses a node after evidence was written."""

from __future__ import annotations

import asyncio
import json
import time
from statistics import median
from typing import NamedTuple

import aiohttp

from tests.bench import fleets
from tests.bench.figures import Figure
from tests.bench.houses import READY_WITHIN_S, House, start
from tests.bench.usage import peak_mb, resident_mb
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.objects import node_condition

STARTS = 3
FAULTS = 15
LARGEST = 15_000
"""Nodes of 8 devices; Kubernetes itself is tested with 5000. So there are no targets."""
READY_S = 10.0
RESIDENT_MB = 350.0
REFUSED_S = 1.0


class Scale(NamedTuple):
    """Medians, and the extremes that are of interest."""

    ready_s: float
    held_mb: float
    highest_mb: float
    refused_s: float
    slowest_s: float


async def measure(house: House) -> list[Figure]:
    of_usual = await _measure(await house.plane(), await house.fettle_on_plane())
    return [*_figures(fleets.NODES, of_usual, targets=True), *await _largest(house)]


async def _largest(house: House) -> list[Figure]:
    """Its control plane ends with the measurement: it takes some GB."""
    async with house.fresh_plane(LARGEST) as plane:
        return _figures(LARGEST, await _measure(plane, await house.fettle_on(plane)))


def _figures(nodes: int, scale: Scale, *, targets: bool = False) -> list[Figure]:
    size = f"{nodes} nodes, {nodes * fleets.GPUS} devices"
    ready_s, resident_mb, refused_s = (READY_S, RESIDENT_MB, REFUSED_S) if targets else (None,) * 3
    refusal = f"{size}: node condition to first refusal"
    return [
        Figure(f"{size}: start to ready", scale.ready_s, "s", target=ready_s),
        Figure(f"{size}: resident, with its worker", scale.held_mb, "MB", target=resident_mb),
        Figure(f"{size}: peak, without its worker", scale.highest_mb, "MB"),
        Figure(refusal, scale.refused_s, "s", target=refused_s),
        Figure(f"{refusal}, the slowest", scale.slowest_s, "s"),
    ]


async def _measure(plane: ControlPlane, fettle: FettleProcess) -> Scale:
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
    return Scale(median(ready_s), held_mb, highest_mb, median(refused_s), max(refused_s))


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
