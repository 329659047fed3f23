"""What the steward does about pods whose device has failed: it marks them, and evicts them where
their policy says so, as carefully as an operator who drains a node."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.device_failures import (
    EVICTIONS,
    FAILED,
    IGNORES,
    MARKS,
    events,
    marked,
    running,
    settings,
    spends_no_retry,
    train,
    until_decided,
)
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import register_extender, start_registered
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.mutating import NAMED
from tests.controlplane.objects import policy
from tests.controlplane.taints import LOST, publish, times_logged, until_marked
from tests.controlplane.taints import RIGHTS as NODE_MARKS

EVICTS = {"failure": {"ignoreDisruptions": True, "onDeviceFailure": "Evict"}}


async def prepare(api: Api, *rights: Path, nodes: int = 2) -> None:
    """Nodes with a device each, a template of claims, a policy that evicts, and these rights."""
    for i in range(nodes):
        await create_dra_node(api, f"w{i}", 1)
    await api.create(objects.claim_template("one-gpu"))
    await define_policies(api)
    await api.create(policy("own", EVICTS))
    for file in rights:
        await shipped.apply(api, shipped.manifests(file))


async def writes(fettle: FettleProcess) -> dict[str, float]:
    _, metrics = await fettle.browse("/metrics")
    found = re.findall(r'pod_writes_total{what="(\w+)"} (\S+)', str(metrics))
    return {what: float(count) for what, count in found}


async def notes(fettle: FettleProcess) -> str:
    _, said = await fettle.browse("/readyz", verbose="true")
    return str(said)


async def fail(api: Api, node: str, devices_there: int = 1) -> None:
    """The node's first device falls off the bus; its driver keeps new pods off it."""
    devices = objects.gpu_devices(devices_there, taints={0: [{**LOST, "effect": "NoSchedule"}]})
    await api.patch("resourceslices", f"{node}-{objects.DRIVER}", {"spec": {"devices": devices}})


async def heal(api: Api, node: str) -> None:
    await publish(api, node, 1)


async def until_held(fettle: FettleProcess, pod: str) -> None:
    """Fettle has seen which device the pod holds."""

    async def look() -> list[Object]:
        _, answer = await fettle.browse("/explain", pod=f"default/{pod}")
        return list((answer["placed"] or {}).get("devices", ()))

    await waiting.wait_until(look, what=f"the devices of {pod} are seen")


