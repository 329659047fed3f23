"""The DRA devices of a cluster as published: pools made of slices, and the nodes that see them.

Says which nodes a change concerns. Knows nothing of health, pods or views.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from fettle.api import Pools, resource
from fettle.cluster.inventory.fingerprints import slice_fingerprints
from fettle.cluster.inventory.gathered_pools import (
    Gathered,
    PoolId,
    current_devices,
    gather,
    pool_of,
)
from fettle.cluster.inventory.holdings import Holdings, TaintRules
from fettle.cluster.inventory.namesakes import UNDISPUTED, Claims, Known, claims_on
from fettle.cluster.inventory.wholes import Wholes, find_wholes
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
from fettle.pacing import pause


class Region:
    """All nodes that a target selects.

    `everywhere`: all nodes, without listing them in `nodes`. Also set if a selector cannot be
    parsed, since that fails the allocator on every node. `pools` have slices or devices there.
    """

    __slots__ = ("everywhere", "nodes", "pools", "target", "users")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.everywhere = target.is_everywhere or bool(target.problem)
        self.nodes: set[str] = {target.name} if target.name else set()
        self.pools: set[PoolId] = set()
        self.users = 0


class Regions:
    """Which nodes the slices and devices of the network are for.

    A node selector is tested when it or a node is new, or the node's labels changed; never when a
    pool is read: a fabric has a pool for each rack, and a fleet has thousands of nodes.
    """

    def __init__(self) -> None:
        self._held: dict[Target, Region] = {}
        self._selected: dict[Target, Region] = {}
        self._around: dict[str, set[Region]] = defaultdict(set)
        self._places: dict[str, NodeTarget] = {}

    def hold(self, target: Target) -> Region:
        """The target's region. Release it as often as it was held."""
        region = self._held.get(target)
        if region is None:
            region = self._held[target] = Region(target)
            self._fill(region)
        region.users += 1
        return region

    def release(self, region: Region) -> None:
        region.users -= 1
        if region.users:
            return
        del self._held[region.target]
        self._selected.pop(region.target, None)
        for name in region.nodes:
            self._leave(name, region)

    def around(self, place: NodeTarget) -> set[Region]:
        """The regions that contain this place, besides those that are everywhere."""
        if self._places.get(place.name) != place:
            self._places[place.name] = place
            for region in self._selected.values():
                self._test(region, place)
                pause()
        return self._around.get(place.name, set())

    def forget(self, name: str) -> None:
        """The node is gone. Regions that name it keep waiting for its return."""
        self._places.pop(name, None)
        for region in self._selected.values():
            region.nodes.discard(name)
            self._leave(name, region)

    def _fill(self, region: Region) -> None:
        for name in region.nodes:
            self._around[name].add(region)
        if region.everywhere or region.nodes:
            return
        self._selected[region.target] = region
        for place in self._places.values():
            self._test(region, place)
            pause()

    def _test(self, region: Region, place: NodeTarget) -> None:
        if region.target.includes(place):
            region.nodes.add(place.name)
            self._around[place.name].add(region)
        elif place.name in region.nodes:
            region.nodes.discard(place.name)
            self._leave(place.name, region)

    def _leave(self, name: str, region: Region) -> None:
        around = self._around.get(name)
        if around is None:
            return
        around.discard(region)
        if not around:
            del self._around[name]


class SliceChange(NamedTuple):
    """What a change of slices concerns: `nodes` may see a change of the pool; None: all nodes.

    `gone` and `come` are devices. `rules` are the DeviceTaintRules that may now select other
    devices.
    """

    pool: PoolId
    nodes: frozenset[str] | None
    gone: Set[DeviceId]
    come: Set[DeviceId]
    rules: set[str]


class Visibility(NamedTuple):
    """All that decides what a node sees of a pool: its name, if slices name it, else ""; and which
    of the pool's regions contain it."""

    node: str
    regions: frozenset[Region]


class SliceDevices(NamedTuple):
    """A slice, and the devices of its pool that it speaks for. `known`: by the device's names, what
    each is known as."""

    slice: PublishedSlice
    devices: tuple[PublishedDevice, ...]
    known: Known


