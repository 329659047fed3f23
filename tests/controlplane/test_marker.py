"""Pods with the marker that request extended resources too: with DeviceClasses behind these, the
scheduler looks for every extended resource of the pod, also for those that it is to ignore."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import install
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.objects import DEVICE_CLASS, GPU

BY_CLASS = f"deviceclass.resource.kubernetes.io/{DEVICE_CLASS}"
UNMANAGED = "example.com/gpu"
"""A resource that the shipped `managedResources` do not list."""
CLAIM = {"gpu": "one-gpu"}


@pytest.mark.parametrize(
    ("of_class", "template"),
    [
        pytest.param(None, {"resource": BY_CLASS, "gpus": 1}, id="named by its class"),
        pytest.param(
            None, {"resource": BY_CLASS, "gpus": 1, "templates": CLAIM}, id="by class, and a claim"
        ),
        pytest.param(GPU, {"gpus": 1}, id="named in a class"),
        pytest.param(GPU, {"gpus": 1, "templates": CLAIM}, id="in a class, and a claim"),
        pytest.param(
            UNMANAGED,
            {"resource": UNMANAGED, "gpus": 1, "templates": CLAIM},
            id="in a class and not managed, and a claim",
        ),
    ],
)
async def test_a_pod_whose_extended_resource_a_class_stands_behind_is_steered_and_bound(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    of_class: str | None,
    template: dict[str, Any],
) -> None:
    """The scheduler's own scores prefer the node with the lost devices."""
    lost = {i: [objects.taint("gpu.nvidia.com/xid", "None", "79")] for i in range(4)}
    dead = objects.node("dead", cpu="512")
    await api.create(objects.device_class(extended_resource=of_class))
    await create_dra_node(api, "dead", objects.gpu_devices(4, taints=lost), dead)
    await create_dra_node(api, "good", 4, objects.node("good", cpu="16"))
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    await install(control_plane, api, start_fettle)
    strict = {"fettle.dev/policy": "training"}
    await api.create(objects.pod("worker", cpu="4", annotations=strict, **template))
    assert await waiting.bound(api, "worker") == "good"
