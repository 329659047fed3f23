"""When the steward of a process wakes a waiting pod."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from fettle.config import Settings
from fettle.serve.serving import Runtime
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.serve.builders import let_preempt_nobody, node, refused, running
from tests.fettle.serve.runtimes import serve_options
from tests.waiting import until

OFTEN = msgspec.convert({"steward": {"wakeIntervalSeconds": 0.02}}, Settings)


@asynccontextmanager
async def steward(api: FakeApi, folder: Path) -> AsyncIterator[None]:
    runtime = Runtime(serve_options(api.kubeconfig(folder), "steward"), OFTEN)
    try:
        await runtime.open()
        await until(lambda: "leases" in api.objects)
        yield
    finally:
        await runtime.close()


def wakes(api: FakeApi) -> int:
    return sum(a.verb == "patch" and a.target.name == "fettle-wake-up" for a in api.asked)


async def test_a_pod_is_woken_by_a_node_that_recovers_and_not_by_one_that_never_fits(
    api: FakeApi, tmp_path: Path
) -> None:
    api.put("nodes", node("gpu-1", gpus=8, hold="disk"))
    api.put("nodes", node("cpu-1"))
    api.put("pods", refused("first"))
    async with steward(api, tmp_path):
        await asyncio.sleep(0.3)
        api.put("pods", refused("second"))
        api.put("nodes", node("cpu-2"))
        await asyncio.sleep(0.5)
        assert wakes(api) == 0
        api.put("nodes", node("gpu-1", gpus=8))
        await until(lambda: wakes(api) > 0)


async def test_a_pod_is_woken_once_a_taken_unit_is_free(api: FakeApi, tmp_path: Path) -> None:
    api.put("nodes", node("gpu-1", gpus=8))
    api.put("pods", running("most", "gpu-1", 7))
    last = api.put("pods", running("last", "gpu-1", 1))
    api.put("pods", refused("first"))
    async with steward(api, tmp_path):
        await asyncio.sleep(0.5)
        assert wakes(api) == 0
        api.put("pods", {**last, "status": {"phase": "Succeeded"}})
        await until(lambda: wakes(api) > 0)


async def test_a_pod_is_woken_for_units_that_it_may_preempt(api: FakeApi, tmp_path: Path) -> None:
    api.put("nodes", node("gpu-1", gpus=8))
    api.put("pods", running("low", "gpu-1", 8, priority=-1))
    api.put("pods", refused("first"))
    async with steward(api, tmp_path):
        await until(lambda: wakes(api) > 0)


async def test_a_pod_that_was_let_preempt_nobody_is_woken_once_its_victims_leave_sound_devices(
    api: FakeApi, tmp_path: Path
) -> None:
    api.put("pods", {"metadata": {"name": "fettle-wake-up", "namespace": "fettle-system"}})
    api.put("nodes", node("gpu-1", gpus=8, hold="disk"))
    api.put("pods", running("low", "gpu-1", 8))
    api.put("pods", let_preempt_nobody("first"))
    async with steward(api, tmp_path):
        await asyncio.sleep(0.5)
        assert wakes(api) == 0
        api.put("nodes", node("gpu-1", gpus=8))
        await until(lambda: wakes(api) > 0)
    woken = {asked.target.plural for asked in api.asked if asked.target.name == "fettle-wake-up"}
    assert woken == {"pods"}, "no claim is written to, which would wake other pods"
