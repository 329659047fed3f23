"""A workload loses one pod to a node that swallows pods, and no second one.

The scheduler prefers the node with the most idle processors, so that is the one whose kubelet
refuses pods.
"""

from __future__ import annotations

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import install
from tests.controlplane.kubelet import Kubelet

PROVOKED = "maximum request size for shared resources is 1; found 2"
"""What a pod can bring about itself: the word of its namespace, which refuses no node."""


@pytest.fixture
async def swallowing(control_plane: ControlPlane, api: Api, kubelet: Kubelet) -> None:
    await create_node(api, objects.node("swallows", 8, cpu="512"))
    await create_node(api, objects.node("good", 8, cpu="16"))
    await kubelet.set_node_condition(
        "good", "FrequentKubeletRestart", "True", "FrequentKubeletRestart", "6 in 20 minutes"
    )
    kubelet.refuse_pods_on("swallows", PROVOKED)
    await control_plane.start_controller_manager()


async def until_one_runs(api: Api, owner: str) -> list[tuple[str, str]]:
    """Phase and node of each pod of the workload once one of them runs."""

    async def owned() -> list[Object]:
        pods = await api.list("pods", "default")
        return [p for p in pods if p["metadata"]["ownerReferences"][0]["name"] == owner]

    pods = await waiting.wait_until(
        owned,
        lambda pods: any(p["status"]["phase"] == "Running" for p in pods),
        what=f"a pod of {owner} runs",
        timeout_s=60,
    )
    return [(p["status"]["phase"], p["spec"].get("nodeName", "")) for p in pods]


@pytest.mark.usefixtures("swallowing")
async def test_a_replica_set_loses_one_pod_to_a_kubelet_though_the_next_comes_at_once(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await install(control_plane, api, start_fettle)
    await api.create(objects.replica_set("set", gpus=1, cpu="4"))
    places = await until_one_runs(api, "set")
    assert sorted(places) == [("Failed", "swallows"), ("Running", "good")]


@pytest.mark.usefixtures("swallowing")
async def test_a_job_that_may_fail_once_survives_a_node_that_swallows_pods(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await install(control_plane, api, start_fettle)
    await api.create(objects.job("train", gpus=1, cpu="4", backoff_limit=1))
    places = await until_one_runs(api, "train")
    assert sorted(places) == [("Failed", "swallows"), ("Running", "good")]
    assert not waiting.condition(await api.get("jobs", "train"), "Failed")
