"""The DRA devices of a cluster as published: pools from slices, the rules that taint them, and who
holds what. Says which nodes a change concerns; knows nothing of health, pods or views. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from fettle import published
from fettle.affinity import Place
from fettle.allocator.profiles import CURRENT, Features
from fettle.inventory import pools, shapes
from fettle.inventory.generations import standing
from fettle.inventory.holdings import Holdings
from fettle.inventory.pools import Gathered, PoolId
from fettle.inventory.tainting import Tainting
from fettle.model import DeviceId
from fettle.published import Published, Slice
from fettle.wire import resource
from fettle.wire.changes import Pools


class Effect(NamedTuple):
    """What a change of slices concerns: `everywhere` means all nodes, for devices of the network.

    `gone` and `come` are devices, `rules` the DeviceTaintRules that may now select other ones.
    """

    nodes: set[str]
    everywhere: bool
    gone: set[DeviceId]
    come: set[DeviceId]
    rules: set[str]


class _Pool:
    """All slices that carry one pool's name, and what nodes see of them.

    `nodes` are named by slices; `network`: a slice names none; `common`: all nodes see the same.
    """

    def __init__(self) -> None:
        self.slices: dict[str, Slice] = {}
        self.nodes: frozenset[str] = frozenset()
        self.network = False
        self.common = False
        self.ids: frozenset[DeviceId] = frozenset()
        self.seen: dict[str, tuple[Place, Gathered | None]] = {}

    def settle(self) -> None:
        """Note what follows from the slices, after they changed."""
        slices = [self.slices[name] for name in sorted(self.slices)]
        self.slices = {s.name: s for s in slices}
        self.nodes = frozenset(s.node for s in slices if s.node)
        self.network = any(not s.node for s in slices)
        self.common = all(s.target is not None and s.target.is_everywhere for s in slices)
        self.ids = frozenset(p.id for _, devices in standing(slices) for p in devices)
        self.seen.clear()


class Devices:
    """Put and drop slices, rules and claims' devices; ask what there is on a node."""

    def __init__(self, features: Features = CURRENT.features) -> None:
        self.taints = Tainting()
        self.holdings = Holdings(shares=features.consumable_capacity)
        self._features = features
        self._pools: dict[PoolId, _Pool] = {}
        self._on_node: dict[str, set[PoolId]] = defaultdict(set)
        self._network: set[PoolId] = set()

    def pools_on(self, place: Place) -> list[Gathered]:
        """All pools with devices for this node, in the allocator's order."""
        wanted = self._on_node.get(place.name, set()) | self._network
        gathered = (self._gather(pool, place) for pool in wanted)
        return sorted((g for g in gathered if g is not None), key=lambda g: g.order)

    def published_by(self, node: str) -> Iterator[Published]:
        """Devices of slices that name this node, whether or not their pools are complete."""
        for pool in sorted(self._on_node.get(node, ())):
            for slice_ in self._pools[pool].slices.values():
                if slice_.node == node:
                    yield from slice_.devices

    def not_seen_by(self, node: str) -> None:
        """The node is gone: nothing is kept of what it saw."""
        for pool in self._on_node.get(node, set()) | self._network:
            self._pools[pool].seen.pop(node, None)

    def is_common(self, pool: PoolId) -> bool:
        """Whether all nodes see the same of a pool."""
        return pool in self._pools and self._pools[pool].common

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        """The nodes that a pool's slices name; None: some are of the network, so all of them."""
        known = self._pools.get(pool)
        if known is None:
            return frozenset()
        return None if known.network else known.nodes

    def put_slice(
        self, old: resource.ResourceSlice | None, new: resource.ResourceSlice
    ) -> list[Effect]:
        effects = []
        if old is not None and pools.pool_of(old) != pools.pool_of(new):
            effects.append(self.drop_slice(old))
        return [*effects, self._change(pools.pool_of(new), new.metadata.name, new)]

    def drop_slice(self, slice_: resource.ResourceSlice) -> Effect:
        return self._change(pools.pool_of(slice_), slice_.metadata.name, None)

    def slices_of(
        self, slice_: resource.ResourceSlice
    ) -> list[tuple[resource.ResourceSlice, frozenset[DeviceId]]]:
        """All slices of this one's pool, each with the devices that it speaks for."""
        known = self._pools.get(pools.pool_of(slice_))
        slices = standing(known.slices.values()) if known is not None else []
        return [(s.raw, frozenset(p.id for p in devices)) for s, devices in slices]

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

    def _gather(self, pool: PoolId, place: Place) -> Gathered | None:
        known = self._pools[pool]
        key = "" if known.common else place.name
        seen = known.seen.get(key)
        if seen is None or (seen[0] != place and not known.common):
            gathered = pools.gather(pool, list(known.slices.values()), place, self._features)
            if gathered is not None:
                look, columns = shapes.fixed(gathered)
                gathered = msgspec.structs.replace(gathered, look=look, columns=columns)
            seen = known.seen[key] = (place, gathered)
        return seen[1]

    def _change(self, pool: PoolId, name: str, new: resource.ResourceSlice | None) -> Effect:
        known = self._pools.setdefault(pool, _Pool())
        nodes, network, before = known.nodes, known.network, known.ids
        if new is not None:
            known.slices[name] = published.read(new)
        else:
            known.slices.pop(name, None)
        known.settle()
        for node in nodes - known.nodes:
            self._on_node[node].discard(pool)
            if not self._on_node[node]:
                del self._on_node[node]
        for node in known.nodes:
            self._on_node[node].add(pool)
        (self._network.add if known.network else self._network.discard)(pool)
        if not known.slices:
            del self._pools[pool]
        return Effect(
            nodes=set(nodes | known.nodes),
            everywhere=network or known.network,
            gone=set(before - known.ids),
            come=set(known.ids - before),
            rules=self.taints.rules_for(pool) if before != known.ids else set(),
        )
