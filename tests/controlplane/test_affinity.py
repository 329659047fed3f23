"""Where the scheduler asks no extender: pods of a policy with node affinity keep off nodes with bad
devices, by the label that the steward writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import start_registered
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.mutating import NAMED
from tests.controlplane.objects import policy
from tests.controlplane.taints import RIGHTS, publish

HEALTH = "fettle.dev/health"
OF_GPUS = f"{HEALTH}.nvidia.com_gpu"
STRICT: Object = {"placement": {"degraded": "Refuse", "affinity": "Required"}}
NOT_BAD = {"key": f"{HEALTH}.node", "operator": "NotIn", "values": ["degraded", "unhealthy"]}
GPUS = {"gpus": "gpus"}


async def labels(api: Api, key: str = HEALTH) -> dict[str, str]:
    nodes = [node["metadata"] for node in await api.list("nodes")]
    return {node["name"]: node["labels"][key] for node in nodes if key in node["labels"]}


async def until_labelled(api: Api, wanted: dict[str, str], key: str = HEALTH) -> None:
    await waiting.wait_until(
        lambda: labels(api, key),
        lambda found: wanted.items() <= found.items(),
        what=f"labels {key} are {wanted}",
        timeout_s=60,
    )


async def start(api: Api, start_fettle: StartFettle, folder: Path, spec: Object) -> FettleProcess:
    """Webhook and steward, each as it is shipped, and a policy `own`."""
    await define_policies(api)
    await api.create(policy("own", spec))
    await shipped.apply(api, shipped.manifests(RIGHTS))
    file = folder / "settings.yaml"
    file.write_text("mode: enforce\nnodeMarks: {label: true, holdSeconds: 1}\n")
    webhook = await start_registered(api, start_fettle, "webhook", settings=file)
    await start_fettle("steward", settings=file)
    await waiting.wait_until(
        lambda: webhook.browse("/policy", name="own"),
        lambda answer: answer[0] == 200,
        what="the policy is known",
    )
    return webhook


async def devices(api: Api) -> None:
    """Two nodes; the scheduler prefers `bad`, which has the most idle processors."""
    await create_dra_node(api, "bad", 8, objects.node("bad", cpu="512"))
    await create_dra_node(api, "good", 8, objects.node("good", cpu="16"))
    await api.create(objects.claim_template("gpus"))


async def placed(api: Api, name: str, **template: Any) -> str:
    await api.create(objects.pod(name, templates=GPUS, cpu="4", **template))
    return await waiting.bound(api, name)


async def owned(api: Api) -> list[Object]:
    return [p for p in await api.list("pods", "default") if "ownerReferences" in p["metadata"]]


def terms(spec: Object) -> list[Object]:
    node = spec["affinity"]["nodeAffinity"]
    found: list[Object] = node["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    return found


@pytest.mark.usefixtures("kubelet")
async def test_without_an_extender_a_node_with_a_bad_gpu_gets_no_pod_of_such_a_policy(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await devices(api)
    await publish(api, "bad", 8, (3,))
    assert await placed(api, "before") == "bad"

    await start(api, start_fettle, tmp_path, STRICT)
    await until_labelled(api, {"bad": "degraded", "good": "healthy"})
    assert await placed(api, "nobodys") == "bad"
    assert await placed(api, "strict", annotations=NAMED) == "good"

    # A Deployment's template has it from the start, and so have its pods.
    wanted = objects.deployment("many", replicas=2, templates=GPUS, cpu="1")
    wanted["metadata"]["annotations"] = dict(NAMED)
    made = await api.create(wanted)
    assert terms(made["spec"]["template"]["spec"]) == [{"matchExpressions": [NOT_BAD]}]
    pods = await waiting.wait_until(
        lambda: owned(api),
        lambda pods: len(pods) == 2 and all(map(waiting.node_of, pods)),
        what="the Deployment's pods are bound",
    )
    assert {waiting.node_of(pod) for pod in pods} == {"good"}
    assert [terms(pod["spec"]) for pod in pods] == [[{"matchExpressions": [NOT_BAD]}]] * 2

    # A changed policy makes no new ReplicaSet, whatever else of the Deployment changes.
    spec = {"placement": {"affinity": "None"}}
    await api.patch("devicepolicies", "own", {"spec": spec})
    changed = await api.patch("deployments", "many", {"spec": {"replicas": 1}}, "default")
    assert changed["spec"]["template"] == made["spec"]["template"]
    assert len(await api.list("replicasets", "default")) == 1

    # Once the GPU is sound, the node is used again.
    await api.patch("devicepolicies", "own", {"spec": STRICT})
    await publish(api, "bad", 8)
    await until_labelled(api, {"bad": "healthy", "good": "healthy"})
    assert await placed(api, "healed", annotations=NAMED) == "bad"


@pytest.mark.usefixtures("kubelet")
async def test_a_node_without_the_label_takes_such_pods(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await devices(api)
    await publish(api, "good", 8, (0,))
    await publish(api, "bad", 8, (0,))
    await start(api, start_fettle, tmp_path, STRICT)
    await until_labelled(api, {"bad": "degraded", "good": "degraded"})
    await api.create(objects.pod("waits", templates=GPUS, annotations=NAMED))
    said = await waiting.refused(api, "waits")
    assert "2 node(s) didn't match Pod's node affinity/selector" in said

    # As an autoscaler brings it, before the steward has seen it.
    await create_node(api, objects.node("new"))
    await api.create(objects.resource_slice("new", 8))
    assert await waiting.bound(api, "waits") == "new"


async def test_a_node_that_is_bad_for_two_gpus_is_good_for_one(
    control_plane: ControlPlane,
    api: Api,
    start_fettle: StartFettle,
    tmp_path: Path,
    kubelet: Kubelet,
) -> None:
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await create_node(api, objects.node("bad", 8, cpu="512"))
    await create_node(api, objects.node("good", 8, cpu="16"))
    spec = {"placement": {"affinity": "Required", "maxRisk": 0.25}}
    await start(api, start_fettle, tmp_path, spec)
    await until_labelled(api, {"bad": "healthy", "good": "healthy"}, OF_GPUS)

    async def with_gpus(name: str, gpus: int) -> str:
        await api.create(objects.pod(name, gpus=gpus, cpu="1", annotations=NAMED))
        return await waiting.bound(api, name)

    assert await with_gpus("first", 1) == "bad"
    await kubelet.set_device_health("first", {"GPU-0": "Unhealthy"})
    await until_labelled(api, {"bad": "partly-unhealthy", "good": "healthy"}, OF_GPUS)
    assert await with_gpus("one", 1) == "bad"
    assert await with_gpus("two", 2) == "good"

    # Nobody is given a GPU that the device plugin has withdrawn.
    await kubelet.set_allocatable("bad", 7)
    await until_labelled(api, {"bad": "healthy", "good": "healthy"}, OF_GPUS)
    await until_labelled(api, {"bad": "degraded", "good": "healthy"})
    assert await with_gpus("two-more", 2) == "bad"


@pytest.mark.usefixtures("kubelet")
async def test_a_preference_ranks_a_bad_node_last_and_still_takes_it(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await devices(api)
    await publish(api, "bad", 8, (3,))
    await start(api, start_fettle, tmp_path, {"placement": {"affinity": "Preferred"}})
    await until_labelled(api, {"bad": "degraded", "good": "healthy"})
    assert await placed(api, "nobodys") == "bad"
    assert await placed(api, "first", annotations=NAMED) == "good"
    await api.patch("nodes", "good", {"spec": {"unschedulable": True}})
    assert await placed(api, "second", annotations=NAMED) == "bad"
