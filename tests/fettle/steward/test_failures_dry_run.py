"""What would be marked and evicted is recorded where nothing may be written."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from fettle.model import (
    Mode,
)
from fettle.steward.eviction_plans import ENDS_WITHIN_S
from tests.fettle import building as b
from tests.fettle.steward.failing import (
    BAD,
    FREE,
    Fleet,
    Raw,
    condition,
    having,
    on,
    would_evict,
)


@pytest.mark.parametrize("how", [{"mode": Mode.OBSERVE}, {"mode": Mode.STEER}, {"dry_run": True}])
async def test_where_nothing_may_be_written_it_is_recorded_once_and_marks_are_taken_back(
    fleet: Fleet, how: Raw
) -> None:
    fleet.each_look_s = ENDS_WITHIN_S + 1
    fleet.led(**how)
    marked = having(on("marked"), condition())
    await fleet.look(b.node(gpus=2, own=b.health(0.1)), FREE, pods=(on(), marked))
    await fleet.look_until(lambda: len(would_evict(fleet)) == 2)
    assert (fleet.marks(), fleet.evicted()) == ({}, [])
    assert sorted(fleet.recorded()) == sorted(
        [
            ("default/marked", "DeviceFailedOver", "wrote"),
            *(
                (f"default/{name}", what, "wouldWrite")
                for name in ("marked", "p")
                for what in ("DeviceFailed", "EvictedFromFailedDevice")
            ),
        ]
    )


TWO_BAD = [b.node(name, gpus=1, own=b.health(0.0)) for name in ("a", "b")]
TWO_PODS = (on("on-a", "a"), on("on-b", "b"))


async def test_a_dry_run_keeps_to_the_rate(fleet: Fleet) -> None:
    fleet.each_look_s = ENDS_WITHIN_S + 1
    fleet.led(dry_run=True, evictions_per_second=0.001)
    await fleet.look(*TWO_BAD, FREE, pods=TWO_PODS, looks=4)
    assert len(would_evict(fleet)) == 1


async def test_a_dry_run_keeps_to_the_share_of_pods_that_would_be_ending(
    fleet: Fleet,
) -> None:
    fleet.led(dry_run=True)
    await fleet.look(*TWO_BAD, FREE, pods=TWO_PODS, looks=4)
    assert len(would_evict(fleet)) == 1
    assert "evicted later, by deviceFailures.maxShare: 1 pod" in str(fleet.steward.notes())
    fleet.each_look_s = ENDS_WITHIN_S + 1
    await fleet.look_until(lambda: would_evict(fleet) == ["default/on-a", "default/on-b"])
    assert fleet.evicted() == []


async def test_a_dry_run_asks_the_api_server_and_says_once_if_it_may_not(
    fleet: Fleet,
) -> None:
    fleet.each_look_s = ENDS_WITHIN_S + 1
    fleet.led(dry_run=True)
    await fleet.look(BAD, FREE, pods=(on(),), looks=4)
    (asked,) = [one for one in fleet.api.asked if one.target.plural == "evictions"]
    assert asked.query == {"dryRun": "All"}
    assert would_evict(fleet) == ["default/p"]

    fleet.led(dry_run=True)
    fleet.api.forbidden.add(("create", "evictions"))
    with capture_logs() as logs:
        await fleet.look(*TWO_BAD, FREE, pods=TWO_PODS)
        await fleet.look_until(lambda: len(would_evict(fleet)) == 3)
    (said,) = [one["event"] for one in logs if "remedy" in one]
    assert said == "PodDisruptionBudgets cannot be asked what they would allow"
    (note,) = [one for one in fleet.steward.notes() if "PodDisruptionBudgets" in one]
    assert "(deploy/rbac/optional/pod-evictions.yaml grants the rights)" in note


async def test_what_would_be_evicted_delays_nothing_that_is(fleet: Fleet) -> None:
    """As where one namespace is observed only."""
    observed = on("on-a", "a", namespace="observed")
    modes = {"observed": {"fettle.dev/mode": "observe"}}
    fleet.led(evictions_per_second=0.001)
    await fleet.look(*TWO_BAD, FREE, pods=(observed, TWO_PODS[1]), looks=4, namespaces=modes)
    assert sorted(would_evict(fleet)) == ["default/on-b", "observed/on-a"]
    assert fleet.evicted() == ["on-b"]


async def test_in_a_dry_run_it_is_recorded_why_a_pod_would_not_be_evicted(fleet: Fleet) -> None:
    fleet.led(dry_run=True)
    await fleet.look(BAD, pods=(on(),), looks=4)
    assert ("default/p", "EvictionWaits", "wouldWrite") in fleet.recorded()
    assert would_evict(fleet) == []
