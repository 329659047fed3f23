"""The record of each node as views show it, made anew where something it rests on changed. Pure."""

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from fettle.affinity import Malformed, Place
from fettle.health import HealthBook
from fettle.inventory import records, shapes
from fettle.inventory.devices import Devices
from fettle.inventory.pools import Gathered, PoolId
from fettle.inventory.quarantine import Quarantine
from fettle.inventory.stores import Stores
from fettle.model import NodeId
from fettle.view import NodeView, PoolView
from fettle.wire import core, kinds
from fettle.wire.meta import ObjectMeta


class Nodes:
    """`dirty` are names of nodes whose record may be out of date, `changed` of those whose record
    differs since the last view; `pods_on` are keys of pods by node.
    """

    def __init__(
        self, stores: Stores, devices: Devices, book: HealthBook, quarantine: Quarantine
    ) -> None:
        self._stores = stores
        self._devices = devices
        self._book = book
        self._quarantine = quarantine
        self._network_views: dict[PoolId, PoolView] = {}
        self.records: dict[str, NodeView] = {}
        self.pods_on: dict[str, set[str]] = defaultdict(set)
        self.dirty: set[str] = set()
        self.changed: set[str] = set()

    def soil_all(self) -> None:
        """Something changed that every node may see."""
        self._network_views.clear()
        self.dirty.update(self._stores.nodes, self.records)

    def refresh_one(self, now: float) -> None:
        """Bring the record of one dirty node up to date."""
        name = self.dirty.pop()
        node = self._stores.nodes.get(name)
        if node is not None:
            record = self._record(node, now)
        elif self._quarantine.holds(kinds.NODE, name):
            bare = self._record(core.Node(metadata=ObjectMeta(name=name)), now)
            record = msgspec.structs.replace(bare, unread=True)
        else:
            if self.records.pop(name, None) is not None:
                self.changed.add(name)
            return
        if record != self.records.get(name):
            self.records[name] = record
            self.changed.add(name)

    def _record(self, node: core.Node, now: float) -> NodeView:
        name, labels = node.metadata.name, node.metadata.labels or {}
        pools, malformed = self._pools(Place(name, labels), now)
        pods: Mapping[str, core.Pod] = self._stores.pods
        here = [pods[key] for key in self.pods_on.get(name, ()) if key in pods]
        return NodeView(
            name=name,
            labels=labels,
            health=self._book.assess(NodeId(name), (NodeId(name),), now),
            plugins=records.plugins(node, self._book, here, now),
            pools=pools,
            quarantined=self._quarantine.of_node(name),
            malformed=malformed,
            taints=(node.spec.taints or ()) if node.spec is not None else (),
            kubelet=_kubelet(node),
        )

    def _pools(self, place: Place, now: float) -> tuple[tuple[PoolView, ...], str]:
        """The pools of a node; and why they cannot be gathered, "" if they can."""
        units = self._book.units(place.name)
        views = []
        try:
            gathered = self._devices.pools_on(place)
        except Malformed as error:
            return (), str(error)
        for pool in self._doubted(gathered):
            view = self._network_views.get(pool.id)
            if view is None:
                view = records.pool(pool, self._devices, self._book, units, now)
                if self._devices.is_common(pool.id):
                    self._network_views[pool.id] = view
            views.append(view)
        return tuple(views), ""

    def _doubted(self, gathered: list[Gathered]) -> list[Gathered]:
        """The pools, with what objects that cannot be read leave open about them."""
        if not self._quarantine.doubts_pools:
            return gathered
        known = {pool.id for pool in gathered}
        whys = ((pool, self._quarantine.doubt(pool.id)) for pool in gathered)
        doubted = [shapes.doubted(pool, why) if why else pool for pool, why in whys]
        unseen = dict(self._quarantine.unseen(known))
        doubted += [shapes.doubted(Gathered(pool), why) for pool, why in unseen.items()]
        return sorted(doubted, key=lambda pool: pool.order)


def _kubelet(node: core.Node) -> str:
    info = node.status.node_info if node.status is not None else None
    return info.kubelet_version if info is not None else ""
