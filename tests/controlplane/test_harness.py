"""The harness itself, with the do-nothing extender: what every scenario test relies on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, ApiError
from tests.controlplane.conftest import StartEcho
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import REPOSITORY
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes, load
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.processes import free_port

GPU_OF_CLASS = {"gpu": "one-gpu"}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_port_is_given_twice() -> None:
    ports = [free_port() for _ in range(500)]
    assert len(set(ports)) == 500


async def test_a_pod_is_scheduled_without_an_extender(
    control_plane: ControlPlane, api: Api
) -> None:
    await create_gpu_nodes(api, "w0", gpus=2)
    await control_plane.start_scheduler()
    await api.create(objects.pod("fits", gpus=2))
    assert await waiting.bound(api, "fits") == "w0"
    await api.create(objects.pod("too-much", gpus=1))
    assert "Insufficient nvidia.com/gpu" in await waiting.refused(api, "too-much")


@pytest.mark.parametrize(("capable", "form"), [(True, "withNames"), (False, "withNodes")])
async def test_the_extender_is_asked_with_names_only_if_it_has_a_node_cache(
    control_plane: ControlPlane,
    api: Api,
    start_echo_extender: StartEcho,
    capable: bool,
    form: str,
) -> None:
    await create_gpu_nodes(api, "w0", "w1")
    echo = await start_echo_extender()
    entry = echo.entry(nodeCacheCapable=capable)
    await control_plane.start_scheduler(objects.scheduler_configuration(entry))
    await api.create(objects.pod("asked", gpus=1))
    await waiting.bound(api, "asked")
    calls = await echo.calls()
    assert calls["filter"] == calls["prioritize"] == 1
    assert {k: n for k, n in calls.items() if k.startswith("with") and n} == {form: 2}


async def test_an_extender_that_is_down_stops_pods_and_says_so(
    control_plane: ControlPlane, api: Api, start_echo_extender: StartEcho
) -> None:
    await create_gpu_nodes(api, "w0")
    echo = await start_echo_extender()
    await control_plane.start_scheduler(objects.scheduler_configuration(echo.entry()))
    echo.stop()
    await api.create(objects.pod("stopped"))
    await waiting.refused(api, "stopped", saying="connection refused")
    await waiting.stays_pending(api, "stopped", for_s=0.5)


async def test_a_claim_made_from_a_template_is_allocated(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet
) -> None:
    bad = objects.taint("example.com/broken")
    await create_dra_node(api, "w0", objects.gpu_devices(2, taints={0: [bad]}))
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.pod("claims", templates=GPU_OF_CLASS))
    await waiting.in_phase(api, "claims", "Running")
    (claim,) = await api.list("resourceclaims", "default")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["pool"], result["device"]) == ("w0", "gpu-1")
    await kubelet.set_device_health(
        "claims", {"gpu.nvidia.com/w0/gpu-1": "Unhealthy"}, resource="claim:gpu", message="XID 79"
    )
    pod = await api.get("pods", "claims")
    (status,) = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    assert status["name"] == "claim:gpu"
    assert status["resources"][0]["health"] == "Unhealthy"


async def test_the_kubelet_runs_pods_restarts_their_containers_and_lets_them_go(
    api: Api, kubelet: Kubelet
) -> None:
    await create_gpu_nodes(api, "w0")
    await api.create(objects.pod("stays", node="w0", restart_policy="OnFailure", gpus=1))
    await kubelet.exit_containers("stays", 7)
    running = await waiting.in_phase(api, "stays", "Running")
    (container,) = running["status"]["containerStatuses"]
    assert container["restartCount"] == 1
    assert container["lastState"]["terminated"]["exitCode"] == 7
    assert running["status"]["podIP"]
    await kubelet.set_device_health("stays", {"GPU-1": "Unhealthy"})
    await kubelet.exit_containers("stays", 0)
    await waiting.in_phase(api, "stays", "Succeeded")
    await api.delete("pods", "stays")
    await waiting.gone(api, "pods", "stays")


async def test_the_kubelet_fails_the_pods_of_a_node_that_swallows_them(
    api: Api, kubelet: Kubelet
) -> None:
    await create_gpu_nodes(api, "w0")
    kubelet.refuse_pods_on("w0")
    await api.create(objects.pod("swallowed", node="w0", gpus=1))
    failed = await waiting.in_phase(api, "swallowed", "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    assert "Allocate failed due to no healthy devices present" in failed["status"]["message"]
    kubelet.accept_pods_on("w0")
    await api.create(objects.pod("accepted", node="w0", gpus=1))
    await waiting.in_phase(api, "accepted", "Running")


async def test_the_kubelet_reports_the_node(api: Api, kubelet: Kubelet) -> None:
    await create_gpu_nodes(api, "w0", gpus=8)
    await kubelet.set_node_condition("w0", "GpuThermal", "True", "TooHot", "GPU 3 at 95 C")
    await kubelet.set_allocatable("w0", 7)
    node = await api.get("nodes", "w0")
    assert waiting.condition(node, "GpuThermal")["reason"] == "TooHot"
    assert waiting.condition(node, "Ready")["status"] == "True"
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "7"
    assert not node["spec"].get("taints")


async def test_a_job_ends_when_its_pod_does(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet
) -> None:
    await create_gpu_nodes(api, "w0")
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.job("train", gpus=1, backoff_limit=0))
    (pod,) = await waiting.wait_until(
        lambda: api.list("pods", labels="job-name=train"), what="the job made its pod"
    )
    await kubelet.exit_containers(pod["metadata"]["name"], 0)
    await waiting.wait_until(
        lambda: api.get("jobs", "train"),
        lambda job: waiting.condition(job, "Complete").get("status") == "True",
        what="the job is complete",
    )


@pytest.mark.parametrize("kill", [False, True])
async def test_a_restarted_api_server_serves_the_same_objects_on_the_same_port(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, kill: bool
) -> None:
    await create_gpu_nodes(api, "w0")
    await control_plane.start_scheduler()
    before = await api.get("nodes", "w0")
    await control_plane.restart_api_server(kill=kill)
    assert (await api.get("nodes", "w0"))["metadata"]["uid"] == before["metadata"]["uid"]
    await api.create(objects.pod("afterwards", gpus=1))
    assert await waiting.bound(api, "afterwards", timeout_s=30) == "w0"
    await waiting.in_phase(api, "afterwards", "Running")


async def test_the_scheduler_takes_another_configuration(
    control_plane: ControlPlane, api: Api, start_echo_extender: StartEcho
) -> None:
    await create_gpu_nodes(api, "w0")
    await control_plane.start_scheduler()
    await api.create(objects.pod("first"))
    await waiting.bound(api, "first")
    echo = await start_echo_extender()
    await control_plane.restart_scheduler(objects.scheduler_configuration(echo.entry()))
    await api.create(objects.pod("second"))
    await waiting.bound(api, "second")
    assert (await echo.calls())["filter"] > 0


async def test_a_service_account_may_do_what_rbac_gives_it_and_no_more(
    control_plane: ControlPlane, api: Api
) -> None:
    await control_plane.create_namespace("team")
    async with await control_plane.api_as_service_account("default", "team") as account:
        with pytest.raises(ApiError, match="system:serviceaccount:team:default") as refusal:
            await account.list("pods", "team")
        assert refusal.value.code == 403
        metadata = {"name": "read-pods", "namespace": "team"}
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": "team"}
        named = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "read-pods"}
        role = {"kind": "Role", "metadata": metadata, "rules": [rule]}
        binding = {"kind": "RoleBinding", "metadata": metadata, "subjects": [subject]}
        for manifest in (role, binding | {"roleRef": named}):
            await api.create({"apiVersion": "rbac.authorization.k8s.io/v1", **manifest})
        await waiting.wait_until(
            lambda: account.list("pods", "team"),
            lambda pods: pods == [],
            what="the service account lists pods",
        )


async def test_kubeconfigs_are_those_of_their_users(control_plane: ControlPlane) -> None:
    account = await control_plane.kubeconfig_for_service_account("default", "default")
    with pytest.raises(RuntimeError, match=r'User "system:serviceaccount:default:default" cannot'):
        await load(control_plane.binary, account, "--nodes=1")
    somebody = control_plane.kubeconfig_for_user("somebody", "some-group")
    with pytest.raises(RuntimeError, match=r'User "somebody" cannot create resource "nodes"'):
        await load(control_plane.binary, somebody, "--nodes=1")
    await load(control_plane.binary, control_plane.tester_kubeconfig, "--nodes=1")


async def test_the_loader_fills_a_cluster(control_plane: ControlPlane, api: Api) -> None:
    kubeconfig = control_plane.tester_kubeconfig
    await load(control_plane.binary, kubeconfig, "--nodes=20", "--devices=4", "--slices")
    nodes = await api.list("nodes")
    assert len(nodes) == 20
    assert not any(node["spec"].get("taints") for node in nodes)
    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes} == {"4"}
    slices = await api.list("resourceslices")
    assert sum(len(one["spec"]["devices"]) for one in slices) == 80


async def test_the_latency_client_compares_two_extenders(
    control_plane: ControlPlane, start_echo_extender: StartEcho, tmp_path: Path
) -> None:
    one, other = await start_echo_extender(), await start_echo_extender()
    body = tmp_path / "body.json"
    names = [f"node-{i:05}" for i in range(500)]
    body.write_text(json.dumps({"Pod": objects.pod("p"), "Nodes": None, "NodeNames": names}))
    command = [str(control_plane.binary), "extender-client", "--count=20", f"--body={body}"]
    command += [f"--url={one.url}/filter", f"--url={other.url}/prioritize"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    filtered, scored = json.loads(told.stdout)
    assert filtered["allowed"] == scored["allowed"] == 500
    assert filtered["count"] == scored["count"] == 20
    assert 0 < filtered["min_ms"] <= filtered["p50_ms"] <= filtered["p99_ms"]
    assert (await one.calls())["filter"] == (await other.calls())["prioritize"] == 70


async def test_no_process_outlives_the_control_plane(
    controlplane_binary: Path, tmp_path: Path
) -> None:
    async with ControlPlane(controlplane_binary, tmp_path / "control-plane") as plane:
        await plane.start_controller_manager()
        await plane.start_scheduler()
        pids = plane.pids()
        assert len(pids) == 4
        assert all(alive(pid) for pid in pids.values())
    assert not any(alive(pid) for pid in pids.values())


async def test_no_process_outlives_a_test_that_was_killed(
    controlplane_binary: Path, tmp_path: Path
) -> None:
    script = f"""
import asyncio, json
from pathlib import Path
from tests.controlplane.control_plane import ControlPlane

async def run():
    async with ControlPlane(Path({str(controlplane_binary)!r}), Path({str(tmp_path)!r})) as plane:
        print(json.dumps(plane.pids()), flush=True)
        await asyncio.sleep(60)

asyncio.run(run())
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pids = json.loads(run.stdout.readline())
        run.send_signal(signal.SIGKILL)
    assert set(pids) == {"etcd", "kube-apiserver"}

    async def survivors() -> list[str]:
        return [name for name, pid in pids.items() if alive(pid)]

    await waiting.wait_until(
        survivors, lambda names: not names, what="etcd and the API server ended", timeout_s=30
    )
