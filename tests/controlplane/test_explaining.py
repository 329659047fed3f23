"""What operators are told of pods and devices, beside what the scheduler does."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects, predictions, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import REPOSITORY, FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import register_extender
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.objects import DRIVER
from tests.controlplane.predictions import foretold


@pytest.fixture
async def fettle(control_plane: ControlPlane, api: Api, start_fettle: StartFettle) -> FettleProcess:
    """One node with two devices, and a scheduler that does not ask."""
    await create_dra_node(api, "n", objects.gpu_devices(2), objects.node("n"))
    await control_plane.start_scheduler(objects.scheduler_configuration())
    return await start_fettle("extender")


async def test_the_pod_on_a_device_that_dies_under_it_is_named_beside_that_device(
    api: Api, fettle: FettleProcess
) -> None:
    await api.create(objects.claim("c"))
    await api.create(objects.pod("trains", claims={"gpu": "c"}))
    assert await waiting.bound(api, "trains") == "n"
    lost = objects.gpu_devices(2, taints={0: [objects.taint("gpu.nvidia.com/gpu-lost")]})
    await api.apply(objects.resource_slice("n", lost, generation=2))

    async def users() -> dict[str, list[str]]:
        _, answer = await fettle.browse("/devices", unsound="true")
        return {d["device"]: d["usedBy"] for node in answer["nodes"] for d in node["devices"]}

    expected = {f"{DRIVER}/n/gpu-0": ["default/trains"]}
    await waiting.wait_until(users, lambda told: told == expected, what="the pod is named")


async def test_a_node_that_ends_the_schedulers_attempt_is_told_beside_one_that_fits(
    api: Api, fettle: FettleProcess
) -> None:
    without = [{**one, "attributes": {}} for one in objects.gpu_devices(1)]
    await create_dra_node(api, "odd", without)
    needs = f'device.attributes["{DRIVER}"].index >= 0'
    await api.create(objects.claim("c", objects.claim_spec(selectors=[needs])))
    await api.create(objects.pod("p", claims={"gpu": "c"}))
    said = await waiting.refused(api, "p", saying='running "DynamicResources" filter plugin')
    assert "no such key: index" in said

    async def explained() -> tuple[bool, list[str]]:
        _, answer = await fettle.browse("/explain", pod="default/p")
        return answer["nodes"]["n"]["fits"], answer["notes"]

    fits, (note,) = await waiting.wait_until(explained, lambda told: told[1], what="it is told")
    assert fits
    assert note.startswith("node odd can keep the pod off all other nodes: ")
    assert "no such key: index" in note


async def test_a_pod_whose_gates_are_removed_is_not_told_to_have_any(
    api: Api, fettle: FettleProcess
) -> None:
    """While it waits for its device, a condition still says that it is gated."""
    slow = [{**one, "bindingConditions": ["Ready"]} for one in objects.gpu_devices(1)]
    slow[0]["bindingFailureConditions"] = ["Broken"]
    await api.apply(objects.resource_slice("n", slow, generation=2))
    await api.create(objects.claim("c"))
    pod = objects.pod("p", claims={"gpu": "c"})
    pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await api.create(pod)

    async def notes() -> tuple[list[str], list[str]]:
        status, answer = await fettle.browse("/explain", pod="default/p")
        assert isinstance(answer, dict)
        return (answer["notes"], answer["demand"]["allocated"]) if status == 200 else ([], [])

    (note,), _ = await waiting.wait_until(notes, lambda told: told[0], what="the gates are told")
    assert note.startswith("the pod has scheduling gates (example.com/wait): ")
    await api.patch("pods", "p", {"spec": {"schedulingGates": None}})
    await waiting.wait_until(
        notes, lambda told: told[1] and not told[0], what="allocated, and no gates are told"
    )
    waits = await api.get("pods", "p")
    assert "nodeName" not in waits["spec"]
    assert waiting.condition(waits, "PodScheduled")["reason"] == "SchedulingGated"


async def running(api: Api, fettle: FettleProcess, name: str, **pod: Any) -> Object:
    """What is told of a new pod once Fettle has seen that it has a node, and what it was given."""
    await api.create(objects.pod(name, **pod))
    await waiting.bound(api, name)

    async def explained() -> Object | None:
        status, answer = await fettle.browse("/explain", pod=f"default/{name}")
        assert isinstance(answer, dict)
        notes = answer["notes"] if status == 200 else []
        return answer if any("another pod like it" in n for n in notes) else None

    told = await waiting.wait_until(explained, lambda t: t is not None, what="it is seen bound")
    assert told is not None
    return told


@pytest.mark.parametrize("how", [{"templates": {"gpu": "t"}}, {"gpus": 1}], ids=["claim", "units"])
async def test_another_pod_like_one_that_runs_is_given_the_devices_that_are_told(
    control_plane: ControlPlane, api: Api, fettle: FettleProcess, how: Any
) -> None:
    """The one that runs is on `n`, with the first device; its claim is its own."""
    await control_plane.start_controller_manager()
    await api.create(objects.claim_template("t"))
    await api.apply(objects.device_class(extended_resource=objects.GPU))
    await running(api, fettle, "first", **how)

    async def explained() -> Object:
        _, answer = await fettle.browse("/explain", pod="default/first")
        assert isinstance(answer, dict)
        return answer

    def holds(told: Object) -> bool:  # its claim may be seen later than the pod
        return any(f"it holds {DRIVER}/n/gpu-0, Healthy" in note for note in told["notes"])

    await waiting.wait_until(explained, holds, what="its device is told")
    await create_dra_node(api, "m", objects.gpu_devices(1), objects.node("m"))
    told = await waiting.wait_until(
        explained,
        lambda t: [node["fits"] for node in t["nodes"].values()] == [True, True],
        what="both nodes fit",
    )
    for node, device in {"n": "gpu-1", "m": "gpu-0"}.items():
        ((_, foreseen),) = foretold(told)[node].devices
        assert (told["nodes"][node]["fits"], foreseen) == (True, f"{DRIVER}/{node}/{device}")
        here = {"kubernetes.io/hostname": node}
        await api.create(objects.pod(f"on-{node}", node_selector=here, **how))
        assert await waiting.bound(api, f"on-{node}") == node
        claims = await predictions.claims_of(api, await api.get("pods", f"on-{node}"))
        ((_, given),) = predictions.got(claims)
        assert given == foreseen


async def test_another_pod_like_one_that_runs_shares_a_claim_that_it_names(
    api: Api, fettle: FettleProcess
) -> None:
    await create_dra_node(api, "m", objects.gpu_devices(1), objects.node("m"))
    await api.create(objects.claim("c"))
    await running(api, fettle, "first", claims={"gpu": "c"})
    node = await waiting.bound(api, "first")
    (other,) = {"n", "m"} - {node}

    async def rejected() -> list[str]:
        _, answer = await fettle.browse("/explain", pod="default/first")
        assert answer["nodes"][node]["fits"]
        reasons = answer["nodes"][other]["rejected"]
        assert isinstance(reasons, list)
        return reasons

    (reason,) = await waiting.wait_until(rejected, bool, what="the allocation of the claim is seen")
    assert "is allocated to other nodes" in reason
    here = {"kubernetes.io/hostname": other}
    await api.create(objects.pod("elsewhere", claims={"gpu": "c"}, node_selector=here))
    await waiting.refused(api, "elsewhere", saying="1 resourceclaim not available on the node")
    await api.create(objects.pod("beside", claims={"gpu": "c"}))
    assert await waiting.bound(api, "beside") == node


# One node or device


async def told(fettle: FettleProcess, **what: str) -> Any:
    status, answer = await fettle.browse("/explain", **what)
    assert status == 200, answer
    return answer


async def printed(fettle: FettleProcess, *arguments: str) -> str:
    """What `fettle` prints, as people call it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fettle", *arguments, "--server", fettle.server),
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return out.decode()


