"""Which nodes the slices and devices of the network are for.

A node selector is asked about a node when either is new or the node's labels changed, never when a
pool is looked at: a fabric has a pool for each rack, and a fleet thousands of nodes. Pure.
"""

from collections import defaultdict

from fettle.cluster.inventory.pools import PoolId
from fettle.dra import NodeTarget, Target
from fettle.pacing import pause


class Region:
    """The nodes that targets are for which say the same.

    `everywhere`: all nodes, without being listed in `nodes`; also where a selector cannot be
    parsed, since that fails the allocator on any node. `pools` have slices or devices there.
    """

    __slots__ = ("everywhere", "nodes", "pools", "target", "users")

    def __init__(self, target: Target) -> None:
        self.target = target
        self.everywhere = target.is_everywhere or bool(target.problem)
        self.nodes: set[str] = {target.name} if target.name else set()
        self.pools: set[PoolId] = set()
        self.users = 0


class Regions:
    """`hold` and `release` targets, look `around` places and `forget` them."""

    def __init__(self) -> None:
        self._held: dict[Target, Region] = {}
        self._selected: dict[Target, Region] = {}
        self._around: dict[str, set[Region]] = defaultdict(set)
        self._places: dict[str, NodeTarget] = {}

    def hold(self, target: Target) -> Region:
        """Its region, until it is released as often."""
        region = self._held.get(target)
        if region is None:
            region = self._held[target] = Region(target)
            self._survey(region)
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
        """Those of which this place is one, besides those that are everywhere."""
        if self._places.get(place.name) != place:
            self._places[place.name] = place
            for region in self._selected.values():
                self._ask(region, place)
                pause()
        return self._around.get(place.name, set())

    def forget(self, name: str) -> None:
        """The node is gone; what names it waits for its return."""
        self._places.pop(name, None)
        for region in self._selected.values():
            region.nodes.discard(name)
            self._leave(name, region)

    def _survey(self, region: Region) -> None:
        for name in region.nodes:
            self._around[name].add(region)
        if region.everywhere or region.nodes:
            return
        self._selected[region.target] = region
        for place in self._places.values():
            self._ask(region, place)
            pause()

    def _ask(self, region: Region, place: NodeTarget) -> None:
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
