"""Kueue's topology-aware scheduling chooses nodes by itself, before any scheduler sees a pod. It
obeys the node affinity in the workload. And it waits for AdmissionChecks, which Fettle answers.

Kueue is built once, by hand (README.md), since that takes minutes; without it this is skipped.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.admission_checks import (
    CHECK,
    checked,
    is_active,
    start_answering,
    until_checked,
)
from tests.controlplane.api import Api, Object
from tests.controlplane.certificates import Authority
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import kueue_definitions
from tests.controlplane.fleet import create_node
from tests.controlplane.mutating import NAMED
from tests.controlplane.processes import Process, free_port
from tests.controlplane.taints import HOLD_TAINTS, until_held
from tests.controlplane.test_affinity import OF_GPUS, STRICT, start, until_labelled

BINARY = os.environ.get("FETTLE_KUEUE", "")
SERVED = "kueue.x-k8s.io/v1beta2"
POOL = {"pool": "gpus"}

pytestmark = pytest.mark.skipif(not BINARY, reason="FETTLE_KUEUE names no binary of Kueue")


@pytest.fixture
async def kueue(control_plane: ControlPlane, api: Api) -> AsyncIterator[None]:
    await shipped.apply(api, kueue_definitions())
    folder = control_plane.folder / "kueue"
    folder.mkdir()
    pair = Authority().server("kueue")
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    health = free_port()
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": free_port(), "certDir": str(folder)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "integrations": {"frameworks": ["batch/job"]},
    }
    file = folder / "configuration.yaml"
    file.write_text(json.dumps(configuration))
    # It looks for the certificate of its metrics in a fixed place, so it gets an /etc of its own.
    there = "/etc/kueue/metrics/certs"
    alone = f"mount -t tmpfs none /etc && mkdir -p {there} && cp {folder}/tls.* {there}"
    kueue = f"exec {BINARY} --config={file} --feature-gates=VisibilityOnDemand=false"
    process = Process(
        "kueue",
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f"{alone} && {kueue}"],
        control_plane.folder,
        env={"KUBECONFIG": str(control_plane.kubeconfig_for_user("kueue", "system:masters"))},
    )
    try:
        await process.ready(f"http://127.0.0.1:{health}/readyz")
        yield
    finally:
        process.kill()


def of_kueue(kind: str, name: str, spec: Object, namespace: str | None = None) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": SERVED, "kind": kind, "metadata": metadata, "spec": spec}


async def queue(api: Api, gpus: int = 1000, *, topology: str = "hosts", check: str = "") -> None:
    """A queue of the pool, with quota for so many GPUs. With a topology it places pods on hosts; a
    check is waited for."""
    amounts = {"cpu": 1000, "nvidia.com/gpu": gpus}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    group = {
        "coveredResources": ["cpu", "nvidia.com/gpu"],
        "flavors": [{"name": "gpus", "resources": resources}],
    }
    queued: Object = {
        "namespaceSelector": {},
        "resourceGroups": [group],
        "queueingStrategy": "StrictFIFO",  # else whoever loses its quota gets it back first
    }
    if check:
        queued["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
    flavor = {"nodeLabels": POOL, **({"topologyName": topology} if topology else {})}
    for manifest in (
        of_kueue("Topology", "hosts", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}),
        of_kueue("ResourceFlavor", "gpus", flavor),
        of_kueue("ClusterQueue", "all", queued),
        of_kueue("LocalQueue", "all", {"clusterQueue": "all"}, "default"),
    ):
        await api.create(manifest)


def queued(name: str, annotations: dict[str, str] | None = None) -> Object:
    """A Job of one pod with four GPUs, of one host."""
    topology = {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}
    job = objects.job(name, gpus=4, annotations=topology, job_annotations=annotations)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "all"}
    job["spec"]["suspend"] = True
    return job


async def node_of_job(api: Api, name: str) -> tuple[str, Any]:
    """Where its pod is bound, and what Kueue had pinned it to."""

    async def pods() -> list[Object]:
        return [
            pod
            for pod in await api.list("pods", "default")
            if pod["metadata"]["labels"].get("job-name") == name and waiting.node_of(pod)
        ]

    found = await waiting.wait_until(pods, bool, what=f"the pod of {name} is bound", timeout_s=60)
    spec = found[0]["spec"]
    return spec["nodeName"], spec["nodeSelector"]["kubernetes.io/hostname"]


@pytest.mark.usefixtures("kubelet", "kueue")
async def test_kueue_pins_no_pod_of_such_a_policy_to_a_bad_node(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    # Kueue takes the host with the least room that is enough.
    await create_node(api, objects.node("bad", 4, labels=POOL))
    await create_node(api, objects.node("good", 8, labels=POOL))
    await queue(api)
    await start(api, start_fettle, tmp_path, STRICT)
    await api.patch("nodes", "bad", {"metadata": {"annotations": {"fettle.dev/hold": "broken"}}})
    await until_labelled(api, {"bad": "unhealthy", "good": "healthy"}, OF_GPUS)

    await api.create(queued("plain"))
    assert await node_of_job(api, "plain") == ("bad", "bad")
    await api.delete("jobs", "plain", "default")
    await waiting.wait_until(
        lambda: api.list("workloads", "default"), lambda left: not left, what="its room is free"
    )

    await api.create(queued("strict", NAMED))
    assert await node_of_job(api, "strict") == ("good", "good")

    # A cordon keeps all of them off.
    await api.patch("nodes", "bad", {"spec": {"unschedulable": True}})
    await api.create(queued("plain-again"))
    assert await node_of_job(api, "plain-again") == ("good", "good")


@pytest.mark.usefixtures("kubelet", "kueue")
async def test_kueue_gives_a_workload_another_node_for_one_that_is_held(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    """`TASReplaceNodeOnNodeTaints`, by a hold's taint; by default once its pods there ended."""
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await create_node(api, objects.node("bad", 4, labels=POOL))
    await create_node(api, objects.node("good", 8, labels=POOL))
    await queue(api)
    await start(api, start_fettle, tmp_path, STRICT)
    await shipped.apply(api, shipped.manifests(HOLD_TAINTS))

    await api.create(queued("runs"))
    assert await node_of_job(api, "runs") == ("bad", "bad")
    await end_its_pod(api)
    assert await node_of_job(api, "runs") == ("bad", "bad")
    await api.patch("nodes", "bad", {"metadata": {"annotations": {"fettle.dev/hold": "broken"}}})
    await until_held(api, "bad")
    await end_its_pod(api)
    assert await node_of_job(api, "runs") == ("good", "good")


