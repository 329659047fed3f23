"""Memory with all sources at once: a big fleet whose monitors, drivers, kubelets, exporters and
alerting rules all report. Fettle runs in its own process with all its roles; a stand-in answers for
the API server, and another for Prometheus."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from fettle.api import kinds
from fettle.cluster import EMPTY, Inventory
from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.steward.device_healths import PendingWrites
from tests.bench import fleets, inventories, measuring
from tests.bench.figures import Figure
from tests.bench.houses import House, start
from tests.bench.usage import peak_mb, resident_mb
from tests.controlplane.api import Object
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.objects import (
    DRIVER,
    device_class,
    node,
    node_condition,
    now,
    pod,
    taint,
)
from tests.controlplane.processes import free_port
from tests.fettle.client.fake_api import FakeApi, fake_api

RESIDENT_MB = 600.0
CALLS = 300
PATIENCE_S = 600.0
ILL_EVERY = 20
EVENTS, ALERTS = 5000, 1000
MONITORED = (
    "AcceleratedHardwareReady",
    "ContainerRuntimeReady",
    "KernelReady",
    "NetworkingReady",
    "StorageReady",
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
)
"""Conditions of EKS' monitor and the kubelet."""
LABELS = {
    **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{i}": "true" for i in range(20)},
    **{f"nvidia.com/gpu.deploy.part-{i}": "true" for i in range(8)},
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "node.kubernetes.io/instance-type": "p5.48xlarge",
    "topology.kubernetes.io/zone": "zone-a",
}


def _fill(api: FakeApi) -> None:
    api.put("namespaces", {"metadata": {"name": "default", "uid": "default"}})
    api.put("deviceclasses", device_class(DRIVER))
    for number in range(fleets.NODES):
        name = fleets.name_of(number)
        api.put("nodes", _node(name, ill=number % ILL_EVERY == 0))
        api.put("resourceslices", _slice(name, number))
        api.put("pods", _trainer(name, number))
    for number in range(EVENTS):
        api.put("events", _event(number))
    for one in _remembered(api):
        api.put("devicehealths", one)
    api.forget()


def _remembered(api: FakeApi) -> list[Object]:
    """What Fettle wrote when it last looked at the same fleet, before metrics said anything."""
    inventory = Inventory(HealthBook(HealthSettings(), inventories.RULES), inventories.RULES)
    at = time.time()
    for plural, kind in (("nodes", kinds.NODE), ("resourceslices", kinds.SLICE)):
        for thing in api.objects[plural].values():
            inventory.put(kind, kind.decode(msgspec.json.encode(thing)), at)
    for _ in inventory.refresh(at):
        pass
    view = inventory.view(EMPTY, synced=True, served={})
    assert view is not None
    pending = PendingWrites(inventory)
    pending.look(view, None, at)
    wanted = (pending.wanted(name) for name in pending.most_urgent())
    return [json.loads(msgspec.json.encode(one)) for one in wanted]


def _node(name: str, *, ill: bool) -> Object:
    conditions = [
        node_condition(kind, str(kind.endswith("Ready")), f"{kind}Is", f"all is well with {kind}")
        for kind in MONITORED
    ]
    if ill:
        conditions[0] |= {
            "status": "False",
            "reason": "NvidiaXID63Error",
            "message": "detected XID-63 on the instance, review kernel logs; XID-31 on it, too",
        }
    made = node(name, fleets.GPUS, labels=LABELS, conditions=conditions)
    made["metadata"]["uid"] = name
    made["status"]["nodeInfo"] = {"bootID": f"boot-of-{name}"}
    return made


def _slice(name: str, number: int) -> Object:
    devices = inventories.alike(number)
    for i, one in enumerate(devices):
        one["attributes"] |= {
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{i + 16:02x}:00.0"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "type": {"string": "gpu"},
        }
    if number % ILL_EVERY == 1:
        devices[3]["taints"] = [taint("gpu.nvidia.com/xid", "NoSchedule", "48")]
    return {
        "metadata": {"name": f"{name}-gpus", "uid": f"slice-{name}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _trainer(name: str, number: int) -> Object:
    made = pod(f"train-{number}", gpus=fleets.GPUS, node=name)
    made["metadata"]["uid"] = f"train-{number}"
    statuses = [
        {"resourceID": f"GPU-{number * fleets.GPUS + i:08d}", "health": "Healthy"}
        for i in range(fleets.GPUS)
    ]
    made["status"] = {
        "phase": "Running",
        "startTime": now(),
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now()}},
                "allocatedResourcesStatus": [{"name": "nvidia.com/gpu", "resources": statuses}],
            }
        ],
    }
    return made


