"""What a full fleet costs the real scheduler while pods wait that Fettle refuses on some nodes: its
processor time and its attempts, with Fettle and with no extender, in turn.

Every eighth node has one GPU that is known to be bad, and is refused to most pods while the
scheduler finds units free there. Pods end at a steady rate, others take their place, and more wait
than fit.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.bench.figures import Figure, compared
from tests.bench.houses import House, start
from tests.bench.usage import cpu_s
from tests.controlplane import fleet, objects, shipped
from tests.controlplane.api import ApiError, Object
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.processes import free_port

NODES = 100
GPUS = 8
BAD_EVERY = 8
SIZES = (8, 1, 2, 8, 1, 4)
WAITING = 60
ENDED_PER_S = 10.0
FILL_S = 20.0
SETTLE_S = 12.0
"""In which the nodes that Fettle refuses empty, or fill again."""
MEASURE_S = 15.0
ROUNDS = 3
MOST = 1.2
"""How much more of the scheduler's processor time may go with Fettle."""
LOST = "ErrorCode:79 GPU:3 GPU_UUID:GPU-bad fell off the bus Recommended Action=RESTART_BM;"
TRAINING = {"fettle.dev/policy": "training"}


class Contender(NamedTuple):
    with_fettle: bool
    configuration: Mapping[str, Any] = {}
    flags: tuple[str, ...] = ()


NONE, FETTLE, IN_TURN = "no extender", "Fettle", "Fettle, backoff kept"
KEEP_BACKOFF = "--feature-gates=SchedulerPopFromBackoffQ=false"
"""Since 1.33 the scheduler cuts the backoff of pods short while it has nothing else to do."""
CONTENDERS = {
    NONE: Contender(False),
    FETTLE: Contender(True),
    IN_TURN: Contender(True, flags=(KEEP_BACKOFF,)),
}


class Round(NamedTuple):
    """Of each second."""

    cpu_ms: float
    attempts: float
    bound: float
    ended: float
    filter_calls: float
    woken_by: dict[str, float]

    @property
    def cpu_ms_a_pod(self) -> float:
        return self.cpu_ms / self.ended

    @property
    def attempts_a_pod(self) -> float:
        return self.attempts / self.ended


async def measure(house: House) -> list[Figure]:
    rounds = await _rounds(house, CONTENDERS)
    figures = []
    for name in (FETTLE, IN_TURN):
        what = f"{NODES} full nodes, {WAITING} pods wait, {name}"
        cpu_ms, without = compared(*([r.cpu_ms_a_pod for r in rounds[n]] for n in (name, NONE)))
        attempts, alone = compared(*([r.attempts_a_pod for r in rounds[n]] for n in (name, NONE)))
        figures += [
            Figure(
                f"{what}: scheduler, processor time for each pod that ends",
                cpu_ms,
                "ms",
                without,
                MOST * without,
            ),
            Figure(f"{what}: attempts for each pod that ends", attempts, "", alone),
        ]
    return figures


async def _rounds(house: House, contenders: Mapping[str, Contender]) -> dict[str, list[Round]]:
    rounds: dict[str, list[Round]] = {name: [] for name in contenders}
    async with _busy_fleet(house) as (plane, workload):
        async with _contending(house, plane, contenders[NONE]):
            await asyncio.sleep(FILL_S)
        in_turn = list(contenders.items())
        for _ in range(ROUNDS):
            for name, contender in in_turn:
                async with _contending(house, plane, contender) as fettle:
                    one = await _round(plane, workload, fettle)
                rounds[name].append(one)
                print(f"  {name}: {_told(one)}", file=sys.stderr, flush=True)
            in_turn.reverse()
    return rounds


def _told(one: Round) -> str:
    causes = sorted(one.woken_by.items(), key=lambda cause: -cause[1])
    woken = ", ".join(f"{event} {per_s:.0f}" for event, per_s in causes if per_s >= 0.5)
    return (
        f"cpu {one.cpu_ms:.0f} ms/s, {one.attempts:.0f} attempts/s, {one.bound:.1f} bound/s, "
        f"{one.ended:.1f} ended/s, "
        f"{one.filter_calls:.0f} filter/s; queued by {woken}"
    )


@asynccontextmanager
async def _busy_fleet(house: House) -> AsyncIterator[tuple[ControlPlane, Workload]]:
    async with ControlPlane(house.binary, house.folder / "saturated") as plane:
        for number in range(NODES):
            name = f"node-{number:03d}"
            bad = [objects.node_condition("GpuXid", "True", "GpuXidIsNotHealthy", LOST)]
            conditions = bad if number % BAD_EVERY == 0 else []
            await fleet.create_node(plane.tester, objects.node(name, GPUS, conditions=conditions))
        await shipped.apply_rbac(plane.tester)
        workload = Workload(plane)
        working = asyncio.create_task(workload.keep())
        try:
            yield plane, workload
        finally:
            working.cancel()
            await asyncio.wait([working])


