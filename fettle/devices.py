"""The DRA devices of a cluster as published: pools from slices, the rules that taint them, and who
holds what. Says which nodes a change concerns; knows nothing of health, pods or views. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from fettle import pools
from fettle.model import DeviceId
from fettle.pools import PoolDevices, PoolId
from fettle.tainting import Tainting
from fettle.wire import resource


class Effect(NamedTuple):
    """What a change of slices concerns: `everywhere` means all nodes, for devices of the network.

    `rules` are the DeviceTaintRules that may now select other devices.
    """

    nodes: set[str]
    everywhere: bool
    gone: set[DeviceId]
    rules: set[str]


class Devices:
    """Put and drop slices, rules and claims' devices; ask what there is on a node."""

    def __init__(self) -> None:
        self.taints = Tainting()
        self.holders: dict[DeviceId, set[str]] = {}
        self._slices: dict[PoolId, dict[str, resource.ResourceSlice]] = defaultdict(dict)
        self._pools: dict[PoolId, PoolDevices] = {}
        self._on_node: dict[str, set[PoolId]] = defaultdict(set)
        self._network: set[PoolId] = set()

    def pools_on(self, node: str) -> list[PoolDevices]:
        """All pools with devices for this node, in the allocator's order."""
        return [self._pools[p] for p in sorted(self._on_node.get(node, set()) | self._network)]

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        """The nodes that a pool's slices name; None: it is of the network, so all of them."""
        assembled = self._pools.get(pool)
        if assembled is None:
            return frozenset()
        return None if assembled.network else assembled.nodes

    def put_slice(
        self, old: resource.ResourceSlice | None, new: resource.ResourceSlice
    ) -> list[Effect]:
        effects = []
        if old is not None and pools.pool_of(old) != pools.pool_of(new):
            effects.append(self.drop_slice(old))
        self._slices[pools.pool_of(new)][new.metadata.name] = new
        return [*effects, self._assemble(pools.pool_of(new))]

    def drop_slice(self, slice_: resource.ResourceSlice) -> Effect:
        self._slices[pools.pool_of(slice_)].pop(slice_.metadata.name, None)
        return self._assemble(pools.pool_of(slice_))

    def slices_of(
        self, slice_: resource.ResourceSlice
    ) -> list[tuple[resource.ResourceSlice, bool]]:
        """All slices of this one's pool, each with whether it is of the newest generation."""
        slices = self._slices.get(pools.pool_of(slice_), {}).values()
        newest = max((s.spec.pool.generation for s in slices), default=0)
        return [(s, s.spec.pool.generation == newest) for s in slices]

    def hold(self, device: DeviceId, claim: str) -> None:
        self.holders.setdefault(device, set()).add(claim)

    def release(self, device: DeviceId, claim: str) -> None:
        holders = self.holders.get(device, set())
        holders.discard(claim)
        if not holders:
            self.holders.pop(device, None)

    def selected_pools(self, rule: resource.DeviceTaintRule) -> list[PoolId]:
        """Pools of which a rule may select devices."""
        selector = rule.spec.device_selector
        if selector is None:
            return []
        if selector.driver is not None and selector.pool is not None:
            pool = PoolId(selector.driver, selector.pool)
            return [pool] if pool in self._pools else []
        return [
            p
            for p in self._pools
            if selector.driver in (None, p.driver) and selector.pool in (None, p.pool)
        ]

    def in_pools(self, wanted: Iterable[PoolId]) -> Iterable[DeviceId]:
        for pool in wanted:
            yield from _ids(self._pools.get(pool))

    def _assemble(self, pool: PoolId) -> Effect:
        before = self._pools.pop(pool, None)
        after = pools.assemble(pool, self._slices[pool].values())
        if after is None:
            del self._slices[pool]
        else:
            self._pools[pool] = after
        if before is not None:
            for node in before.nodes:
                self._on_node[node].discard(pool)
            self._network.discard(pool)
        if after is not None:
            for node in after.nodes:
                self._on_node[node].add(pool)
            if after.network:
                self._network.add(pool)
        both = [p for p in (before, after) if p is not None]
        old, new = _ids(before), _ids(after)
        return Effect(
            nodes=set().union(*(p.nodes for p in both)),
            everywhere=any(p.network for p in both),
            gone=old - new,
            rules=self.taints.rules_for(pool) if old != new else set(),
        )


def _ids(assembled: PoolDevices | None) -> set[DeviceId]:
    if assembled is None:
        return set()
    driver, pool = assembled.id
    return {DeviceId(driver, pool, device.name) for _, device in assembled.devices}
