"""Work on nodes that is planned: it keeps a long job away and lets a short one in."""

from __future__ import annotations

import time

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender, scores
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.objects import policy

LONG = {"fettle.dev/policy": "long"}
SHORT = {"fettle.dev/policy": "short"}
SCHEDULED = "cloud.google.com/scheduled-maintenance-time"
HOUR = 3600


async def test_planned_maintenance_keeps_a_long_job_away_and_lets_a_short_one_in(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    due = str(int(time.time()) + 20 * HOUR)
    # By the share of CPU that a pod leaves, the scheduler likes `planned` better than `scheduled`.
    await create_node(api, objects.node("planned", 8, cpu="512"))
    await create_node(api, objects.node("scheduled", 8, cpu="32", labels={SCHEDULED: due}))
    await create_node(api, objects.node("free", 1, cpu="16"))
    await kubelet.set_node_condition("planned", "MaintenancePlanned", "True", "MaintenanceWindow")
    await control_plane.start_scheduler()
    await api.create(objects.pod("before", gpus=1, cpu="8"))
    assert await waiting.bound(api, "before") == "planned"

    await define_policies(api)
    for name, runtime in (("long", "72h"), ("short", "45m")):
        await api.create(policy(name, {"placement": {"expectedRuntime": runtime}}))
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)

    await api.create(objects.pod("short", gpus=1, cpu="8", annotations=SHORT))
    assert await waiting.bound(api, "short") == "planned"
    await api.create(objects.pod("long", gpus=1, cpu="8", annotations=LONG))
    assert await waiting.bound(api, "long") == "free"

    said = {name: notes(one) for name, one in (await scores(fettle, "long")).items()}
    assert said["free"] == []
    assert "maintenance begins in 1 h, before a pod that runs for 72 h" in said["planned"][0]
    assert f"{SCHEDULED}={due}" in said["scheduled"][0]

    # No better node is left: nobody waits for what is only planned.
    await api.create(objects.pod("longer", gpus=1, cpu="8", annotations=LONG))
    assert await waiting.bound(api, "longer") in ("planned", "scheduled")

    await kubelet.set_node_condition(
        "planned", "MaintenanceInProgress", "True", "AdminRequested", "replacing a GPU"
    )
    await waiting.wait_until(
        lambda: scores(fettle, "longer"),
        lambda found: found["planned"]["score"] == 0,
        what="Fettle hears that maintenance is under way",
    )
    await api.create(objects.pod("shorter", gpus=1, cpu="8", annotations=SHORT))
    assert await waiting.bound(api, "shorter") == "scheduled"


def notes(verdict: Object) -> list[str]:
    return [note for note in verdict["notes"] if note.startswith("the last choice")]
