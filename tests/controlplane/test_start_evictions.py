"""Pods that do not start on their node are freed: their replacement starts elsewhere. What starts
nowhere is freed once, and then its controller is told.

The node that fails has by far the most idle processors, so a pod that is placed goes there first.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.device_failures import (
    EVICTIONS,
    MARKS,
    events,
    marked,
    running,
    settings,
    spends_no_retry,
)
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import register_extender, start_registered
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.mutating import NAMED
from tests.controlplane.objects import policy
from tests.controlplane.test_failed_starts import GONE, NO_CUDA

DEADLINE_S = 5
FREES = {"failure": {"ignoreDisruptions": True, "startDeadline": f"{DEADLINE_S}s"}}
OF_POD: dict[str, Any] = {"templates": {"gpu": "one-gpu"}, "cpu": "1", "annotations": NAMED}


async def prepare(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, folder: Path
) -> FettleProcess:
    """A node that is chosen first, two others, a policy with a deadline, and a steward that may
    evict."""
    for name, cpu in (("hole", "512"), ("good", "64"), ("spare", "16")):
        await create_dra_node(api, name, 8, objects.node(name, cpu=cpu))
    await api.create(objects.claim_template("one-gpu"))
    await define_policies(api)
    await api.create(policy("own", FREES))
    for file in (MARKS, EVICTIONS):
        await shipped.apply(api, shipped.manifests(file))
    await control_plane.start_controller_manager()
    fettle = await start_registered(api, start_fettle, settings=settings(folder))
    await register_extender(control_plane, fettle)
    return fettle


def stateful_set(name: str) -> Object:
    made = objects.replica_set(name, **OF_POD)
    made["kind"] = "StatefulSet"
    made["spec"]["serviceName"] = name
    return made


async def bound_pod(api: Api, name: str, besides: str = "") -> Object:
    """The pod of this name with another UID, once it has a node."""

    async def look() -> Object | None:
        found = await api.list("pods", "default", fields=f"metadata.name={name}")
        bound = [one for one in found if waiting.node_of(one)]
        return next((one for one in bound if one["metadata"]["uid"] != besides), None)

    found = await waiting.wait_until(look, what=f"{name} has a node", timeout_s=60)
    assert found is not None
    return found


async def rank(api: Api, index: int, besides: str = "") -> Object:
    labels = f"batch.kubernetes.io/job-completion-index={index}"

    async def look() -> Object | None:
        found = await api.list("pods", "default", labels=labels)
        bound = [one for one in found if waiting.node_of(one)]
        return next((one for one in bound if one["metadata"]["uid"] != besides), None)

    found = await waiting.wait_until(look, what=f"rank {index} has a node", timeout_s=60)
    assert found is not None
    return found


async def told(api: Api, name: str, reason: str) -> list[str]:
    return await waiting.wait_until(
        lambda: events(api, name, reason), what=f"{name} is told {reason}"
    )


async def stays(api: Api, pod: Object) -> None:
    """For three times the deadline."""
    await asyncio.sleep(3 * DEADLINE_S)
    there = await api.get("pods", pod["metadata"]["name"])
    assert there["metadata"]["uid"] == pod["metadata"]["uid"]
    assert "deletionTimestamp" not in there["metadata"]


async def test_a_stateful_sets_pod_that_cannot_start_on_one_node_runs_on_another(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    """Within a minute of the policy's time; a bare pod beside it is told, and stays."""
    kubelet.prepare_nothing_on("hole", GONE)
    await prepare(control_plane, api, start_fettle, tmp_path)
    began = time.monotonic()
    await api.create(stateful_set("web"))
    first = await bound_pod(api, "web-0")
    assert waiting.node_of(first) == "hole"
    bare = objects.pod("bare", **OF_POD)
    bare["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "hole"}
    await api.create(bare)
    second = await running(api, "set=web", besides=first["metadata"]["uid"])
    assert time.monotonic() - began < DEADLINE_S + 60
    assert (second["metadata"]["name"], waiting.node_of(second)) == ("web-0", "good")
    (note,) = await told(api, "web-0", "EvictedNotStarted")
    assert note.startswith("on node hole: not started since ")
    assert GONE in note
    said = await marked(api, "bare", "NothingReplacesThePod")
    assert "no controller would replace it" in said["message"]


async def test_a_rank_of_a_gang_that_starts_nowhere_is_freed_once_and_its_job_is_told(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    """Though the others run."""
    kubelet.start_nothing_of("gang-1", NO_CUDA)
    fettle = await prepare(control_plane, api, start_fettle, tmp_path)
    job = objects.job("gang", completions=3, parallelism=3, job_annotations=NAMED, **OF_POD)
    job["spec"]["completionMode"] = "Indexed"
    await api.create(job)
    first = await rank(api, 1)
    second = await rank(api, 1, besides=first["metadata"]["uid"])
    assert waiting.node_of(second) != waiting.node_of(first)
    said = await marked(api, second["metadata"]["name"], "ReplacementDoesNotStartEither")
    assert "does not start either" in said["message"]
    await stays(api, second)
    for index in (0, 2):
        assert (await rank(api, index))["status"]["phase"] == "Running"
    (note,) = await told(api, "gang", "WorkloadDoesNotStart")
    assert note.startswith(f"pod {second['metadata']['name']} on node ")
    assert "failed" not in (await api.get("jobs", "gang"))["status"]
    _, metrics = await fettle.browse("/metrics")
    assert 'pod_writes_total{what="evicted"} 1.0' in str(metrics)


async def test_the_pod_of_a_job_with_parallelism_one_runs_elsewhere_and_spends_no_retry(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    kubelet.prepare_nothing_on("hole", GONE)
    await prepare(control_plane, api, start_fettle, tmp_path)
    await api.create(objects.job("train", backoff_limit=0, job_annotations=NAMED, **OF_POD))
    second = await running(api, "job-name=train")
    assert waiting.node_of(second) == "good"
    await spends_no_retry(api, "train")


async def test_all_pods_of_a_deployment_leave_the_node_each_once(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    kubelet.prepare_nothing_on("hole", GONE)
    fettle = await prepare(control_plane, api, start_fettle, tmp_path)
    for other in ("good", "spare"):
        await api.patch("nodes", other, {"spec": {"unschedulable": True}})
    await api.create(objects.deployment("serve", replicas=3, **OF_POD))
    first = await waiting.wait_until(
        lambda: api.list("pods", "default", labels="set=serve"),
        lambda pods: sum(waiting.node_of(pod) == "hole" for pod in pods) == 3,
        what="all pods are on the node that prepares nothing",
    )
    for other in ("good", "spare"):
        await api.patch("nodes", other, {"spec": {"unschedulable": None}})
    await waiting.wait_until(
        lambda: api.list("pods", "default", labels="set=serve"),
        lambda pods: [pod["status"]["phase"] for pod in pods] == ["Running"] * 3,
        what="all run elsewhere",
        timeout_s=90,
    )
    for pod in first:
        assert len(await told(api, pod["metadata"]["name"], "EvictedNotStarted")) == 1
    _, metrics = await fettle.browse("/metrics")
    assert 'pod_writes_total{what="evicted"} 3.0' in str(metrics)


async def test_a_workload_that_starts_on_no_node_is_freed_once_and_then_told(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    kubelet.start_nothing_of("broken", NO_CUDA)
    await prepare(control_plane, api, start_fettle, tmp_path)
    await api.create(stateful_set("broken"))
    first = await bound_pod(api, "broken-0")
    second = await bound_pod(api, "broken-0", besides=first["metadata"]["uid"])
    assert waiting.node_of(second) != waiting.node_of(first)
    await told(api, "broken-0", "WorkloadDoesNotStart")
    await stays(api, second)
