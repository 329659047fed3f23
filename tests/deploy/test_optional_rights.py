"""Without the rights in a file of `deploy/rbac/optional/`, what needs them is off. That is said
once, with the name of the file, and the rest goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from fettle.config import Settings
from fettle.serve.serving import Runtime
from tests.controlplane.processes import free_port
from tests.deploy.shipped import DEPLOY, documents
from tests.fettle.client.fake_api import OPERATOR, FakeApi
from tests.fettle.serve.builders import node, refused
from tests.fettle.serve.runtimes import serve_options
from tests.waiting import until

SAMPLE = DEPLOY / "samples" / "rules" / "objects.yaml"
OPTIONAL = DEPLOY / "rbac" / "optional"
QUICK = {"steward": {"wakeIntervalSeconds": 0.02}}
TRIES_AGAIN_WITHIN_S = 1.5


class Case(NamedTuple):
    """`prepare` gives the API server what makes the feature write. `settings` switch it on."""

    prepare: Callable[[FakeApi], object]
    settings: Mapping[str, Any] = {}
    says: str = ""
    """What is said, if it is not the name of the file."""


def held(api: FakeApi) -> None:
    api.put("nodes", node("held", gpus=8, hold="fan swap"))


def failed(api: FakeApi) -> None:
    api.discovered = {
        "resource.k8s.io/v1": [{"name": "devicetaintrules", "kind": "DeviceTaintRule"}]
    }
    api.put("nodes", node("n"))
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "None"}
    device = {"name": "gpu-0", "taints": [taint]}
    driver = "gpu.nvidia.com"
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "nodeName": "n", "devices": [device]}
    api.put("resourceslices", {"metadata": {"name": "n"}, "spec": spec})


def under_a_pod(api: FakeApi) -> None:
    failed(api)
    results = [{"request": "r", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    named = {"name": "c", "namespace": "default"}
    api.put("resourceclaims", {"metadata": named, "spec": {}, "status": status})
    job = {"kind": "Job", "name": "train", "uid": "j", "controller": True}
    metadata = {
        "name": "p",
        "namespace": "default",
        "uid": "u",
        "annotations": {"fettle.dev/on-device-failure": "Evict"},
        "ownerReferences": [job],
    }
    container = {"name": "main", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    spec = {"nodeName": "n", "containers": [container], "resourceClaims": claims}
    running = {"phase": "Running", "conditions": []}
    api.put("pods", {"metadata": metadata, "spec": spec, "status": running})


def on_a_lost_node(api: FakeApi) -> None:
    """A pod that should have ended there long ago."""
    under_a_pod(api)
    long_ago = "2026-01-01T00:00:00Z"
    (pod,) = api.objects["pods"].values()
    metadata = pod["metadata"] | {"deletionTimestamp": long_ago}
    metadata["annotations"] |= {"fettle.dev/policy": "forcing"}
    api.put("pods", pod | {"metadata": metadata})
    lost = node("n")
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    lost["spec"] = {**lost.get("spec", {}), "taints": [taint]}
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": long_ago}
    lost["status"] = {**lost.get("status", {}), "conditions": [ready]}
    api.put("nodes", lost)
    named = {"name": "n", "namespace": "kube-node-lease"}
    api.put("leases", {"metadata": named, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})


def waiting_without_dra(api: FakeApi) -> None:
    api.unserved = {"resourceclaims", "resourceslices", "deviceclasses", "devicetaintrules"}
    api.unserved |= {"resourceclaimtemplates"}
    api.put("nodes", node("n", gpus=8))
    api.put("pods", refused("p"))


def waiting_to_preempt(api: FakeApi) -> None:
    pod = refused("p")
    pod["status"]["conditions"][0]["message"] = "preemption: no candidate node for preemption"
    api.put("nodes", node("n", gpus=8))
    api.put("pods", pod)
    api.put("pods", {"metadata": {"name": "fettle-wake-up", "namespace": "fettle-system"}})


def hopeless(api: FakeApi) -> None:
    """A Job's pod waits for more devices than any claim may have."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 40}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    metadata = {"name": "t", "namespace": "ml"}
    api.put("resourceclaimtemplates", {"metadata": metadata, "spec": spec})
    pod = refused("p")
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    pod["metadata"] |= {"ownerReferences": [job]}
    pod["metadata"]["annotations"] = {"fettle.dev/policy": "ending"}
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    pod["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    api.put("pods", pod)
    api.put("jobs", {"metadata": {"name": "j", "namespace": "ml", "uid": "j"}, "spec": {}})


def with_machines(api: FakeApi) -> None:
    """Kinds that rows name, and that may not be read."""
    machine = {"name": "machines", "kind": "Machine"}
    api.discovered = {"cluster.x-k8s.io/v1beta2": [machine]}
    api.put("nodes", node("n", gpus=8))


CASES = {
    "health-taints.yaml": Case(
        failed, {"deviceTaints": {"unhealthy": "NoSchedule", "confirmSeconds": 0}}
    ),
    "hold-taints.yaml": Case(held),
    "lint.yaml": Case(lambda _: None, {"lint": {"watch": ["ResourceQuota"]}}, "resourcequotas"),
    "object-rules.yaml": Case(with_machines, {"health": {"rulesFile": str(SAMPLE)}}),
    "node-marks.yaml": Case(failed, {"nodeMarks": {"label": True}}),
    "kueue.yaml": Case(lambda _: None, {"kueue": {"admissionCheck": True}}),
    "suspend-jobs.yaml": Case(
        hopeless, {"policies": [{"name": "ending", "failure": {"suspendHopelessJobs": True}}]}
    ),
    "pod-conditions.yaml": Case(under_a_pod, {"deviceFailures": {"allow": "Mark"}}),
    "pod-evictions.yaml": Case(
        under_a_pod, {"deviceFailures": {"allow": "Evict", "confirmSeconds": 0}}
    ),
    "pod-force-deletes.yaml": Case(
        on_a_lost_node,
        {
            "deviceFailures": {"forceDeleteSeconds": 300},
            "policies": [{"name": "forcing", "failure": {"onLostNode": "ForceDelete"}}],
        },
    ),
    "wake-by-node.yaml": Case(waiting_without_dra),
    "wake-preemptors.yaml": Case(waiting_to_preempt),
}


def rights_in(file: str) -> Iterator[tuple[str, str]]:
    """Verbs and plurals."""
    for document in documents("rbac", "optional", file):
        for rule in document.get("rules", ()):
            for resource in rule["resources"]:
                plural, _, part = resource.partition("/")
                plural = "evictions" if part == "eviction" else plural
                yield from ((verb, plural) for verb in rule["verbs"])


def test_each_file_has_a_case() -> None:
    assert {file.name for file in OPTIONAL.iterdir()} == set(CASES)


@pytest.mark.parametrize("file", CASES)
async def test_without_these_rights_it_is_said_once_and_the_rest_goes_on(
    api: FakeApi, tmp_path: Path, file: str
) -> None:
    case = CASES[file]
    rights = {*rights_in(file)} - {("get", "leases")}  # without which nobody leads
    case.prepare(api)
    api.forbidden = rights
    settings = msgspec.convert({**QUICK, **case.settings}, Settings)
    browse = free_port()
    options = serve_options(
        api.kubeconfig(tmp_path, namespace="fettle-system"), "steward", browse=browse
    )
    runtime = Runtime(options, settings)

    def said() -> list[Any]:
        warnings = [one for one in logs if one["log_level"] == "warning"]
        return [one for one in warnings if (case.says or file) in str(one)]

    with capture_logs() as logs:
        try:
            await runtime.open()
            await until(said)
            await asyncio.sleep(TRIES_AGAIN_WITHIN_S)
            async with (
                aiohttp.ClientSession(headers=OPERATOR) as client,
                client.get(f"http://127.0.0.1:{browse}/readyz?verbose") as answer,
            ):
                assert answer.status == 200
                assert (case.says or file) in await answer.text()
            await until(lambda: "devicehealths" in api.objects or "nodes" not in api.objects)
        finally:
            await runtime.close()
    assert len(said()) == 1
    assert not [one for one in logs if one["log_level"] == "error"]
    assert rights & {(one.verb, one.target.plural) for one in api.asked}, "the case tries nothing"
