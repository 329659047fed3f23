"""A tenant with the role `edit` in a few namespaces tries to have a sound node called bad, by every
way there is. Decision 0010 says what that may come to: a lower score, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import register_extender
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.memory import define

TENANTS = ("evil-a", "evil-b", "evil-c", "evil-d")
NODE, GPU_0 = "gpu-1", f"{objects.DRIVER}/gpu-1/gpu-0"
STRICT = {"fettle.dev/policy": "training"}
LOST: Object = {
    "type": "AcceleratedHardwareReady",
    "status": "False",
    "reason": "NvidiaXID79Error",
    "message": "GPU is lost",
}
NO_START = (
    "OCI runtime create failed: nvidia-container-cli: exec: GPU is lost, has fallen off the bus, "
    "XID 79: unknown"
)
FULL = "requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 0"


async def let_in(api: Api) -> None:
    """The role `edit`, as clusters give it to their tenants."""
    for namespace in TENANTS:
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        await api.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "mallory", "namespace": namespace},
                "roleRef": role,
                "subjects": [subject],
            }
        )


async def refused(attempt: Any) -> bool:
    """Whether the API server refuses it."""
    try:
        await attempt
    except ApiError as error:
        return error.code in (403, 404)
    return False


async def what_the_api_server_refuses(mallory: Api) -> None:
    """All that would be evidence by itself."""
    condition = {"conditions": [{**LOST, "lastTransitionTime": objects.now()}]}
    annotated = {"metadata": {"annotations": {"fettle.dev/hold": "mine"}}}
    labelled = {"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": "EVICT"}}}
    health = {"status": {"state": "Unhealthy", "score": 0}}
    tainted = objects.resource_slice(
        NODE, objects.gpu_devices(1, taints={0: [objects.taint("gpu.nvidia.com/xid", value="79")]})
    )
    rule = objects.device_taint_rule(
        "mine", "gaudi.intel.com/unhealthy", "NoExecute", driver=objects.DRIVER
    )
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "GPU is lost"}
    statuses = [
        {"name": "nvidia.com/gpu", "resources": [{"resourceID": "G", "health": "Unhealthy"}]}
    ]
    ill = {"containerStatuses": [{"name": "main", "allocatedResourcesStatus": statuses}]}
    attempts: list[Any] = [
        mallory.patch_status("nodes", NODE, condition, form="strategic"),
        mallory.patch("nodes", NODE, annotated),
        mallory.patch("nodes", NODE, labelled),
        mallory.patch("devicehealths", NODE, health),
        mallory.create(tainted),
        mallory.create(rule),
        mallory.patch_status("pods", "full-0", failed, TENANTS[0]),
        mallory.patch_status("pods", "full-0", ill, TENANTS[0]),
        mallory.patch_status("resourceclaims", "bad", {"devices": []}, TENANTS[0]),
    ]
    for attempt in attempts:
        assert await refused(attempt)


async def name_the_full_node(mallory: Api, kubelet: Kubelet) -> None:
    """Its kubelet refuses each pod: truly, since the node is full."""
    kubelet.refuse_pods_on(NODE, FULL)
    for namespace in TENANTS:
        for i in range(6):
            pod = objects.pod(f"full-{i}", namespace=namespace, gpus=8, node=NODE)
            pod["metadata"]["labels"] = {
                "nvidia.com/gpu.health": "bad",
                "dgxc.nvidia.com/nvsentinel-state": "quarantined",
            }
            pod["metadata"]["annotations"] = {
                "fettle.dev/hold": "mine",
                "dgxc.nvidia.com/devices": '{"devices": {"nvidia.com/gpu": ["GPU-1"]}}',
            }
            await mallory.create(pod)
    for namespace in TENANTS:
        for i in range(6):
            await waiting.in_phase(mallory, f"full-{i}", "Failed", namespace=namespace)
    kubelet.accept_pods_on(NODE)


async def run_what_does_not_start(mallory: Api) -> None:
    """A container's command may hold any words, and its runtime repeats them."""
    for namespace in TENANTS:
        await mallory.create(objects.pod("broken-0", namespace=namespace, gpus=1, node=NODE))
        await waiting.wait_until(
            lambda space=namespace: mallory.get("pods", "broken-0", space),  # type: ignore[misc]
            lambda pod: pod["status"].get("containerStatuses"),
            what="it does not start",
        )


