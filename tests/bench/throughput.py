"""Pods a second through a real scheduler, with Fettle, with the do-nothing extender, with none.

The scheduler is stopped by a signal while the pods are made, so that what is timed begins with all
of them waiting and all caches warm. Its own client's rate is raised: at the default one it binds
about 65 pods a second whatever an extender does.

One scheduler serves all rounds, and the extenders take turns at its URL: a new one needs 150 MB of
new memory while it is timed, and what that costs depends on how long ago somebody else gave memory
back (seen on a virtual machine: a tenth of all, for whoever is started a few seconds later).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from tests.bench import fleets
from tests.bench.figures import Figure, compared
from tests.bench.houses import House, start
from tests.bench.usage import cpu_s
from tests.controlplane import objects, shipped
from tests.controlplane.api import Object
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.processes import free_port
from tests.controlplane.waiting import bound

PODS = 600
WARMUP = 40
"""Pods bound before: an extender runs for days, and what it does once is not what is compared."""
ROUNDS = 7
RESTARTS = 4
NAMESPACE = "throughput"
RATE = {"qps": 5000, "burst": 5000}
AT_ONCE = 32
BOUND_WITHIN_S = 120.0


class Round(NamedTuple):
    pods_per_s: float
    cpu_ms: float
    """Processor time of the extender's process, or of the scheduler's, for one pod."""


class Workload(NamedTuple):
    """`make` puts one pod of this name, and what it needs, into the cluster; `clear` takes what is
    left of it besides pods. Pods that are `marked` need an extender to be scheduled at all."""

    name: str
    marked: bool
    make: Callable[[ControlPlane, str], Awaitable[None]]
    clear: Callable[[ControlPlane], Awaitable[None]]


@dataclass(frozen=True)
class Contest:
    """What all rounds share: the control plane with its scheduler, which calls extenders here."""

    house: House
    plane: ControlPlane
    workload: Workload
    port: int


Contestant = Callable[[Contest], Awaitable[Round]]


async def measure(house: House) -> list[Figure]:
    plane = await house.plane()
    await plane.create_namespace(NAMESPACE)
    figures = []
    for workload in (_BY_PLUGIN, _BY_CLAIM):
        contest = Contest(house, plane, workload, free_port())
        figures += await _compare(contest)
    return figures


async def measure_unasked(house: House) -> list[Figure]:
    """What an extender costs pods without devices, which it is never asked about: with any, the
    scheduler does not place alike pods by OpportunisticBatching. That is so by its default profile,
    too, since this spreads pods. A scheduler each, in turn. Its processor time says more than pods
    a second where others use the machine."""
    plane = await house.plane()
    await plane.create_namespace(NAMESPACE)
    figures = []
    for profile, plugins in (("default profile", []), ("without default spreading", [_UNSPREAD])):
        contest = Contest(house, plane, _PLAIN, free_port())
        extended = shipped.scheduler_configuration(f"http://127.0.0.1:{contest.port}")
        extended["profiles"] = [{"pluginConfig": plugins}]
        with_one: list[Round] = []
        without: list[Round] = []
        for number in range(RESTARTS):
            both = [(extended, with_one), (extended | {"extenders": []}, without)]
            for configuration, rounds in both if number % 2 else reversed(both):
                rounds += (await _rounds(contest, configuration, {"": _alone}, 1))[""]
        for told, each in (("with an extender", with_one), ("without", without)):
            rates = ", ".join(f"{r.pods_per_s:.0f} ({r.cpu_ms:.2f} ms)" for r in each)
            print(f"  {profile}, {told}: {rates}", file=sys.stderr)
        name = f"{PODS} waiting pods, no devices, {profile}: an extender that is not asked"
        value, baseline = compared(*([r.pods_per_s for r in each] for each in (with_one, without)))
        figures.append(Figure(name, value, "pods/s", baseline))
        value, baseline = compared(*([r.cpu_ms for r in each] for each in (with_one, without)))
        figures.append(Figure(f"{name}: kube-scheduler's own time a pod", value, "ms", baseline))
    return figures


async def _compare(contest: Contest) -> list[Figure]:
    workload = contest.workload
    extended = shipped.scheduler_configuration(f"http://127.0.0.1:{contest.port}")
    rounds = await _rounds(contest, extended, {"fettle": _fettle, "echo": _echo})
    if not workload.marked:
        rounds |= await _rounds(contest, extended | {"extenders": []}, {"none": _none})
    for name, each in rounds.items():
        told = ", ".join(f"{r.pods_per_s:.0f}" for r in each)
        print(f"  {workload.name}, {name}: {told}", file=sys.stderr)
    ours, theirs = rounds["fettle"], rounds["echo"]
    what = f"{PODS} waiting pods, {workload.name}"
    pods_per_s, rate = compared(*([r.pods_per_s for r in each] for each in (ours, theirs)))
    cpu_ms, their_cpu_ms = compared(*([r.cpu_ms for r in each] for each in (ours, theirs)))
    figures = [
        Figure(f"{what}: with Fettle", pods_per_s, "pods/s", rate, rate, at_least=True),
        # Fettle's includes that it watches the pods come, get bound and go.
        Figure(f"{what}: processor time of Fettle a pod", cpu_ms, "ms", their_cpu_ms),
    ]
    if "none" in rounds:
        none = median(r.pods_per_s for r in rounds["none"])
        figures.append(Figure(f"{what}: without an extender", none, "pods/s", rate))
    return figures


async def _rounds(
    contest: Contest,
    configuration: Object,
    contestants: Mapping[str, Contestant],
    times: int = ROUNDS,
) -> dict[str, list[Round]]:
    """Rounds of each contestant in turn, each first as often as last; the first of all, in which
    the scheduler comes to its size, does not count."""
    rounds: dict[str, list[Round]] = {name: [] for name in contestants}
    await contest.plane.start_scheduler(configuration | {"clientConnection": RATE})
    try:
        in_turn = list(contestants.items())
        await in_turn[-1][1](contest)
        for _ in range(times):
            for name, contestant in in_turn:
                rounds[name].append(await contestant(contest))
            in_turn.reverse()
    finally:
        await contest.plane.stop_scheduler(kill=True)
    return rounds


async def _fettle(contest: Contest) -> Round:
    """Started for its round: it must not take processor time from the others."""
    fettle = await contest.house.fettle_on_plane(contest.port)
    try:
        await start(fettle, "node-00000")
        return await _round(contest, fettle.serving_pid)
    finally:
        fettle.kill()


async def _echo(contest: Contest) -> Round:
    async with contest.house.echo(contest.port) as echo:
        round_ = await _round(contest, echo.process.pid)
        if (await echo.calls())["filter"] < PODS:
            raise RuntimeError("the scheduler did not ask the extender about every pod")
        return round_


async def _none(contest: Contest) -> Round:
    return await _round(contest, None)


async def _alone(contest: Contest) -> Round:
    return await _round(contest, contest.plane.process("kube-scheduler").pid)


async def _round(contest: Contest, pid: int | None) -> Round:
    """`pid` is the process whose time is taken."""
    plane, workload = contest.plane, contest.workload
    scheduler = plane.process("kube-scheduler")
    try:
        await _warm(plane, workload)
        before_s = cpu_s(pid) if pid is not None else 0.0
        scheduler.signal(signal.SIGSTOP)
        await _at_once(workload.make(plane, f"train-{number:04d}") for number in range(PODS))
        watching = asyncio.ensure_future(_all_bound(plane))
        await asyncio.sleep(1)  # the watch is open, and what the pods set going is over
        began = time.monotonic()
        scheduler.signal(signal.SIGCONT)
        ended = await asyncio.wait_for(watching, BOUND_WITHIN_S)
        used_s = cpu_s(pid) - before_s if pid is not None else 0.0
        return Round(PODS / (ended - began), used_s / PODS * 1000)
    finally:
        scheduler.signal(signal.SIGCONT)
        await _delete(plane)
        await workload.clear(plane)


async def _warm(plane: ControlPlane, workload: Workload) -> None:
    """Some pods bound: caches are complete, the scheduler's connections to the extender open."""
    names = [f"first-{number}" for number in range(WARMUP)]
    await _at_once(workload.make(plane, name) for name in names)
    for name in names:
        await bound(plane.tester, name, namespace=NAMESPACE, timeout_s=60)


