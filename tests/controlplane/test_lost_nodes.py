"""Pods that end for ever on a lost node: a Job waits for them, also once they are deleted by force,
until they are marked as Failed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fettle.api.meta import rfc3339_at
from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, ApiError
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.device_failures import (
    IGNORES,
    MARKS,
    OPTIONAL,
    events,
    running,
    settings,
    spends_no_retry,
    train,
    until_decided,
)
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.objects import policy

FORCES = OPTIONAL / "pod-force-deletes.yaml"
AFTER_S = 300


async def lose(api: Api, kubelet: Kubelet, clock: Clock, node: str) -> None:
    """As the node-lifecycle controller does, half an hour ago."""
    long_ago = rfc3339_at(clock.now() - 1800.0)
    await kubelet.set_node_condition(node, "Ready", "Unknown", since=long_ago)
    key = "node.kubernetes.io/unreachable"
    taints = [objects.taint(key, effect) for effect in ("NoExecute", "NoSchedule")]
    await api.patch("nodes", node, {"spec": {"taints": taints}})
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {"renewTime": long_ago.replace("Z", ".000000Z")},
    }
    await api.create(lease)


async def test_a_job_goes_on_once_its_pod_on_a_lost_node_may_be_deleted_by_force(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    clock = Clock(tmp_path)
    for name in ("w0", "w1"):
        await create_dra_node(api, name, 1)
    await api.create(objects.claim_template("one-gpu"))
    await define_policies(api)
    await api.create(policy("own", {"failure": {"onLostNode": "ForceDelete"}}))
    for file in (MARKS, FORCES):
        await shipped.apply(api, shipped.manifests(file))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    kubelet.termination_s = 600.0
    pod = await train(api, policy=IGNORES)
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    await lose(api, kubelet, clock, node)
    await api.delete("pods", name)

    file = settings(tmp_path, "steward: {dryRun: true}", forceDeleteSeconds=AFTER_S)
    fettle = await start_fettle("steward", settings=file, env=clock.env)
    await asyncio.sleep(5)
    clock.jump(AFTER_S + 60.0)
    await until_decided(fettle, name, {"ForceDeleted": "wouldWrite"})
    await fettle.stop()

    await api.delete("pods", name, grace_s=0)  # by somebody's hand
    await asyncio.sleep(5)
    left = await api.get("pods", name)
    assert left["status"]["phase"] == "Running"

    file = settings(tmp_path, forceDeleteSeconds=AFTER_S)
    fettle = await start_fettle("steward", settings=file, env=clock.env)
    other = await running(api, "job-name=train", besides=pod["metadata"]["uid"])
    assert other["spec"]["nodeName"] != node
    await waiting.gone(api, "pods", name)
    (note,) = await waiting.wait_until(
        lambda: events(api, name, "ForceDeleted"), what="an Event says so"
    )
    assert note.startswith(f"node {node} gave no sign of life since ")
    assert note.endswith("its processes may still run there")
    await spends_no_retry(api, "train")

    steward = await control_plane.api_as_service_account(shipped.STEWARD_ACCOUNT, shipped.NAMESPACE)
    async with steward:
        with pytest.raises(ApiError, match="Fettle deletes only pods that are being deleted"):
            await steward.delete("pods", other["metadata"]["name"])