@dataclass
class Workload:
    """Pods that are bound, run, and end, the longest-running first; each is followed by another."""

    plane: ControlPlane
    running: dict[str, None] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    bound: int = 0
    ended: int = 0
    ends: bool = False
    _numbers: Any = field(default_factory=itertools.count)

    async def keep(self) -> None:
        kubelet = Kubelet(self.plane.tester)
        kubelet.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._make())
                group.create_task(self._end())
        finally:
            await kubelet.stop()

    async def _make(self) -> None:
        while True:
            made = [next(self._numbers) for _ in range(WAITING - len(self.waiting))]
            await asyncio.gather(*map(self._make_one, made))
            await asyncio.sleep(0.02)

    async def _make_one(self, number: int) -> None:
        name, size = f"pod-{number:05d}", SIZES[number % len(SIZES)]
        self.waiting.add(name)
        await self.plane.tester.create(objects.pod(name, gpus=size, annotations=TRAINING))

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(ApiError, OSError, TimeoutError):
                watch = self.plane.tester.watch("pods", "default", fields="spec.nodeName!=")
                async with contextlib.aclosing(watch) as seen:
                    async for _, pod in seen:
                        name = pod["metadata"].get("name")
                        if name in self.waiting:
                            self.waiting.discard(name)
                            self.running[name] = None
                            self.bound += 1

    async def _end(self) -> None:
        async with asyncio.TaskGroup() as ending:
            while True:
                await asyncio.sleep(1 / ENDED_PER_S)
                if self.ends and self.running:
                    name = next(iter(self.running))
                    del self.running[name]
                    ending.create_task(self._end_one(name))

    async def _end_one(self, name: str) -> None:
        done = {"status": {"phase": "Succeeded"}}
        with contextlib.suppress(ApiError):
            api = self.plane.tester
            await api.patch("pods", name, done, form="strategic", subresource="status")
            self.ended += 1
            await api.delete("pods", name, grace_s=0)


@asynccontextmanager
async def _contending(
    house: House, plane: ControlPlane, contender: Contender
) -> AsyncIterator[FettleProcess | None]:
    configuration: Object = {"extenders": [], **contender.configuration}
    fettle = None
    if contender.with_fettle:
        port = free_port()
        fettle = await _fettle(house, plane, port)
        shipped_one = shipped.scheduler_configuration(f"http://127.0.0.1:{port}")
        configuration = shipped_one | dict(contender.configuration)
    try:
        if fettle is not None:
            await start(fettle, "node-001")
        await plane.start_scheduler(configuration, *contender.flags)
        try:
            yield fettle
        finally:
            await plane.stop_scheduler(kill=True)
    finally:
        if fettle is not None:
            fettle.kill()


async def _fettle(house: House, plane: ControlPlane, port: int) -> FettleProcess:
    kubeconfig = await plane.kubeconfig_for_service_account(
        shipped.STEWARD_ACCOUNT, shipped.NAMESPACE
    )
    folder = house.folder / f"saturated-fettle-{port}"
    roles = ["extender", "steward"]
    return FettleProcess(folder, roles=roles, kubeconfig=kubeconfig, extender_port=port)


async def _round(plane: ControlPlane, workload: Workload, fettle: FettleProcess | None) -> Round:
    pid = plane.pids()["kube-scheduler"]
    workload.ends = True
    await asyncio.sleep(SETTLE_S)
    before_s, counted, calls = cpu_s(pid), await _counts(plane), await _filter_calls(fettle)
    bound, ended, began = workload.bound, workload.ended, time.monotonic()
    await asyncio.sleep(MEASURE_S)
    took_s = time.monotonic() - began
    used_s, after = cpu_s(pid) - before_s, await _counts(plane)
    calls = await _filter_calls(fettle) - calls
    workload.ends = False
    after.subtract(counted)
    attempts = after.pop("attempts")
    return Round(
        1000 * used_s / took_s,
        attempts / took_s,
        (workload.bound - bound) / took_s,
        (workload.ended - ended) / took_s,
        calls / took_s,
        {event: count / took_s for event, count in after.items()},
    )


async def _counts(plane: ControlPlane) -> Counter[str]:
    """The scheduler's attempts, and the pods that it queued for them, by event."""
    found: Counter[str] = Counter()
    for line in (await plane.metrics("kube-scheduler")).splitlines():
        if line.startswith("scheduler_schedule_attempts_total{"):
            found["attempts"] += int(float(line.split()[-1]))
        elif line.startswith("scheduler_queue_incoming_pods_total{"):
            event = line.partition('event="')[2].partition('"')[0]
            queue = line.partition('queue="')[2].partition('"')[0]
            if queue != "unschedulable":
                found[f"{event}→{queue}"] += int(float(line.split()[-1]))
    return found


async def _filter_calls(fettle: FettleProcess | None) -> float:
    if fettle is None:
        return 0
    _, text = await fettle.browse("/metrics")
    counted = [
        line for line in text.splitlines() if line.startswith("fettle_extender_decisions_total{")
    ]
    return sum(float(line.split()[-1]) for line in counted if 'verb="filter"' in line)
