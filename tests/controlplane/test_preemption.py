"""Pods with DRA devices preempt where their victims' devices, once free, are sound, and only there.

Preemption is for processors: a pod that lacks nothing but a device preempts nobody.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane import objects, predictions, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import register_extender, scores
from tests.controlplane.kubelet import Kubelet

LOST = [objects.taint("gpu.nvidia.com/xid", "None", "79")]
STRICT = {"fettle.dev/policy": "training"}
HOW: dict[str, dict[str, Any]] = {
    "template": {"templates": {"gpu": "one-gpu"}},
    "resource": {"gpus": 1},
}


@pytest.fixture
async def full(control_plane: ControlPlane, api: Api) -> None:
    """What the pods need; a scheduler that asks nobody yet."""
    await api.create(objects.priority_class("high", 1000))
    await api.create(objects.device_class(extended_resource=objects.GPU))
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()


async def create_node(api: Api, name: str, *, lost: int) -> None:
    devices = objects.gpu_devices(2, taints={lost: LOST})
    await create_dra_node(api, name, devices, objects.node(name, cpu="2"))


async def device_of(api: Api, pod: str) -> str:
    """The one that its claim was allocated."""
    claims = await api.list("resourceclaims", "default")
    own = [c for c in claims if c["metadata"]["ownerReferences"][0]["name"] == pod]
    ((_, device),) = predictions.got([("gpu", claim) for claim in own])
    return device.rpartition("/")[2]


@pytest.mark.usefixtures("full")
async def test_nobody_is_preempted_for_a_pod_that_would_be_given_the_lost_device_they_leave(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, "n", lost=0)

    async def fill() -> None:
        """The one that ends first has the lost device, the other one only processors."""
        await api.create(objects.pod("holds", cpu="1", templates={"gpu": "one-gpu"}))
        await waiting.in_phase(api, "holds", "Running")
        assert await device_of(api, "holds") == "gpu-0"
        await api.create(objects.pod("beside", cpu="1"))
        await waiting.in_phase(api, "beside", "Running")

    needs: dict[str, Any] = {"cpu": "2", "annotations": STRICT, "priority_class": "high"}
    await fill()
    await api.create(objects.pod("greedy", **HOW["template"], **needs))
    await waiting.gone(api, "pods", "holds")
    await waiting.gone(api, "pods", "beside")
    assert await waiting.bound(api, "greedy") == "n"
    await api.delete("pods", "greedy")
    await waiting.gone(api, "pods", "greedy")

    await waiting.wait_until(
        lambda: api.list("resourceclaims", "default"), lambda c: not c, what="no claim is left"
    )
    await fill()
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle, managedResources=[])
    for name, how in HOW.items():
        await api.create(objects.pod(name, **how, **needs))
        await waiting.refused(api, name, saying="no candidate node for preemption")
        verdicts = await waiting.wait_until(
            lambda name=name: scores(fettle, name),  # type: ignore[misc]
            what=f"{name} is seen",
        )
        (note,) = verdicts["n"]["notes"]
        assert note.startswith("preempts nobody here: with default/holds gone it would be refused")
    for name in ("holds", "beside"):
        pod = await api.get("pods", name)
        assert pod["status"]["phase"] == "Running"
        assert "deletionTimestamp" not in pod["metadata"]


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
@pytest.mark.usefixtures("full")
async def test_one_pod_is_preempted_for_the_sound_device_that_it_leaves(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    how: dict[str, Any],
) -> None:
    """Only one, though the scheduler looks at its node before the device is free and is refused:
    it would go on to preempt elsewhere."""
    for number in range(3):
        await create_node(api, f"n{number}", lost=1)
    for number in range(3):
        await api.create(objects.pod(f"low-{number}", cpu="2", **how))
        await waiting.in_phase(api, f"low-{number}", "Running")
        assert await device_of(api, f"low-{number}") == "gpu-0"
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle, managedResources=[])
    high = objects.pod("high", cpu="2", annotations=STRICT, priority_class="high", **how)
    await api.create(high)
    await waiting.in_phase(api, "high", "Running")
    assert await device_of(api, "high") == "gpu-0"
    left = [pod["metadata"]["name"] for pod in await api.list("pods", "default")]
    assert len([name for name in left if name.startswith("low-")]) == 2
