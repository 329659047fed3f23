"""Pools of the network, which nodes see by their labels: whatever changes, each node sees what the
allocator would gather for it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core, kinds, resource
from fettle.cluster.inventory.devices import Regions
from fettle.cluster.inventory.gathered_pools import PoolId, gather, pool_of
from fettle.cluster.view import NodeView
from fettle.dra import CURRENT, NodeTarget, PublishedSlice, Target
from fettle.dra.pools import read_slice
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node

NODES = ("a", "b", "c")
RACKS = ("", "r1", "r2")


def selector(operator: str, *values: str) -> dict[str, Any]:
    requirement = {"key": "rack", "operator": operator, "values": values}
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}


WHERE: dict[str, dict[str, Any]] = {
    "rack 1": {"nodeSelector": selector("In", "r1")},
    "not in rack 1": {"nodeSelector": selector("NotIn", "r1")},
    "some rack": {"nodeSelector": selector("Exists")},
    "everywhere": {"allNodes": True},
    "on a": {"nodeName": "a"},
    "on b": {"nodeName": "b"},
    "by device": {"perDeviceNodeSelection": True},
    "malformed": {"nodeSelector": selector("Near", "r1")},
    "nowhere": {},
}
BY_DEVICE: list[dict[str, Any]] = [
    {"nodeName": "b"},
    {"nodeSelector": selector("In", "r2")},
    {"allNodes": True},
]


def slice_(name: str, where: str, pool: str, generation: int, count: int) -> dict[str, Any]:
    devices: list[dict[str, Any]] = [{"name": f"{name}-{i}"} for i in range(2)]
    if where == "by device":
        devices = [{**one, **at} for one, at in zip(devices, BY_DEVICE, strict=False)]
    of = {"name": pool, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": b.DRIVER, "pool": of, "devices": devices, **WHERE[where]}
    return {"metadata": {"name": name}, "spec": spec}


NODE = st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(RACKS))
SLICE = st.tuples(
    st.just("slice"),
    st.sampled_from(["s", "t", "u"]),
    st.sampled_from(list(WHERE)),
    st.sampled_from(["p", "q"]),
    st.integers(1, 2),
    st.integers(1, 2),
)
CLAIM = st.tuples(st.just("claim"), st.sampled_from(["s-0", "t-1"]), st.sampled_from(["p", "q"]))
GONE = st.tuples(st.just("gone"), st.sampled_from([*NODES, "s", "t", "u"]))


class Cluster:
    """A fleet, and the slices and labels that it should go by."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.slices: dict[str, PublishedSlice] = {}
        self.places: dict[str, NodeTarget] = {}

    def apply(self, change: tuple[Any, ...]) -> None:
        match change:
            case ("node", name, rack):
                self.places[name] = NodeTarget(name, {"rack": rack} if rack else {})
                self.fleet.put(kinds.NODE, node(name, labels=self.places[name].labels))
            case ("slice", name, *_):
                raw = slice_(*change[1:])
                self.fleet.put(kinds.SLICE, raw)
                self.slices[name] = read_slice(msgspec.convert(raw, resource.ResourceSlice))
            case ("claim", device, pool):
                self.fleet.put(kinds.CLAIM, claim(f"{pool}-{device}", device, pool=pool))
            case ("gone", name):
                kind = kinds.NODE if name in NODES else kinds.SLICE
                self.fleet.inventory.remove(kind, name, self.fleet.now)
                self.places.pop(name, None)
                self.slices.pop(name, None)

    def gathered(self, name: str) -> list[Any]:
        """What the allocator would, of each pool."""
        by_pool: dict[PoolId, list[PublishedSlice]] = {}
        for found in sorted(self.slices.values(), key=lambda s: s.name):
            by_pool.setdefault(pool_of(found.raw), []).append(found)
        return [
            (pool.pool, [(p.id.device, here) for p, here, _ in g.devices], g.incomplete, g.invalid)
            for pool, slices in sorted(by_pool.items())
            if (g := gather(pool, slices, self.places[name], CURRENT.features)) is not None
        ]


def shown(record: NodeView) -> list[Any]:
    return [
        (pool.name, [(d.id.device, d.here) for d in pool.devices], pool.incomplete, pool.invalid)
        for pool in record.pools
    ]


@given(st.lists(NODE | SLICE | SLICE | CLAIM | GONE, max_size=30))
def test_each_node_sees_what_would_be_gathered_for_it(changes: list[tuple[Any, ...]]) -> None:
    stepwise, at_once = Cluster(), Cluster()
    for change in changes:
        stepwise.apply(change)
        at_once.apply(change)
        for name, record in stepwise.fleet.look().nodes.items():
            assert shown(record) == stepwise.gathered(name)
    assert stepwise.fleet.look().nodes == at_once.fleet.look().nodes


def test_nodes_that_see_the_same_of_a_pool_share_it(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_("s", "rack 1", "p", 1, 1))
    for name, rack in zip(NODES, ("r1", "r1", "r2"), strict=True):
        fleet.put(kinds.NODE, node(name, labels={"rack": rack}))
    seen = fleet.look().nodes
    (pool,) = seen["a"].pools
    assert seen["b"].pools[0] is pool
    assert not seen["c"].pools


def test_only_the_nodes_that_see_a_pool_are_looked_at_when_it_changes(fleet: Fleet) -> None:
    fleet.put(kinds.SLICE, slice_("s", "rack 1", "p", 1, 1))
    for name, rack in zip(NODES, ("r1", "r2", ""), strict=True):
        fleet.put(kinds.NODE, node(name, labels={"rack": rack}))
    fleet.look()

    def steps() -> int:
        return sum(1 for _ in fleet.inventory.refresh(fleet.now))

    where_nothing_changed = steps()
    for raw in (slice_("s", "rack 1", "p", 2, 1), slice_("s", "not in rack 1", "p", 3, 1)):
        fleet.put(kinds.SLICE, raw)
        looked_at = steps() - where_nothing_changed
        assert looked_at == (1 if "NotIn" not in str(raw) else len(NODES))


@pytest.mark.parametrize("times", [1, 2])
def test_a_region_lasts_as_long_as_somebody_holds_it(times: int) -> None:
    regions, at = Regions(), NodeTarget("a", {"rack": "r1"})
    raw = msgspec.convert(selector("In", "r1"), core.NodeSelector)
    held = [regions.hold(Target(None, None, raw)) for _ in range(times)]
    assert regions.around(at) == {held[0]}
    for region in held:
        assert regions.around(at) == {held[0]}
        regions.release(region)
    assert regions.around(at) == set()


def test_a_node_that_left_is_in_no_region_but_its_own_name_s() -> None:
    regions, at = Regions(), NodeTarget("a", {"rack": "r1"})
    raw = msgspec.convert(selector("In", "r1"), core.NodeSelector)
    rack, own = regions.hold(Target(None, None, raw)), regions.hold(Target("a", None, None))
    assert regions.around(at) == {rack, own}
    regions.forget("a")
    assert (rack.nodes, own.nodes) == (set(), {"a"})
    assert regions.around(NodeTarget("a", {})) == {own}
