"""Rows about objects decide where pods land: each recipe of deploy/samples/rules/objects.yaml, on
objects that the API server took by the definitions of their projects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender, scores
from tests.controlplane.test_browse_access import run

KINDS = Path(__file__).parent / "object_kinds.yaml"
SAMPLE = shipped.DEPLOY / "samples" / "rules" / "objects.yaml"
RIGHT = shipped.DEPLOY / "rbac" / "optional" / "object-rules.yaml"
STRICT = {"fettle.dev/policy": "training"}
UUID = "GPU-a1b2c3d4-e5f6-a7b8-c9d0-e1f2a3b4c5d6"


def condition(type: str, status: str, reason: str) -> Object:
    at = "2026-09-21T13:54:24Z"
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": "as its controller writes it",
        "lastTransitionTime": at,
    }


def named(api_version: str, kind: str, spec: Object, **metadata: str) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def module(image: str) -> Object:
    config = {
        "kernelVersion": "6.8.0-1",
        "containerImage": image,
        "insecurePull": False,
        "modprobe": {},
    }
    return {"name": "amdgpu", "namespace": "kmm", "serviceAccountName": "kmm", "config": config}


def completed(ago: timedelta) -> str:
    return (datetime.now(UTC) - ago).strftime("%Y-%m-%dT%H:%M:%SZ")


async def create_reset(
    api: Api, node: str, reason: str, *, name: str = "", ago: timedelta = timedelta(0)
) -> None:
    """A reset that ended so long ago. Each is an object of its own, which then stays as it is."""
    name = name or node
    spec = {"nodeName": node, "selector": {"uuids": [UUID]}}
    await api.create(named("janitor.dgxc.nvidia.com/v1alpha1", "GPUReset", spec, name=name))
    status = {
        "completionTime": completed(ago),
        "conditions": [condition("Complete", "True", reason)],
    }
    await api.patch_status("gpuresets", name, status)


async def create_machine(api: Api, node: str, namespace: str) -> None:
    spec: dict[str, Any] = {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}}
    metadata = {"name": node, "namespace": namespace}
    await api.create(named("cluster.x-k8s.io/v1beta2", "Machine", spec, **metadata))
    status = {
        "nodeRef": {"name": node},
        "conditions": [condition("HealthCheckSucceeded", "False", "UnhealthyNode")],
    }
    await api.patch_status("machines", node, status, namespace)


async def create_modules(api: Api, node: str) -> None:
    """The status has an older image."""
    spec = {"modules": [module("amdgpu:2")]}
    await api.create(named("kmm.sigs.x-k8s.io/v1beta1", "NodeModulesConfig", spec, name=node))
    await api.patch_status("nodemodulesconfigs", node, {"modules": [module("amdgpu:1")]})


async def heard_of(fettle: FettleProcess, node: str) -> None:
    await waiting.wait_until(
        lambda: fettle.browse("/explain", node=node),
        lambda answer: "object rule" in str(answer[1]),
        what=f"what is said of {node} is heard",
    )


@pytest.fixture
async def watching(api: Api, start_fettle: StartFettle, tmp_path: Path) -> FettleProcess:
    """Fettle with the recipes, and the right to read their kinds. What takes ten minutes counts at
    once."""
    rules, settings = tmp_path / "rules.yaml", tmp_path / "settings.yaml"
    rules.write_text(SAMPLE.read_text().replace("duration('10m')", "duration('0s')"))
    settings.write_text(f"mode: enforce\nhealth: {{rulesFile: {rules}}}\n")
    await shipped.apply(api, shipped.manifests(KINDS))
    await shipped.apply_rbac(api)
    await shipped.apply(api, shipped.manifests(RIGHT))
    return await start_fettle("extender", settings=settings)


async def test_what_objects_say_refuses_their_nodes_until_they_say_something_else(
    control_plane: ControlPlane, api: Api, watching: FettleProcess
) -> None:
    bad = ("reset", "machine", "modules")
    for name in bad:
        await create_node(api, objects.node(name, 1, cpu="512"))
    await create_node(api, objects.node("good", 1, cpu="16"))
    await create_node(api, objects.node("mended", 1, cpu="8"))
    await create_reset(
        api, "mended", "ResetJobFailed", name="mended-1", ago=timedelta(days=1, hours=1)
    )
    await create_reset(api, "mended", "GPUResetSucceeded", name="mended-2")
    await create_reset(api, "reset", "ResetJobFailed")
    await create_machine(api, "machine", "default")
    await create_modules(api, "modules")
    for name in bad:
        await heard_of(watching, name)
    await register_extender(control_plane, watching)
    await api.create(objects.pod("p", gpus=1, cpu="4", annotations=STRICT))
    assert await waiting.bound(api, "p") == "good"
    verdicts = await scores(watching, "p")
    assert not any(verdicts[name]["fits"] for name in bad)
    assert verdicts["mended"]["fits"]
    _, told = await watching.browse("/status")
    assert told["objectRules"] == []  # every kind is read, and every row says something

    a_day_later = {"completionTime": completed(timedelta(days=1, seconds=1))}
    await api.patch_status("gpuresets", "reset", a_day_later)
    await api.patch_status("nodemodulesconfigs", "modules", {"modules": [module("amdgpu:2")]})
    await waiting.wait_until(
        lambda: scores(watching, "p"),
        lambda found: found["modules"]["fits"] and found["reset"]["fits"],
        what="the module is loaded, and the reset is a day old",
    )
    assert not (await scores(watching, "p"))["machine"]["fits"]


def state(type: str, message: str) -> Object:
    """What Slurm says of a node, as Slinky writes it on the pod: SlinkyProject/slurm-operator,
    internal/controller/nodeset/slurmcontrol/slurmcontrol.go and pkg/conditions/conditions.go."""
    at = "2026-09-21T13:54:24Z"
    return {"type": type, "status": "True", "message": message, "lastTransitionTime": at}


async def test_what_slurm_says_of_a_node_refuses_it_until_that_is_over(
    control_plane: ControlPlane, api: Api, watching: FettleProcess
) -> None:
    """Slinky has no kind of its own for that: a Slurm node is a pod."""
    await control_plane.create_namespace("slurm")
    states = {
        "down": [state("SlurmNodeStateDown", "Not responding")],
        "drained": [state("SlurmNodeStateIdle", ""), state("SlurmNodeStateDrain", "new kernel")],
        "idle": [state("SlurmNodeStateIdle", "")],
    }
    for name, said in states.items():
        await create_node(api, objects.node(name, 2, cpu="16" if name == "idle" else "512"))
        slurmd = objects.pod(f"slinky-{name}", namespace="slurm")
        slurmd["spec"]["nodeName"] = name
        await api.create(slurmd)
        await api.patch_status("pods", f"slinky-{name}", {"conditions": said}, "slurm")
    for name in ("down", "drained"):
        await heard_of(watching, name)
    await register_extender(control_plane, watching)
    await api.create(objects.pod("p", gpus=1, cpu="4", annotations=STRICT))
    assert await waiting.bound(api, "p") == "idle"
    verdicts = await scores(watching, "p")
    assert {name for name, one in verdicts.items() if one["fits"]} == {"idle"}
    assert "Slurm says SlurmNodeStateDown" in str(verdicts["down"])
    assert "Slurm drains it: new kernel" in str(verdicts["drained"])

    for name in ("down", "drained"):
        back = {"conditions": [state("SlurmNodeStateIdle", "")]}
        await api.patch_status("pods", f"slinky-{name}", back, "slurm")
    await waiting.wait_until(
        lambda: scores(watching, "p"),
        lambda found: found["drained"]["fits"],
        what="Slurm uses the node again",
    )


async def test_a_domain_that_does_not_become_ready_makes_its_node_come_after_others(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    """It is in a tenant's namespace, so it refuses nothing. Its node says so ten minutes after it
    was made."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"mode: enforce\nhealth: {{rulesFile: {SAMPLE}}}\n")
    await shipped.apply(api, shipped.manifests(KINDS))
    await shipped.apply_rbac(api)
    await shipped.apply(api, shipped.manifests(RIGHT))
    clock = Clock(tmp_path)
    fettle = await start_fettle("extender", settings=settings, env=clock.env)
    await create_node(api, objects.node("forming", 1, cpu="512"))
    await create_node(api, objects.node("other", 1, cpu="16"))
    await register_extender(control_plane, fettle)
    spec = {"numNodes": 1, "channel": {"resourceClaimTemplate": {"name": "imex"}}}
    metadata = {"name": "imex", "namespace": "default"}
    await api.create(named("resource.nvidia.com/v1beta1", "ComputeDomain", spec, **metadata))
    member = {"name": "forming", "ipAddress": "10.0.0.7", "cliqueID": "a.0", "index": 0}
    status = {"status": "NotReady", "nodes": [{**member, "status": "NotReady"}]}
    clock.jump(600.0)
    await api.patch_status("computedomains", "imex", status, "default")
    await heard_of(fettle, "forming")
    await api.create(objects.pod("p", gpus=1, cpu="4", annotations=STRICT))
    assert await waiting.bound(api, "p") == "other"
    found = (await scores(fettle, "p"))["forming"]
    assert found["fits"]
    assert "it is not ready for more than ten minutes" in str(found)

    async def kinds() -> list[str]:
        _, told = await fettle.browse("/explain", node="forming")
        return [each["kind"] for each in told["evidence"]]

    assert await kinds() == ["level"]
    ready = {"status": "Ready", "nodes": [{**member, "status": "Ready"}]}
    await api.patch_status("computedomains", "imex", ready, "default")
    await waiting.wait_until(kinds, lambda found: "level" not in found, what="the domain is ready")


