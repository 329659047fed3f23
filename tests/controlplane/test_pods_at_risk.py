"""Pods that run on what their own policy refuses: who holds which device, and who is told."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import REPOSITORY, FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import register_extender
from tests.controlplane.kubelet import Kubelet

STRICT = {"fettle.dev/policy": "training"}
DOUBLE_BIT = (
    "ErrorCode:48 GPU:3 GPU_UUID:GPU-bad double-bit ECC error Recommended Action=RESTART_BM;"
)
LOST = [objects.taint("gpu.nvidia.com/gpu-lost", "None")]


async def fettle_cli(fettle: FettleProcess, *arguments: str) -> tuple[int, str]:
    """What a command prints, and its exit status."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fettle",
        *arguments,
        "--server",
        fettle.server,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def at_risk(fettle: FettleProcess) -> dict[str, Object]:
    _, answer = await fettle.browse("/pods", **{"at-risk": "true"})
    return {pod["pod"]: pod for pod in answer["pods"]}


async def until_at_risk(fettle: FettleProcess, *pods: str) -> list[Object]:
    """The pods at risk, once they are these in this order."""
    wanted = [f"default/{pod}" for pod in pods]
    told = await waiting.wait_until(
        lambda: at_risk(fettle), lambda found: [*found] == wanted, what=f"at risk: {wanted}"
    )
    return [*told.values()]


async def unit(fettle: FettleProcess, name: str) -> Any:
    """A unit as `/devices` lists it; None before it does."""
    _, answer = await fettle.browse("/devices", unsound="true")
    units = [u for n in answer["nodes"] for r in n["resources"] for u in r["units"]]
    return next((u for u in units if u["unit"] == name), None)


async def until_used(fettle: FettleProcess, name: str, use: str) -> Object:
    return await waiting.wait_until(
        lambda: unit(fettle, name), lambda u: u and u["use"] == use, what=f"{name} is {use}"
    )


