"""Kueue's topology-aware scheduling chooses nodes by itself, before any scheduler sees a pod. It
obeys the node affinity in the workload.

Kueue is built once, by hand (README.md), since that takes minutes; without it this is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.certificates import Authority
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_node
from tests.controlplane.mutating import NAMED
from tests.controlplane.processes import Process, free_port
from tests.controlplane.test_affinity import OF_GPUS, STRICT, start, until_labelled

BINARY = os.environ.get("FETTLE_KUEUE", "")
VERSION = "v0.17.0"
SERVED = "kueue.x-k8s.io/v1beta2"
POOL = {"pool": "gpus"}

pytestmark = pytest.mark.skipif(not BINARY, reason="FETTLE_KUEUE names no binary of Kueue")


def definitions() -> list[Object]:
    """Kueue's own, from its module, in the version that it stores: nobody converts here."""
    modules = subprocess.check_output(["go", "env", "GOMODCACHE"], text=True).strip()
    folder = Path(modules, f"sigs.k8s.io/kueue@{VERSION}", "config/components/crd/bases")
    found = []
    for file in sorted(folder.glob("*.yaml")):
        definition = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
        spec = definition["spec"]
        spec["versions"] = [version for version in spec["versions"] if version["storage"]]
        found.append(definition)
    return found


@pytest.fixture
async def kueue(control_plane: ControlPlane, api: Api) -> AsyncIterator[None]:
    await shipped.apply(api, definitions())
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


async def queue(api: Api) -> None:
    """A queue that places pods on hosts of the pool."""
    resources = [{"name": name, "nominalQuota": 1000} for name in ("cpu", "nvidia.com/gpu")]
    group = {
        "coveredResources": ["cpu", "nvidia.com/gpu"],
        "flavors": [{"name": "gpus", "resources": resources}],
    }
    for manifest in (
        of_kueue("Topology", "hosts", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}),
        of_kueue("ResourceFlavor", "gpus", {"nodeLabels": POOL, "topologyName": "hosts"}),
        of_kueue("ClusterQueue", "all", {"namespaceSelector": {}, "resourceGroups": [group]}),
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
