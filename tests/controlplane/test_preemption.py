"""Pods with DRA devices preempt where their victims' devices, once free, are sound, and only there.

Preemption is for processors: a pod that lacks nothing but a device preempts nobody.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane import objects, predictions, shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import register_extender, scores
from tests.controlplane.kubelet import Kubelet

LOST = [objects.taint("gpu.nvidia.com/xid", "None", "79")]
STRICT = {"fettle.dev/policy": "training"}
HOLD = "fettle.dev/hold"
WAKE_PREEMPTORS = shipped.DEPLOY / "rbac" / "optional" / "wake-preemptors.yaml"
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


async def create_half_lost_node(api: Api, name: str, *, lost: int) -> None:
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
    await create_half_lost_node(api, "n", lost=0)

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
        *_, note = verdicts["n"]["notes"]
        assert note.startswith("preempts nobody here: with default/holds gone ")
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
        await create_half_lost_node(api, f"n{number}", lost=1)
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


@pytest.mark.parametrize("how", [HOW["template"], HOW["resource"]], ids=["claim", "plugin"])
@pytest.mark.usefixtures("full")
async def test_a_pod_that_was_let_preempt_nobody_preempts_once_the_devices_are_sound(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    how: dict[str, Any],
) -> None:
    """It waits for processors or units, so nothing that Fettle wrote before woke it: it waited for
    the scheduler's own retry after five minutes."""
    if how is HOW["template"]:
        await create_dra_node(api, "n", 2, objects.node("n", cpu="2"))
    else:
        await create_node(api, objects.node("n", gpus=1, cpu="2"))
    await api.create(objects.pod("low", cpu="2", **how))
    await waiting.in_phase(api, "low", "Running")
    await api.patch("nodes", "n", {"metadata": {"annotations": {HOLD: "fan"}}})
    fettle = await start_fettle("extender", "steward")
    await shipped.apply(api, shipped.manifests(WAKE_PREEMPTORS))
    await register_extender(control_plane, fettle, managedResources=[])

    needs: dict[str, Any] = {"cpu": "2", "annotations": STRICT, "priority_class": "high", **how}
    await api.create(objects.pod("high", **needs))
    await waiting.refused(api, "high", saying="no candidate node for preemption")
    await waiting.stays_pending(api, "high", for_s=8)  # and whatever this set going is over
    before = await asked_to_preempt(fettle)
    await waiting.stays_pending(api, "high", for_s=4)
    assert await asked_to_preempt(fettle) == before, "it is woken while nothing changes"

    await api.patch("nodes", "n", {"metadata": {"annotations": {HOLD: None}}})
    assert await waiting.bound(api, "high") == "n"
    await waiting.gone(api, "pods", "low")
    wake_up = await api.get("pods", "fettle-wake-up", shipped.NAMESPACE)
    assert "nominatedNodeName" not in wake_up["status"]
    assert waiting.node_of(wake_up) is None


async def asked_to_preempt(fettle: FettleProcess) -> float:
    """How often the scheduler asked so far, by the metrics."""
    _, text = await fettle.browse("/metrics")
    counted = [line for line in text.splitlines() if line.startswith("fettle_extender_decisions")]
    return sum(float(line.split()[-1]) for line in counted if 'verb="preempt"' in line)