async def test_a_device_says_who_uses_it_and_what_makes_it_healthy_and_that_does(
    api: Api, fettle: FettleProcess
) -> None:
    await api.create(objects.claim("c"))
    await api.create(objects.pod("trains", claims={"gpu": "c"}))
    assert await waiting.bound(api, "trains") == "n"
    lost = objects.gpu_devices(2, taints={0: [objects.taint("gpu.nvidia.com/gpu-lost")]})
    await api.apply(objects.resource_slice("n", lost, generation=2))
    name = f"{DRIVER}/n/gpu-0"
    found = await waiting.wait_until(
        lambda: told(fettle, device=name),
        lambda d: d["state"] == "Unhealthy" and d["usedBy"],
        what="it is lost, and the pod is seen there",
    )
    assert found["usedBy"] == ["default/trains"]
    (awaited,) = found["healthyAgain"]["awaits"]
    assert awaited["text"].startswith("taint gpu.nvidia.com/gpu-lost is removed (ResourceSlice ")
    said = await printed(fettle, "explain", "device", "n/gpu-0")
    assert f"{name}  Unhealthy 0.00" in said
    assert ": taint gpu.nvidia.com/gpu-lost is removed" in said
    assert "used by: default/trains" in said
    node = " ".join((await printed(fettle, "explain", "node", "n")).split())
    assert "n gpu-0 0.00 Unhealthy" in node
    near = await printed(fettle, "explain", "device", "n/gpu-O")
    assert near.startswith("fettle: there is no device 'n/gpu-O'; near: ")
    assert "n/gpu-0" in near

    await api.apply(objects.resource_slice("n", objects.gpu_devices(2), generation=3))
    well = await waiting.wait_until(
        lambda: told(fettle, device=name), lambda d: d["state"] == "Healthy", what="it is back"
    )
    assert well["healthyAgain"] is None


async def test_what_fades_is_healthy_again_when_it_was_told_to_be(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await create_node(api, objects.node("gpu-1", 8))
    clock = Clock(tmp_path)
    settings = tmp_path / "settings.yaml"
    settings.write_text("health: {minDwellSeconds: 30}\n")  # less than the clock jumps at last
    fettle = await start_fettle("extender", settings=settings, env=clock.env)
    await register_extender(control_plane, fettle)
    kubelet.refuse_pods_on("gpu-1")
    for i in range(2):
        await api.create(objects.pod(f"p{i}", gpus=1))
        await waiting.in_phase(api, f"p{i}", "Failed")
    found = await waiting.wait_until(
        lambda: told(fettle, node="gpu-1"),
        lambda n: n["state"] == "Unhealthy" and "by itself" in n["healthyAgain"]["text"],
        what="both refusals count",
    )
    at = found["healthyAgain"]["at"]
    assert at - clock.now() > 600
    clock.set(at - 60)
    nearly = await waiting.wait_until(
        lambda: told(fettle, node="gpu-1"),
        lambda n: n["score"] > found["score"] + 0.1,
        what="the clock is ahead",
    )
    assert nearly["state"] != "Healthy"
    clock.set(at + 1)
    await waiting.wait_until(
        lambda: told(fettle, node="gpu-1"),
        lambda n: n["state"] == "Healthy",
        what="the node is healthy again",
    )
