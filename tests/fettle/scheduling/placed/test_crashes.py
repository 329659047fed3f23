"""Which crashes the fault of a device explains, and which are the pod's own."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from fettle.cluster import PluginView, UnitView
from fettle.model import SOUND, Health
from fettle.scheduling.placed import Crashes, PodClaims
from tests.fettle import building as b
from tests.fettle.scheduling.placed.builders import (
    BOUND_S,
    FAILED_AT,
    Watched,
    claim,
    claimed,
    failed,
    looping,
    placed,
    unwell,
)


def ended(at: float, code: int = 139, reason: str = "Error", **metadata: Any) -> dict[str, Any]:
    """A pod that is over since a container ended then."""
    finished = datetime.fromtimestamp(at, UTC).isoformat()
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": finished}}
    raw = claimed("p")
    raw["metadata"] |= metadata
    raw["status"] |= {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"name": "main", "state": state}],
    }
    return raw


class Followed(Watched):
    """A cluster whose crashes are followed, since before anything failed."""

    def __init__(self) -> None:
        super().__init__()
        self.crashes = Crashes(
            self.publisher, self.at_risk, PodClaims(self.publisher), lambda: self.now
        )
        self.told: list[str] = []
        self.crashes.on_explained(lambda found: self.told.append(b.as_text([found.why])))

    async def run(self, health: Health = SOUND) -> None:
        """The pod runs on a device of this health."""
        await self.see(unwell(health), pods=(claimed("p"),), claims=(claim("p", "gpu-0"),))
        await self.crashes.explain()

    async def end(self, raw: dict[str, Any]) -> None:
        """The pod ends, its claim goes, and the device is as it is."""
        self.crashes.observe(b.pod(raw))
        self.pods, self.claims = {}, {}
        await self.see()
        await self.crashes.explain()

    async def fail(self, health: Health) -> None:
        await self.see(unwell(health))
        await self.crashes.explain()


@pytest.fixture
async def cluster() -> Followed:
    cluster = Followed()
    cluster.now = BOUND_S
    await cluster.run()
    cluster.now = FAILED_AT + 90
    return cluster


@pytest.mark.parametrize(
    ("after_s", "said"), [(-58.0, "58 s before"), (0.0, "0 s after"), (60.0, "60 s after")]
)
async def test_a_crash_within_a_minute_of_its_devices_fault_is_the_devices(
    cluster: Followed, after_s: float, said: str
) -> None:
    await cluster.end(ended(FAILED_AT + after_s))
    assert not cluster.told
    await cluster.fail(failed())
    await cluster.fail(failed())
    (told,) = cluster.told
    assert told.startswith("container main ended with exit code 139 at 2026-01-01 00:0")
    assert f", {said} gpu.example.com/n/gpu-0 was seen to fail, " in told
    assert ", which is the likely cause" in told
    assert told.endswith("XID 79: GPU has fallen off the bus")
    assert cluster.crashes.of("uid-p") is not None


@pytest.mark.parametrize(
    ("after_s", "wanted", "cause"),
    [
        pytest.param(2.0, 1, "which the pod may hold, and may be the cause", id="one of 16"),
        pytest.param(2.0, 16, "which is the likely cause", id="all of them"),
        pytest.param(61.0, 1, "", id="later"),
    ],
)
async def test_a_crash_as_a_unit_fails_that_the_pod_may_hold_may_be_its(
    after_s: float, wanted: int, cause: str
) -> None:
    cluster = await crashed_beside(after_s, wanted)
    if cause:
        (told,) = cluster.told
        assert f", 2 s after {b.RESOURCE} 3 was seen to fail, {cause}: XID 79" in told
    else:
        assert not cluster.told


async def crashed_beside(after_s: float, wanted: int) -> Followed:
    """A pod with so many of 16 units crashed as one of them failed, and no kubelet names units."""
    cluster = Followed()
    cluster.now = BOUND_S
    await cluster.see(b.node(gpus=16), pods=(placed("p", gpus=wanted),))
    await cluster.crashes.explain()
    cluster.now = FAILED_AT + 90
    raw = placed("p", gpus=wanted)
    raw["status"] |= looping(at=datetime.fromtimestamp(FAILED_AT + after_s, UTC).isoformat())
    cluster.crashes.observe(b.pod(raw))
    unit = UnitView("3", failed(), 1)
    plugin = PluginView(b.RESOURCE, 16, 16, (unit,))
    await cluster.see(msgspec.structs.replace(b.node(), plugins={b.RESOURCE: plugin}))
    await cluster.crashes.explain()
    return cluster


async def test_a_container_that_is_restarted_is_followed_as_well(cluster: Followed) -> None:
    raw = ended(FAILED_AT + 5)
    (container,) = raw["status"]["containerStatuses"]
    container |= {"lastState": container["state"], "state": {"running": {}}}
    raw["status"]["phase"] = "Running"
    for _ in range(2):
        cluster.crashes.observe(b.pod(raw))
        await cluster.fail(failed())
    assert len(cluster.told) == 1


@pytest.mark.parametrize(
    "raw",
    [
        ended(FAILED_AT + 5, 0),
        ended(FAILED_AT + 61),
        ended(FAILED_AT - 61),
        ended(FAILED_AT + 5, 137, "OOMKilled"),
        ended(FAILED_AT + 5, 128, "StartError"),
        ended(FAILED_AT + 5, 143, deletionTimestamp="2026-01-01T00:01:40Z"),
    ],
    ids=["ended well", "long after", "long before", "no memory", "never ran", "was deleted"],
)
async def test_what_has_other_causes_is_not_the_devices(cluster: Followed, raw: Any) -> None:
    await cluster.end(raw)
    await cluster.fail(failed())
    assert not cluster.told


async def test_a_disrupted_pod_was_ended_by_somebody(cluster: Followed) -> None:
    raw = ended(FAILED_AT + 5, 143)
    raw["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    await cluster.end(raw)
    await cluster.fail(failed())
    assert not cluster.told


async def test_a_fault_that_is_old_or_over_explains_no_crash(cluster: Followed) -> None:
    await cluster.run(failed(at=FAILED_AT - 3600))
    await cluster.end(ended(FAILED_AT + 5))
    await cluster.fail(SOUND)
    assert not cluster.told


async def test_what_was_first_seen_at_our_start_may_be_old() -> None:
    cluster = Followed()
    cluster.at_risk.started_at = cluster.now = FAILED_AT
    await cluster.run(failed(at=FAILED_AT))
    await cluster.end(ended(FAILED_AT - 5))
    assert not cluster.told


async def test_a_crash_is_forgotten_after_a_while(cluster: Followed) -> None:
    await cluster.end(ended(FAILED_AT))
    cluster.now = FAILED_AT + 601
    await cluster.crashes.explain()
    cluster.now = FAILED_AT + 602
    await cluster.fail(failed())
    assert not cluster.told
