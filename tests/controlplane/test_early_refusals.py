"""What the devices of a driver contradict is refused when it is written, and what growth could
satisfy is warned about: the claims, what the scheduler makes of them without Fettle, and the
warnings as kubectl shows them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, ApiError
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import start_registered
from tests.fettle.lint.builders import Object
from tests.fettle.lint.fleets import GPU, fleet, gpu
from tests.fettle.lint.tables.case import claim, device, exactly, opaque, template

CONTRADICTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "domain": (
        {"selectors": ['device.attributes["gpu.nvidia.co"].productName == "NVIDIA H100"']},
        "no such key",
        "did you mean gpu.nvidia.com?",
    ),
    "attribute": (
        {"selectors": [device('productname == "NVIDIA H100"')]},
        "no such key",
        "did you mean productName?",
    ),
    "type": (
        {"selectors": [device('index == "0"')]},
        "cannot allocate all claims",
        "which it never equals: devices publish a number",
    ),
    "order": (
        {"selectors": [device('driverVersion > "550"')]},
        "no such overload",
        "versions are compared with semver",
    ),
    "value": (
        {"selectors": [device('productName == "Nvidia h100"')]},
        "cannot allocate all claims",
        "did you mean 'NVIDIA H100'?",
    ),
    "capacity": (
        {"capacity": {"requests": {f"{GPU}/memory": "1Gi"}}},
        "cannot allocate all claims",
        "did you mean memory?",
    ),
}
"""What a claim asks for, what the scheduler says of it, and what Fettle does."""


async def create_fleet(api: Api) -> None:
    for known in fleet():
        await (create_node(api, known) if known["kind"] == "Node" else api.create(known))


async def test_without_fettle_they_are_accepted_and_no_growth_ever_allocates_them(
    control_plane: ControlPlane, api: Api
) -> None:
    await create_fleet(api)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    for name, (asked, _, _) in CONTRADICTED.items():
        await api.create(claim(exactly(**dict(asked)), name=name))
        await api.create(objects.pod(name, claims={"gpu": name}))
    refused = await asyncio.gather(*(waiting.refused(api, name) for name in CONTRADICTED))
    for (_, says, _), said in zip(CONTRADICTED.values(), refused, strict=True):
        assert says in said
    await create_node(api, objects.node("gpu-d"))
    await api.create(objects.resource_slice("gpu-d", [gpu(i) for i in range(8)], driver=GPU))
    await api.create(claim(exactly(count=8), name="sound"))
    await api.create(objects.pod("sound", claims={"gpu": "sound"}))
    assert await waiting.bound(api, "sound") == "gpu-d"
    for name in CONTRADICTED:
        assert not (await api.get("pods", name))["spec"].get("nodeName")


async def told(api: Api, object: Object) -> tuple[str, list[str]]:
    """What a dry run is refused with, and the warnings it comes with."""
    try:
        await api.create(object, dry_run=True)
    except ApiError as error:
        return str(error), api.warnings
    return "", api.warnings


async def test_they_are_refused_with_what_was_meant(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await create_fleet(api)
    settings = tmp_path / "settings.yaml"
    settings.write_text("webhook: {trustCallers: true}\n")
    await start_registered(api, start_fettle, "webhook", settings=settings)
    for name, (asked, _, meant) in CONTRADICTED.items():
        for made in (
            claim(exactly(**dict(asked)), name=name),
            template(exactly(**dict(asked)), name=name),
        ):
            refused, _ = await told(api, made)
            assert "denied the request: fettle: FTL" in refused
            assert meant in refused
        for expression in asked.get("selectors", ()):
            selectors = [f'device.driver == "{GPU}"', expression]
            refused, _ = await told(api, objects.device_class(name, selectors=selectors))
            assert "denied the request: fettle: FTL" in refused
            assert meant in refused
    waiting_for_slices = objects.resource_slice("gpu-b", [gpu(9)], driver=GPU, name="gpu-b-more")
    waiting_for_slices["spec"]["pool"] |= {"name": "more", "resourceSliceCount": 2}
    await api.create(waiting_for_slices)
    for name, (asked, _, _) in CONTRADICTED.items():
        await waiting.wait_until(
            lambda asked=asked, name=name: told(api, claim(exactly(**dict(asked)), name=name)),  # type: ignore[misc]
            lambda found: not found[0],
            what=f"{name} is not refused while a pool waits for slices",
            every_s=0.5,
        )


GROWTH: dict[str, Object] = {
    "count": claim(exactly(count=16), name="count"),
    "size": claim(
        exactly(
            selectors=[f'device.capacity["{GPU}"].memory.compareTo(quantity("1Ti")) >= 0'],
        ),
        name="size",
    ),
    "product": claim(exactly(selectors=[device('productName == "NVIDIA B200"')]), name="product"),
    "class": claim(exactly(device_class="later.example.com"), name="class"),
}


@pytest.mark.parametrize("strict", [False, True])
async def test_what_growth_could_satisfy_is_warned_of_and_refused_if_strict(
    api: Api, start_fettle: StartFettle, tmp_path: Path, strict: bool
) -> None:
    await create_fleet(api)
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"lint: {{strict: {str(strict).lower()}}}\n")
    await start_registered(api, start_fettle, "webhook", settings=settings)
    for name, made in GROWTH.items():
        refused, warnings = await told(api, made)
        assert bool(refused) is strict, (name, refused)
        if not strict:
            (line,) = warnings
            assert line.startswith(f"ResourceClaim default/{name}: FTL0")


async def test_each_warning_is_one_line_that_begins_with_the_object_and_the_rule(
    api: Api, start_fettle: StartFettle
) -> None:
    """kubectl shows no line twice: the same mistake in two objects must make two lines."""
    await create_fleet(api)
    await start_registered(api, start_fettle, "webhook")
    lines: list[str] = []
    long = device('productName == "NVIDIA B200"') + "".join(
        f" && {device('productName')} != 'NVIDIA B{i}'" for i in range(40)
    )
    for name in ("one", "two"):
        requests = [
            *(exactly(f"gpu-{i}", count=12) for i in range(2)),
            exactly("long", selectors=[long]),
            exactly("class", device_class=f"{'l' * 60}.example.com"),
        ]
        refused, warnings = await told(api, template(*requests, name=name))
        assert not refused
        assert len(warnings) == 4
        assert all(
            line.startswith(f"ResourceClaimTemplate default/{name}: FTL0") for line in warnings
        )
        lines += warnings
    assert len(set(lines)) == len(lines)
    assert max(map(len, lines)) <= 256
    assert not any("\n" in line for line in lines)


def mps(**config: Any) -> Object:
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "GpuConfig",
        "sharing": {"strategy": "MPS", "mpsConfig": config},
    }
    return template(exactly(), config=[opaque(GPU, parameters)], name="shared")


async def test_a_configuration_newer_than_the_schema_is_accepted_with_a_warning(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await create_fleet(api)
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"lint: {{driverFeatures: {{{GPU}: {{MPSSupport: true}}}}}}\n")
    await start_registered(api, start_fettle, "webhook", settings=settings)
    assert await told(api, mps(multiUser=True)) == ("", [])
    refused, (warning,) = await told(api, mps(maxClients=4))
    assert not refused
    assert warning.startswith("ResourceClaimTemplate default/shared: FTL019 ")
    assert "unknown field" in warning
    refused, _ = await told(api, mps(multiUser="yes"))
    assert "multiUser: must be of type boolean" in refused
