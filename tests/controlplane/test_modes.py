"""Observe changes nothing, steer refuses nothing, and modes change without a restart."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import register_extender, scores, start_registered
from tests.controlplane.kubelet import Kubelet

SEED = 27
PODS = 24
NODES = [f"w{i}" for i in range(6)]
LOST = [objects.taint("gpu.nvidia.com/xid", "None", "79")]
BY_AFFINITY_ALONE = [
    {
        "schedulerName": "default-scheduler",
        "plugins": {
            "score": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": "NodeAffinity"}],
            }
        },
    }
]
"""Where scores are equal, kube-scheduler draws lots; here no pod likes two nodes alike."""
PASSING = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")


def observing(folder: Path, mode: str = "observe") -> Path:
    settings = folder / "settings.yaml"
    settings.write_text(f"mode: {mode}\n", encoding="utf-8")
    return settings


async def lay_out(api: Api) -> None:
    """Nodes with device plugins, and nodes with DRA; some of each are faulty."""
    for name in NODES[:3]:
        fault = [objects.node_condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error")]
        conditions = fault if name == "w0" else []
        await create_node(api, objects.node(name, 8, conditions=conditions))
    for name in NODES[3:]:
        taints = {0: LOST, 1: LOST} if name == "w3" else {}
        devices = objects.gpu_devices(8, taints=taints)
        await create_dra_node(api, name, devices, objects.node(name))


def workload(seed: int) -> list[Object]:
    """Pods of plain resources and of claims, each with a liking for nodes of its own."""
    chance = random.Random(seed)
    made: list[Object] = []
    for i in range(PODS):
        how: dict[str, Any] = {"annotations": {"fettle.dev/policy": "training"}}
        if chance.random() < 0.5:
            made.append(objects.claim(f"claim-{i}"))
            how["claims"] = {"gpu": f"claim-{i}"}
        else:
            how["gpus"] = 1
        pod = objects.pod(f"pod-{i}", **how)
        weights = chance.sample(range(10, 100), len(NODES))
        pod["spec"]["affinity"] = {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": weight,
                        "preference": {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/hostname",
                                    "operator": "In",
                                    "values": [node],
                                }
                            ]
                        },
                    }
                    for node, weight in zip(NODES, weights, strict=True)
                ]
            }
        }
        made.append(pod)
    return made


async def run(api: Api, seed: int) -> tuple[dict[str, str], list[Object]]:
    """Create them one after the other: where each landed, and all as they are stored then."""
    landed: dict[str, str] = {}
    made = workload(seed)
    for one in made:
        await api.create(one)
        if one["kind"] == "Pod":
            name = one["metadata"]["name"]
            landed[name] = await waiting.bound(api, name)
    stored = []
    for one in made:
        resource = "pods" if one["kind"] == "Pod" else "resourceclaims"
        stored.append(lasting(await api.get(resource, one["metadata"]["name"])))
    for one in reversed(made):
        resource = "pods" if one["kind"] == "Pod" else "resourceclaims"
        await api.delete(resource, one["metadata"]["name"], grace_s=0)
    for one in made:
        resource = "pods" if one["kind"] == "Pod" else "resourceclaims"
        await waiting.gone(api, resource, one["metadata"]["name"], timeout_s=30)
    return landed, stored


def lasting(stored: Object) -> Object:
    """Without what differs from run to run whoever looks on."""
    kept = copy.deepcopy(stored)
    for field in PASSING:
        kept["metadata"].pop(field, None)
    status = kept.pop("status", {})
    allocation = status.get("allocation") or {}
    kept["allocated"] = (allocation.get("devices") or {}).get("results")
    for volume in kept.get("spec", {}).get("volumes", ()):
        volume.pop("name")
    for container in kept.get("spec", {}).get("containers", ()):
        for mount in container.get("volumeMounts", ()):
            mount.pop("name")
    return kept


async def test_as_shipped_bindings_and_objects_are_as_if_fettle_were_not_there(
    control_plane: ControlPlane,
    api: Api,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await lay_out(api)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": BY_AFFINITY_ALONE,
        }
    )
    without, stored_without = await run(api, SEED)
    assert {"w0", "w3"} & {*without.values()}, "the seed puts pods on faulty nodes"

    settings = tmp_path / "settings.yaml"
    settings.write_text(shipped.settings())
    fettle = await start_registered(api, start_fettle, settings=settings)
    await with_extender(control_plane, fettle)
    observed, stored_observed = await run(api, SEED)
    assert observed == without
    assert stored_observed == stored_without
    assert await api.list("events.events.k8s.io", "default") is not None


async def with_extender(control_plane: ControlPlane, fettle: FettleProcess) -> None:
    """The shipped entry, with the same profile as before."""
    configuration = shipped.scheduler_configuration(fettle.extender_url, enforces=False)
    configuration["profiles"] = BY_AFFINITY_ALONE
    await control_plane.stop_scheduler()
    await control_plane.start_scheduler(configuration)


async def test_a_namespaces_label_changes_the_mode_without_a_restart(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    fault = [objects.node_condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error")]
    await create_node(api, objects.node("dead", 8, cpu="512", conditions=fault))
    await create_node(api, objects.node("good", 8, cpu="16"))
    fettle = await start_fettle("extender", settings=observing(tmp_path))
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("observed", gpus=1, cpu="4"))
    assert await waiting.bound(api, "observed") == "dead"
    _, explained = await fettle.browse("/explain", pod="default/observed")
    assert explained["policy"]["mode"] == "observe"
    assert not explained["nodes"]["dead"]["allowed"]

    await api.patch(
        "namespaces", "default", {"metadata": {"labels": {"fettle.dev/mode": "enforce"}}}
    )
    await waiting.wait_until(
        lambda: fettle.browse("/readyz", verbose=""),
        lambda answer: "mode: enforce for namespace default" in answer[1],
        what="the label is seen",
    )
    await api.create(objects.pod("enforced", gpus=1, cpu="4"))
    assert await waiting.bound(api, "enforced") == "good"
    assert (await scores(fettle, "enforced"))["good"]["fits"]

    await api.patch("namespaces", "default", {"metadata": {"labels": {"fettle.dev/mode": "steer"}}})
    await waiting.wait_until(
        lambda: fettle.browse("/readyz", verbose=""),
        lambda answer: "mode: steer for namespace default" in answer[1],
        what="the label is seen",
    )
    await api.create(objects.pod("steered", gpus=1, cpu="4"))
    assert await waiting.bound(api, "steered") == "good"
    await api.patch("nodes", "good", {"spec": {"unschedulable": True}})
    await api.create(objects.pod("not-refused", gpus=1, cpu="4"))
    assert await waiting.bound(api, "not-refused") == "dead"