async def test_a_job_whose_device_fails_goes_on_elsewhere_and_spends_no_retry(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await prepare(api, MARKS, EVICTIONS)
    await control_plane.start_controller_manager()
    fettle = await start_registered(api, start_fettle, settings=settings(tmp_path))
    await register_extender(control_plane, fettle)
    first = await train(api)
    name, node = first["metadata"]["name"], first["spec"]["nodeName"]

    await publish(api, node, 1, lost=(0,))
    said = await marked(api, name)
    assert said["status"] == "True"
    assert f"fettle: on node {node}: " in said["message"]
    assert "gpu-0" in said["message"]
    second = await running(api, "job-name=train", besides=first["metadata"]["uid"])
    assert second["spec"]["nodeName"] != node
    await spends_no_retry(api, "train")
    (note,) = await events(api, name, "EvictedFromFailedDevice")
    assert f"on node {node}: " in note
    await until_decided(fettle, name, {"DeviceFailed": "wrote", "EvictedFromFailedDevice": "wrote"})
    await kubelet.exit_containers(second["metadata"]["name"], 0)
    await waiting.wait_until(
        lambda: api.get("jobs", "train"),
        lambda one: waiting.condition(one, "Complete"),
        what="the job completes",
    )

    # One that is only marked stays, until its device takes it down.
    await heal(api, node)
    first = await train(api, "stays", annotations=NAMED | {"fettle.dev/on-device-failure": "Mark"})
    name, node = first["metadata"]["name"], first["spec"]["nodeName"]
    await fail(api, node)
    await marked(api, name)
    await kubelet.exit_containers(name, 1)
    second = await running(api, "job-name=stays", besides=first["metadata"]["uid"])
    assert second["spec"]["nodeName"] != node
    await spends_no_retry(api, "stays")
    # And one whose device is heard of after its failure is marked late.
    await until_held(fettle, second["metadata"]["name"])
    await kubelet.exit_containers(second["metadata"]["name"], 1)
    await waiting.in_phase(api, second["metadata"]["name"], "Failed")
    await fail(api, second["spec"]["nodeName"])
    await marked(api, second["metadata"]["name"])

    # Where its own node has a sound device, it goes on there.
    await create_dra_node(api, "pair", 2)
    for closed in ("w0", "w1"):
        await api.patch("nodes", closed, {"spec": {"unschedulable": True}})
    first = await train(api, "comes-back")
    assert first["spec"]["nodeName"] == "pair"
    await fail(api, "pair", 2)
    second = await running(api, "job-name=comes-back", besides=first["metadata"]["uid"])
    assert second["spec"]["nodeName"] == "pair"
    await spends_no_retry(api, "comes-back")


async def test_an_eviction_waits_for_a_disruption_budget_also_while_the_api_server_is_away(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    """And then each write is made once, on Nodes too."""
    await prepare(api, MARKS, EVICTIONS, NODE_MARKS)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.replica_set("serve", annotations=NAMED, templates={"gpu": "one-gpu"}))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"set": "serve"}}},
    }
    await api.create(budget)
    pod = await running(api, "set=serve")
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    await waiting.wait_until(  # before that, the API server only says that it is being processed
        lambda: api.get("poddisruptionbudgets", "keep"),
        lambda one: one.get("status", {}).get("currentHealthy") == 1,
        what="the budget counts the pod",
    )

    # A dry run asks the budget, too, and takes nothing of it.
    await fail(api, node)
    file = settings(tmp_path, "steward: {dryRun: true}", confirmSeconds=1)
    fettle = await start_fettle("steward", settings=file)
    would = dict.fromkeys(("DeviceFailed", "EvictionWaits"), "wouldWrite")
    await until_decided(fettle, name, would)
    await api.patch("poddisruptionbudgets", "keep", {"spec": {"minAvailable": 0}})
    await until_decided(fettle, name, would | {"EvictedFromFailedDevice": "wouldWrite"})
    asked = (await api.get("poddisruptionbudgets", "keep"))["status"]
    assert asked["disruptionsAllowed"] == 1
    assert "disruptedPods" not in asked
    await fettle.stop()
    await api.patch("poddisruptionbudgets", "keep", {"spec": {"minAvailable": 1}})
    await waiting.wait_until(
        lambda: api.get("poddisruptionbudgets", "keep"),
        lambda one: one["status"]["disruptionsAllowed"] == 0,
        what="the budget allows no disruption",
    )

    file = settings(tmp_path, "nodeMarks: {label: true, condition: true}", confirmSeconds=1)
    fettle = await start_fettle("steward", settings=file)
    said = await marked(api, name, "EvictionAwaitsDisruptionBudget")
    assert "The disruption budget keep needs 1 healthy pods" in said["message"]
    (note,) = await waiting.wait_until(
        lambda: events(api, name, "EvictionWaits"), what="an Event says that it waits"
    )
    assert "disruption budget keep" in note
    await waiting.wait_until(
        lambda: fettle.browse("/explain", pod=f"default/{name}"),
        lambda answer: "EvictionAwaitsDisruptionBudget" in str(answer[1]["notes"]),
        what="explain says it too",
    )
    assert (await api.get("pods", name))["metadata"]["uid"] == pod["metadata"]["uid"]

    await until_marked(api, **{node: ("unhealthy", "False", "")})
    await control_plane.stop_api_server(kill=True)
    await asyncio.sleep(5)
    await control_plane.start_api_server()
    await api.patch("poddisruptionbudgets", "keep", {"spec": {"minAvailable": 0}})
    other = await running(api, "set=serve", besides=pod["metadata"]["uid"])
    assert other["spec"]["nodeName"] != node
    await waiting.wait_until(
        lambda: writes(fettle),
        lambda done: done == {"marked": 2.0, "unmarked": 0.0, "evicted": 1.0},
        what="one eviction is counted",
    )
    _, metrics = await fettle.browse("/metrics")
    on_nodes = re.findall(r'node_writes_total{what="(\w+)"} (\S+)', str(metrics))
    assert dict(on_nodes) == {"label": "2.0", "condition": "2.0", "cordon": "0.0"}


