"""How much is written while the faults of a whole fleet come and go for minutes. The figures of a
big fleet are made by `make bench ARGS=taints`."""

from __future__ import annotations

import pytest

from tests.bench import storms, taints

NODES = 100


async def test_a_fleet_that_reboots_writes_nothing() -> None:
    assert (await taints.weather(storms.reboots, NODES)).total == 0


async def test_a_device_that_comes_and_goes_has_one_rule_that_outlasts_the_storm() -> None:
    written = await taints.weather(storms.some_flap, NODES)
    assert written.devices == NODES / 50
    assert written.writes == dict.fromkeys(("new", "changed", "removed"), written.devices)
    assert written.left == 0


@pytest.mark.long
async def test_a_fault_that_spreads_over_the_fleet_leaves_no_rule_behind() -> None:
    written = await taints.weather(storms.ever_more_flap, NODES)
    assert 0 < written.devices <= NODES / 2
    assert written.total <= 20 * written.devices
    assert written.left == 0
