"""A replay on the real control plane: kube-scheduler places the pods, and Fettle runs as shipped.

Kubelets, device plugins, monitors and job controllers are played. Time is compressed: a replayed
hour takes `HOUR_S`, and Fettle's half-lives and dwell times are divided alike. What cannot be
compressed is the scheduler's own: its shortest backoff of 1 s is 20 replayed minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

import fettle.health
from fettle.config import Settings
from fettle.model import BUILT_IN, Policy
from tests.controlplane import building, shipped
from tests.controlplane.api import Api, ApiError
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.goodput import objects
from tests.goodput.packer import make_replay, mode_of
from tests.goodput.plan import Scenario
from tests.goodput.replay import Device, Figures, Node, Pod, Replay

HOUR_S = 3.0
SPEED = 3600 / HOUR_S
SMALL = {"nodes": 40, "hours": 36.0, "warmup_h": 6.0}
"""What a run takes two minutes for."""
SAMPLE_H = 0.25
KEPT_S = 1.0
"""How long a failed pod is seen before its controller deletes it."""
ROLES = ("extender", "steward")
GATE = "--feature-gates=GenericWorkload=true"
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"
"""With them kube-scheduler places the pods of a PodGroup together or not at all."""
_EVERYDAY = (404, 409)


async def play(scenario: Scenario, seed: int, contender: str) -> Figures:
    """One contender's figures on one seed. Raises SystemExit without a control plane."""
    binary = building.binary()
    if binary is None:
        raise SystemExit(f"--control-plane needs Go: {building.GO_ABSENT}")
    replay = make_replay(scenario, seed, contender)
    with tempfile.TemporaryDirectory(prefix="fettle-goodput-") as folder:
        async with ControlPlane(binary, Path(folder)) as plane:
            cluster = Cluster(replay, plane.tester, cordons=contender == "cordon")
            await plane.restart_api_server(GATE, SERVED)
            await cluster.create_nodes()
            async with _fettle(plane, contender) as fettle:
                await plane.start_scheduler(_scheduler(fettle, scenario.packing), GATE)
                return await _Run(replay, cluster, plane, fettle).figures()


