"""Pods land by the health of devices, and would have landed elsewhere without Fettle.

The scheduler's own scores prefer the node with the most idle processors, so that is where the fault
is put: the opposite placement comes first, with Fettle's configuration absent.
"""

from __future__ import annotations

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import REFUSED, install, register_extender, scores
from tests.controlplane.kubelet import Kubelet
from tests.fettle.others import time_taken

LOST = [objects.taint("gpu.nvidia.com/xid", "None", "79")]
"""The driver reports the device as fallen off the bus; the allocator would still take it."""
GPU_OF_CLASS = {"gpu": "one-gpu"}
FORGIVING = {"fettle.dev/policy": "inference"}
STRICT = {"fettle.dev/policy": "training"}


async def until_refused(fettle: FettleProcess, pod: str, node: str) -> None:
    """Until Fettle has seen the fault."""
    await waiting.wait_until(
        lambda: scores(fettle, pod),
        lambda v: node in v and not v[node]["fits"],
        what=f"Fettle refuses {node}",
    )


async def test_a_device_plugin_pod_avoids_refused_nodes_and_takes_the_soundest_of_the_others(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("dead", 8, cpu="512"))
    await create_node(api, objects.node("worn", 8, cpu="128"))
    await create_node(api, objects.node("good", 8, cpu="16"))
    await kubelet.set_node_condition(
        "dead", "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    await kubelet.set_node_condition(
        "worn", "FrequentKubeletRestart", "True", "FrequentKubeletRestart", "6 in 20 minutes"
    )
    await control_plane.start_scheduler()
    await api.create(objects.pod("before", gpus=1, cpu="4"))
    assert await waiting.bound(api, "before") == "dead"

    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("after", gpus=1, cpu="4", annotations=FORGIVING))
    assert await waiting.bound(api, "after") == "good"
    verdicts = await scores(fettle, "after")
    assert not verdicts["dead"]["fits"]
    assert verdicts["worn"]["fits"]
    assert verdicts["worn"]["score"] < verdicts["good"]["score"] == 10

    await api.patch("nodes", "good", {"spec": {"unschedulable": True}})
    await api.create(objects.pod("second-best", gpus=1, cpu="4", annotations=FORGIVING))
    assert await waiting.bound(api, "second-best") == "worn"


@pytest.mark.parametrize("plugin", ["fails", "is away"])
async def test_the_node_that_swallows_pods_is_found_out(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    plugin: str,
) -> None:
    await create_node(api, objects.node("swallows", 8, cpu="512"))
    await create_node(api, objects.node("good", 8, cpu="16"))
    if plugin == "fails":
        kubelet.refuse_pods_on("swallows")
    else:
        kubelet.run_out_on("swallows", "nvidia.com/gpu")
    await control_plane.start_scheduler()
    for i in range(3):
        await api.create(objects.pod(f"lost-{i}", gpus=1, cpu="4"))
        failed = await waiting.in_phase(api, f"lost-{i}", "Failed")
        assert failed["spec"]["nodeName"] == "swallows"

    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("saved", gpus=1, cpu="4"))
    assert await waiting.bound(api, "saved") == "good"


async def test_a_dra_pod_avoids_the_node_whose_allocation_would_take_a_refused_device(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    devices = objects.gpu_devices(2, taints={0: LOST})
    await create_dra_node(api, "dead", devices, objects.node("dead", cpu="512"))
    await create_dra_node(api, "good", 2, objects.node("good", cpu="16"))
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.pod("before", templates=GPU_OF_CLASS, cpu="4"))
    assert await waiting.bound(api, "before") == "dead"
    (claim,) = await api.list("resourceclaims", "default")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["device"] == "gpu-0"
    await api.delete("pods", "before")
    await waiting.gone(api, "pods", "before")
    await waiting.gone(api, "resourceclaims", claim["metadata"]["name"], timeout_s=30)

    fettle = await install(control_plane, api, start_fettle)
    await api.create(objects.pod("after", templates=GPU_OF_CLASS, cpu="4", annotations=STRICT))
    assert await waiting.bound(api, "after") == "good"
    stored = await api.get("pods", "after")
    assert stored["spec"]["containers"][0]["resources"]["limits"]["fettle.dev/claims"] == "0"

    # A further pod of the same shape, to see what was foreseen for it.
    further = objects.pod("further", templates=GPU_OF_CLASS, annotations=STRICT)
    await fettle.ask_extender("filter", {"Pod": further, "NodeNames": ["dead", "good"]})
    verdict = (await scores(fettle, "further"))["dead"]
    assert not verdict["fits"]
    assert verdict["devices"][0]["device"] == "gpu.nvidia.com/dead/gpu-0"


