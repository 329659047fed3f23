"""The record of each node as views show it, made anew where something it rests on changed. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter

import structlog

from fettle.api import core
from fettle.cluster.inventory import records, shapes, units
from fettle.cluster.inventory.devices import Devices, Vantage
from fettle.cluster.inventory.layers import LayeredDict
from fettle.cluster.inventory.peers import Peers
from fettle.cluster.inventory.placing import Placing
from fettle.cluster.inventory.placing import place as place_units
from fettle.cluster.inventory.pools import Gathered, PoolId
from fettle.cluster.inventory.quarantine import Quarantine
from fettle.cluster.inventory.stores import Stores
from fettle.cluster.view import NodeView
from fettle.dra import NodeTarget, PoolView
from fettle.health import HealthBook
from fettle.model import UNKNOWN_SCORE, DeviceId, Health, State, Subject, Unheard, UnitId

_LOG = structlog.get_logger(__name__)


class Nodes:
    """`dirty` are names of nodes whose record may be out of date, `changed` of those whose record
    differs since the last view, `partial` of those whose Node could never be read as a whole.
    """

    def __init__(
        self, stores: Stores, devices: Devices, book: HealthBook, quarantine: Quarantine
    ) -> None:
        self._stores = stores
        self._devices = devices
        self._book = book
        self._quarantine = quarantine
        self._shared_views: dict[PoolId, dict[Vantage, PoolView]] = {}
        self._named: dict[str, frozenset[UnitId]] = {}
        self._unheard: dict[str, tuple[Unheard, ...]] = {}
        self._peers = Peers()
        self.records: LayeredDict[NodeView] = LayeredDict()
        self._pods_on: dict[str, set[str]] = defaultdict(set)
        self.dirty: set[str] = set()
        self.changed: set[str] = set()
        self.partial: set[str] = set()

    def soil_pool(self, pool: PoolId, nodes: Iterable[str] | None) -> None:
        """What these nodes see of a pool may have changed; None: all nodes."""
        self._shared_views.pop(pool, None)
        self.dirty.update(nodes if nodes is not None else (*self._stores.nodes, *self.records))

    def soil_seen(self, pool: PoolId) -> None:
        """What anybody sees of a pool may have changed."""
        self.soil_pool(pool, self._devices.nodes_of(pool))

    def soil(self, subjects: Iterable[Subject]) -> None:
        """What is known of these may have changed."""
        for subject in subjects:
            if isinstance(subject, DeviceId):
                self.soil_seen(PoolId(subject.driver, subject.pool))
            else:
                self.dirty.add(subject.node)

    def soil_all(self) -> None:
        """Something changed that every node may see, of any pool."""
        self._shared_views.clear()
        self.dirty.update(self._stores.nodes, self.records)

    def names(self, node: str, units: frozenset[UnitId]) -> None:
        """The units that a Node names now, each with all names that it gives it."""
        if units:
            self._named[node] = units
        else:
            self._named.pop(node, None)

    def left_unheard(self, node: str, conditions: tuple[Unheard, ...]) -> None:
        """The conditions of a Node that no rule names."""
        if conditions == self._unheard.get(node, ()):
            return
        self.dirty.add(node)
        if conditions:
            self._unheard[node] = conditions
        else:
            del self._unheard[node]

    def counted(self, name: str, node: core.Node | None) -> None:
        """A Node as it is now, None if it is gone: it tells what to expect of its peers."""
        found = units.resources(node) if node is not None else ()
        labels = (node.metadata.labels or {}) if node is not None else {}
        capacities = {one.resource: one.capacity for one in found if one.capacity}
        self.dirty |= self._peers.put(name, labels, capacities)

    def pod_came(self, node: str, key: str) -> None:
        """A pod is on a node, by name; it may name one that does not exist."""
        self._pods_on[node].add(key)

    def pod_left(self, node: str, key: str) -> None:
        pods = self._pods_on[node]
        pods.discard(key)
        if not pods:
            del self._pods_on[node]

    def refresh_one(self, now: float) -> None:
        """Bring the record of one dirty node up to date."""
        name = self.dirty.pop()
        if not self.dirty:
            self.dirty = set()  # one that held the whole fleet stays as large, and slow to pop from
        node = self._stores.nodes.get(name)
        if node is None:
            self._devices.not_seen_by(name)
            self._unheard.pop(name, None)
            if self.records.pop(name, None) is not None:
                self.changed.add(name)
            return
        try:
            record = self._record(node, now)
        except Exception as error:  # one node that we fail on must not cost the others
            _LOG.exception("node cannot be judged", node=name)
            record = _unknown(node, f"Node {name}: cannot be judged: {error!r}")
        if record != self.records.get(name):
            self.records[name] = record
            self.changed.add(name)

    def _record(self, node: core.Node, now: float) -> NodeView:
        name, labels = node.metadata.name, node.metadata.labels or {}
        resources = units.resources(node)
        placing = place_units(
            name,
            self._book.units(name),
            self._named.get(name, frozenset()),
            {one.resource for one in resources if one.capacity},
            self._devices.published_by(name),
        )
        own = self._book.assess(placing.node, (placing.node,), now)
        healths = units.healths(placing, self._book, now)
        health = healths[placing.homeless[0]] if placing.homeless else own
        health = placing.remarked(health, healths)
        pools, malformed = self._pools(NodeTarget(name, labels), placing, now)
        pods: Mapping[str, core.Pod] = self._stores.pods
        here = [pods[key] for key in self._pods_on.get(name, ()) if key in pods]
        known = units.Known(healths, health, here, labels, self._peers.missing(name))
        return NodeView(
            name=name,
            labels=labels,
            health=health,
            plugins=units.plugins(resources, placing, known),
            pools=pools,
            quarantined=self._quarantine.of_node(name),
            malformed=malformed,
            taints=(node.spec.taints or ()) if node.spec is not None else (),
            kubelet=_kubelet(node),
            unread=name in self.partial,
            unheard=self._unheard.get(name, ()),
        )

    def _pools(
        self, place: NodeTarget, placing: Placing, now: float
    ) -> tuple[tuple[PoolView, ...], str]:
        """The pools of a node; and why the allocator cannot gather them, "" if it can."""
        seen = self._devices.pools_on(place)
        gathered, vantages = [pool for pool, _ in seen], {pool.id: at for pool, at in seen}
        views = []
        for pool in self._doubted(gathered):
            vantage = vantages.get(pool.id)
            if vantage is None or vantage.node:
                views.append(records.pool(pool, self._devices, self._book, placing, now))
                continue
            shared = self._shared_views.setdefault(pool.id, {})
            if vantage not in shared:
                shared[vantage] = records.pool(pool, self._devices, self._book, placing, now)
            views.append(shared[vantage])
        return tuple(views), next((pool.malformed for pool in gathered if pool.malformed), "")

    def _doubted(self, gathered: list[Gathered]) -> list[Gathered]:
        """The pools, with what objects that cannot be read leave open about them."""
        if not self._quarantine.doubts_pools:
            return gathered
        placed = []
        for pool in gathered:
            why = self._quarantine.doubt(pool)
            placed.append((pool.order, shapes.mark_unclear(pool, why) if why else pool))
        for unseen in self._quarantine.unseen({pool.id for pool in gathered}):
            pool = shapes.mark_unclear(Gathered(unseen.id), unseen.why)
            placed.append(((False, unseen.earliest), pool))  # it may have no binding conditions
        return [pool for _, pool in sorted(placed, key=itemgetter(0))]


def _unknown(node: core.Node, why: str) -> NodeView:
    return NodeView(
        name=node.metadata.name,
        labels=node.metadata.labels or {},
        health=Health(UNKNOWN_SCORE, State.UNKNOWN),
        plugins={},
        pools=(),
        quarantined=(why,),
    )


def _kubelet(node: core.Node) -> str:
    info = node.status.node_info if node.status is not None else None
    return info.kubelet_version if info is not None else ""