class Cluster:
    """Writes what kubelets, drivers, monitors and controllers would, and reads what was bound."""

    def __init__(self, replay: Replay, api: Api, *, cordons: bool) -> None:
        self._replay = replay
        self._api = api
        self._cordons = cordons
        self._dra = replay.scenario.dra
        self._nodes = {node.name: node for node in replay.nodes}
        self._said: dict[str, objects.Said] = {}
        self._generation: dict[str, int] = defaultdict(int)
        self._last: dict[str, asyncio.Task[None]] = {}
        self._began = time.monotonic()
        self.problems: list[str] = []
        """Errors that a replay should not bring, one sentence each."""

    def begin(self) -> None:
        """The replay's clock starts."""
        self._began = time.monotonic()
        self._replay.begin(self)

    @property
    def now_h(self) -> float:
        return (time.monotonic() - self._began) / HOUR_S

    async def create_nodes(self) -> None:
        if self._dra:
            await self._api.create(objects.class_object())
        await asyncio.gather(*(self._create_node(node) for node in self._nodes.values()))

    async def _create_node(self, node: Node) -> None:
        await create_node(self._api, objects.node_object(node, [], dra=self._dra))
        if self._dra:
            await self._api.create(objects.slice_object(node, 0))

    async def follow(self) -> None:
        """Bind in the replay what the scheduler bound, until cancelled."""
        fields = "status.phase=Pending,spec.nodeName!="
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
                changes = self._api.watch("pods", objects.NAMESPACE, fields=fields)
                async with contextlib.aclosing(changes):
                    async for change, pod in changes:
                        if change == "ERROR":
                            break
                        name = pod["metadata"]["name"]
                        if change != "DELETED" and name not in self._replay.figures.bindings:
                            self._put(f"{name} bound", self._bound(name, pod["spec"]["nodeName"]))

    async def _bound(self, name: str, where: str) -> None:
        node = self._nodes[where]
        devices = await self._claimed(name, node) if self._dra else None
        self._replay.advance(self.now_h)
        pod = self._replay.pods.get(name)
        if pod is not None and pod.state == "pending" and pod.node is None:
            self._replay.bind(pod, node, devices)

    async def _claimed(self, name: str, node: Node) -> list[Device]:
        """Raises ApiError if the claim is gone: so is the pod, then."""
        claim = await self._api.get("resourceclaims", name, objects.NAMESPACE)
        results = claim["status"]["allocation"]["devices"]["results"]
        return [node.devices[int(each["device"].removeprefix("gpu-"))] for each in results]

    # --- what the replay tells

    def node_changed(self, node: Node) -> None:
        self._put(node.name, self._publish(node))

    def pod_created(self, pod: Pod) -> None:
        self._put(pod.name, self._create_pod(pod))

    def pod_started(self, pod: Pod) -> None:
        self._put(
            pod.name, self._set_status(pod, objects.running_status(pod, time.time(), dra=self._dra))
        )

    def pod_stuck(self, pod: Pod) -> None:
        self._put(pod.name, self._set_status(pod, objects.stuck_status(time.time())))

    def pod_ended(self, pod: Pod, phase: str, refusal: str) -> None:
        self._put(pod.name, self._end(pod, phase, refusal))

    async def _publish(self, node: Node) -> None:
        before, now = self._said.get(node.name, {}), objects.said_of(node)
        self._said[node.name] = now
        status: objects.Object = {}
        if changed := objects.conditions(before, now, time.time()):
            status["conditions"] = changed
        if not self._dra:
            status["allocatable"] = {objects.RESOURCE: str(objects.allocatable(node))}
        if status:
            await self._api.patch_status("nodes", node.name, status, form="strategic")
        if self._dra:
            self._generation[node.name] += 1
            slice_ = objects.slice_object(node, self._generation[node.name])
            await self._api.patch("resourceslices", node.name, {"spec": slice_["spec"]})
        if self._cordons:
            cordoned = {"spec": {"unschedulable": bool(node.reported()) or None}}
            await self._api.patch("nodes", node.name, cordoned)

    async def _create_pod(self, pod: Pod) -> None:
        if pod.state != "pending":
            return
        if self._dra:
            await self._api.create(objects.claim_object(pod))
        if pod.in_gang:
            await self._create_group(pod)
        await self._api.create(objects.pod_object(pod, time.time(), dra=self._dra))

    async def _create_group(self, pod: Pod) -> None:
        try:
            await self._api.create(objects.group_object(pod))
        except ApiError as error:
            if error.code != 409:  # another pod of it was first
                raise

    async def _set_status(self, pod: Pod, status: objects.Object) -> None:
        await self._api.patch_status("pods", pod.name, status, form="strategic")

    async def _end(self, pod: Pod, phase: str, refusal: str) -> None:
        if phase:
            await self._set_status(pod, objects.ended_status(phase, refusal, time.time()))
        if self._dra:  # what the controller-manager does with claims of pods that ended
            nothing = {"allocation": None, "reservedFor": None}
            with contextlib.suppress(ApiError):
                await self._api.patch_status("resourceclaims", pod.name, nothing)
        if phase == "Failed":
            await asyncio.sleep(KEPT_S)
        await self._api.delete("pods", pod.name, grace_s=0)
        if pod.in_gang:
            with contextlib.suppress(ApiError):  # another pod of it was first
                await self._api.delete("podgroups", pod.group)
        if self._dra:
            await self._api.patch("resourceclaims", pod.name, {"metadata": {"finalizers": None}})
            await self._api.delete("resourceclaims", pod.name)

    def _put(self, key: str, write: Coroutine[Any, Any, None]) -> None:
        """Write after what was put under the same key before."""
        task = asyncio.create_task(self._after(self._last.get(key), write))
        self._last[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    def _forget(self, key: str, done: asyncio.Task[None]) -> None:
        if self._last.get(key) is done:
            del self._last[key]
        if not done.cancelled() and (error := done.exception()) is not None:
            self.problems.append(f"{key}: {error!r}")

    async def _after(
        self, before: asyncio.Task[None] | None, write: Coroutine[Any, Any, None]
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await write
        except ApiError as error:
            if error.code not in _EVERYDAY:  # a pod may be deleted at any time
                raise


class _Run:
    """One replay, from its first hour to its last."""

    def __init__(
        self, replay: Replay, cluster: Cluster, plane: ControlPlane, fettle: FettleProcess | None
    ) -> None:
        self._replay = replay
        self._cluster = cluster
        self._scheduler = plane.pids()["kube-scheduler"]
        self._fettle = fettle

    async def figures(self) -> Figures:
        scenario, cluster = self._replay.scenario, self._cluster
        following = asyncio.create_task(cluster.follow())
        await asyncio.sleep(1.0)
        cluster.begin()
        await self._until(scenario.warmup_h)
        before = await self._counted()
        await self._until(scenario.hours)
        figures = self._replay.finish()
        after = await self._counted()
        following.cancel()
        figures.state_changes, figures.refused, figures.scheduler_s = (  # type: ignore[assignment]
            now - then for now, then in zip(after, before, strict=True)
        )
        for problem in cluster.problems[:5]:
            print(f"not as planned: {problem}", file=sys.stderr)
        return figures

    async def _until(self, hour: float) -> None:
        sampled_h = self._replay.now_h
        while (now_h := self._cluster.now_h) < hour:
            self._replay.advance(now_h)
            if now_h - sampled_h >= SAMPLE_H:
                self._replay.sample(now_h - sampled_h)
                sampled_h = now_h
            await asyncio.sleep(0.005)
        self._replay.advance(hour)

    async def _counted(self) -> tuple[int, int, float]:
        """So far: changes of state, refused filter calls, processor seconds of the scheduler."""
        if self._fettle is None:
            return 0, 0, _cpu_s(self._scheduler)
        _, metrics = await self._fettle.browse("/metrics")
        refused = re.search(
            r'^fettle_extender_decisions_total\{result="refused",verb="filter"\} (\S+)',
            metrics,
            re.MULTILINE,
        )
        changes = _state_changes(self._fettle.process.log.read_text(errors="replace"))
        return changes, int(float(refused[1])) if refused else 0, _cpu_s(self._scheduler)


def _state_changes(log: str) -> int:
    unlogged = sum(int(more) for more in re.findall(r"than are logged.*\bmore\W+(\d+)", log))
    return len(re.findall(r"health changed\b(?! of more)", log)) + unlogged


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- what runs beside it


@contextlib.asynccontextmanager
async def _fettle(plane: ControlPlane, contender: str) -> AsyncIterator[FettleProcess | None]:
    if (mode := mode_of(contender)) is None:
        yield None
        return
    account = await shipped.account_for(plane.tester, ROLES)
    kubeconfig = await plane.kubeconfig_for_service_account(account, shipped.NAMESPACE)
    settings = plane.folder / "settings.yaml"
    settings.write_text(json.dumps(_compressed(plane.folder) | {"mode": mode.value}))
    process = FettleProcess(plane.folder, roles=ROLES, kubeconfig=kubeconfig, settings=settings)
    process.start()
    try:
        await process.ready()
        yield process
    finally:
        process.kill()


def _compressed(folder: Path) -> objects.Object:
    """The settings that are times of devices, in replayed time."""
    shipped_tables = Path(fettle.health.__file__).parent / "signals" / "rules" / "scoring.yaml"
    families = yaml.safe_load(shipped_tables.read_text())["families"]
    rows = [{**row, "half_life_s": row["half_life_s"] / SPEED} for row in families]
    file = folder / "rules.yaml"
    file.write_text(json.dumps({"families": rows}))
    health = Settings().health
    return {
        "health": {
            "minDwellSeconds": health.min_dwell_seconds / SPEED,
            "orphanHalfLifeSeconds": health.orphan_half_life_seconds / SPEED,
            "quietHalfLifeSeconds": health.quiet_half_life_seconds / SPEED,
            "recurringSeconds": health.recurring_seconds / SPEED,
            "rulesFile": str(file),
        },
        "policies": [_hasty(policy) for policy in BUILT_IN.values() if policy.placement.ends],
        "steward": {"wakeIntervalSeconds": 0.1},
    }


def _hasty(policy: Policy) -> objects.Object:
    """The policy with its patience in replayed time, in whole seconds, and at least one."""
    plain: objects.Object = msgspec.to_builtins(policy)
    for field, in_gang in (("patience", False), ("gangPatience", True)):
        if (given_s := policy.placement.patience_s(in_gang=in_gang)) is not None:
            plain["placement"][field] = f"{max(1, round(given_s / SPEED))}s"
    return plain


def _scheduler(fettle: FettleProcess | None, packing: str) -> objects.Object:
    """With Fettle's entry as shipped."""
    made = shipped.scheduler_configuration(fettle.extender_url) if fettle else {}
    strategy = {"type": packing, "resources": [{"name": "cpu", "weight": 1}]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    return made | {
        "clientConnection": {"qps": 2000, "burst": 2000},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [fit]}],
    }
