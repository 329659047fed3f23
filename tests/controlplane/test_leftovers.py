"""Small pods take what is left beside a bad device, and whole nodes stay whole.

The scheduler's own scores prefer the node with the most idle processors: that is the whole one.
"""

from __future__ import annotations

from typing import Any

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import install, register_extender, scores

STRICT = {"fettle.dev/policy": "training"}
SMALL = {"gpu": "one-gpu"}


async def until_seen(api: Api, fettle: FettleProcess, probe: Object) -> dict[str, Any]:
    """What Fettle says of each node for a pod like the probe, once it has seen both."""
    await api.create({**probe, "spec": {**probe["spec"], "schedulerName": "nobody"}})
    return await waiting.wait_until(
        lambda: scores(fettle, "probe"),
        lambda found: found.keys() == {"broken", "whole"},
        what="Fettle sees both nodes",
    )


def is_preferred(verdicts: dict[str, Any], why: str) -> bool:
    note = f"preferred: its other devices cannot serve pods that need all of its {why}"
    broken, whole = verdicts["broken"], verdicts["whole"]
    return broken["score"] > whole["score"] == 10 and note in broken["notes"]


async def test_pods_fill_the_node_with_a_withdrawn_gpu_and_leave_the_whole_one_to_who_needs_it(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("broken", 8, allocatable=7, cpu="64"))
    await create_node(api, objects.node("whole", 8, cpu="128"))
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    verdicts = await until_seen(api, fettle, objects.pod("probe", gpus=1))
    for number in range(7):
        await api.create(objects.pod(f"small-{number}", gpus=1, cpu="4", annotations=STRICT))
        assert await waiting.bound(api, f"small-{number}") == "broken"
    assert is_preferred(verdicts, "nvidia.com/gpu: 1 withdrawn")

    await api.create(objects.pod("large", gpus=8, cpu="4", annotations=STRICT))
    assert await waiting.bound(api, "large") == "whole"


async def test_claims_fill_the_node_with_a_tainted_gpu_and_leave_the_whole_one_to_who_needs_it(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    lost = [objects.taint("gpu.nvidia.com/xid", "NoSchedule", "79")]
    devices = objects.gpu_devices(8, taints={3: lost})
    await create_dra_node(api, "broken", devices, objects.node("broken", cpu="64"))
    await create_dra_node(api, "whole", 8, objects.node("whole", cpu="128"))
    await api.create(objects.claim_template("one-gpu"))
    await api.create(objects.claim_template("eight-gpus", objects.claim_spec(8)))
    await control_plane.start_controller_manager()
    fettle = await install(control_plane, api, start_fettle)
    probe = objects.pod("probe", templates=SMALL)
    verdicts = await until_seen(api, fettle, probe)
    for number in range(7):
        small = objects.pod(f"small-{number}", templates=SMALL, annotations=STRICT, cpu="4")
        await api.create(small)
        assert await waiting.bound(api, f"small-{number}") == "broken"
    why = "gpu.nvidia.com: gpu.nvidia.com/broken/gpu-3 is Unhealthy"
    assert is_preferred(verdicts, why)

    await api.create(objects.pod("large", templates={"gpu": "eight-gpus"}, annotations=STRICT))
    assert await waiting.bound(api, "large") == "whole"
