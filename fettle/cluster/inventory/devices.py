"""The DRA devices of a cluster as published: pools from slices, the rules that taint them, and who
holds what. Says which nodes a change concerns; knows nothing of health, pods or views. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

import msgspec

from fettle.api import Pools, resource
from fettle.cluster.inventory import pools, shapes
from fettle.cluster.inventory.generations import standing
from fettle.cluster.inventory.holdings import Holdings
from fettle.cluster.inventory.pools import Gathered, PoolId
from fettle.cluster.inventory.regions import Region, Regions
from fettle.cluster.inventory.tainting import Tainting
from fettle.dra import (
    CURRENT,
    Features,
    NodeTarget,
    PublishedDevice,
    PublishedSlice,
    Target,
    read_slice,
)
from fettle.model import DeviceId


class Effect(NamedTuple):
    """What a change of slices concerns: of the pool, what these `nodes` see of it (None: all).

    `gone` and `come` are devices, `rules` the DeviceTaintRules that may now select other ones.
    """

    pool: PoolId
    nodes: frozenset[str] | None
    gone: set[DeviceId]
    come: set[DeviceId]
    rules: set[str]


class Vantage(NamedTuple):
    """What of a pool a node sees depends on this alone: its name, if slices name it, else "", and
    which of the pool's regions it is in."""

    node: str
    regions: frozenset[Region]


class Speech(NamedTuple):
    """A slice, and the devices of its pool that it speaks for."""

    slice: PublishedSlice
    devices: tuple[PublishedDevice, ...]
    ids: frozenset[DeviceId]


class _Pool:
    """All slices that carry one pool's name, and what nodes see of them.

    `nodes` are named by slices, `regions` those of the slices that name none and of their devices.
    `spoken` is who speaks for which devices, by name of the slice, `news` what of that is new.
    """

    def __init__(self) -> None:
        self.slices: dict[str, PublishedSlice] = {}
        self.nodes: frozenset[str] = frozenset()
        self.regions: frozenset[Region] = frozenset()
        self.ids: frozenset[DeviceId] = frozenset()
        self.spoken: dict[str, Speech] = {}
        self.news: list[Speech] = []
        self.seen: dict[Vantage, Gathered | None] = {}
        self._held: dict[str, list[Region]] = {}

    def put(self, new: PublishedSlice, regions: Regions) -> None:
        before = self._held.get(new.name, ())
        self._held[new.name] = [regions.hold(target) for target in _targets(new)]
        for region in before:
            regions.release(region)
        self.slices[new.name] = new

    def drop(self, name: str, regions: Regions) -> None:
        if self.slices.pop(name, None) is not None:
            for region in self._held.pop(name):
                regions.release(region)

    def settle(self) -> None:
        """Note what follows from the slices, after they changed."""
        slices = [self.slices[name] for name in sorted(self.slices)]
        self.slices = {s.name: s for s in slices}
        self.nodes = frozenset(s.node for s in slices if s.node)
        self.regions = frozenset(region for held in self._held.values() for region in held)
        before = self.spoken
        self.spoken = {s.name: _speech(s, devices, before) for s, devices in standing(slices)}
        self.news = [s for s in self.spoken.values() if s is not before.get(s.slice.name)]
        self.ids = frozenset().union(*(speech.ids for speech in self.spoken.values()))
        self.seen.clear()

    def reach(self) -> frozenset[str] | None:
        """The nodes that may see something of it; None: all."""
        if any(region.everywhere for region in self.regions):
            return None
        return self.nodes.union(*(region.nodes for region in self.regions))


def _speech(
    slice_: PublishedSlice, devices: tuple[PublishedDevice, ...], before: Mapping[str, Speech]
) -> Speech:
    """The same as before, if nothing of it is new."""
    known = before.get(slice_.name)
    if known is not None and known.slice is slice_ and known.devices == devices:
        return known
    return Speech(slice_, devices, frozenset(p.id for p in devices))


def _targets(slice_: PublishedSlice) -> Iterator[Target]:
    """The nodes that a slice of the network is for, or each of its devices."""
    if slice_.node:
        return
    if slice_.target is not None:
        yield slice_.target
    elif slice_.per_device:
        yield from {p.target for p in slice_.devices if p.target is not None}


