"""Schedulers that do not ask Fettle: they place pods as they did before it."""

from __future__ import annotations

from typing import Any

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import install, register_extender
from tests.controlplane.kubelet import Kubelet

GPU = {"gpu": "one-gpu"}
NOWHERE = "Insufficient fettle.dev/claims"


def claiming(name: str, **spec: Any) -> Object:
    made = objects.pod(name, templates=GPU)
    made["spec"] |= spec
    return made


async def marked(api: Api, pod: str) -> bool:
    """Whether the webhook gave it the marker."""
    (container,) = (await api.get("pods", pod))["spec"]["containers"]
    return "fettle.dev/claims" in container["resources"].get("requests", {})


async def test_only_pods_of_a_scheduler_that_asks_are_marked_and_need_its_entry_until_they_run(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    """A pod's requests are immutable: without the entry it waits, with it Fettle is not needed."""
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

    await control_plane.restart_scheduler()  # without the entry, before the webhooks are gone
    await api.create(claiming("left"))
    assert NOWHERE in await waiting.refused(api, "left", saying=NOWHERE)
    await api.delete("mutatingwebhookconfigurations", "fettle")
    await waiting.wait_until(
        lambda: api.create(claiming("probe"), dry_run=True),
        lambda pod: "fettle.dev/injected" not in pod["metadata"].get("annotations", {}),
        what="the webhook is gone",
    )
    await api.create(claiming("later"))
    assert await waiting.bound(api, "later") == "w0"
    await waiting.stays_pending(api, "left", for_s=1)

    await fettle.stop()
    await register_extender(control_plane, fettle)
    assert await waiting.bound(api, "left", timeout_s=20) == "w0"
