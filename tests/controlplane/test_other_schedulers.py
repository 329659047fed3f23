"""Schedulers that do not ask Fettle: they place pods as they did before it."""

from __future__ import annotations

from typing import Any

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import install
from tests.controlplane.kubelet import Kubelet

GPU = {"gpu": "one-gpu"}


def claiming(name: str, **spec: Any) -> Object:
    made = objects.pod(name, templates=GPU)
    made["spec"] |= spec
    return made


async def marked(api: Api, pod: str) -> bool:
    """Whether the webhook gave it the marker."""
    (container,) = (await api.get("pods", pod))["spec"]["containers"]
    return "fettle.dev/claims" in container["resources"].get("requests", {})


async def test_pods_of_a_scheduler_that_asks_are_marked_and_placed_without_its_entry_too(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    """Such as after Fettle was removed, or before a scheduler is registered."""
    await create_dra_node(api, "w0", 4)
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    fettle = await install(control_plane, api, start_fettle)
    await control_plane.start_second_scheduler("second")
    for name, scheduler, asks in (("ours", "default-scheduler", True), ("theirs", "second", False)):
        await api.create(claiming(name, schedulerName=scheduler))
        assert await waiting.bound(api, name) == "w0"
        assert await marked(api, name) is asks
        _, told = await fettle.browse("/explain", pod=f"default/{name}")
        assert ("scheduler second does not ask Fettle" in str(told["notes"])) is not asks

    await control_plane.restart_scheduler()  # without the entry
    await api.create(claiming("left"))
    assert await waiting.bound(api, "left") == "w0"
    assert await marked(api, "left")
