"""What a pod is stuck in on a device that has failed, and what is not the device's doing."""

from typing import Any

import msgspec
import pytest

from fettle.model import (
    EvidenceKind,
    Family,
    Health,
    reasons,
)
from fettle.model.reasons import PodStuck, StuckIn
from fettle.scheduling.placed import stuck
from tests.fettle import building as b
from tests.fettle.scheduling.placed.builders import (
    BOUND_S,
    CREATING,
    EARLIER,
    FAILED_AT,
    LATER,
    Watched,
    claim,
    claimed,
    failed,
    looping,
    placed,
    unwell,
    waiting,
)


async def stuck_in(health: Health, now: float, **pod: Any) -> PodStuck | None:
    cluster = Watched()
    raw = claimed("p")
    raw["metadata"] |= pod.pop("metadata", {})
    raw |= pod
    await cluster.see(unwell(health), pods=(raw,), claims=(claim("p", "gpu-0"),))
    found = (await cluster.at_risk.current()).values()
    return next((why for one in found if (why := stuck(one, now)) is not None), None)


async def test_a_pod_that_crashes_again_and_again_on_a_failed_device_is_stuck_there() -> None:
    why = await stuck_in(failed(), FAILED_AT + 60, status=looping())
    assert why is not None
    assert why.stuck_in is StuckIn.CRASHING
    assert isinstance(why.cause, reasons.DeviceUnhealthy)
    assert (why.cause.device.device, why.cause.allocated) == ("gpu-0", True)


@pytest.mark.parametrize(
    ("after_s", "is_stuck"), [(59.0, False), (61.0, True)], ids=["at first", "after a minute"]
)
async def test_a_pod_that_is_not_made_ready_is_stuck_a_minute_after_its_device_failed(
    after_s: float, is_stuck: bool
) -> None:
    status = waiting(CREATING, ready="False")
    assert bool(await stuck_in(failed(), FAILED_AT + after_s, status=status)) is is_stuck


@pytest.mark.parametrize(
    "status",
    [
        waiting(CREATING, ready="True"),
        waiting(CREATING),
        waiting({"waiting": {"reason": "ImagePullBackOff"}}, ready="True"),
        waiting({"running": {}}),
        looping(0),
        looping(at=EARLIER) | {"startTime": EARLIER},
    ],
    ids=["pulls its image", "unknown", "cannot pull", "runs", "ends well", "crashed before only"],
)
async def test_what_a_device_does_not_hold_up_is_not_stuck(status: Any) -> None:
    assert await stuck_in(failed(at=FAILED_AT + 1000), FAILED_AT + 5000, status=status) is None


@pytest.mark.parametrize(
    ("after_s", "is_stuck"), [(29.0, False), (31.0, True)], ids=["at first", "after 30 s"]
)
async def test_a_pod_that_does_not_end_after_its_grace_period_is_stuck(
    after_s: float, is_stuck: bool
) -> None:
    deleted = {"deletionTimestamp": LATER}
    why = await stuck_in(failed(), BOUND_S + 120 + after_s, metadata=deleted)
    assert (why is not None and why.stuck_in == "Terminating") is is_stuck


@pytest.mark.parametrize(
    "health",
    [
        failed(0.4, kind=EvidenceKind.LEVEL),
        failed(family=Family.NODE, text="the kubelet is not ready"),
        failed(family=Family.OPERATOR, text="held"),
        failed(planned=True),
        failed(reporting_namespace="tenant"),
    ],
    ids=["only degraded", "the node's", "an operator's", "planned", "a tenant's word"],
)
async def test_only_a_proven_fault_of_a_device_counts(health: Health) -> None:
    assert await stuck_in(health, FAILED_AT + 5000, status=looping()) is None


async def test_a_pod_that_may_hold_another_unit_is_not_said_to_be_on_the_failed_one() -> None:
    cluster = Watched()
    for gpus, expected in ((4, 0), (8, 1)):
        node = b.node(gpus=8, units={"GPU-bad": 0.0})
        (unit,) = node.plugins[b.RESOURCE].units
        plugin = msgspec.structs.replace(
            node.plugins[b.RESOURCE], units=(msgspec.structs.replace(unit, health=failed()),)
        )
        node = msgspec.structs.replace(node, plugins={b.RESOURCE: plugin})
        await cluster.see(node, pods=(placed("p", gpus=gpus) | {"status": looping()},))
        found = (await cluster.at_risk.current()).values()
        assert len([one for one in found if stuck(one, FAILED_AT + 60)]) == expected
