"""Reports may name very many devices of one Node."""

import asyncio
from typing import Any

import msgspec

from fettle.api import kinds
from tests.hostile.house import House
from tests.hostile.pauses import noted, slowness

GPU = "nvidia.com/gpu"


def line(made: dict[str, Any]) -> bytes:
    return b'{"type":"ADDED","object":%b}' % msgspec.json.encode(made)


def node() -> bytes:
    amounts = {GPU: "8"}
    status = {"capacity": amounts, "allocatable": amounts}
    return line({"metadata": {"name": "n", "uid": "n"}, "status": status})


def pod(name: str, units: list[str], resources: int = 1) -> bytes:
    said = [{"resourceID": unit, "health": "Unhealthy"} for unit in units]
    named = [{"name": f"{GPU}{i or ''}", "resources": said} for i in range(resources)]
    of_container = {"name": "c", "allocatedResourcesStatus": named}
    limits = {"resources": {"limits": {GPU: "1"}}}
    return line(
        {
            "metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"nodeName": "n", "containers": [{"name": "c", **limits}]},
            "status": {"phase": "Running", "containerStatuses": [of_container]},
        }
    )


async def seen(*pods: bytes) -> tuple[set[str], list[str], float]:
    """The devices that a view names, what it says of the node, and how long that took, in
    seconds."""
    house = House()
    task = asyncio.create_task(house.writer.run())
    try:
        await house.sync()
        await house.take(kinds.NODE, node())
        async with noted() as pauses:
            for each in pods:
                await house.take(kinds.POD, each)
        view = house.publisher.view.nodes["n"]
        said = [weighed.evidence.text for weighed in view.health.evidence]
        return {unit.unit for unit in view.plugins[GPU].units}, said, pauses.all_s
    finally:
        task.cancel()


async def test_pods_that_name_thousands_of_devices_keep_nobody_waiting() -> None:
    names = [[f"GPU-{i}-{j}" for j in range(500)] for i in range(4)]
    units, said, took_s = await seen(*(pod(f"p{i}", those) for i, those in enumerate(names)))
    assert len(units) == 256
    assert said == ["reports name 1744 devices more than the 256 that are read"]
    assert took_s < 0.5 * slowness()


async def test_of_a_pod_that_names_20000_units_a_thousand_count() -> None:
    units, said, took_s = await seen(pod("p", [f"GPU-{j}" for j in range(1000)], resources=20))
    assert len(units) <= 256
    assert said
    assert took_s < 0.3 * slowness()


async def test_a_device_has_as_many_replicas_as_its_plugin_makes() -> None:
    names = [f"GPU-{i}::{j}" for j in range(200) for i in range(4)]
    units, said, took_s = await seen(pod("p", names))
    assert units == {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}
    assert not said
    assert took_s < 0.5 * slowness()
