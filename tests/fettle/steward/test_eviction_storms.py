"""How many pods are marked and evicted while the faults of a whole fleet come and go for minutes.
The figures of a big fleet are made by `make bench ARGS=evictions`."""

from __future__ import annotations

import pytest

from tests.bench import evictions, storms

NODES = 60


async def test_a_fleet_that_reboots_has_no_pod_marked_or_evicted() -> None:
    assert (await evictions.weather(storms.reboots, NODES)).total == 0


@pytest.mark.long
async def test_pods_on_devices_that_come_and_go_are_evicted_at_the_rate_and_no_mark_stays() -> None:
    acts = await evictions.weather(storms.ever_more_flap, NODES)
    assert 0 < acts.writes["evicted"] <= evictions.MOST_EVICTED
    marks = acts.total - acts.writes["evicted"]
    assert 0 < marks <= evictions.MOST_MARKS * NODES / 2
    assert acts.left == 0
