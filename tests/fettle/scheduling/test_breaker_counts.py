"""Incremental counts of breakers equal a full count of the same view."""

import asyncio
import copy
from collections import defaultdict
from collections.abc import Mapping
from statistics import median_low
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fettle.api import core
from fettle.cluster import NodeView, PluginView, Publisher, UnitView
from fettle.config import BreakerSettings, HealthSettings
from fettle.dra import PoolView
from fettle.model import BUILT_IN, SOUND, DeviceId, Health, Policies, Policy, State, Unknown
from fettle.pacing import taking_turns
from fettle.scheduling.breaker import Alarm, Breakers
from fettle.scheduling.judge.acceptance import Cause, Causes, by_cause, complaint
from fettle.scheduling.judge.units import allocatable_units
from tests.fettle import building as b

SETTINGS = BreakerSettings(min_nodes=2)
SOURCES = ("test", "a", "b", "c")
NAMES = [f"n{i}" for i in range(5)]
NIC = "nic.example.com"
CORDONED = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
POOLS = (b.RESOURCE, b.DRIVER, NIC)
TRAINING, INFERENCE = BUILT_IN["training"], BUILT_IN["inference"]
POLICIES = dict(BUILT_IN) | {
    name: Policy(name=name, placement=placement)
    for name, placement in (
        *((f"min-{s}", replace(INFERENCE.placement, min_score=s)) for s in (0, 0.6, 1)),
        ("known", replace(TRAINING.placement, unknown=Unknown.REFUSE)),
    )
}
HEALTHS = (
    SOUND,
    Health(1.0, State.HEALTHY),
    b.health(0.9),
    b.health(0.6),
    b.health(0.3),
    b.health(0.1),
    b.health(0.1, held=True),
    b.UNKNOWN,
    replace(b.health(0.85), state=State.DEGRADED),
    replace(b.health(0.5), state=State.HEALTHY, tenant_caused=0.35),
    b.ill(("a", 0.5)),
    b.ill(("a", 0.9), ("b", 0.5)),
    b.ill(("a", 0.15), ("b", 0.15)),
    b.ill(("a", 0.15), ("b", 0.15), ("c", 1.0)),
)
Shares = dict[str, dict[str, Any]]
"""By pool and the source of the evidence."""


def plain_count(nodes: Mapping[str, NodeView], policy: Policy) -> tuple[Shares, set[str], set[str]]:
    """The share of each pool that each source alone refuses; the pools where one refuses too much,
    also of the nodes; and the large ones among these."""
    refused: dict[str, dict[str, list[frozenset[str]]]] = defaultdict(lambda: defaultdict(list))
    network: dict[str, set[tuple[DeviceId, Causes, frozenset[str]]]] = defaultdict(set)
    on: dict[str, set[str]] = defaultdict(set)

    def is_refused(health: Health) -> frozenset[str]:
        found = dict.fromkeys(w.evidence.source.name for w in health.evidence)
        if health.held:
            return frozenset()
        alone = {s: health if len(found) == 1 else _by(s, health) for s in found}
        return frozenset(s for s, h in alone.items() if complaint(h, policy.placement))

    for node in nodes.values():
        if CORDONED in node.taints:
            continue
        for plugin in node.plugins.values():
            if plugin.allocatable:
                on[plugin.resource].add(node.name)
                drawn = allocatable_units(plugin)
                for health, number in (*drawn.named, (node.health, drawn.rest)):
                    refused[plugin.resource][node.name] += [is_refused(health)] * number
        for pool in node.pools:
            on[pool.driver].add(node.name)
            for device in pool.devices:
                if device.published.local:
                    refused[pool.driver][node.name].append(is_refused(device.health))
                else:
                    known = by_cause(device.health, HealthSettings())
                    network[pool.driver].add((device.id, known, is_refused(device.health)))
    shares: Shares = {}
    set_aside = set()
    for name in POOLS:
        own = [each for each in refused[name].values() if each]
        most = 2 * median_low([len(each) for each in own]) if own else 0
        far = [by for _, _, by in network[name]]
        total = len(far) + sum(min(len(each), most) for each in own)
        limit = SETTINGS.max_excluded_share if len(on[name]) >= SETTINGS.min_nodes else 0.5
        shares[name] = {}
        for source in SOURCES:
            of_network = sum(source in each for each in far)
            of_nodes = [sum(source in device for device in each) for each in own]
            counted = sum(
                n * min(1, most / len(each)) for n, each in zip(of_nodes, own, strict=True)
            )
            if (condemned := of_network + counted) > 0:
                shares[name][source] = pytest.approx(condemned / total)
            spoiled = sum(1 for n in of_nodes if n)
            many = spoiled > limit * len(on[name]) or of_network > limit * total
            if condemned > limit * total + 1e-9 and many:
                set_aside.add(name)
    large = {name for name in POOLS if len(on[name]) >= SETTINGS.min_nodes}
    return shares, set_aside, set_aside & large


