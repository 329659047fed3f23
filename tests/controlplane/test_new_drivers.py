"""A driver that was replaced: short pods try it first, long ones come once it is proven."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender, scores
from tests.controlplane.memory import define, one_of
from tests.controlplane.objects import policy

VERSION = "nvidia.com/cuda.driver-version.full"
OLD, NEW = "570.133.20", "580.95.05"
LONG, SHORT = {"fettle.dev/policy": "long"}, {"fettle.dev/policy": "short"}
PROBATION_S = 20.0


async def new_drivers(fettle: FettleProcess, node: str) -> Any:
    status, answer = await fettle.browse("/explain", node=node)
    assert status == 200, answer
    return [(one["version"], one["former"]) for one in answer["newDrivers"]]


async def until_stored(api: Api, node: str, former: str) -> None:
    """What DeviceHealth says of the driver: that it is the new one, and which was before."""

    async def stored() -> Any:
        found = await one_of(api, node) or {}
        return [(d["version"], d.get("former")) for d in found["status"]["drivers"]]

    await waiting.wait_until(
        stored, lambda found: found == [(NEW, former)], what=f"{node} ran {former} before"
    )


async def test_short_pods_try_a_new_driver_and_long_ones_come_once_it_is_proven(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    canaries = ("canary-0", "canary-1", "canary-2")
    for name, cpu in (
        (canaries[0], "512"),
        (canaries[1], "16"),
        (canaries[2], "16"),
        ("old", "64"),
    ):
        await create_node(api, objects.node(name, 8, cpu=cpu, labels={VERSION: OLD}))
    await define(api)
    await define_policies(api)
    await shipped.apply_rbac(api)
    await api.create(policy("long", {"placement": {"newDriver": "Avoid"}}))
    await api.create(policy("short", {"placement": {"newDriver": "Prefer"}}))
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"mode: enforce\nhealth: {{newDriverSeconds: {PROBATION_S}}}\n")
    fettle = await start_fettle("extender", "steward", settings=settings)
    assert await new_drivers(fettle, "canary-0") == []  # nodes are new, their drivers are not

    for name in canaries:
        await api.patch("nodes", name, {"metadata": {"labels": {VERSION: NEW}}})

    await until_stored(api, "canary-0", OLD)
    fettle.kill()
    fettle = await start_fettle("extender", "steward", settings=settings)
    await register_extender(control_plane, fettle)
    assert await new_drivers(fettle, "canary-0") == [(NEW, OLD)]

    await api.create(objects.pod("short", gpus=1, cpu="1", annotations=SHORT))
    assert await waiting.bound(api, "short") in canaries
    await api.create(objects.pod("long", gpus=1, cpu="1", annotations=LONG))
    assert await waiting.bound(api, "long") == "old"
    said = (await scores(fettle, "long"))["canary-0"]["notes"]
    what = f"its driver of {objects.GPU} is new: {NEW} instead of {OLD}"
    assert f"the last choice: {what}" in said
    assert f"preferred: {what}" in (await scores(fettle, "short"))["canary-0"]["notes"]

    # They have run it for long and are sound: a node that gets it now has no new driver.
    for name in canaries:
        await waiting.wait_until(
            partial(new_drivers, fettle, name),
            lambda found: found == [],
            what=f"the probation of {name} is over",
            timeout_s=2 * PROBATION_S,
        )
    await api.patch("nodes", "old", {"metadata": {"labels": {VERSION: NEW}}})
    await until_stored(api, "old", OLD)
    await waiting.wait_until(
        partial(new_drivers, fettle, "old"), lambda found: found == [], what="nothing is new"
    )
    await api.create(objects.pod("longer", gpus=1, cpu="1", annotations=LONG))
    assert await waiting.bound(api, "longer") == "canary-0"  # as the scheduler alone would have it
    notes = {name: one["notes"] for name, one in (await scores(fettle, "longer")).items()}
    assert not any("is new" in note for said in notes.values() for note in said), notes
