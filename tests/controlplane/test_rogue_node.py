"""What a node, or a tenant, that is not to be trusted can do to others: nothing. By real kubelet
credentials, with the Node authorizer and NodeRestriction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fettle.steward.hopeless import EVERY_S, WAITED_S
from tests.controlplane import objects, shipped, test_health_taints, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes, create_node
from tests.controlplane.installed import install, register_extender, start_registered
from tests.controlplane.objects import policy
from tests.controlplane.taints import LOST
from tests.controlplane.test_hopeless import IMPOSSIBLE, RIGHTS

STRICT = {"fettle.dev/policy": "training"}
AS_KUBEADM = ("--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
"""Besides RBAC. Without `resource.k8s.io/v1`, as other tests have it, the Node authorizer is never
ready."""
DEAD = objects.taint("gpu.nvidia.com/xid", "NoExecute", "79")
HELD = {"fettle.dev/hold": "maintenance"}


def rogue_slice(name: str, pool: str, *, node: str = "evil", **device: Any) -> Object:
    made = objects.resource_slice(
        node,
        [{**one, **device} for one in objects.gpu_devices(4)],
        pool=pool,
        generation=99,
        name=name,
    )
    made["metadata"]["annotations"] = HELD
    return made


async def of_node(fettle: FettleProcess, name: str) -> Object:
    _, answer = await fettle.browse("/explain", node=name)
    found: Object = answer
    return found


async def test_a_nodes_slices_and_holds_change_nothing_for_others(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await control_plane.restart_api_server(*AS_KUBEADM, kill=True)
    for name in ("honest-1", "honest-2"):
        await create_dra_node(api, name, 4)
    await create_node(api, objects.node("evil"))
    await api.create(objects.claim_template("gpu", objects.claim_spec()))
    await control_plane.start_controller_manager()
    fettle = await install(control_plane, api, start_fettle)
    async with control_plane.api_as_user("system:node:evil", "system:nodes") as kubelet:
        with pytest.raises(ApiError) as refused:
            await kubelet.create(rogue_slice("stolen", "honest-1", node="honest-1"))
        assert refused.value.code == 403
        for name in ("honest-1", "honest-2"):
            await kubelet.create(rogue_slice(f"r-{name}", name, taints=[DEAD]))

    async def disputed() -> list[Object]:
        found: list[Object] = (await of_node(fettle, "honest-1"))["disputed"]
        return found

    (said,) = await waiting.wait_until(disputed, what="the pool is said to be disputed")
    assert said["nodes"] == ["evil", "honest-1"]
    for name in ("honest-1", "honest-2"):
        found = await of_node(fettle, name)
        assert (found["state"], found["score"]) == ("Healthy", 1.0)
        assert {device["state"] for device in found["devices"]} == {"Healthy"}
        assert found["holds"] == []
    evil = await of_node(fettle, "evil")
    assert {device["state"] for device in evil["devices"]} == {"Unhealthy"}
    for number in range(2):
        pod = objects.pod(f"p{number}", templates={"gpu": "gpu"}, annotations=STRICT)
        await api.create(pod)
        assert await waiting.bound(api, f"p{number}") in ("honest-1", "honest-2")


async def test_no_rule_taints_by_names_that_an_older_rogue_slice_shares(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await control_plane.restart_api_server(*AS_KUBEADM, kill=True)
    for name in ("evil", "honest"):
        await create_node(api, objects.node(name, labels={"kubernetes.io/hostname": name}))
    for number in range(3):
        await create_dra_node(api, f"other-{number}", 4)
    async with control_plane.api_as_user("system:node:evil", "system:nodes") as kubelet:
        await kubelet.create(rogue_slice("r", "rack", taints=[DEAD]))
    await asyncio.sleep(1.1)  # creation timestamps have whole seconds
    gpus = objects.gpu_devices(5, taints={4: [LOST]})
    await api.create(objects.resource_slice("honest", gpus, pool="rack"))
    await shipped.apply(api, shipped.manifests(test_health_taints.RIGHTS))
    await api.create(objects.claim_template("gpu"))
    await control_plane.start_controller_manager()
    fettle = await start_registered(
        api, start_fettle, settings=test_health_taints.settings(tmp_path)
    )
    await register_extender(control_plane, fettle)
    pod = objects.pod("p", templates={"gpu": "gpu"}, annotations=STRICT)
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "honest"}
    await api.create(pod)
    assert await waiting.bound(api, "p") == "honest"
    # gpu-4 is on one node only, so its rule hits no other.
    await test_health_taints.until_tainted(
        api, {"rack/gpu-4": (test_health_taints.UNHEALTHY, "NoSchedule")}
    )


async def test_a_nodes_capacity_lets_no_pod_onto_another_dead_node(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await control_plane.restart_api_server(*AS_KUBEADM, kill=True)
    names = [f"n{number:02}" for number in range(12)]
    await create_gpu_nodes(api, *names, "evil")
    fault = objects.node_condition(
        "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    await api.patch_status("nodes", "n00", {"conditions": [fault]})
    async with control_plane.api_as_user("system:node:evil", "system:nodes") as kubelet:
        amounts = {"cpu": "64", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "100000"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [fault]}
        await kubelet.patch_status("nodes", "evil", status)
    fettle = await install(control_plane, api, start_fettle)
    for number in range(11):
        await api.create(objects.pod(f"runs-{number}", gpus=8, annotations=STRICT))
    for number in range(11):
        assert await waiting.bound(api, f"runs-{number}") in names[1:]
    await api.create(objects.pod("waits", gpus=8, annotations=STRICT))
    await waiting.refused(api, "waits")
    await waiting.stays_pending(api, "waits", for_s=5)
    _, devices = await fettle.browse("/devices")
    assert devices["setAside"] == []


async def test_a_job_is_not_suspended_by_another_namespaces_pod(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await define_policies(api)
    await api.create(policy("ending", {"failure": {"suspendHopelessJobs": True}}))
    await create_dra_node(api, "n", 4)
    for namespace in ("victim", "mallory"):
        await control_plane.create_namespace(namespace)
    guarded = objects.claim_spec(selectors=[IMPOSSIBLE])
    await api.create(objects.claim("impossible", guarded, namespace="mallory"))
    await shipped.apply(api, shipped.manifests(RIGHTS))
    # Without the garbage collector, which deletes such pods some time after they were created.
    clock = Clock(tmp_path)
    fettle = await install(control_plane, api, start_fettle, env=clock.env)
    ending: Object = {"annotations": {"fettle.dev/policy": "ending"}}
    job = await api.create(objects.job("backup", namespace="victim", cpu="1", **ending))
    uid = job["metadata"]["uid"]
    for number, name in enumerate(("../../victim/jobs/backup", "backup")):
        pod = objects.pod(f"p{number}", namespace="mallory", claims={"gpu": "impossible"}, **ending)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        pod["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        pod["metadata"]["labels"] = {"batch.kubernetes.io/controller-uid": uid}
        await api.create(pod)
    clock.jump(WAITED_S)

    async def notes() -> list[str]:
        _, answer = await fettle.browse("/explain", pod="mallory/p0")
        return [note for note in answer.get("notes", ()) if "no device will ever satisfy" in note]

    await waiting.wait_until(notes, what="the pods' controller is hopeless", timeout_s=120)
    await waiting.stays_pending(api, "p0", namespace="mallory", for_s=2 * EVERY_S)
    found = await api.get("jobs", "backup", "victim")
    assert not found["spec"].get("suspend")
    assert "fettle.dev/suspended" not in found["metadata"].get("annotations", {})
