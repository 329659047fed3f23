"""Pods a second through a real scheduler, with Fettle, with the do-nothing extender, with none.

The scheduler is stopped by a signal while the pods are made, so that what is timed begins with all
of them waiting and its caches warm. Its own client's rate is raised: at the default one it binds
about 65 pods a second whatever an extender does.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from statistics import median
from typing import NamedTuple

from tests.bench import fleets
from tests.bench.figures import Figure
from tests.bench.houses import House, start
from tests.bench.usage import cpu_s
from tests.controlplane import shipped
from tests.controlplane.api import Object
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.waiting import bound

PODS = 600
ROUNDS = 5
NAMESPACE = "throughput"
RATE = {"qps": 5000, "burst": 5000}
AT_ONCE = 32
BOUND_WITHIN_S = 120.0


class Round(NamedTuple):
    pods_per_s: float
    cpu_ms: float
    """Processor time of the extender's process, for one pod."""


async def measure(house: House) -> list[Figure]:
    plane = await house.plane()
    await plane.create_namespace(NAMESPACE)
    contestants = {"fettle": _fettle, "echo": _echo, "none": _none}
    rounds: dict[str, list[Round]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, contestant in contestants.items():
            rounds[name].append(await contestant(house, plane))
    for name, each in rounds.items():
        print(f"  {name}: {', '.join(f'{r.pods_per_s:.0f}' for r in each)}", file=sys.stderr)
    ours, theirs, none = (
        Round(median(r.pods_per_s for r in each), median(r.cpu_ms for r in each))
        for each in (rounds["fettle"], rounds["echo"], rounds["none"])
    )
    what = f"{PODS} waiting pods"
    rate = theirs.pods_per_s
    return [
        Figure(f"{what}: with Fettle", ours.pods_per_s, "pods/s", rate, rate, at_least=True),
        Figure(f"{what}: without an extender", none.pods_per_s, "pods/s", rate),
        # Fettle's includes that it watches the pods come, get bound and go.
        Figure(f"{what}: processor time of Fettle a pod", ours.cpu_ms, "ms", theirs.cpu_ms),
    ]


async def _fettle(house: House, plane: ControlPlane) -> Round:
    """Started for its round: it must not take processor time from the others."""
    fettle = await house.fettle_on_plane()
    try:
        await start(fettle, "node-00000")
        return await _round(plane, fettle.extender_url, fettle.process.pid)
    finally:
        fettle.kill()


async def _echo(house: House, plane: ControlPlane) -> Round:
    async with house.echo() as echo:
        round_ = await _round(plane, echo.url, echo.process.pid)
        if (await echo.calls())["filter"] < PODS:
            raise RuntimeError("the scheduler did not ask the extender about every pod")
        return round_


async def _none(_house: House, plane: ControlPlane) -> Round:
    return await _round(plane, None, None)


async def _round(plane: ControlPlane, url: str | None, pid: int | None) -> Round:
    """The shipped configuration with its extender at this URL, or with none."""
    configuration = shipped.scheduler_configuration(url or "") | {"clientConnection": RATE}
    await plane.start_scheduler(configuration if url else configuration | {"extenders": []})
    scheduler = plane.process("kube-scheduler")
    before_s = cpu_s(pid) if pid is not None else 0.0
    try:
        await _warm(plane)
        scheduler.signal(signal.SIGSTOP)
        await _create(plane)
        watching = asyncio.ensure_future(_all_bound(plane))
        await asyncio.sleep(1)  # the watch is open, and what the pods set going is over
        began = time.monotonic()
        scheduler.signal(signal.SIGCONT)
        ended = await asyncio.wait_for(watching, BOUND_WITHIN_S)
        used_s = cpu_s(pid) - before_s if pid is not None else 0.0
        return Round(PODS / (ended - began), used_s / PODS * 1000)
    finally:
        scheduler.signal(signal.SIGCONT)
        await plane.stop_scheduler(kill=True)
        await _delete(plane)


async def _warm(plane: ControlPlane) -> None:
    """One pod bound: the scheduler's caches are complete, its connections open."""
    await plane.tester.create(_pod("first"))
    await bound(plane.tester, "first", namespace=NAMESPACE, timeout_s=60)


def _pod(name: str) -> Object:
    made = fleets.waiting_pod(name)
    made["metadata"]["namespace"] = NAMESPACE
    return made


async def _create(plane: ControlPlane) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def create(number: int) -> None:
        async with slots:
            await plane.tester.create(_pod(f"train-{number:04d}"))

    await asyncio.gather(*(create(number) for number in range(PODS)))


async def _all_bound(plane: ControlPlane) -> float:
    """When the last one was seen bound; a pod comes into this watch by being bound."""
    missing = {f"train-{number:04d}" for number in range(PODS)}
    while True:  # the API server ends the watch of a client that it finds slow
        async for _, pod in plane.tester.watch("pods", NAMESPACE, fields="spec.nodeName!="):
            missing.discard(pod["metadata"].get("name"))
            if not missing:
                return time.monotonic()


async def _delete(plane: ControlPlane) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await plane.tester.request("DELETE", path, body={"gracePeriodSeconds": 0})
    while await plane.tester.list("pods", NAMESPACE):
        await asyncio.sleep(0.2)
