"""Pods that wait for devices that are not Degraded, and take Degraded ones when their policy's
patience ends."""

from __future__ import annotations

import time
from datetime import datetime

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import REFUSED, register_extender, scores
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.objects import policy

HURRIED = {"fettle.dev/policy": "hurried"}
PATIENCE_S = 6
PLACEMENT = {"minScore": 0.8, "degraded": "Refuse", "aggregate": "Min"}
HOT = (
    "ErrorCode:DCGM_FR_CLOCKS_EVENT_THERMAL GPU:0 GPU_UUID:GPU-hot thermal fault "
    "Recommended Action=CONTACT_SUPPORT;"
)


async def overheat(kubelet: Kubelet, node: str) -> None:
    """Its only GPU becomes Degraded."""
    await kubelet.set_node_condition(
        node, "GpuThermalWatch", "True", "GpuThermalWatchIsNotHealthy", HOT
    )


async def install_hurried(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> FettleProcess:
    await define_policies(api)
    spec = {"placement": {**PLACEMENT, "patience": f"{PATIENCE_S}s"}}
    await api.create(policy("hurried", spec))
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle)
    return fettle


async def notes(fettle: FettleProcess, pod: str, code: str) -> list[Object]:
    """Those of this code. Others come and go while a node's slices and kubelet are new."""
    _, answer = await fettle.browse("/explain", pod=f"default/{pod}")
    return [note for note in answer["reasons"]["notes"] if note["code"] == code]


async def test_a_pod_takes_a_degraded_device_when_its_patience_ends_and_says_so_before(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("hot", 1))
    await overheat(kubelet, "hot")
    fettle = await install_hurried(control_plane, api, start_fettle)
    await api.create(objects.pod("waits", gpus=1, annotations=HURRIED))
    await waiting.refused(api, "waits", saying=REFUSED)
    verdict = (await scores(fettle, "waits"))["hot"]
    assert not verdict["allowed"]
    (why,) = verdict["reasons"]["refusals"]
    assert (why["code"], why["complaint"]) == ("TooFewAcceptableUnits", "Degraded")
    (lasts,) = await notes(fettle, "waits", "PatienceLasts")
    created = (await api.get("pods", "waits"))["metadata"]["creationTimestamp"]
    assert lasts["until"] == datetime.fromisoformat(created).timestamp() + PATIENCE_S
    assert "it waits for sound devices until " in lasts["text"]
    assert "then it takes Degraded ones" in lasts["text"]

    await waiting.wait_until(
        lambda: api.events_about("waits"),
        lambda events: any(
            e["reason"] == "RefusedByHealth" and lasts["text"] in e["message"] for e in events
        ),
        what="an Event says until when the pod waits",
    )

    assert await waiting.bound(api, "waits") == "hot"
    assert time.time() >= lasts["until"]  # the scheduler by itself takes five minutes
    _, placed = await fettle.browse("/pods", **{"at-risk": "true"})
    assert placed["pods"] == []  # it is where its patience let it be


async def test_patience_never_ends_in_an_unhealthy_device(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("dead", 1))
    await kubelet.set_node_condition(
        "dead", "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    fettle = await install_hurried(control_plane, api, start_fettle)
    await api.create(objects.pod("waits", gpus=1, annotations=HURRIED))
    await waiting.refused(api, "waits", saying=REFUSED)
    await waiting.stays_pending(api, "waits", for_s=PATIENCE_S + 4)
    assert await notes(fettle, "waits", "PatienceOver")
    assert not (await scores(fettle, "waits"))["dead"]["allowed"]
