"""Fifty pods at once: the scheduler decides before it sees the last allocation, and so does Fettle.

Prediction keeps most pods off refused devices then, a DeviceTaintRule keeps all of them off.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.controlplane import objects, predictions, shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import scores, start_registered
from tests.controlplane.test_predictions import RATE

PODS = 50
NODES = 4
DEVICES = 16
LOST = (13, 14, 15)
"""On each node, behind 13 sound ones: 52 in all, so that 50 pods have room without them."""
STRICT = {"fettle.dev/policy": "training"}


class Landed(msgspec.Struct, frozen=True):
    bound: int
    on_refused_devices: int


async def burst(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, *, rules: bool
) -> Landed:
    """Where fifty pods made at once end up, `rules`: with DeviceTaintRules set by hand before."""
    reported = objects.taint("gpu.nvidia.com/xid", "None", "79")
    devices = objects.gpu_devices(DEVICES, taints={i: [reported] for i in LOST})
    names = [f"w{i}" for i in range(NODES)]
    for name in names:
        await create_dra_node(api, name, devices)
        for i in LOST if rules else ():
            rule = objects.device_taint_rule(
                f"{name}-{i}", "example.com/lost", pool=name, device=f"gpu-{i}"
            )
            await api.create(rule)
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    fettle = await start_registered(api, start_fettle)
    configuration = shipped.scheduler_configuration(fettle.extender_url) | RATE
    await control_plane.start_scheduler(configuration)
    made = [
        objects.pod(f"p{i}", templates={"gpu": "one-gpu"}, annotations=STRICT) for i in range(PODS)
    ]
    await asyncio.gather(*(api.create(pod) for pod in made))
    pods = await waiting.wait_until(
        lambda: api.list("pods", "default"),
        lambda pods: all(waiting.node_of(p) or waiting.refusal_of(p) for p in pods),
        what="all pods are bound or refused",
        timeout_s=60,
    )
    bound = [pod for pod in pods if waiting.node_of(pod)]
    claims = [claim for pod in bound for claim in await predictions.claims_of(api, pod)]
    lost = {f"gpu-{i}" for i in LOST}
    refused = [device for _, device in predictions.got(claims) if device.split("/")[2] in lost]
    assert await scores(fettle, "p0")
    return Landed(len(bound), len(refused))


async def test_in_a_burst_prediction_alone_keeps_most_pods_off_refused_devices(
    control_plane: ControlPlane,
    api: Api,
    start_fettle: StartFettle,
    capsys: pytest.CaptureFixture[str],
) -> None:
    landed = await burst(control_plane, api, start_fettle, rules=False)
    with capsys.disabled():
        print(f"\nburst of {PODS}, prediction alone: {landed}")
    refused = NODES * len(LOST)
    assert landed.on_refused_devices < refused
    assert landed.bound >= PODS - refused


async def test_in_a_burst_device_taint_rules_keep_all_pods_off_refused_devices(
    control_plane: ControlPlane,
    api: Api,
    start_fettle: StartFettle,
    capsys: pytest.CaptureFixture[str],
) -> None:
    landed = await burst(control_plane, api, start_fettle, rules=True)
    with capsys.disabled():
        print(f"\nburst of {PODS}, with DeviceTaintRules: {landed}")
    assert landed == Landed(bound=PODS, on_refused_devices=0)
