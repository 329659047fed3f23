"""Events as the real API server takes them, with the rights that deploy/rbac gives."""

from __future__ import annotations

from fettle.client import Event, EventRecorder, Regarding, Session, event_recorder
from tests.controlplane import shipped
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane


async def test_what_happens_again_is_counted_in_one_event(
    control_plane: ControlPlane, api: Api
) -> None:
    await shipped.apply_rbac(control_plane.tester)
    kubeconfig = await control_plane.kubeconfig_for_service_account(
        shipped.WEBHOOK_ACCOUNT, shipped.NAMESPACE
    )
    now = 0.0
    results: list[str] = []
    about = Regarding("v1", "Namespace", "default", "default")
    told = Event(about, "WouldBeRefused", "Review", "Pod p: as it is told", "Pod", "Warning")
    of_the_cluster = told._replace(regarding=Regarding("resource.k8s.io/v1", "DeviceClass", "gpu"))
    async with await Session.open(kubeconfig) as session:
        recorder = EventRecorder(
            session, "fettle.dev/webhook", "here", results.append, clock=lambda: now
        )
        for event in (told, told, of_the_cluster):
            recorder.record(event)
        await recorder.write()
        recorder.record(told)
        now += event_recorder.COUNT_EVERY_S
        await recorder.write()
    assert results == ["counted", "written", "written", "counted", "written"]
    (counted,) = await api.events_about("default")
    assert counted["series"]["count"] == 3
    (written,) = await api.events_about("gpu")
    assert written["message"] == "Pod p: as it is told"
