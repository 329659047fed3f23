"""What operators are told of pods and devices, beside what the scheduler does."""

from __future__ import annotations

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.objects import DRIVER


@pytest.fixture
async def fettle(control_plane: ControlPlane, api: Api, start_fettle: StartFettle) -> FettleProcess:
    """One node with two devices, and a scheduler that does not ask."""
    await create_dra_node(api, "n", objects.gpu_devices(2), objects.node("n"))
    await control_plane.start_scheduler(objects.scheduler_configuration())
    return await start_fettle("extender")


async def test_the_pod_on_a_device_that_dies_under_it_is_named_beside_that_device(
    api: Api, fettle: FettleProcess
) -> None:
    await api.create(objects.claim("c"))
    await api.create(objects.pod("trains", claims={"gpu": "c"}))
    assert await waiting.bound(api, "trains") == "n"
    lost = objects.gpu_devices(2, taints={0: [objects.taint("gpu.nvidia.com/gpu-lost")]})
    await api.apply(objects.resource_slice("n", lost, generation=2))

    async def users() -> dict[str, list[str]]:
        _, answer = await fettle.browse("/devices", unsound="true")
        return {d["device"]: d["usedBy"] for node in answer["nodes"] for d in node["devices"]}

    expected = {f"{DRIVER}/n/gpu-0": ["default/trains"]}
    await waiting.wait_until(users, lambda told: told == expected, what="the pod is named")


async def test_a_node_that_ends_the_schedulers_attempt_is_told_beside_one_that_fits(
    api: Api, fettle: FettleProcess
) -> None:
    without = [{**one, "attributes": {}} for one in objects.gpu_devices(1)]
    await create_dra_node(api, "odd", without)
    needs = f'device.attributes["{DRIVER}"].index >= 0'
    await api.create(objects.claim("c", objects.claim_spec(selectors=[needs])))
    await api.create(objects.pod("p", claims={"gpu": "c"}))
    said = await waiting.refused(api, "p", saying='running "DynamicResources" filter plugin')
    assert "no such key: index" in said

    async def explained() -> tuple[bool, list[str]]:
        _, answer = await fettle.browse("/explain", pod="default/p")
        return answer["nodes"]["n"]["fits"], answer["notes"]

    fits, (note,) = await waiting.wait_until(explained, lambda told: told[1], what="it is told")
    assert fits
    assert "placed nowhere" in note
    assert "node odd: " in note
    assert "no such key: index" in note