async def test_the_pod_that_has_all_units_of_a_node_is_named_beside_the_bad_one(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    """Its kubelet names no units, and the device plugin withdraws the bad one."""
    await create_node(api, objects.node("bad", 8))
    await control_plane.start_scheduler()
    await api.create(objects.pod("trains", gpus=8, annotations=STRICT))
    await waiting.in_phase(api, "trains", "Running")
    await kubelet.set_node_condition(
        "bad", "GpuMemWatch", "True", "GpuMemWatchIsNotHealthy", DOUBLE_BIT
    )
    fettle = await start_fettle("extender")

    told = await until_used(fettle, "GPU-bad", "certain")
    assert (told["usedBy"], told["possiblyUsedBy"]) == (["default/trains"], [])
    assert told["allocated"]
    await kubelet.set_allocatable("bad", 7)
    await waiting.wait_until(
        lambda: unit(fettle, "GPU-bad"), lambda u: u["withdrawn"], what="it is"
    )
    assert (await unit(fettle, "GPU-bad"))["usedBy"] == ["default/trains"]

    (pod,) = await until_at_risk(fettle, "trains")
    assert (pod["node"], pod["use"], pod["policy"]) == ("bad", "certain", "training")
    assert [why["code"] for why in pod["reasons"]["refusals"]] == ["UnitNotAcceptable"]
    assert pod["worst"].startswith("holds nvidia.com/gpu GPU-bad, which is Unhealthy")
    status, printed = await fettle_cli(fettle, "pods", "--at-risk")
    assert status == 3
    assert "default/trains" in printed
    assert "s before Fettle started" in printed
    _, metrics = await fettle.browse("/metrics")
    assert 'fettle_pods_at_risk{policy="training",use="certain"} 1.0' in metrics
    assert 'fettle_pods_at_risk{policy="inference",use="certain"} 0.0' in metrics


async def test_pods_that_may_hold_the_bad_unit_are_named_as_possible(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    """Until the kubelet says which units they hold."""
    await create_node(api, objects.node("bad", 8))
    await control_plane.start_scheduler()
    for name in ("first", "second"):
        await api.create(objects.pod(name, gpus=2, annotations=STRICT))
        await waiting.in_phase(api, name, "Running")
    await kubelet.set_node_condition(
        "bad", "GpuMemWatch", "True", "GpuMemWatchIsNotHealthy", DOUBLE_BIT
    )
    fettle = await start_fettle("extender")
    told = await until_used(fettle, "GPU-bad", "possible")
    assert told["possiblyUsedBy"] == ["default/first", "default/second"]
    pods = await until_at_risk(fettle, "first", "second")
    assert [pod["use"] for pod in pods] == ["possible", "possible"]
    status, printed = await fettle_cli(fettle, "devices")
    assert (status, "possibly default/first" in printed) == (0, True)

    await kubelet.set_device_health("first", {"GPU-bad": "Healthy", "GPU-2": "Healthy"})
    told = await until_used(fettle, "GPU-bad", "certain")
    assert (told["usedBy"], told["possiblyUsedBy"]) == (["default/first"], [])
    (pod,) = await until_at_risk(fettle, "first")
    assert pod["use"] == "certain"

    await kubelet.exit_containers("first", 1)
    await kubelet.set_device_health("second", {"GPU-0": "Healthy", "GPU-1": "Healthy"})
    told = await until_used(fettle, "GPU-bad", "nobody")
    assert not told["allocated"]
    assert await fettle_cli(fettle, "pods", "--at-risk") == (
        0,
        "no pod is on what its policy refuses\n",
    )
    status, printed = await fettle_cli(fettle, "explain", "pod", "default/first")
    assert "the pod is finished: Failed on bad at " in printed
    assert "it held nvidia.com/gpu GPU-bad" in printed


async def test_a_pod_whose_device_gets_a_taint_is_told_so_also_while_it_terminates(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "n", 2)
    tolerates = [{"key": LOST[0]["key"], "operator": "Exists"}]
    await api.create(objects.claim("strict"))
    await api.create(objects.claim("tolerant", objects.claim_spec(tolerations=tolerates)))
    await control_plane.start_scheduler()
    fettle = await start_fettle("extender")
    for name in ("strict", "tolerant"):
        await api.create(objects.pod(name, claims={"gpu": name}, annotations=STRICT))
        await waiting.in_phase(api, name, "Running")
    assert await until_at_risk(fettle) == []
    lost = objects.gpu_devices(2, taints={0: LOST, 1: LOST})
    await api.apply(objects.resource_slice("n", lost, generation=2))
    (pod,) = await until_at_risk(fettle, "strict")
    (why,) = pod["reasons"]["refusals"]
    assert (why["code"], why["use"]) == ("DeviceUnhealthy", "certain")
    assert pod["since"] >= pod["boundAt"]

    _, told = await fettle.browse("/explain", pod="default/strict")
    assert told["placed"]["devices"][0]["device"] == why["device"]
    _, printed = await fettle_cli(fettle, "explain", "pod", "default/strict")
    answer, policy, *_ = lines = printed.splitlines()
    assert answer.startswith("default/strict is on n, which its policy refuses; ")
    assert policy.startswith("policy training")
    at = next(at for at, line in enumerate(lines) if line.startswith("Running since "))
    holds, refuses = lines[at + 1 : at + 3]
    assert holds.strip().startswith(f"holds {why['device']}: Unhealthy")
    assert refuses.startswith("its policy refuses where it is since ")
    _, told = await fettle.browse("/explain", pod="default/tolerant")
    assert told["placed"]["devices"][0]["tolerated"] == ["gpu.nvidia.com/gpu-lost:None"]

    kubelet.termination_s = 60.0
    await api.delete("pods", "strict")
    await waiting.wait_until(
        lambda: at_risk(fettle),
        lambda found: [p["phase"] for p in found.values()] == ["Terminating"],
        what="it terminates",
    )


async def test_a_pod_bound_while_fettle_was_away_is_listed_from_its_start(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("n", 8))
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle, ignorable=True)
    await fettle.stop()
    await kubelet.set_node_condition(
        "n", "AcceleratedHardwareReady", "False", "NvidiaDoubleBitError", "ECC"
    )
    await api.create(objects.pod("meanwhile", gpus=1, annotations=STRICT))
    await waiting.bound(api, "meanwhile")
    fettle.start()
    await fettle.ready()
    (pod,) = await until_at_risk(fettle, "meanwhile")
    assert [why["code"] for why in pod["reasons"]["refusals"]] == ["NodeUnhealthy"]
    _, answer = await fettle.browse("/pods", **{"at-risk": "true"})
    assert 0 <= answer["startedAt"] - pod["boundAt"] < 120
    _, printed = await fettle_cli(fettle, "pods", "--at-risk")
    assert "s before Fettle started" in printed
    log = await waiting.wait_until(
        lambda: read(fettle),
        lambda text: "are on what their policy refuses" in text,
        what="the log",
    )
    (line,) = [line for line in log.splitlines() if "are on what their policy refuses" in line]
    assert '"pods": 1' in line
    assert '"bound_in_the_last_10_minutes": 1' in line


async def read(fettle: FettleProcess) -> str:
    return "".join(p.read_text() for p in Path(fettle.folder).rglob(f"{fettle.name}*.log"))


async def test_one_event_says_so_on_the_pod_also_after_a_restart(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("n", 8))
    await control_plane.start_scheduler()
    await api.create(objects.pod("trains", gpus=1, annotations=STRICT))
    await waiting.in_phase(api, "trains", "Running")
    fettle = await start_fettle("steward", "extender")
    await kubelet.set_node_condition(
        "n", "AcceleratedHardwareReady", "False", "NvidiaDoubleBitError", "ECC"
    )

    async def events() -> list[Object]:
        about = await api.events_about("trains")
        return [event for event in about if event["reason"] == "AtRisk"]

    (event,) = await waiting.wait_until(events, what="it is told")
    assert event["type"] == "Warning"
    assert event["message"].startswith("policy training refuses where the pod is, on node n: ")
    await fettle.stop()
    fettle.start()
    await fettle.ready()

    async def written() -> bool:
        _, metrics = await fettle.browse("/metrics")
        return 'fettle_steward_events_total{result="written"} 1.0' in metrics

    await waiting.wait_until(written, what="the restarted one tried")
    (same,) = await events()
    assert same["metadata"] == event["metadata"]
