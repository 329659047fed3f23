"""What the webhook says and leaves alone: Events in observe, and policies that nobody has."""

from __future__ import annotations

from typing import Any

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import start_registered


async def test_in_observe_events_say_what_would_have_been_changed_and_refused(
    api: Api, start_fettle: StartFettle, tmp_path: Any
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("mode: observe\nwebhook: {events: true, trustCallers: true}\n")
    fettle = await start_registered(api, start_fettle, "webhook", settings=settings)
    made = await api.create(objects.pod("p", gpus=1, annotations={"fettle.dev/policy": "training"}))
    assert "fettle.dev/injected" not in made["metadata"]["annotations"]
    await api.create(objects.claim("wrong", objects.claim_spec(33)))
    assert not api.warnings
    _, metrics = await fettle.browse("/metrics")
    assert 'result="would_be_denied"' in metrics
    assert 'result="would_be_patched"' in metrics
    events = await waiting.wait_until(
        lambda: api.events_about("default"),
        lambda events: len(events) == 2,
        what="an Event for what would have been changed, and one for what would have been refused",
    )
    assert {event["reason"] for event in events} == {"WouldBeChanged", "WouldBeRefused"}


async def test_an_unknown_policy_is_a_warning_and_the_pod_runs(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("w0", 8))
    await control_plane.start_scheduler()
    fettle = await start_registered(api, start_fettle, "webhook")
    await api.create(objects.pod("p", gpus=1, annotations={"fettle.dev/policy": "trainig"}))
    assert "trainig" in " ".join(api.warnings)
    assert await waiting.bound(api, "p") == "w0"
    _, metrics = await fettle.browse("/metrics")
    assert "fettle_webhook_unknown_policies_total 1.0" in metrics