def _by(source: str, health: Health) -> Health:
    """The health that one source alone would give."""
    (weight,) = [w.weight for w in health.evidence if w.evidence.source.name == source]
    return b.ill((source, weight))


healths = st.sampled_from(HEALTHS)


@st.composite
def pool_views(draw: st.DrawFn, *local: str) -> PoolView:
    """A pool whose devices each belong to one of these nodes, or ("") to the network."""
    driver, devices = draw(st.sampled_from((b.DRIVER, NIC))), []
    for i, of in enumerate(draw(st.lists(st.sampled_from(local), max_size=4))):
        device = b.device(f"{of}-{i}", driver=driver, pool="", local=of)
        devices.append(replace(device, health=draw(healths)))
    return PoolView(driver, "", tuple(devices))


@st.composite
def node_views(draw: st.DrawFn, name: str, shared: list[PoolView]) -> NodeView:
    """A node with plugin resources, pools of its own, shared ones and copies of shared ones."""
    plugins = {}
    if draw(st.booleans()):
        allocatable, named = draw(st.integers(0, 4)), draw(st.lists(healths, max_size=3))
        withdrawn = draw(st.integers(0, 1))
        units = [UnitView(f"u{i}", one, withdrawn=withdrawn) for i, one in enumerate(named)]
        plugins[b.RESOURCE] = PluginView(b.RESOURCE, 4, allocatable, tuple(units))
    pools = draw(st.lists(pool_views(name, ""), max_size=2))
    pools += draw(st.lists(st.sampled_from(shared), max_size=2))
    pools += map(copy.copy, draw(st.lists(st.sampled_from(shared), max_size=2)))
    taints = (CORDONED,) if draw(st.integers(0, 3)) == 3 else ()
    return NodeView(name, {}, draw(healths), plugins, tuple(pools), taints=taints)


@st.composite
def fleets(draw: st.DrawFn) -> list[dict[str, NodeView]]:
    """Views one after another: nodes come, change, stay as they are, and go."""
    shared = draw(st.lists(pool_views("", *NAMES[:1]), min_size=1, max_size=3))
    fleet: dict[str, NodeView] = {}
    views = []
    for _ in range(draw(st.integers(1, 5))):
        fleet = dict(fleet)
        for name in draw(st.sets(st.sampled_from(NAMES))):
            fleet.pop(name, None)
            if draw(st.integers(0, 3)):
                fleet[name] = draw(node_views(name, shared))
        views.append(fleet)
    return views


class Watched:
    """Breakers over published views, and what has an alarm, by policy."""

    def __init__(self) -> None:
        self.publisher = Publisher()
        self.told: dict[str, set[tuple[str, Cause]]] = defaultdict(set)
        self.breakers = Breakers(
            self.publisher, SETTINGS, HealthSettings(), Policies(POLICIES), self._turned
        )

    def _turned(self, alarm: Alarm, begins: bool) -> None:
        told = alarm.pool, alarm.cause
        assert begins is (told not in self.told[alarm.policy])
        assert alarm.condemned > 0
        self.told[alarm.policy] ^= {told}

    def alarmed(self, policy: Policy) -> set[str]:
        """The pools that a policy has alarms for."""
        return {pool for pool, _ in self.told[policy.name]}

    def show(self, nodes: dict[str, NodeView]) -> None:
        before = self.publisher.view
        view = b.view(generation=before.generation + 1, basis=before.basis + 1, nodes=nodes)
        names = before.nodes.keys() | nodes.keys()
        changed = {n for n in names if before.nodes.get(n) is not nodes.get(n)}
        self.publisher.publish(view, frozenset(changed))

    def count(self, policy: Policy) -> tuple[Shares, set[str], set[str]]:
        breaker = self.breakers.of(policy.placement)
        self.breakers.set_aside()
        shares = {
            pool: {
                cause.source.name: share for cause, share in breaker.shares(pool).items() if share
            }
            for pool in POOLS
        }
        return shares, {*breaker.set_aside}, {*breaker.not_acted_on}


