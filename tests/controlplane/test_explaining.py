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


async def test_a_pod_whose_gates_are_removed_is_not_told_to_have_any(
    api: Api, fettle: FettleProcess
) -> None:
    """While it waits for its device, a condition still says that it is gated."""
    slow = [{**one, "bindingConditions": ["Ready"]} for one in objects.gpu_devices(1)]
    slow[0]["bindingFailureConditions"] = ["Broken"]
    await api.apply(objects.resource_slice("n", slow, generation=2))
    await api.create(objects.claim("c"))
    pod = objects.pod("p", claims={"gpu": "c"})
    pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await api.create(pod)

    async def notes() -> tuple[list[str], list[str]]:
        status, answer = await fettle.browse("/explain", pod="default/p")
        assert isinstance(answer, dict)
        return (answer["notes"], answer["ask"]["allocated"]) if status == 200 else ([], [])

    (note,), _ = await waiting.wait_until(notes, lambda told: told[0], what="the gates are told")
    assert note.startswith("the pod has scheduling gates (example.com/wait): ")
    await api.patch("pods", "p", {"spec": {"schedulingGates": None}})
    told, _ = await waiting.wait_until(notes, lambda told: told[1], what="its claim is allocated")
    assert told == []
    waits = await api.get("pods", "p")
    assert "nodeName" not in waits["spec"]
    assert waiting.condition(waits, "PodScheduled")["reason"] == "SchedulingGated"
