"""Nodes with hundreds of devices: eight GPUs with each partition they can be divided into, and the
channels of a ComputeDomain. How soon Fettle is ready, what it holds, what asks that it has not met
before cost, and how long a change of one such node keeps others waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from fettle.api import kinds
from fettle.cluster import EMPTY
from fettle.pacing import pause, run_within
from tests.bench import fleets, inventories
from tests.bench.figures import Figure
from tests.bench.houses import House, start
from tests.bench.usage import peak_mb, resident_mb
from tests.controlplane import objects
from tests.controlplane.api import Object
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.objects import DRIVER

NODES = 200
ROUNDS = 9
SLICE = 64
"""Devices of a ResourceSlice, at most, where they draw on counters."""
PROFILES = {
    "1g.10gb": (1, range(7)),
    "1g.10gb+me": (1, range(7)),
    "1g.20gb": (2, range(0, 8, 2)),
    "2g.20gb": (2, range(0, 6, 2)),
    "3g.40gb": (4, range(0, 8, 4)),
    "4g.40gb": (4, range(1)),
    "7g.80gb": (8, range(1)),
}
"""Memory slices that a profile takes, and where they may begin."""
CHANNELS = 2048
CHANNEL_DRIVER = "compute-domain.nvidia.com"
ASKS = {
    "one partition": objects.claim_spec(selectors=[f'device.attributes["{DRIVER}"].slices == 1']),
    "4 partitions of one GPU": objects.claim_spec(
        4, selectors=[f'device.attributes["{DRIVER}"].slices == 1']
    ),
    "8 whole GPUs": objects.claim_spec(8, selectors=[f'device.attributes["{DRIVER}"].slices == 0']),
}
ASKS["4 partitions of one GPU"]["devices"]["constraints"] = [
    {"requests": ["gpu"], "matchAttribute": f"{DRIVER}/parentUUID"}
]


async def measure(house: House) -> list[Figure]:
    return [*await _served(house), *await _waits()]


async def _served(house: House) -> list[Figure]:
    snapshot = house.folder / "partitions"
    _write(snapshot)
    fettle = FettleProcess(
        house.folder / "fettle-partitions", roles=["extender"], arguments=["--snapshot", snapshot]
    )
    try:
        ready_s = await start(fettle, fleets.name_of(0))
        await _settled(fettle)
        asked_ms = {name: await _cold_ms(fettle, name) for name in ASKS}
        held_mb, highest_mb = resident_mb(fettle.serving_pid), peak_mb(fettle.serving_pid)
    finally:
        fettle.kill()
    size = f"{NODES} nodes of {len(_divided(0))} partitions"
    return [
        Figure(f"{size}: start to ready, from files", ready_s, "s"),
        Figure(f"{size}: resident, with its worker and the files", held_mb, "MB"),
        Figure(f"{size}: peak, without its worker", highest_mb, "MB"),
        *(Figure(f"{size}: cold demand for {name}", ms, "ms") for name, ms in asked_ms.items()),
    ]


async def _settled(fettle: FettleProcess) -> None:
    """Wait until selectors are evaluated: until it does nothing."""
    before = -1.0
    while fettle.cpu_s() - before > 0.05:
        before = fettle.cpu_s()
        await asyncio.sleep(0.5)


async def _cold_ms(fettle: FettleProcess, name: str) -> float:
    """A first ask about all nodes, under as many policies as there are: each is another ask."""
    names = [fleets.name_of(number) for number in range(NODES)]
    took_ms = []
    for policy in ("training", "inference", "scavenger"):
        pod = objects.pod(
            f"{policy}-{_template(name)}",
            templates={"gpu": _template(name)},
            annotations={"fettle.dev/policy": policy},
        )
        began = time.perf_counter()
        status, answer = await fettle.ask_extender(
            "filter", {"Pod": pod, "Nodes": None, "NodeNames": names}
        )
        took_ms.append((time.perf_counter() - began) * 1000)
        if status != 200 or answer["Error"]:
            raise RuntimeError(f"Fettle answers {status} {answer}")
    return median(took_ms)


async def _waits() -> list[Figure]:
    """The longest stretch of work in one piece, while one node's devices are brought up to date."""
    kinds_of_node: dict[str, Callable[[int], list[Object]]] = {
        f"{len(_divided(0))} partitions": _divided_slices,
        f"{CHANNELS} channels": _channel_slices,
    }
    figures = []
    for what, slices in kinds_of_node.items():
        inventory, view = inventories.of_nodes(inventories.alike, nodes=0), EMPTY
        inventories.put(inventory, kinds.NODE, objects.node(fleets.name_of(0)))
        waits_ms = []
        for generation in range(1, ROUNDS + 1):
            for slice_ in slices(0):
                slice_["spec"]["pool"]["generation"] = generation
                inventories.put(inventory, kinds.SLICE, slice_)
            spec = slice_["spec"]
            taken = [spec["devices"][generation]["name"]]
            claim = _in_use(fleets.name_of(0), taken, driver=spec["driver"])
            inventories.put(inventory, kinds.CLAIM, claim)
            waits_ms.append(await _longest_ms(partial(_refresh, inventory)))
            view = inventories.look(inventory, view)
        name = f"one node of {what} changed: the longest wait of others"
        figures.append(Figure(name, median(waits_ms), "ms"))
    return figures


