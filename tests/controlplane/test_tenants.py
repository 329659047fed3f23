"""What somebody with the role `edit` in one namespace can write, and what that does to Fettle."""

from __future__ import annotations

import time

import pytest

from fettle.api.meta import rfc3339_at
from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_gpu_nodes
from tests.controlplane.installed import install

TENANT = "mallory"


async def tenant(control_plane: ControlPlane, api: Api) -> Api:
    """With the role `edit` in the namespace `evil`, as clusters give it to tenants."""
    await control_plane.create_namespace("evil")
    await api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "edit", "namespace": "evil"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:aggregate-to-edit",  # `edit` is made of it by a controller
            },
            "subjects": [{"kind": "User", "name": TENANT, "apiGroup": "rbac.authorization.k8s.io"}],
        }
    )
    return control_plane.api_as_user(TENANT)


def event(message: str, *, namespace: str = "evil", of: str = "evil") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "e-", "namespace": namespace},
        "involvedObject": {"kind": "Node", "name": "gpu-1", **({"namespace": of} if of else {})},
        "reason": "AcceleratedHardwareReady",
        "message": f"NvidiaThermalError: {message}",
        "lastTimestamp": rfc3339_at(time.time()),
    }


async def test_events_of_a_tenant_neither_stop_fettle_nor_count_against_a_node(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    """With ten thousand characters Fettle was away for seconds, with a few more for an hour."""
    await create_gpu_nodes(api, "gpu-1")
    fettle = await install(control_plane, api, start_fettle)
    async with await tenant(control_plane, api) as mallory:
        for message in ("hot", "x" * 20_000, "1%,," * 10, "NVRM: Xid (PCI:0:0" * 9999):
            await mallory.create(event(message))
        # Where Events about Nodes count, the API server lets no tenant write.
        with pytest.raises(ApiError) as refused:
            await mallory.create(event("hot", namespace="default", of=""))
        assert refused.value.code == 403
        with pytest.raises(ApiError) as refused:
            await mallory.create(event("hot", of=""))
        assert refused.value.code == 422
        await api.create(event("warm", namespace="default", of=""))  # seen after the others

        async def score() -> float:
            _, answer = await fettle.browse("/devices")
            (node,) = (one for one in answer["nodes"] if one["node"] == "gpu-1")
            return round(float(node["score"]), 2)

        found = await waiting.wait_until(score, lambda s: s < 1.0, what="what counts is heard")
        assert found == 0.7, "only the Event in `default` counts"
        began = time.monotonic()
        await api.create(objects.pod("p", gpus=1))
        assert await waiting.bound(api, "p") == "gpu-1"
        assert time.monotonic() - began < 10