asked = st.lists(st.sampled_from(list(POLICIES.values())), max_size=3)


@pytest.mark.long
@settings(max_examples=200)
@given(fleets(), st.data())
def test_incremental_counts_equal_a_full_count(
    views: list[dict[str, NodeView]], data: st.DataObject
) -> None:
    watched = Watched()
    for nodes in views:
        watched.show(nodes)
        for policy in data.draw(asked):
            expected = plain_count(nodes, policy)
            assert watched.count(policy) == expected
            assert watched.alarmed(policy) == expected[2]


@pytest.mark.long
@settings(max_examples=60)
@given(fleets(), st.data())
def test_requests_see_whole_counts_while_nodes_are_counted_in_time_slices(
    views: list[dict[str, NodeView]], data: st.DataObject
) -> None:
    async def run() -> None:
        watched = Watched()
        keeping = asyncio.create_task(watched.breakers.keep())
        await asyncio.sleep(0)
        policies = data.draw(asked.filter(bool))
        shown: list[dict[str, NodeView]] = [{}]
        reached = {policy.name: 0 for policy in policies}
        for nodes in views:
            for policy in policies:
                count = watched.count(policy)
                while count != plain_count(shown[reached[policy.name]], policy):
                    reached[policy.name] += 1
            watched.show(nodes)
            shown.append(nodes)
            for _ in range(data.draw(st.integers(0, 8))):
                await asyncio.sleep(0)
        for _ in range(500):
            await asyncio.sleep(0)
        for policy in policies:
            expected = plain_count(views[-1], policy)
            assert watched.alarmed(policy) == expected[2]
            assert watched.count(policy) == expected
        keeping.cancel()
        await asyncio.wait([keeping])

    with taking_turns(slice_s=0.0):
        asyncio.run(run())


@pytest.mark.usefixtures("turns_at_each_pause")
@pytest.mark.parametrize("turns", range(12))
async def test_a_cancelled_count_starts_over(turns: int) -> None:
    watched, fabric = Watched(), b.pool(*(b.device(f"f{i}", 0.1, local="") for i in range(4)))
    watched.show({name: b.node(name, gpus=1, pools=(fabric,)) for name in NAMES})
    keeping = asyncio.create_task(watched.breakers.keep())
    for _ in range(turns):
        await asyncio.sleep(0)
    keeping.cancel()
    await asyncio.wait([keeping])
    assert watched.count(TRAINING) == plain_count(watched.publisher.view.nodes, TRAINING)


def test_nodes_removed_many_views_ago_no_longer_count() -> None:
    watched = Watched()
    watched.show({name: b.node(name, gpus=1, own=b.health(0.1)) for name in NAMES})
    assert watched.count(TRAINING)[1] == {b.RESOURCE}
    nodes = {name: b.node(name, gpus=1) for name in NAMES[:2]}
    for _ in range(300):
        watched.show(nodes)
    assert watched.count(TRAINING) == plain_count(nodes, TRAINING)


def test_a_failed_count_leaves_nothing_behind() -> None:
    fabric = b.pool(*(b.device(f"f{i}", 0.1, local="") for i in range(4)))
    nodes = {name: b.node(name, gpus=1, pools=(fabric,)) for name in NAMES}
    no_pool: Any = None
    for after in ({**nodes, "n3": b.node("n3")}, {"n1": b.node("n1", gpus=2)}, {}):
        watched = Watched()
        watched.show(nodes)
        assert watched.count(TRAINING)[1] == {b.DRIVER}
        watched.show({**nodes, "n3": b.node("n3", pools=(fabric, no_pool))})
        with pytest.raises(AttributeError):
            watched.count(TRAINING)
        watched.show(after)
        assert watched.count(TRAINING) == plain_count(after, TRAINING)
