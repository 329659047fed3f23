"""The scheduler asks within milliseconds of what lets a pod be placed, before Fettle sees it."""

from __future__ import annotations

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import REFUSED, register_extender
from tests.controlplane.objects import DRIVER

DEAD = objects.taint("gpu.nvidia.com/xid", "None", "79")
ROUNDS = 3


@pytest.fixture
async def lost(control_plane: ControlPlane, api: Api, start_fettle: StartFettle) -> None:
    """One node, whose one device its driver reports lost. No controller-manager, so claims are as
    a test makes them."""
    await create_dra_node(api, "n", objects.gpu_devices(1, taints={0: [DEAD]}))
    await register_extender(control_plane, await start_fettle("extender"))


def pod(name: str, claim: str) -> Object:
    """As the webhook makes it: it has the marker."""
    made = objects.pod(name, claims={"gpu": claim})
    made["spec"]["containers"][0]["resources"]["limits"] = {"fettle.dev/claims": "0"}
    return made


@pytest.mark.usefixtures("lost")
async def test_a_pod_that_waits_does_not_get_a_dead_device_as_it_comes_free(api: Api) -> None:
    await api.create(objects.claim("held"))
    await api.create(objects.claim("wanted"))
    device = {"request": "gpu", "driver": DRIVER, "pool": "n", "device": "gpu-0"}
    held = {"allocation": {"devices": {"results": [device]}}}
    await api.patch_status("resourceclaims", "held", held)
    for number in range(ROUNDS):
        name = f"p{number}"
        await api.create(pod(name, "wanted"))
        await waiting.refused(api, name, saying="cannot allocate all claims")
        await api.patch_status("resourceclaims", "held", {"allocation": None})
        await waiting.refused(api, name, saying=REFUSED)
        await api.delete("pods", name)
        await api.patch_status("resourceclaims", "held", held)


@pytest.mark.usefixtures("lost")
async def test_a_pod_is_judged_by_the_claim_and_the_class_that_were_applied_just_before_it(
    api: Api,
) -> None:
    for number in range(ROUNDS):
        name = f"new-{number}"
        await api.create(objects.device_class(name, selectors=[f'device.driver == "{DRIVER}"']))
        await api.create(objects.claim(name, objects.claim_spec(device_class=name)))
        await api.create(pod(name, name))
        await waiting.refused(api, name, saying=REFUSED)