async def test_what_an_object_in_a_tenants_namespace_says_refuses_nothing(
    control_plane: ControlPlane, api: Api, watching: FettleProcess
) -> None:
    await control_plane.create_namespace("tenant")
    await create_node(api, objects.node("n", 1))
    await create_machine(api, "n", "tenant")
    await heard_of(watching, "n")
    await register_extender(control_plane, watching)
    await api.create(objects.pod("p", gpus=1, annotations=STRICT))
    assert await waiting.bound(api, "p") == "n"


async def test_what_each_recipe_would_say_of_the_cluster_is_shown_without_a_server(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    await shipped.apply(api, shipped.manifests(KINDS))
    for name in ("reset", "machine"):
        await create_node(api, objects.node(name, 1))
    await create_reset(api, "reset", "ResetJobFailed")
    await create_machine(api, "machine", "default")
    asked = ["rules", "test", str(SAMPLE)]
    code, said = await run(asked, control_plane.tester_kubeconfig, tmp_path)
    assert code == 0, said
    assert "objects  nvsentinel-gpu-reset: says 1\n" in said
    assert f"+ nvidia.com/gpu {UUID} on reset  0.8 driver: " in said
    assert "objects  cluster-api-machine-unhealthy: says 1\n" in said
    assert ": Machine default/machine: " in said
    assert "objects  slinky-node-failed: says nothing: there is no Pod\n" in said
