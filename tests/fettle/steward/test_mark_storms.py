"""How much is written on Nodes while the faults of a whole fleet come and go for minutes. The
figures of a big fleet are made by `make bench ARGS=marks`."""

from __future__ import annotations

import pytest

from tests.bench import marks, storms

NODES = 100


async def test_a_reboot_of_the_whole_fleet_writes_nothing() -> None:
    assert (await marks.weather(storms.reboots, NODES)).total == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("storm", "nodes"),
    [
        (storms.some_flap, NODES / 50),
        (storms.ever_more_flap, NODES / 2),
        (storms.all_flap, NODES),
    ],
)
async def test_devices_that_come_and_go_write_a_few_times_and_all_is_as_before_in_the_end(
    storm: storms.Storm, nodes: int
) -> None:
    marked = await marks.weather(storm, NODES)
    assert marked.nodes == nodes
    assert 0 < marked.total <= marks.MOST_PER_NODE * nodes
    assert marked.left == 0