class Devices:
    """Put and drop slices, rules and claims' devices; ask what there is on a node."""

    def __init__(self, features: Features = CURRENT.features) -> None:
        self.taints = Tainting()
        self.holdings = Holdings(shares=features.consumable_capacity)
        self._features = features
        self._pools: dict[PoolId, _Pool] = {}
        self._on_node: dict[str, set[PoolId]] = defaultdict(set)
        self._everywhere: set[PoolId] = set()
        self._regions = Regions()

    def pools_on(self, place: NodeTarget) -> list[tuple[Gathered, Vantage]]:
        """All pools with devices for this node, in the allocator's order. Nodes with equal vantages
        see the same of a pool."""
        around = self._regions.around(place)
        wanted = self._on_node.get(place.name, _NONE) | self._everywhere
        seen = []
        for pool in wanted.union(*(region.pools for region in around)):
            vantage, gathered = self._gather(pool, place, around)
            if gathered is not None:
                seen.append((gathered, vantage))
        return sorted(seen, key=lambda one: one[0].order)

    def published_by(self, node: str) -> Iterator[PublishedDevice]:
        """Devices of slices that name this node, whether or not their pools are complete."""
        for pool in sorted(self._on_node.get(node, ())):
            for slice_ in self._pools[pool].slices.values():
                if slice_.node == node:
                    yield from slice_.devices

    def not_seen_by(self, node: str) -> None:
        """The node is gone: nothing is kept of what it saw."""
        self._regions.forget(node)
        for pool in self._on_node.get(node, _NONE):
            seen = self._pools[pool].seen
            for vantage in [one for one in seen if one.node == node]:
                del seen[vantage]

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        """The nodes that may see something of a pool; None: all."""
        known = self._pools.get(pool)
        return known.reach() if known is not None else frozenset()

    def put_slice(
        self, old: resource.ResourceSlice | None, new: resource.ResourceSlice
    ) -> list[Effect]:
        effects = []
        if old is not None and pools.pool_of(old) != pools.pool_of(new):
            effects.append(self.drop_slice(old))
        return [*effects, self._change(pools.pool_of(new), new.metadata.name, new)]

    def drop_slice(self, slice_: resource.ResourceSlice) -> Effect:
        return self._change(pools.pool_of(slice_), slice_.metadata.name, None)

    def news_of(self, slice_: resource.ResourceSlice) -> list[Speech]:
        """The slices of this one's pool that the last change made say anything new."""
        known = self._pools.get(pools.pool_of(slice_))
        return known.news if known is not None else []

    def selected_pools(self, rule: resource.DeviceTaintRule) -> list[PoolId]:
        """Pools of which a rule may select devices."""
        selector = rule.spec.device_selector
        return self.among(Pools(selector.driver, selector.pool)) if selector is not None else []

    def among(self, pools: Pools) -> list[PoolId]:
        """Those of the pools that there are."""
        if pools.driver is not None and pools.pool is not None:
            pool = PoolId(pools.driver, pools.pool)
            return [pool] if pool in self._pools else []
        return [p for p in self._pools if pools.include(p.driver, p.pool)]

    def in_pools(self, wanted: Iterable[PoolId]) -> Iterable[DeviceId]:
        for pool in wanted:
            if pool in self._pools:
                yield from self._pools[pool].ids

    def _gather(
        self, pool: PoolId, place: NodeTarget, around: Set[Region]
    ) -> tuple[Vantage, Gathered | None]:
        known = self._pools[pool]
        named = place.name if place.name in known.nodes else ""
        vantage = Vantage(named, known.regions & around)
        if vantage not in known.seen:
            gathered = pools.gather(pool, list(known.slices.values()), place, self._features)
            if gathered is not None:
                look, attribute_fingerprints = shapes.slice_fingerprints(gathered)
                gathered = msgspec.structs.replace(
                    gathered, look=look, attribute_fingerprints=attribute_fingerprints
                )
            known.seen[vantage] = gathered
        return vantage, known.seen[vantage]

    def _change(self, pool: PoolId, name: str, new: resource.ResourceSlice | None) -> Effect:
        known = self._pools.setdefault(pool, _Pool())
        nodes, regions, ids = known.nodes, known.regions, known.ids
        saw = known.reach()
        if new is not None:
            known.put(read_slice(new), self._regions)
        else:
            known.drop(name, self._regions)
        known.settle()
        see = known.reach()
        self._index(pool, nodes, regions)
        if not known.slices:
            del self._pools[pool]
        return Effect(
            pool=pool,
            nodes=saw | see if saw is not None and see is not None else None,
            gone=set(ids - known.ids),
            come=set(known.ids - ids),
            rules=self.taints.rules_for(pool) if ids != known.ids else set(),
        )

    def _index(self, pool: PoolId, nodes: frozenset[str], regions: frozenset[Region]) -> None:
        """Of a pool that had these `nodes` and `regions` before."""
        known = self._pools[pool]
        for node in nodes - known.nodes:
            self._on_node[node].discard(pool)
            if not self._on_node[node]:
                del self._on_node[node]
        for node in known.nodes - nodes:
            self._on_node[node].add(pool)
        for region in regions - known.regions:
            region.pools.discard(pool)
        for region in known.regions - regions:
            region.pools.add(pool)
        everywhere = any(region.everywhere for region in known.regions)
        (self._everywhere.add if everywhere else self._everywhere.discard)(pool)


_NONE: frozenset[PoolId] = frozenset()
