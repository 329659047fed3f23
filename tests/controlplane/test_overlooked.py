"""A resource that the scheduler's configuration leaves out is noticed, and units that are taken are
what the scheduler says they are."""

from __future__ import annotations

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender
from tests.controlplane.kubelet import Kubelet

UNLISTED = "nvidia.com/mig-1g.12gb"
HELD = {"fettle.dev/hold": "taken out"}


async def test_a_pod_that_is_placed_without_asking_and_a_node_that_is_full_are_told_of(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("full", 1))
    await create_node(api, objects.node("held", 7, resource=UNLISTED, annotations=HELD))
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)

    await api.create(objects.pod("asked", gpus=1))
    assert await waiting.bound(api, "asked") == "full"
    _, told = await fettle.browse("/readyz", verbose="")
    assert "managedResources" not in told

    await api.create(objects.pod("overlooked", gpus=1, resource=UNLISTED))
    assert await waiting.bound(api, "overlooked") == "held"
    told = await waiting.wait_until(
        lambda: fettle.browse("/readyz", verbose=""),
        lambda answer: "managedResources" in answer[1],
        what="what is not asked about is told",
    )
    (line,) = [line for line in told[1].splitlines() if "managedResources" in line]
    assert UNLISTED in line
    assert "default/overlooked" in line
    assert f'{{"resource": "{UNLISTED}", "pod": "default/overlooked"' in fettle.process.tail()

    await waiting.in_phase(api, "asked", "Running")
    await api.create(objects.pod("late", gpus=1))
    await waiting.refused(api, "late", saying=f"Insufficient {objects.GPU}")
    _, late = await waiting.wait_until(
        lambda: fettle.browse("/explain", pod="default/late"),
        lambda answer: answer[0] == 200,
        what="the waiting pod is seen",
    )
    (note,) = late["reasons"]["notes"]  # the node that is held is refused
    assert note["code"] == "PatienceLasts"
    full = late["nodes"]["full"]
    assert (full["allowed"], full["fits"]) == (True, False)
    assert full["rejected"][0].startswith(f"{objects.GPU}: 1 of 1 are taken by pods, 1 requested")
    _, asked = await fettle.browse("/explain", pod="default/asked")
    assert asked["notes"][0].startswith("the pod runs on full: ")
