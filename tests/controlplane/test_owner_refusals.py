"""A workload loses one pod to a node that swallows pods, and no second one.

Health does not lead the next pod away: what the pods brought about themselves leaves that node the
better one of two, and it has the most idle processors. So the last check of each test is that a pod
of nobody's still goes there.
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
from tests.controlplane.mutating import NAMED, installed

TENANT_CAUSED = "maximum request size for shared resources is 1; found 2"
"""What a pod brings about itself: it says nothing of the node."""

ONE_LOST = [("Failed", "swallows"), ("Running", "good")]


@pytest.fixture
async def swallowing(control_plane: ControlPlane, api: Api, kubelet: Kubelet) -> None:
    await create_node(api, objects.node("swallows", 8, cpu="512"))
    await create_node(api, objects.node("good", 8, cpu="16"))
    await kubelet.set_node_condition("good", "ContainerRuntimeUnhealthy", "True")
    kubelet.refuse_pods_on("swallows", TENANT_CAUSED)
    await control_plane.start_controller_manager()


async def until_one_is(phase: str, api: Api, owner: str) -> dict[tuple[str, str], str]:
    """The name of each pod of the workload by its phase and node, once one is in this phase."""

    async def owned() -> list[Object]:
        pods = await api.list("pods", "default")
        return [p for p in pods if p["metadata"]["ownerReferences"][0]["name"] == owner]

    pods = await waiting.wait_until(
        owned,
        lambda pods: any(p["status"]["phase"] == phase for p in pods),
        what=f"a pod of {owner} is {phase}",
        timeout_s=60,
    )
    return {
        (p["status"]["phase"], p["spec"].get("nodeName", "")): p["metadata"]["name"] for p in pods
    }


async def still_swallows(api: Api) -> None:
    """The scheduler and Fettle still prefer the node for a pod that has no owner."""
    await api.create(objects.pod("nobodys", gpus=1, cpu="4"))
    assert await waiting.bound(api, "nobodys") == "swallows"


@pytest.mark.usefixtures("swallowing")
async def test_a_replica_set_loses_one_pod_to_a_kubelet_though_the_next_comes_at_once(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    fettle = await install(control_plane, api, start_fettle)
    await api.create(objects.replica_set("set", gpus=1, cpu="4"))
    places = await until_one_is("Running", api, "set")
    assert sorted(places) == ONE_LOST
    await still_swallows(api)

    running = f"default/{places['Running', 'good']}"
    _, explained = await fettle.browse("/explain", pod=running)
    (reason,) = explained["nodes"]["swallows"]["reasons"]["refusals"]
    assert (reason["code"], reason["workload"]) == ("KubeletRefusedWorkload", "ReplicaSet/set")
    _, found = await fettle.browse("/decisions", pod=running)
    (decision,) = found["decisions"]
    assert decision["reasons"] == {"KubeletRefusedWorkload": 1}

    # Nothing manages this one, but who makes it again does so by the same name.
    await waiting.in_phase(api, "nobodys", "Failed")
    await api.delete("pods", "nobodys", grace_s=0)
    await waiting.gone(api, "pods", "nobodys")
    await api.create(objects.pod("nobodys", gpus=1, cpu="4"))
    assert await waiting.bound(api, "nobodys") == "good"


@pytest.mark.usefixtures("swallowing")
async def test_a_job_that_may_fail_once_survives_a_node_that_swallows_pods(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await install(control_plane, api, start_fettle)
    await api.create(objects.job("train", gpus=1, cpu="4", backoff_limit=1))
    assert sorted(await until_one_is("Running", api, "train")) == ONE_LOST
    assert not waiting.condition(await api.get("jobs", "train"), "Failed")
    await still_swallows(api)


@pytest.mark.usefixtures("swallowing")
async def test_the_next_job_of_a_job_set_survives_too_though_it_is_another_owner(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await install(control_plane, api, start_fettle)

    def job(attempt: int) -> Object:
        """As the JobSet's controller makes it: each attempt has Jobs of its own."""
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "gang",
            "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        }
        return objects.job("gang-w-0", gpus=1, cpu="4", backoff_limit=0, labels=labels)

    await api.create(job(0))
    assert list(await until_one_is("Failed", api, "gang-w-0")) == ONE_LOST[:1]
    await api.delete("jobs", "gang-w-0")
    await waiting.gone(api, "jobs", "gang-w-0")
    await api.create(job(1))
    places = await until_one_is("Running", api, "gang-w-0")
    assert ("Running", "good") in places
    await still_swallows(api)


@pytest.mark.usefixtures("swallowing")
async def test_a_gang_refused_at_once_uses_up_a_written_limit_of_1_and_not_the_injected_one(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await installed(api, start_fettle, {"failure": {"ignoreDisruptions": True}}, control_plane)
    await kubelet.stop()
    for name, limit in (("roomy", 6), ("tight", 1)):
        gang = objects.job(
            name, completions=2, parallelism=2, backoff_limit=limit, job_annotations=NAMED, gpus=1
        )
        await api.create(gang)
    assert "so 2 such pods can fail the Job, and 2 run at once" in " ".join(api.warnings)
    await waiting.wait_until(
        lambda: api.list("pods", "default"),
        lambda pods: [p["spec"].get("nodeName") for p in pods] == ["swallows"] * 4,
        what="both gangs are bound before a pod is refused",
    )
    kubelet.start()
    tight = await waiting.wait_until(
        lambda: api.get("jobs", "tight"),
        lambda job: waiting.condition(job, "Failed"),
        what="the Job with a limit of 1 fails",
    )
    assert waiting.condition(tight, "Failed")["reason"] == "BackoffLimitExceeded"
    places = await waiting.wait_until(
        lambda: api.list("pods", "default", labels="job-name=roomy"),
        lambda pods: sum(p["status"]["phase"] == "Running" for p in pods) == 2,
        what="the other Job's next pods run",
        timeout_s=60,
    )
    assert sorted(p["spec"]["nodeName"] for p in places) == ["good"] * 2 + ["swallows"] * 2