def _event(number: int) -> Object:
    """Of a kubelet whose driver prepared nothing, and of a monitor."""
    on_node = number % 2 == 0
    name = fleets.name_of(number) if on_node else f"train-{number}"
    about = {"kind": "Node" if on_node else "Pod", "name": name, "uid": name}
    return {
        "metadata": {"name": f"event-{number}", "namespace": "default", "uid": f"event-{number}"},
        "involvedObject": about | ({} if on_node else {"namespace": "default"}),
        "reason": "NvidiaThermalError" if on_node else "FailedPrepareDynamicResources",
        "message": "NodePrepareResources failed for claim x: nvidia-container-cli: " + "x" * 100,
        "type": "Warning",
        "source": {"component": "eks-node-monitoring-agent" if on_node else "kubelet"},
        "count": 3,
        "firstTimestamp": now(),
        "lastTimestamp": now(),
    }


async def measure(house: House) -> list[Figure]:
    stand_in = measuring.StandIn(0.01)
    async with fake_api() as api, measuring.serving(stand_in) as url:
        _fill(api)
        port = free_port()
        async with _fettle(house.folder / "sources", api, url, port) as fettle:
            await _alert(port)
            await _until(lambda: _rounds(fettle), 3)
            calm = resident_mb(fettle.serving_pid)
            stand_in.share, stand_in.turns = 0.05, 7
            before = await _rounds(fettle)
            await _until(lambda: _rounds(fettle), before + 3)
            for number in range(CALLS):
                await _ask(fettle, number)
            stormy = resident_mb(fettle.serving_pid)
            highest = peak_mb(fettle.serving_pid)
    size = f"all sources, {fleets.NODES} nodes, {measuring.DEVICES} devices"
    return [
        Figure(f"{size}: resident, with its worker", calm, "MB", target=RESIDENT_MB),
        Figure(f"{size}: resident after a storm of 5 %", stormy, "MB", target=RESIDENT_MB),
        Figure(f"{size}: peak, without its worker", highest, "MB"),
    ]


@asynccontextmanager
async def _fettle(
    folder: Path, api: FakeApi, prometheus: str, port: int
) -> AsyncIterator[FettleProcess]:
    folder.mkdir()
    rows = folder / "rules.yaml"
    rows.write_text(
        "alerts:\n  - {name: hot, alert: GPUHot, exporter: dcgm, family: thermal, weight: 0.3,\n"
        "     source: our alerting rules}\n"
    )
    settings = folder / "settings.yaml"
    settings.write_text(
        f"prometheus: {{url: '{prometheus}', intervalSeconds: 1}}\n"
        f"alertmanager: {{listen: '127.0.0.1:{port}'}}\n"
        f"health: {{rulesFile: {rows}}}\n"
    )
    fettle = FettleProcess(folder, kubeconfig=api.kubeconfig(folder), settings=settings)
    try:
        await start(fettle, fleets.name_of(1))
        yield fettle
    finally:
        fettle.kill()


async def _until(look: Callable[[], Awaitable[float]], enough: float) -> None:
    began = time.monotonic()
    while (found := await look()) < enough:
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"{found:g} of {enough:g} within {PATIENCE_S:g} s")
        await asyncio.sleep(0.2)


async def _rounds(fettle: FettleProcess) -> float:
    _, text = await fettle.browse("/metrics")
    return sum(map(float, re.findall(r"fettle_prometheus_rounds_total\{.*\} (\S+)", text)))


async def _alert(port: int) -> None:
    alerts = [
        {
            "status": "firing",
            "labels": {"alertname": "GPUHot", **measuring.labels(number * 37)},
            "annotations": {"summary": "too hot"},
            "startsAt": now(),
            "endsAt": "0001-01-01T00:00:00Z",
            "fingerprint": f"{number:016x}",
        }
        for number in range(ALERTS)
    ]
    message = {"version": "4", "status": "firing", "alerts": alerts}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/alerts", json=message) as reply,
    ):
        if reply.status != 200:
            raise RuntimeError(f"alerts are answered {reply.status}: {await reply.text()}")


async def _ask(fettle: FettleProcess, number: int) -> None:
    names = fleets.names_spread(500)
    pod_ = fleets.waiting_pod(f"asks-{number}")
    await fettle.ask_extender("filter", {"Pod": pod_, "NodeNames": names})