def _refresh(inventory: Any) -> None:
    for _ in inventory.refresh(inventories.NOW):
        pause()


async def _longest_ms(work: Callable[[], None]) -> float:
    task, longest_s = asyncio.ensure_future(run_within(work)), 0.0
    while not task.done():
        began = time.perf_counter()
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.perf_counter() - began)
    return longest_s * 1000


def _write(folder: Path) -> None:
    """The fleet as `kubectl get` prints it; on every third node each GPU is half in use."""
    folder.mkdir(parents=True)
    names = [fleets.name_of(number) for number in range(NODES)]
    halves = [f"gpu-{gpu}-3g-40gb-0" for gpu in range(fleets.GPUS)]
    items = {
        "nodes": [objects.node(name) for name in names],
        "slices": [slice_ for number in range(NODES) for slice_ in _divided_slices(number)],
        "classes": [objects.device_class(DRIVER)],
        "templates": [objects.claim_template(_template(name), spec) for name, spec in ASKS.items()],
        "claims": [_in_use(names[number], halves) for number in range(0, NODES, 3)],
        "namespaces": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}],
    }
    for name, listed in items.items():
        content = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": listed}
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(content))


def _template(demand: str) -> str:
    return demand.replace(" ", "-").lower()


def _in_use(node: str, devices: Sequence[str], driver: str = DRIVER) -> Object:
    results = [
        {"request": "gpu", "driver": driver, "pool": node, "device": device} for device in devices
    ]
    allocated = {"status": {"allocation": {"devices": {"results": results}}}}
    return objects.claim(f"held-{node}") | allocated


def _divided_slices(number: int) -> list[Object]:
    devices, name = _divided(number), fleets.name_of(number)
    parts = [devices[at : at + SLICE] for at in range(0, len(devices), SLICE)]
    counters = objects.resource_slice(name, [], slices=len(parts) + 1, name=f"{name}-counters")
    counters["spec"]["sharedCounters"] = [
        {"name": f"gpu-{gpu}", "counters": _drawn(8, 0)} for gpu in range(fleets.GPUS)
    ]
    del counters["spec"]["devices"]
    return [counters, *_slices(name, DRIVER, parts, more=1)]


def _channel_slices(number: int) -> list[Object]:
    name = fleets.name_of(number)
    devices = [
        objects.device(f"channel-{i}", {"type": "channel", "id": i}) for i in range(CHANNELS)
    ]
    parts = [devices[at : at + 128] for at in range(0, CHANNELS, 128)]
    return _slices(name, CHANNEL_DRIVER, parts)


def _slices(node: str, driver: str, parts: list[list[Object]], more: int = 0) -> list[Object]:
    return [
        objects.resource_slice(
            node, part, driver=driver, slices=len(parts) + more, name=f"{node}-{driver}-{at:02d}"
        )
        for at, part in enumerate(parts)
    ]


def _divided(number: int) -> list[Object]:
    """The GPUs of a node as a driver with partitionable devices publishes them."""
    devices = []
    for gpu in range(fleets.GPUS):
        uuid = f"GPU-{number:05d}-{gpu}"
        devices.append(_part(gpu, f"gpu-{gpu}", _common(gpu, uuid=uuid, slices=0), 8, 0))
        for profile, (size, starts) in PROFILES.items():
            for at in starts:
                name = f"gpu-{gpu}-{profile.replace('.', '-').replace('+', '-')}-{at}"
                said = _common(gpu, profile=profile, parentUUID=uuid, slices=size)
                devices.append(_part(gpu, name, said, size, at))
    return devices


def _common(gpu: int, **more: str | int) -> dict[str, str | int]:
    return {
        "productName": "NVIDIA H100 80GB HBM3",
        "architecture": "Hopper",
        "brand": "Nvidia",
        "driverVersion": "570.86.15",
        "resource.kubernetes.io/pcieRoot": f"pci0000:{gpu:02x}",
        **more,
    }


def _part(gpu: int, name: str, said: dict[str, str | int], size: int, at: int) -> Object:
    made = objects.device(name, said, {"memory": f"{size * 10}Gi", "multiprocessors": f"{size}"})
    return made | {"consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": _drawn(size, at)}]}


def _drawn(size: int, at: int) -> Object:
    """What so many memory slices from the one at `at` on take of a GPU."""
    counters = {f"memory-slice-{number}": {"value": "1"} for number in range(at, at + size)}
    return counters | {"multiprocessors": {"value": str(size)}}