async def test_who_leads_next_evicts_what_is_marked_and_a_missing_right_is_said_once(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await prepare(api, MARKS)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    pod = await train(api, policy=IGNORES)
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    file = settings(tmp_path, "steward: {leaseSeconds: 3}", confirmSeconds=1)
    first = await start_fettle("steward", settings=file)
    await fail(api, node)
    await marked(api, name)
    missing = "pods cannot be evicted"
    said = await waiting.wait_until(
        lambda: notes(first), lambda said: missing in said, what=missing
    )
    assert "deploy/rbac/optional/pod-evictions.yaml grants the rights" in said
    await asyncio.sleep(4)
    assert times_logged(first, missing) == 1
    first.kill()

    await shipped.apply(api, shipped.manifests(EVICTIONS))
    second = await start_fettle("steward", settings=file)
    other = await running(api, "job-name=train", besides=pod["metadata"]["uid"])
    assert await writes(second) == {"marked": 0.0, "unmarked": 0.0, "evicted": 1.0}
    await spends_no_retry(api, "train")

    await api.delete("clusterroles", "fettle-pod-conditions")
    await fail(api, other["spec"]["nodeName"])
    missing = "pods cannot be marked, and so not evicted"
    await waiting.wait_until(lambda: notes(second), lambda said: missing in said, what=missing)
    await asyncio.sleep(4)
    assert times_logged(second, missing) == 1
    assert await writes(second) == {"marked": 0.0, "unmarked": 0.0, "evicted": 1.0}


async def test_a_mark_goes_when_the_device_heals_and_where_nothing_may_be_written(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    """And where nothing is written, it is recorded what would be."""
    await prepare(api, MARKS, EVICTIONS)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    pod = await train(api, policy=IGNORES)
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]

    async def unmarked() -> None:
        await waiting.wait_until(
            lambda: api.get("pods", name),
            lambda one: not waiting.condition(one, FAILED),
            what=f"{name} is no longer marked",
        )

    fettle = await start_fettle("steward", settings=settings(tmp_path, confirmSeconds=600))
    await fail(api, node)
    await marked(api, name)
    await heal(api, node)
    await unmarked()
    assert await writes(fettle) == {"marked": 1.0, "unmarked": 1.0, "evicted": 0.0}
    await fail(api, node)
    await marked(api, name)
    await fettle.stop()

    would = {"DeviceFailed": "wouldWrite", "EvictedFromFailedDevice": "wouldWrite"}
    taken_back = {"DeviceFailedOver": "wrote"}
    for more, why, wrote in (
        ("steward: {dryRun: true}", "steward.dryRun", taken_back),
        ("mode: observe", "observe", {}),
    ):
        file = settings(tmp_path, more, confirmSeconds=0)
        fettle = await start_fettle("steward", settings=file)
        await unmarked()
        await until_decided(fettle, name, would | wrote)
        assert why in await notes(fettle)
        assert not waiting.condition(await api.get("pods", name), FAILED)
        await fettle.stop()
    assert (await api.get("pods", name))["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_an_evicted_pod_of_a_deployment_lands_elsewhere(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    """Though the node that it left has seven sound devices."""
    await prepare(api, MARKS, EVICTIONS)
    for name in ("w2", "w3"):
        await create_dra_node(api, name, 8)
    await control_plane.start_controller_manager()
    fettle = await start_registered(
        api, start_fettle, settings=settings(tmp_path, confirmSeconds=1)
    )
    await register_extender(control_plane, fettle)
    for small in ("w0", "w1"):
        await api.patch("nodes", small, {"spec": {"unschedulable": True}})
    await api.create(objects.deployment("serve", annotations=NAMED, templates={"gpu": "one-gpu"}))
    pod = await running(api, "set=serve")
    node = pod["spec"]["nodeName"]
    await until_held(fettle, pod["metadata"]["name"])
    _, answer = await fettle.browse("/explain", pod=f"default/{pod['metadata']['name']}")
    (held,) = answer["placed"]["devices"]
    await publish(api, node, 8, lost=(int(held["device"].rpartition("-")[2]),))
    other = await running(api, "set=serve", besides=pod["metadata"]["uid"])
    assert other["spec"]["nodeName"] != node
    (note,) = await waiting.wait_until(
        lambda: events(api, pod["metadata"]["name"], "EvictedFromFailedDevice"),
        what="an Event says that it was evicted",
    )
    assert f"on node {node}: " in note
