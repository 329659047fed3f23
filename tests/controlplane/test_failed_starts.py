"""Pods that are bound and do not start: the next ones of their workload go elsewhere, and a
workload that starts nowhere takes no node from others.

As in `test_owner_refusals.py`, the node that fails has the most idle processors, and health alone
does not lead away from it, so the last check is that a pod of nobody's still goes there.
"""

from __future__ import annotations

from typing import Any

from fettle.api import kinds
from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes
from tests.controlplane.installed import install, scores
from tests.controlplane.kubelet import Kubelet

GONE = "DRA driver gpu.nvidia.com is not registered"
NO_CUDA = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=99.0"
)


async def placed(api: Api, job: str, count: int, phase: str) -> list[tuple[str, str]]:
    """Node and name of each of the Job's pods in this phase, once there are so many."""

    async def look() -> list[Object]:
        pods = await api.list("pods", "default", labels=f"job-name={job}")
        return [p for p in pods if p["status"]["phase"] == phase and waiting.node_of(p)]

    pods = await waiting.wait_until(
        look, lambda pods: len(pods) >= count, what=f"{count} pods of {job} are {phase}"
    )
    return sorted((str(waiting.node_of(p)), p["metadata"]["name"]) for p in pods)


async def until_said(fettle: FettleProcess, node: str, what: str) -> None:
    """Until Fettle says this of a node to the pod `probe`."""
    await waiting.wait_until(
        lambda: scores(fettle, "probe"),
        lambda nodes: what in str(nodes.get(node)),
        what=f"Fettle says {what!r} of {node}",
    )


async def probe(api: Api, **template: Any) -> None:
    """A pod that no scheduler places."""
    made = objects.pod("probe", **template)
    made["spec"]["schedulerName"] = "nobody"
    await api.create(made)


async def test_the_next_pods_of_a_job_leave_a_node_whose_dra_driver_prepares_nothing(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    """Also after a restart of Fettle."""
    await create_dra_node(api, "hole", 8, objects.node("hole", cpu="512"))
    await create_dra_node(api, "good", 8, objects.node("good", cpu="16"))
    await kubelet.set_node_condition("good", "ContainerRuntimeUnhealthy", "True")
    kubelet.prepare_nothing_on("hole", GONE)
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    fettle = await install(control_plane, api, start_fettle)
    of_job: Object = {"templates": {"gpu": "one-gpu"}, "cpu": "1"}
    await api.create(objects.job("train", completions=4, parallelism=1, **of_job))
    ((node, first),) = await placed(api, "train", 1, "Pending")
    assert node == "hole"
    await probe(api, **of_job)
    await until_said(fettle, "hole", "does not start: DRA driver gpu")
    (told,) = await api.list("events", "default", fields=kinds.EVENT.fields)
    assert told["involvedObject"]["name"] == first

    await fettle.stop()
    fettle.start()
    await fettle.ready()
    await until_said(fettle, "hole", "does not start: DRA driver gpu")

    await api.patch("jobs", "train", {"spec": {"parallelism": 4}})
    running = await placed(api, "train", 3, "Running")
    assert [node for node, _ in running] == ["good"] * 3
    found = await scores(fettle, running[0][1])
    (reason,) = found["hole"]["reasons"]["refusals"]
    assert (reason["code"], reason["workload"]) == ("PodsDoNotStart", "Job/train")
    await api.create(objects.pod("nobodys", **of_job))
    assert await waiting.bound(api, "nobodys") == "hole"


async def test_a_workload_that_starts_on_no_node_is_told_so_and_takes_none_from_others(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "a", "b")
    kubelet.start_nothing_of("broken", NO_CUDA)
    await control_plane.start_controller_manager()
    fettle = await install(control_plane, api, start_fettle)
    await api.create(objects.job("broken", completions=2, parallelism=1, gpus=1))
    ((first, one),) = await placed(api, "broken", 1, "Pending")
    await probe(api, gpus=1)
    await until_said(fettle, first, "does not start: nvidia-container-cli")
    await api.patch("jobs", "broken", {"spec": {"parallelism": 2}})
    both = await placed(api, "broken", 2, "Pending")
    assert [node for node, _ in both] == ["a", "b"]

    for pod in dict(both).values():
        events = await waiting.wait_until(
            lambda pod=pod: api.events_about(pod),  # type: ignore[misc]
            lambda found: any(e["reason"] == "WorkloadDoesNotStart" for e in found),
            what=f"{pod} is told that its workload is the likely cause",
        )
        (told,) = (e["message"] for e in events if e["reason"] == "WorkloadDoesNotStart")
        assert told.startswith("pods of Job broken start on none of 2 nodes (a, b)")
    _, explained = await fettle.browse("/explain", pod=f"default/{one}")
    notes = {note["code"]: note for note in explained["reasons"]["notes"]}
    assert notes["WorkloadStartsNowhere"]["nodes"] == ["a", "b"]
    seen = await scores(fettle, "probe")
    assert [seen[node]["score"] for node in "ab"] == [10, 10]
    assert "does not start" not in str(seen)
    assert one in dict(both).values()
