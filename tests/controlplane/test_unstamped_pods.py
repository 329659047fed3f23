"""Pods that nothing was stamped on have the policy that their workload names."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_workloads
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender, start_registered
from tests.controlplane.test_modes import observing
from tests.controlplane.test_mutation_workloads import WORKLOADS, workload

TRAINING = {"fettle.dev/policy": "training"}
READS = "fettle"


async def policies(fettle: FettleProcess) -> dict[str, Any]:
    """By pod: the policy of its decisions."""
    _, answer = await fettle.browse("/decisions")
    return {one["key"].rpartition("/")[2]: one["policy"] for one in answer["decisions"]}


async def pod_of(api: Api, workload: str) -> str:
    """The name of a pod of the workload, once it has a node."""

    async def bound() -> list[str]:
        pods = await api.list("pods", "default")
        names = {p["metadata"]["name"]: p["spec"].get("nodeName") for p in pods}
        return [name for name, node in names.items() if name.startswith(workload) and node]

    return (await waiting.wait_until(bound, bool, what=f"a pod of {workload} is bound"))[0]


def deployment(name: str, policy: str) -> Object:
    labels = {"app": name}
    template = objects.pod_template(gpus=1)
    template["metadata"] = {**template.get("metadata", {}), "labels": labels}
    template["spec"].pop("restartPolicy", None)
    annotations = {"fettle.dev/policy": policy}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


async def test_observed_workloads_are_judged_by_the_policy_that_they_name(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await create_node(api, objects.node("n1", 8))
    await control_plane.start_controller_manager()
    fettle = await start_registered(api, start_fettle, settings=observing(tmp_path))
    await register_extender(control_plane, fettle)
    await api.create(objects.job("train", gpus=1, job_annotations=TRAINING))
    await api.create(deployment("serve", "scavenger"))
    await api.create(objects.job("plain", gpus=1))
    pods = {name: await pod_of(api, name) for name in ("train", "serve", "plain")}
    stored = await api.get("pods", pods["train"])
    assert not {*stored["metadata"].get("annotations", {})} & {*TRAINING}

    found = await policies(fettle)
    named = {name: found[pod] for name, pod in pods.items()}
    assert named == {"train": "training", "serve": "scavenger", "plain": "inference"}
    _, explained = await fettle.browse("/explain", pod=f"default/{pods['serve']}")
    origin = explained["policy"]["origin"]
    # The Deployment controller copies annotations to its ReplicaSets.
    assert origin.startswith("annotation fettle.dev/policy of ReplicaSet serve")


async def test_a_job_that_came_while_the_webhook_was_away_keeps_its_policy(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("n1", 8))
    await control_plane.start_controller_manager()
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.job("train", gpus=1, job_annotations=TRAINING))
    pod = await pod_of(api, "train")
    _, explained = await fettle.browse("/explain", pod=f"default/{pod}")
    assert explained["policy"]["name"] == "training"


async def test_without_the_right_to_read_a_workload_its_pods_say_so(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await create_node(api, objects.node("n1", 8))
    await control_plane.start_controller_manager()
    fettle = await start_fettle("extender", settings=observing(tmp_path))
    await register_extender(control_plane, fettle)
    role = await api.get("clusterroles", READS)
    rules = [rule for rule in role["rules"] if "jobs" not in rule["resources"]]
    assert len(rules) < len(role["rules"])
    await api.patch("clusterroles", READS, {"rules": rules})
    await api.create(objects.job("train", gpus=1, job_annotations=TRAINING))
    pod = await pod_of(api, "train")
    _, explained = await fettle.browse("/explain", pod=f"default/{pod}")
    (warning,) = explained["policy"]["warnings"]
    assert "whether Job train names a policy for its pods is not known" in warning
    _, said = await fettle.browse("/readyz", verbose="")
    assert "1 cannot be read, such as that of Job train" in said


async def test_each_kind_of_workload_is_asked_which_policy_it_names(
    api: Api, start_fettle: StartFettle
) -> None:
    await define_workloads(api)
    await create_node(api, objects.node("n1", 8))
    fettle = await start_fettle("extender")
    kinds = [kind for kind in WORKLOADS if not kind.startswith(("v1/Pod", "resource.k8s.io/"))]
    for kind in kinds:
        manifest = workload(kind, copy.deepcopy(WORKLOADS[kind]))
        manifest["metadata"]["annotations"] = dict(TRAINING)
        made = await api.create(manifest)
        owner = {key: made[key] for key in ("apiVersion", "kind")}
        owner |= {key: made["metadata"][key] for key in ("name", "uid")}
        pod = objects.pod(made["kind"].lower(), gpus=1)
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await api.create(pod)

    async def found() -> dict[str, str]:
        policies = {}
        for kind in kinds:
            name = kind.rpartition("/")[2]
            status, explained = await fettle.browse("/explain", pod=f"default/{name.lower()}")
            policies[name] = explained["policy"]["name"] if status == 200 else ""
        return policies

    await waiting.wait_until(
        found, lambda named: {*named.values()} == {"training"}, what="each workload's policy counts"
    )