async def test_a_pod_refused_everywhere_says_why_and_is_bound_when_the_fault_clears(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "w0", objects.gpu_devices(1, taints={0: LOST}))
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.pod("before", templates=GPU_OF_CLASS))
    assert await waiting.bound(api, "before") == "w0"
    (claim,) = await api.list("resourceclaims", "default")
    await api.delete("pods", "before", grace_s=0)
    await waiting.gone(api, "resourceclaims", claim["metadata"]["name"], timeout_s=30)

    fettle = await install(control_plane, api, start_fettle)
    await api.create(objects.pod("waits", templates=GPU_OF_CLASS))
    said = await waiting.refused(api, "waits", saying=REFUSED)
    assert said.startswith("0/1 nodes are available: 1 fettle: no sound devices (gpu.nvidia.com).")
    await waiting.stays_pending(api, "waits", for_s=2)

    # A slice that changes wakes no pod that an extender refused: only the steward does.
    await heal(api)
    node, seconds = await time_taken(waiting.bound(api, "waits"))
    assert node == "w0"
    assert seconds < 3
    assert fettle.process.running


async def test_without_the_steward_a_refused_pod_sleeps_through_the_fault_clearing(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "w0", objects.gpu_devices(1, taints={0: LOST}))
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle, managedResources=[])
    await api.create(objects.pod("sleeps", templates=GPU_OF_CLASS))
    await waiting.refused(api, "sleeps", saying=REFUSED)
    await heal(api)
    await waiting.stays_pending(api, "sleeps", for_s=5)


async def heal(api: Api) -> None:
    await api.apply(objects.resource_slice("w0", objects.gpu_devices(1), generation=2))


async def test_preemption_spares_the_victim_on_the_node_that_fettle_refuses(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    for name, value in (("low", 10), ("middle", 20), ("high", 1000)):
        await api.create(objects.priority_class(name, value))
    await create_node(api, objects.node("dead", 1))
    await create_node(api, objects.node("good", 1))
    await kubelet.set_node_condition(
        "dead", "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    await control_plane.start_scheduler()
    await api.create(objects.pod("cheap", gpus=1, node="dead", priority_class="low"))
    await api.create(objects.pod("dear", gpus=1, node="good", priority_class="middle"))
    await waiting.in_phase(api, "cheap", "Running")
    await waiting.in_phase(api, "dear", "Running")

    await api.create(objects.pod("greedy", gpus=1, priority_class="high"))
    await waiting.gone(api, "pods", "cheap")
    assert await waiting.bound(api, "greedy") == "dead"
    await api.delete("pods", "greedy")
    await waiting.gone(api, "pods", "greedy")

    await api.create(objects.pod("cheap", gpus=1, node="dead", priority_class="low"))
    await waiting.in_phase(api, "cheap", "Running")
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("wise", gpus=1, priority_class="high"))
    await waiting.gone(api, "pods", "dear")
    assert await waiting.bound(api, "wise") == "good"
    assert (await api.get("pods", "cheap"))["status"]["phase"] == "Running"


async def test_a_node_that_swallows_the_pods_of_one_device_plugin_keeps_no_others_off(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    fuse = "smarter-devices/fuse"
    amounts = {"capacity": {fuse: "20"}, "allocatable": {fuse: "20"}}
    for name in ("swallows", "good"):
        await create_node(api, objects.node(name, 8, labels={"name": name}))
        await api.patch_status("nodes", name, amounts)
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    there = {"name": "swallows"}
    kubelet.refuse_pods_on("swallows", f"no healthy devices present; unhealthy devices {fuse}")
    for i in range(2):  # after which the node is refused
        await api.create(objects.pod(f"lost-{i}", gpus=1, resource=fuse, node_selector=there))
        await waiting.in_phase(api, f"lost-{i}", "Failed")
    kubelet.accept_pods_on("swallows")
    await api.create(objects.pod("gpus", gpus=8, annotations=STRICT, node_selector=there))
    await waiting.in_phase(api, "gpus", "Running")
    further = objects.pod("further", gpus=1, resource=fuse)
    ask = {"Pod": further, "NodeNames": ["swallows", "good"]}
    _, reply = await fettle.ask_extender("filter", ask)
    assert reply["NodeNames"] == ["good"]