async def _at_once(work: Iterable[Awaitable[None]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(what: Awaitable[None]) -> None:
        async with slots:
            await what

    await asyncio.gather(*map(one, work))


async def _make_by_plugin(plane: ControlPlane, name: str) -> None:
    made = fleets.waiting_pod(name)
    made["metadata"]["namespace"] = NAMESPACE
    await plane.tester.create(made)


async def _make_plain(plane: ControlPlane, name: str) -> None:
    await plane.tester.create(objects.pod(name, namespace=NAMESPACE))


async def _nothing_left(plane: ControlPlane) -> None:
    pass


async def _make_by_claim(plane: ControlPlane, name: str) -> None:
    """With a claim of its own that is there already: what the controller-manager adds is not
    timed. The webhook would have put the marker into the pod."""
    await plane.tester.create(objects.claim(name, namespace=NAMESPACE))
    made = objects.pod(name, namespace=NAMESPACE, claims={"gpu": name}, annotations=_TRAINING)
    made["spec"]["containers"][0]["resources"]["limits"] = {"fettle.dev/claims": "0"}
    await plane.tester.create(made)


async def _clear_claims(plane: ControlPlane) -> None:
    """Without a controller-manager nobody else takes the finalizer off."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
    claims = await plane.tester.list("resourceclaims", NAMESPACE)

    async def release(name: str) -> None:
        no_finalizers: Object = {"metadata": {"finalizers": None}}
        await plane.tester.patch("resourceclaims", name, no_finalizers, namespace=NAMESPACE)

    await _at_once(release(claim["metadata"]["name"]) for claim in claims)
    await plane.tester.request("DELETE", path)
    while await plane.tester.list("resourceclaims", NAMESPACE):
        await asyncio.sleep(0.2)


_TRAINING = {"fettle.dev/policy": "training"}
_BY_PLUGIN = Workload("device plugin", False, _make_by_plugin, _nothing_left)
_PLAIN = Workload("no devices", False, _make_plain, _nothing_left)
_UNSPREAD: Object = {
    "name": "PodTopologySpread",
    "args": {"defaultingType": "List", "defaultConstraints": []},
}
_BY_CLAIM = Workload("one-device claims", True, _make_by_claim, _clear_claims)


async def _all_bound(plane: ControlPlane) -> float:
    """When the last one was seen bound; a pod comes into this watch by being bound."""
    missing = {f"train-{number:04d}" for number in range(PODS)}
    while True:  # the API server ends the watch of a client that it finds slow
        watch = plane.tester.watch("pods", NAMESPACE, fields="spec.nodeName!=")
        async with contextlib.aclosing(watch) as seen:
            async for _, pod in seen:
                missing.discard(pod["metadata"].get("name"))
                if not missing:
                    return time.monotonic()


async def _delete(plane: ControlPlane) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await plane.tester.request("DELETE", path, body={"gracePeriodSeconds": 0})
    while await plane.tester.list("pods", NAMESPACE):
        await asyncio.sleep(0.2)