class _Pool:
    """All slices that carry one pool's name, and what nodes see of them.

    `nodes` are those that slices name; `regions` are those of slices that name none, and of their
    devices. `changed_slices` are the entries of `devices_by_slice` that the last change renewed.
    `claims`: how these nodes share the pool. `ids`: what its devices are known as.
    """

    def __init__(self) -> None:
        self.slices: dict[str, PublishedSlice] = {}
        self.nodes: frozenset[str] = frozenset()
        self.regions: frozenset[Region] = frozenset()
        self.claims = UNDISPUTED
        self.ids: frozenset[DeviceId] = frozenset()
        self.devices_by_slice: dict[str, SliceDevices] = {}
        self.changed_slices: list[SliceDevices] = []
        self._wholes: dict[str, Wholes] = {}
        self.seen: dict[Visibility, Gathered | None] = {}
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
        """Update what follows from the slices, after they changed."""
        slices = [self.slices[name] for name in sorted(self.slices)]
        self.slices = {s.name: s for s in slices}
        self.nodes = frozenset(s.node for s in slices if s.node)
        self.regions = frozenset(region for held in self._held.values() for region in held)
        self.claims = claims_on(slices)
        before = self.devices_by_slice
        self.devices_by_slice = {
            s.name: _slice_devices(s, devices, self.claims.of(s.node), before)
            for s, devices in current_devices(slices)
        }
        self.changed_slices = [
            s for s in self.devices_by_slice.values() if s is not before.get(s.slice.name)
        ]
        self.ids = frozenset(
            id_ for speech in self.devices_by_slice.values() for id_ in speech.known.values()
        )
        self._wholes.clear()
        self.seen.clear()

    def publishers(self, device: DeviceId) -> Set[str]:
        """The nodes of the slices that publish a device of these names; "" is the network."""
        return {s.slice.node for s in self.devices_by_slice.values() if device in s.known}

    def wholes(self, node: str) -> Wholes:
        """Which of the devices are parts of others, among those that a node sees in slices of its
        own and of the network."""
        node = node if node in self.nodes else ""
        if node not in self._wholes:
            self._wholes[node] = self._find_wholes(node)
        return self._wholes[node]

    def _find_wholes(self, node: str) -> Wholes:
        seen = [s for s in self.slices.values() if s.node in ("", node)]
        spoken = (self.devices_by_slice[slice_.name].devices for slice_ in seen)
        return find_wholes(
            [device for devices in spoken for device in devices],
            {name: total for slice_ in seen for name, total in slice_.counters},
        )

    def reach(self) -> frozenset[str] | None:
        """The nodes that may see something of it; None: all."""
        if any(region.everywhere for region in self.regions):
            return None
        return self.nodes.union(*(region.nodes for region in self.regions))


def _slice_devices(
    slice_: PublishedSlice,
    devices: tuple[PublishedDevice, ...],
    namesakes: Known,
    before: Mapping[str, SliceDevices],
) -> SliceDevices:
    """The same object as before if nothing of it changed."""
    made = SliceDevices(slice_, devices, {p.id: namesakes.get(p.id, p.id) for p in devices})
    was = before.get(slice_.name)
    if was is not None and was.slice is slice_ and was[1:] == made[1:]:
        return was
    return made


def _whose(
    device: DeviceId, disputed: Mapping[DeviceId, str], slices: Mapping[str, SliceDevices]
) -> str | None:
    """The node whose device these names mean; None: nobody's."""
    if device in disputed:
        return disputed[device]
    return next((s.slice.node for s in slices.values() if device in s.known), None)


def _devices(slice_: resource.ResourceSlice) -> Sequence[resource.Device]:
    return slice_.spec.devices or ()


def _targets(slice_: PublishedSlice) -> Iterator[Target]:
    """The nodes that a slice of the network is for, or each of its devices."""
    if slice_.node:
        return
    if slice_.target is not None:
        yield slice_.target
    elif slice_.per_device:
        yield from {p.target for p in slice_.devices if p.target is not None}


MOST_SLICES, MOST_DEVICES = 256, 4096
"""Of one node: its kubelet may write as many as it likes, and each one costs all others time."""


