"""Pods on a device that has failed: those that are stuck there are named with the device, and a
crash at the moment of the fault is said to be the device's."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fettle.scheduling.placed.stuck_pods import TERMINATING_S
from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import install
from tests.controlplane.kubelet import Kubelet

LOST = objects.taint("gpu.nvidia.com/xid", "None", "79")
STRICT = {"fettle.dev/policy": "training"}


async def told(api: Api, pod: str, reason: str) -> str:
    """What an Event of this reason says on a pod."""
    events = await waiting.wait_until(
        lambda: api.events_about(pod),
        lambda found: any(event["reason"] == reason for event in found),
        what=f"{pod} is told {reason}",
        timeout_s=60,
    )
    (message,) = (event["message"] for event in events if event["reason"] == reason)
    return str(message)


FIRST_SEEN_S = 3.0
"""What Fettle sees in its first second may be old, so it explains no crash. Taints have whole
seconds."""


async def explained(fettle: FettleProcess, pod: str) -> list[Object]:
    _, answer = await fettle.browse("/explain", pod=f"default/{pod}")
    return list(answer["reasons"]["notes"])


async def test_pods_are_told_which_failed_device_they_are_stuck_on_or_were_ended_by(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await create_dra_node(api, "n", 4)
    clock = Clock(tmp_path)
    fettle = await install(control_plane, api, start_fettle, env=clock.env)
    for name in ("loops", "leaves", "ends", "sound"):
        await api.create(objects.claim(name))
        restarts = "Never" if name == "ends" else "Always"
        made = objects.pod(name, claims={"gpu": name}, annotations=STRICT)
        made["spec"]["restartPolicy"] = restarts
        made["spec"]["terminationGracePeriodSeconds"] = 1
        await api.create(made)
        await waiting.in_phase(api, name, "Running")
    claims = {
        claim["metadata"]["name"]: claim for claim in await api.list("resourceclaims", "default")
    }
    on = {
        name: claim["status"]["allocation"]["devices"]["results"][0]["device"]
        for name, claim in claims.items()
    }
    await asyncio.sleep(FIRST_SEEN_S)
    await kubelet.exit_containers("ends", 139)
    devices = objects.gpu_devices(4)
    for device in devices:
        if device["name"] != on["sound"]:
            device["taints"] = [LOST]
    await api.patch("resourceslices", f"n-{objects.DRIVER}", {"spec": {"devices": devices}})
    kubelet.termination_s = 600.0
    await api.delete("pods", "leaves")
    for name in ("loops", "sound"):
        await kubelet.loop_in_crashes(name, 139)

    lost = f"{objects.DRIVER}/n/{on['loops']}"
    crash = await told(api, "ends", "CrashedByDevice")
    assert crash.startswith("container main ended with exit code 139 at ")
    assert f"{objects.DRIVER}/n/{on['ends']} was seen to fail, which is the likely cause" in crash
    stuck = await told(api, "loops", "StuckOnFailedDevice")
    assert stuck.startswith("stuck in CrashLoopBackOff since ")
    assert f"{lost}, which is Unhealthy (0.00): " in stuck
    found = [note for note in await explained(fettle, "loops") if note["code"] == "PodStuck"]
    assert [(note["stuckIn"], note["cause"]["device"]) for note in found] == [
        ("CrashLoopBackOff", lost)
    ]
    assert "CrashAtFault" in {note["code"] for note in await explained(fettle, "ends")}

    async def ends() -> str:
        _, answer = await fettle.browse("/decisions", pod="default/ends")
        return str([decision["end"] for decision in answer["decisions"] if decision.get("end")])

    await waiting.wait_until(ends, lambda said: "likely cause" in said, what="the record's end")
    about = {event["reason"] for event in await api.events_about("leaves")}
    assert "StuckOnFailedDevice" not in about
    clock.jump(TERMINATING_S)
    stuck = await told(api, "leaves", "StuckOnFailedDevice")
    assert stuck.startswith("stuck in Terminating since ")
    about = {event["reason"] for event in await api.events_about("sound")}
    assert not about & {"CrashedByDevice", "StuckOnFailedDevice"}
