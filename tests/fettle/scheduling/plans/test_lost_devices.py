"""Devices that nodes have lost: which of them somebody repairs a node for, and which nodes are
cordoned."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from fettle.cluster import NodeView
from fettle.config import BreakerSettings, NodeMarkSettings
from fettle.model import SOUND
from fettle.scheduling.plans import LostDevices, lost_devices, plan_cordons
from tests.fettle import building as b
from tests.fettle.scheduling.plans.builders import CORDONS, NOW, OURS, health_of, lacking, node


def sound(number: int) -> list[NodeView]:
    return [node(f"sound-{i}", SOUND, SOUND) for i in range(number)]


def lost(*nodes: NodeView, share: float = 0.2, now: float = NOW) -> LostDevices:
    healths = {one.name: health_of(one) for one in nodes}
    return lost_devices(healths, BreakerSettings(max_excluded_share=share), now)


def cordoned(*nodes: NodeView, settings: NodeMarkSettings = CORDONS) -> set[str]:
    healths = {one.name: health_of(one) for one in nodes}
    gone = lost_devices(healths, BreakerSettings(), NOW)
    return set(plan_cordons({n.name: n for n in nodes}, healths, settings, NOW, gone).nodes)


def test_what_is_missing_is_lost_from_its_time_on_and_that_time_is_known() -> None:
    later = lacking("later", lost_at=NOW + 50)
    found = lost(lacking("gone"), later, lacking("last", lost_at=NOW + 90), *sound(9))
    assert set(found.nodes) == {"gone"}
    assert found.due == NOW + 50
    assert lost(*sound(2)).due == inf
    assert set(lost(later, now=NOW + 50).nodes) == {"later"}


def test_what_a_node_lost_changes_nothing_of_what_is_there() -> None:
    whole, part = health_of(node("n", SOUND)), health_of(lacking("n"))
    assert part.missing
    assert part._replace(missing=()) == whole


@pytest.mark.parametrize(
    ("lacking_nodes", "sound_nodes", "is_set_aside"),
    [(1, 0, False), (2, 0, False), (3, 0, True), (3, 11, True), (3, 12, False), (21, 80, True)],
)
def test_where_several_nodes_and_a_fifth_of_them_lack_devices_nothing_is_begun(
    lacking_nodes: int, sound_nodes: int, *, is_set_aside: bool
) -> None:
    """It is likelier that too many are expected."""
    nodes = [*(lacking(f"n{i}") for i in range(lacking_nodes)), *sound(sound_nodes)]
    found = lost(*nodes)
    assert len(found.nodes) == lacking_nodes
    assert bool(found.set_aside) == is_set_aside
    assert bool(found.acted_on("n0")) == (not is_set_aside)
    assert bool(cordoned(*nodes)) == (not is_set_aside)
    if is_set_aside:
        assert found.set_aside == {b.DRIVER: (lacking_nodes, lacking_nodes + sound_nodes)}


def test_whoever_raises_the_breakers_share_to_one_has_nothing_set_aside() -> None:
    assert not lost(*(lacking(f"n{i}") for i in range(9)), share=1.0).set_aside


def test_a_node_is_cordoned_for_lost_devices_as_for_unhealthy_ones() -> None:
    part, whole = lacking("part"), lacking("whole", found=0)
    new = lacking("new", lost_at=NOW - 30)
    assert cordoned(part, whole, *sound(9)) == {"part", "whole"}
    assert cordoned(new, *sound(9)) == set()  # not for confirmSeconds yet
    every = msgspec.structs.replace(CORDONS, cordon="EveryDevice")
    assert cordoned(part, whole, *sound(9), settings=every) == {"whole"}
    one = msgspec.structs.replace(CORDONS, max_cordoned=1)
    assert cordoned(part, lacking("older", lost_at=1.0), *sound(9), settings=one) == {"older"}


def test_a_node_that_is_cordoned_stays_so_while_its_loss_is_set_aside() -> None:
    ours = msgspec.structs.replace(lacking("ours"), **OURS)
    assert cordoned(ours, lacking("a"), lacking("b")) == {"ours"}