class Devices:
    """Put and drop slices, rules and claims' devices; ask what there is on a node."""

    def __init__(self, features: Features = CURRENT.features) -> None:
        self.taints = TaintRules()
        self.holdings = Holdings(shares=features.consumable_capacity)
        self._features = features
        self._pools: dict[PoolId, _Pool] = {}
        self._on_node: dict[str, set[PoolId]] = defaultdict(set)
        self._everywhere: set[PoolId] = set()
        self._slices_of: Counter[str] = Counter()
        self._devices_of: Counter[str] = Counter()
        self._regions = Regions()

    def why_too_many(self, old: resource.ResourceSlice | None, new: resource.ResourceSlice) -> str:
        """Why a slice cannot be put in place of an old one; "" if it can."""
        if not (node := new.spec.node_name):
            return ""
        slices, devices = self._slices_of[node] + 1, self._devices_of[node] + len(_devices(new))
        if old is not None and old.spec.node_name == node:
            slices, devices = slices - 1, devices - len(_devices(old))
        if slices <= MOST_SLICES and devices <= MOST_DEVICES:
            return ""
        return (
            f"more than {MOST_SLICES} slices or {MOST_DEVICES} devices of node {node}: the others "
            "are not read"
        )

    def pools_on(self, place: NodeTarget) -> list[tuple[Gathered, Visibility]]:
        """All pools with devices for this node, in the allocator's order. Nodes with equal
        visibilities see the same of a pool."""
        around = self._regions.around(place)
        wanted = self._on_node.get(place.name, _NO_POOLS) | self._everywhere
        seen = []
        for pool in wanted.union(*(region.pools for region in around)):
            visibility, gathered = self._gather(pool, place, around)
            if gathered is not None:
                seen.append((gathered, visibility))
        return sorted(seen, key=lambda one: one[0].order)

    def published_by(self, node: str, *, replaced: bool = True) -> Iterator[PublishedDevice]:
        """Devices of slices that name this node, whether or not their pools are complete. Without
        `replaced`: of the newest generation of each pool alone."""
        for pool in sorted(self._on_node.get(node, ())):
            here = [one for one in self._pools[pool].slices.values() if one.node == node]
            newest = max((one.generation for one in here), default=0)
            for slice_ in here:
                if replaced or slice_.generation == newest:
                    yield from slice_.devices

    def wholes_in(self, pool: PoolId, node: str) -> Wholes:
        """The parts among the devices that a node sees of a pool, and what each is a part of."""
        known = self._pools.get(pool)
        return known.wholes(node) if known is not None else {}

    def claims_on(self, pool: PoolId) -> Claims:
        """How the nodes of a pool share it."""
        known = self._pools.get(pool)
        return known.claims if known is not None else UNDISPUTED

    def is_published(self, device: DeviceId) -> bool:
        pool = self._pools.get(PoolId(device.driver, device.pool))
        return pool is not None and device in pool.ids

    def publishers(self, device: DeviceId) -> Set[str]:
        """The nodes of the slices that publish a device of these names; "" is the network."""
        pool = self._pools.get(PoolId(device.driver, device.pool))
        return pool.publishers(device) if pool is not None else _NO_NODES

    def said_by(self, node: str, device: DeviceId) -> DeviceId | None:
        """The device that is meant where somebody speaks for a node: its own, or one of the
        network, or one that nobody publishes yet. None if only other nodes have one of these names:
        nobody speaks for those."""
        publishers = self.publishers(device)
        if not publishers or "" in publishers or node in publishers:
            return self.known_as(device, node)
        return None

    def known_as(self, device: DeviceId, node: str) -> DeviceId:
        """What the device is known as that a node has by these names."""
        return self.claims_on(PoolId(device.driver, device.pool)).of(node).get(device, device)

    def network_pools(self) -> Iterator[tuple[PoolId, set[DeviceId]]]:
        """The pools of slices that name no node, with the devices of these."""
        for id_, pool in self._pools.items():
            far = [slice_ for slice_ in pool.slices.values() if not slice_.node]
            if far:
                yield id_, {published.id for slice_ in far for published in slice_.devices}

    def forget_node(self, node: str) -> None:
        """The node is gone: forget what it saw."""
        self._regions.forget(node)
        for pool in self._on_node.get(node, _NO_POOLS):
            seen = self._pools[pool].seen
            for visibility in [one for one in seen if one.node == node]:
                del seen[visibility]

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        """The nodes that may see something of a pool; None: all."""
        known = self._pools.get(pool)
        return known.reach() if known is not None else frozenset()

    def put_slice(
        self, old: resource.ResourceSlice | None, new: resource.ResourceSlice
    ) -> list[SliceChange]:
        effects = []
        if old is not None and pool_of(old) != pool_of(new):
            effects.append(self.drop_slice(old))
        return [*effects, self._change(pool_of(new), new.metadata.name, new)]

    def drop_slice(self, slice_: resource.ResourceSlice) -> SliceChange:
        return self._change(pool_of(slice_), slice_.metadata.name, None)

    def changed_slices_of(self, slice_: resource.ResourceSlice) -> list[SliceDevices]:
        """The slices of the same pool of which the last change renewed what they say."""
        known = self._pools.get(pool_of(slice_))
        return known.changed_slices if known is not None else []

    def slices_of(self, slice_: resource.ResourceSlice) -> Collection[SliceDevices]:
        """All slices of the same pool."""
        known = self._pools.get(pool_of(slice_))
        return known.devices_by_slice.values() if known is not None else ()

    def selected_pools(self, rule: resource.DeviceTaintRule) -> list[PoolId]:
        """Pools in which a rule may select devices."""
        selector = rule.spec.device_selector
        return (
            self.existing_pools(Pools(selector.driver, selector.pool))
            if selector is not None
            else []
        )

    def existing_pools(self, pools: Pools) -> list[PoolId]:
        """Those of the pools that exist."""
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
    ) -> tuple[Visibility, Gathered | None]:
        known = self._pools[pool]
        named = place.name if place.name in known.nodes else ""
        visibility = Visibility(named, known.regions & around)
        if visibility not in known.seen:
            gathered = gather(pool, list(known.slices.values()), place, self._features)
            if gathered is not None:
                fingerprint, attribute_fingerprints = slice_fingerprints(gathered)
                gathered = msgspec.structs.replace(
                    gathered, fingerprint=fingerprint, attribute_fingerprints=attribute_fingerprints
                )
            known.seen[visibility] = gathered
        return visibility, known.seen[visibility]

    def _change(self, pool: PoolId, name: str, new: resource.ResourceSlice | None) -> SliceChange:
        made = read_slice(new) if new is not None else None
        known = self._pools.setdefault(pool, _Pool())
        self._count(known.slices.get(name), -1)
        self._count(made, 1)
        nodes, regions, ids = known.nodes, known.regions, known.ids
        disputed, slices = known.claims.meant, known.devices_by_slice
        saw = known.reach()
        if made is not None:
            known.put(made, self._regions)
        else:
            known.drop(name, self._regions)
        known.settle()
        see = known.reach()
        self._index(pool, nodes, regions)
        if not known.slices:
            del self._pools[pool]
        # Names that mean another node's device now: one went, and the other came.
        another = {
            device
            for device in {*disputed, *known.claims.meant}
            if _whose(device, disputed, slices)
            != _whose(device, known.claims.meant, known.devices_by_slice)
        }
        return SliceChange(
            pool=pool,
            nodes=saw | see if saw is not None and see is not None else None,
            gone=(ids - known.ids) | another,
            come=(known.ids - ids) | another,
            rules=self.taints.rules_for(pool) if ids != known.ids else set(),
        )

    def _count(self, slice_: PublishedSlice | None, by: int) -> None:
        if slice_ is not None and slice_.node:
            self._slices_of[slice_.node] += by
            self._devices_of[slice_.node] += by * len(slice_.devices)
            if not self._slices_of[slice_.node]:
                del self._slices_of[slice_.node], self._devices_of[slice_.node]

    def _index(self, pool: PoolId, nodes: frozenset[str], regions: frozenset[Region]) -> None:
        """Update the indexes of a pool that had these `nodes` and `regions` before."""
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


_NO_POOLS: frozenset[PoolId] = frozenset()
_NO_NODES: frozenset[str] = frozenset()