async def end_its_pod(api: Api) -> None:
    (pod,) = await api.list("pods", "default")
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    await api.delete("pods", name, "default")
    await waiting.wait_until(
        lambda: api.find("pods", name, "default"),
        lambda found: found is None or found["metadata"]["uid"] != uid,
        what="the pod has ended",
        timeout_s=60,
    )


def gang(name: str, pods: int) -> Object:
    """A Job whose pods have a whole node each."""
    job = objects.job(
        name,
        completions=pods,
        parallelism=pods,
        gpus=8,
        annotations={"fettle.dev/policy": "training"},
    )
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "all"}
    job["spec"]["suspend"] = True
    return job


async def workload_of(api: Api, job: str) -> str:
    async def found() -> list[str]:
        return [
            one["metadata"]["name"]
            for one in await api.list("workloads", "default")
            if one["metadata"]["name"].startswith(f"job-{job}-")
        ]

    (name,) = await waiting.wait_until(found, bool, what=f"the workload of {job}", timeout_s=60)
    return name


async def nodes_of(api: Api, job: str, pods: int) -> set[str]:
    async def found() -> list[str]:
        nodes = [
            waiting.node_of(pod)
            for pod in await api.list("pods", "default")
            if pod["metadata"]["labels"].get("job-name") == job
        ]
        return [node for node in nodes if node is not None]

    bound = await waiting.wait_until(
        found, lambda nodes: len(nodes) == pods, what=f"the pods of {job} are bound", timeout_s=60
    )
    return {*bound}


@pytest.mark.usefixtures("kubelet", "kueue")
async def test_kueue_starts_a_gang_once_there_are_sound_devices_and_others_before_it(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    for name in ("a", "b"):
        await create_node(api, objects.node(name, 8, labels=POOL))
    await api.patch("nodes", "b", {"metadata": {"annotations": {"fettle.dev/hold": "broken"}}})
    await api.create(CHECK)
    await queue(api, 16, topology="", check=CHECK["metadata"]["name"])
    await start_answering(api, start_fettle, tmp_path)
    await is_active(api)

    await api.create(gang("large", 2))
    large = await workload_of(api, "large")
    found = await until_checked(api, large, "Pending")
    assert "1 of 2 pods fit on sound devices now" in found["message"]

    # It has all of the quota for a minute; then others may have it.
    await api.create(gang("small", 1))
    small = await workload_of(api, "small")
    assert (await checked(api, small)).get("message", "") == ""  # it has no quota
    await waiting.wait_until(
        lambda: checked(api, small),
        lambda check: check.get("state") == "Ready",
        what="the small one has quota",
        timeout_s=120,
    )
    await nodes_of(api, "small", 1)
    assert (await api.get("jobs", "large", "default"))["spec"]["suspend"] is True

    await api.delete("jobs", "small", "default")
    await api.patch("nodes", "b", {"metadata": {"annotations": {"fettle.dev/hold": None}}})
    await waiting.wait_until(
        lambda: checked(api, large),
        lambda check: check.get("state") == "Ready",
        what="the large one may start",
        timeout_s=180,
    )
    assert await nodes_of(api, "large", 2) == {"a", "b"}
