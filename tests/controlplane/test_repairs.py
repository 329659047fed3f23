"""What is held against a GPU that kept failing ends when somebody says that it was mended."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender
from tests.controlplane.kubelet import Kubelet

CHECK = "GpuNvlinkWatch"
GPU = "GPU-1a2b3c4d-0000-1111-2222-333344445555"
DOWN = f"ErrorCode:DCGM_FR_NVLINK_DOWN GPU_UUID:{GPU} link down Recommended Action=NONE;"
REPAIRED = "fettle.dev/repaired"


async def unit(fettle: FettleProcess) -> Any:
    """The GPU, as `fettle devices` shows it."""
    status, answer = await fettle.browse("/devices")
    assert status == 200, answer
    units = [
        one
        for node in answer["nodes"]
        for resource in node["resources"]
        for one in resource["units"]
    ]
    return next((one for one in units if GPU in str(one)), {"state": "Healthy", "score": 1.0})


def is_up(most: float, one: Any) -> bool:
    """The fault is over, and its traces leave no more than that."""
    return 0.5 < float(one["score"]) < most


async def until(fettle: FettleProcess, *states: str) -> Any:
    return await waiting.wait_until(
        lambda: unit(fettle), lambda one: one["state"] in states, what=f"the GPU is {states}"
    )


@pytest.mark.parametrize("said", ["for the node", "for the GPU"])
async def test_a_gpu_that_kept_failing_is_used_again_once_its_repair_is_stated(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    said: str,
) -> None:
    await create_node(api, objects.node("gpu-1", 1))
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle)
    for most in (0.99, 0.89, 0.79):
        await kubelet.set_node_condition("gpu-1", CHECK, "True", f"{CHECK}IsNotHealthy", DOWN)
        await waiting.wait_until(
            lambda: unit(fettle), lambda one: one["score"] == 0.5, what="the link is down"
        )
        await kubelet.set_node_condition("gpu-1", CHECK, "False", f"{CHECK}IsHealthy", "fine")
        await waiting.wait_until(
            lambda: unit(fettle),
            partial(is_up, most),
            what="the link is up",
        )
    assert (await unit(fettle))["state"] == "Degraded"
    await api.create(objects.pod("training", gpus=1, annotations={"fettle.dev/policy": "training"}))
    await waiting.refused(api, "training")

    at = objects.now()
    value = (
        at if said == "for the node" else json.dumps({"at": at, "device": f"nvidia.com/gpu {GPU}"})
    )
    await api.patch("nodes", "gpu-1", {"metadata": {"annotations": {REPAIRED: value}}})
    await waiting.in_phase(api, "training", "Running", timeout_s=60)
    mended = await until(fettle, "Healthy")
    assert mended["score"] == 0.95
    assert f"repaired: {REPAIRED}=" in json.dumps(mended)
