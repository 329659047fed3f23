"""The scheduler asks within milliseconds of what lets a pod be placed, before Fettle sees it."""

from __future__ import annotations

import asyncio
import contextlib

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
async def registered(control_plane: ControlPlane, start_fettle: StartFettle) -> None:
    """No controller-manager, so claims are as a test makes them."""
    await register_extender(control_plane, await start_fettle("extender"))


@pytest.fixture
async def lost(api: Api, registered: None) -> None:
    """One node, whose one device its driver reports lost."""
    await create_dra_node(api, "n", objects.gpu_devices(1, taints={0: [DEAD]}))


async def hold(api: Api, claim: str, device: str | None) -> None:
    """Let a claim have this device of the node, or none."""
    given = {"request": "gpu", "driver": DRIVER, "pool": "n", "device": device}
    allocation = {"devices": {"results": [given]}} if device is not None else None
    status = {"allocation": allocation, "reservedFor": None}
    await api.patch_status("resourceclaims", claim, status)


def pod(name: str, claim: str) -> Object:
    """As the webhook makes it: it has the marker."""
    made = objects.pod(name, claims={"gpu": claim})
    made["spec"]["containers"][0]["resources"]["limits"] = {"fettle.dev/claims": "0"}
    return made


@pytest.mark.usefixtures("lost")
async def test_a_pod_that_waits_does_not_get_a_dead_device_as_it_comes_free(api: Api) -> None:
    await api.create(objects.claim("held"))
    await api.create(objects.claim("wanted"))
    await hold(api, "held", "gpu-0")
    for number in range(ROUNDS):
        name = f"p{number}"
        await api.create(pod(name, "wanted"))
        await waiting.refused(api, name, saying="cannot allocate all claims")
        await hold(api, "held", None)
        await waiting.refused(api, name, saying=REFUSED)
        await api.delete("pods", name)
        await hold(api, "held", "gpu-0")


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


@pytest.mark.usefixtures("registered")
async def test_a_pod_is_judged_by_what_the_one_before_it_was_given_a_moment_ago(api: Api) -> None:
    await create_dra_node(api, "n", objects.gpu_devices(2, taints={1: [DEAD]}))
    for name in ("first", "second"):
        await api.create(objects.claim(name))
    for number in range(ROUNDS):
        first, second = f"first-{number}", f"second-{number}"
        await api.create(pod(first, "first"))
        await bound_at_once(api, first)
        await api.create(pod(second, "second"))  # gpu-0 is taken: it would get the dead one
        await waiting.refused(api, second, saying=REFUSED)
        for name in (first, second):
            await api.delete("pods", name, grace_s=0)
        await hold(api, "first", None)
        await asyncio.sleep(0.3)  # everybody knows that


@pytest.mark.usefixtures("registered")
async def test_a_pod_made_anew_does_not_get_the_dead_device_that_the_old_one_has_just_left(
    api: Api,
) -> None:
    """The first one by order, though others are free."""
    await create_dra_node(api, "n", objects.gpu_devices(3, taints={0: [DEAD]}))
    for name in ("old", "new"):
        await api.create(objects.claim(name))
    for number in range(ROUNDS):
        await hold(api, "old", "gpu-0")
        await asyncio.sleep(0.3)  # everybody knows that
        mark: Object = {"metadata": {"annotations": {"round": str(number)}}}
        await api.patch("resourceclaims", "new", mark)  # a watch just read is left for a moment
        await hold(api, "old", None)
        await api.create(pod(f"p{number}", "new"))
        await waiting.refused(api, f"p{number}", saying=REFUSED)
        await api.delete("pods", f"p{number}", grace_s=0)


async def bound_at_once(api: Api, name: str) -> None:
    """Return as soon as the pod is seen to be bound."""
    watch = api.watch("pods", "default", fields=f"metadata.name={name}")
    async with asyncio.timeout(20), contextlib.aclosing(watch) as seen:
        async for _, one in seen:
            if one["spec"].get("nodeName"):
                return