async def ask_for_what_the_driver_cannot_prepare(mallory: Api, api: Api) -> None:
    """Its configuration is wrong, so the driver says that the device does not get ready."""
    for namespace in TENANTS:
        await mallory.create(objects.claim("bad", namespace=namespace))
        result = {"request": "gpu", "driver": objects.DRIVER, "pool": NODE, "device": "gpu-0"}
        not_ready = {
            "type": "Ready",
            "status": "False",
            "reason": "ConfigInvalid",
            "message": "GPU has fallen off the bus, XID 79",
            "lastTransitionTime": objects.now(),
        }
        device = {k: v for k, v in result.items() if k != "request"}
        allocation = {"devices": {"results": [result]}}
        await api.patch_status("resourceclaims", "bad", {"allocation": allocation}, namespace)
        said = {"devices": [{**device, "conditions": [not_ready]}]}
        await api.patch_status("resourceclaims", "bad", said, namespace)
        await api.patch_status("resourceclaims", "bad", {"allocation": None, **said}, namespace)


async def tell_stories(mallory: Api, api: Api) -> None:
    """Events about the node and its pods, as a kubelet would write them."""
    for namespace in TENANTS:
        for i, (kind, name) in enumerate([("Node", NODE), ("Pod", "full-0")] * 3):
            event = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"story-{i}", "namespace": namespace},
                "involvedObject": {"kind": kind, "name": name, "namespace": namespace},
                "reason": "FailedPrepareDynamicResources",
                "message": "nvidia-container-cli: GPU has fallen off the bus, XID 79",
                "type": "Warning",
                "source": {"component": "kubelet", "host": NODE},
                "count": 1000,
                "firstTimestamp": objects.now(),
                "lastTimestamp": objects.now(),
            }
            if await refused(mallory.create(event)):
                await api.create(event)  # some clusters let tenants write them


async def told(fettle: FettleProcess, **what: str) -> Any:
    status, answer = await fettle.browse("/explain", **what)
    assert status == 200, answer
    return answer


async def test_a_tenant_who_tries_everything_lowers_a_score_and_refuses_nobody(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await define(api)
    await create_dra_node(api, NODE, 2, objects.node(NODE, 8))
    await let_in(api)
    await control_plane.start_controller_manager()
    kubelet.start_nothing_of("broken", NO_START)
    fettle = await start_fettle("extender", "steward")
    async with control_plane.api_as_user("mallory", "tenants") as mallory:
        await waiting.wait_until(
            lambda: mallory.list("pods", TENANTS[-1]), lambda _: True, what="the role is in effect"
        )
        await name_the_full_node(mallory, kubelet)
        await run_what_does_not_start(mallory)
        await ask_for_what_the_driver_cannot_prepare(mallory, api)
        await tell_stories(mallory, api)
        await what_the_api_server_refuses(mallory)
    node = await waiting.wait_until(
        lambda: told(fettle, node=NODE), lambda h: h["score"] < 1.0, what="the words are heard"
    )
    await asyncio.sleep(2)
    node, device = await told(fettle, node=NODE), await told(fettle, device=GPU_0)
    for found in (node, device):
        assert (found["state"], found["proven"]) == ("Degraded", 1.0), found
        assert found["score"] >= 0.4
        assert found["held"] is False
        assert {e["reportingNamespace"] for e in found["evidence"]} <= set(TENANTS)
    for namespace in TENANTS:
        await api.delete("pods", "broken-0", namespace, grace_s=0)
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("honest", gpus=8, annotations=STRICT))
    assert await waiting.bound(api, "honest") == NODE
    await api.create(objects.claim_template("gpu"))
    await api.create(objects.pod("claims", templates={"gpu": "gpu"}, annotations=STRICT))
    assert await waiting.bound(api, "claims") == NODE
