"""A fault of a GPU, published on the GPU alone, and pods that ask for its MIG devices
(kubernetes-sigs/dra-driver-nvidia-gpu#1316)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.controlplane import objects, predictions, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import install, scores
from tests.controlplane.taints import HOLD, HOLD_TAINTS, rules

PODS = 20
STRICT = {"fettle.dev/policy": "training"}
MIG = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"


def divided(node: str, gpus: int, parts: int, *, taints: Sequence[Object] = ()) -> list[Object]:
    """GPUs with their MIG devices, as NVIDIA's driver publishes them; gpu-0 with `taints`."""
    devices = []
    for number in range(gpus):
        uuid = f"GPU-{node}-{number}"
        gpu = {"type": "gpu", "uuid": uuid}
        devices.append(objects.device(f"gpu-{number}", gpu, taints=() if number else taints))
        for part in range(parts):
            mig = {"type": "mig", "uuid": f"MIG-{node}-{number}-{part}", "parentUUID": uuid}
            devices.append(objects.device(f"gpu-{number}-mig-1g10gb-19-{part}", mig))
    return devices


async def create_divided_node(api: Api, name: str, devices: list[Object], cpu: str) -> None:
    await create_node(api, objects.node(name, cpu=cpu))
    await api.create(objects.resource_slice(name, devices))


async def offer_parts(api: Api) -> None:
    await api.create(objects.device_class("mig.nvidia.com", selectors=[MIG]))
    spec = objects.claim_spec(device_class="mig.nvidia.com")
    await api.create(objects.claim_template("one-mig", spec))


async def devices_of(api: Api, pods: list[Object]) -> set[str]:
    claims = [claim for pod in pods for claim in await predictions.claims_of(api, pod)]
    return {device for _, device in predictions.got(claims)}


async def test_in_a_burst_no_pod_lands_on_a_part_of_a_gpu_that_its_driver_tainted(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    lost = [objects.taint("gpu.nvidia.com/xid", value="79")]
    # The scheduler's own scores prefer the node with the most idle processors.
    await create_divided_node(api, "m1", divided("m1", 1, 7, taints=lost), cpu="512")
    await create_divided_node(api, "m2", divided("m2", 4, 7), cpu="64")
    await offer_parts(api)
    await control_plane.start_controller_manager()
    fettle = await install(control_plane, api, start_fettle)
    made = [
        objects.pod(f"p{i}", templates={"gpu": "one-mig"}, annotations=STRICT) for i in range(PODS)
    ]
    await asyncio.gather(*(api.create(pod) for pod in made))
    pods = await waiting.wait_until(
        lambda: api.list("pods", "default"),
        lambda pods: len(pods) == PODS and all(map(waiting.node_of, pods)),
        what="all pods are bound",
        timeout_s=60,
    )
    given = await devices_of(api, pods)
    assert len(given) == PODS
    assert not {device for device in given if device.startswith("gpu.nvidia.com/m1/gpu-0-")}
    verdict = (await scores(fettle, "p0"))["m1"]
    assert "of gpu-0, which it is part of: XID 79" in str(verdict)


async def test_a_held_gpus_parts_are_not_allocated_either_while_fettle_is_gone(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_divided_node(api, "m1", divided("m1", 2, 2), cpu="64")
    await offer_parts(api)
    await shipped.apply(api, shipped.manifests(HOLD_TAINTS))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    fettle = await start_fettle("steward")
    held = '{"device": "gpu.nvidia.com/m1/gpu-0", "reason": "reseat"}'
    await api.patch("nodes", "m1", {"metadata": {"annotations": {HOLD: held}}})
    found = await waiting.wait_until(
        lambda: rules(api), lambda found: len(found) == 3, what="the GPU and its parts have rules"
    )
    assert {rule["deviceSelector"]["device"] for rule in found} == {
        "gpu-0",
        "gpu-0-mig-1g10gb-19-0",
        "gpu-0-mig-1g10gb-19-1",
    }
    await fettle.stop()
    await api.create(objects.pod("first", templates={"gpu": "one-mig"}))
    assert await waiting.bound(api, "first") == "m1"
    assert await devices_of(api, [await api.get("pods", "first")]) == {
        "gpu.nvidia.com/m1/gpu-1-mig-1g10gb-19-0"
    }

    fettle.start()
    await fettle.ready()
    await api.patch("nodes", "m1", {"metadata": {"annotations": {HOLD: None}}})
    await waiting.wait_until(lambda: rules(api), lambda found: not found, what="they are gone")
