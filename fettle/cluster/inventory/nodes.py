"""The record of each node as views show it, made again whenever something that it depends on
changed."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import starmap
from math import inf
from operator import itemgetter

import msgspec

from fettle.api import core
from fettle.cluster.inventory.devices import Devices, Visibility
from fettle.cluster.inventory.driver_versions import DriverVersions
from fettle.cluster.inventory.expected_devices import labels_of_changes
from fettle.cluster.inventory.fingerprints import mark_unclear, with_fingerprints
from fettle.cluster.inventory.gathered_pools import Gathered, PoolId
from fettle.cluster.inventory.holdings import Holdings
from fettle.cluster.inventory.missing_devices import (
    Has,
    MissingDevices,
    counted_as_others,
    hardware,
    unclear_drivers,
)
from fettle.cluster.inventory.namesakes import Known
from fettle.cluster.inventory.quarantine import Quarantine
from fettle.cluster.inventory.stores import LayeredDict, Stores
from fettle.cluster.inventory.unit_counts import Peers, whole_device
from fettle.cluster.inventory.units import (
    NodeFacts,
    UnitPlacement,
    place_units,
    plugin_resources,
    plugin_views,
    unit_healths,
    worded,
)
from fettle.cluster.view import UNMARKED, NodeMarks, NodeView, PluginView
from fettle.dra import CounterId, DeviceView, NodeTarget, PoolView, PublishedDevice
from fettle.health import HealthBook, SignalRules, node_reporter
from fettle.logs import Logger
from fettle.model import (
    BAD_STATES,
    CORDONED,
    DEVICES_SOUND,
    HEALTH,
    HEALTH_OF,
    HEALTH_REASON,
    UNKNOWN_SCORE,
    DeviceId,
    Evidence,
    Family,
    Health,
    NodeId,
    SourceKind,
    Standing,
    State,
    Subject,
    UnitId,
    UnknownSignal,
)
from fettle.pacing import pause


def pool_view(
    gathered: Gathered,
    node: str,
    devices: Devices,
    book: HealthBook,
    placing: UnitPlacement,
    now: float,
) -> PoolView:
    """One pool as a node sees it, with each device's health; `node` is "" if it sees the same as
    others."""
    wholes, claims = devices.wholes_in(gathered.id, node), devices.claims_on(gathered.id)
    known = claims.of(node)

    def device(published: PublishedDevice, here: bool = True, misplaced: str = "") -> DeviceView:
        pause()
        part_of = wholes.get(published.id, ())
        alias = known.get(published.id)
        health = placing.with_unplaced_evidence(
            book.assess(alias or published.id, _subjects(published, part_of, known, placing), now)
        )
        return DeviceView(
            published=published,
            taints=(published.device.taints or ()) + devices.taints.of(published.id),
            health=_with_evidence_of_wholes(health, part_of, known) if part_of else health,
            allocated=devices.holdings.alone(published.id),
            shares=devices.holdings.shares(published.id),
            consumed=devices.holdings.consumed(published.id),
            here=here,
            misplaced=misplaced,
            part_of=part_of,
            alias=alias,
            ambiguous=alias is not None or published.id in claims.unclear,
        )

    made = PoolView(
        driver=gathered.id.driver,
        name=gathered.id.pool,
        devices=tuple(starmap(device, gathered.devices)),
        withheld=tuple(map(device, gathered.withheld)),
        counters=counters_left(gathered, devices.holdings),
        incomplete=gathered.incomplete,
        slices=gathered.slices,
        invalid=gathered.invalid,
        unclear=gathered.unclear,
        rivals=tuple(sorted(claims.rivals)),
    )
    return with_fingerprints(made, gathered.fingerprint, gathered.attribute_fingerprints)


def counters_left(gathered: Gathered, holdings: Holdings) -> Mapping[CounterId, int]:
    """A pool's shared counters minus what allocated devices consume, in 1e-9; may be negative."""
    if not gathered.counters:
        return gathered.counters
    left = dict(gathered.counters)
    for published in (*(p for p, _, _ in gathered.devices), *gathered.others):
        if holdings.alone(published.id) or holdings.shares(published.id):
            for counter, value in published.consumes:
                left[counter] = left.get(counter, 0) - value
    return left


def _subjects(
    published: PublishedDevice,
    part_of: tuple[DeviceId, ...],
    known: Known,
    placing: UnitPlacement,
) -> tuple[Subject, ...]:
    """The subjects whose evidence applies to a device: the device itself, what it is a part of and,
    if it is node-local, its node and the units that they are."""
    names = (published.id, *part_of)
    these = tuple(known.get(one, one) for one in names) if known else names
    if not published.local:
        return these
    units = [unit for one in names for unit in placing.by_device.get(one, ())]
    return (*these, *placing.whole, *dict.fromkeys(units))


def _with_evidence_of_wholes(health: Health, part_of: tuple[DeviceId, ...], known: Known) -> Health:
    """The health of a part, in which evidence about its whole says that it is about that."""
    part_of = tuple(known.get(one, one) for one in part_of)
    if not any(w.evidence.subject in part_of for w in health.evidence):
        return health
    evidence = tuple(
        worded(w, f"of {w.evidence.subject.device}, which it is part of")
        if isinstance(w.evidence.subject, DeviceId) and w.evidence.subject in part_of
        else w
        for w in health.evidence
    )
    return msgspec.structs.replace(health, evidence=evidence)


_LOG = Logger(__name__)


class Nodes:
    """The records of all nodes.

    `dirty`: nodes whose record may be out of date. `changed`: nodes whose record differs from the
    last view. `partial`: nodes whose Node was never readable as a whole.
    """

    def __init__(
        self,
        stores: Stores,
        devices: Devices,
        book: HealthBook,
        quarantine: Quarantine,
        missing: MissingDevices,
        drivers: DriverVersions,
        rules: SignalRules,
    ) -> None:
        self._stores = stores
        self._rules = rules
        self._devices = devices
        self._book = book
        self._quarantine = quarantine
        self._shared_views: dict[PoolId, dict[Visibility, PoolView]] = {}
        self._named: dict[str, frozenset[UnitId]] = {}
        self._registered: dict[str, frozenset[UnitId]] = {}
        self._unknown_signals: dict[str, tuple[UnknownSignal, ...]] = {}
        self._peers = Peers()
        self._missing = missing
        self._drivers = drivers
        self.records: LayeredDict[NodeView] = LayeredDict()
        self._pods_on: dict[str, set[str]] = defaultdict(set)
        self.dirty: set[str] = set()
        self._unlooked: set[str] = set()
        """Those of them that may lack other devices than before: most records are made again for
        what pods, claims and health do, which changes nothing there."""
        self.changed: set[str] = set()
        self.partial: set[str] = set()

    def mark_pool_dirty(self, pool: PoolId, nodes: Iterable[str] | None) -> None:
        """What these nodes see of a pool may have changed; None: all nodes."""
        self._shared_views.pop(pool, None)
        self.dirty.update(nodes if nodes is not None else (*self._stores.nodes, *self.records))

    def mark_seen_dirty(self, pool: PoolId) -> None:
        """What any node sees of a pool may have changed."""
        self.mark_pool_dirty(pool, self._devices.nodes_of(pool))

    def mark_dirty(self, subjects: Iterable[Subject]) -> None:
        """What is known of these subjects may have changed."""
        for subject in subjects:
            if isinstance(subject, DeviceId):
                self.mark_seen_dirty(PoolId(subject.driver, subject.pool))
            else:
                self.dirty.add(subject.node)

    def mark_devices_dirty(self, nodes: Iterable[str] | None) -> None:
        """These nodes may have, or should have, other devices than before; None: all nodes."""
        names = nodes if nodes is not None else tuple(self._stores.nodes)
        self.dirty.update(names)
        self._unlooked.update(names)

    def forget_devices(self, name: str) -> None:
        """It is another Node now: forget what that of before had."""
        self._missing.forget(name)
        self._drivers.forget(name)
        self.mark_devices_dirty((name,))

    def is_worked_on(self, name: str) -> bool:
        """Whether the Node says that work on it is under way: its devices may come and go."""
        said = self._book.ledger.standing(node_reporter(name)).values()
        return any(map(_is_under_way, said))

    def _worked_on_since(self, node: core.Node) -> float:
        """Without changes of devices, each attempt at which is told of anew."""
        said = self._book.ledger.standing(node_reporter(node.metadata.name)).values()
        of_changes = labels_of_changes(node.metadata.labels or {})
        rows = {found[0].name for one in of_changes.items() if (found := self._rules.label(*one))}
        return max(
            (
                one.observed_at
                for one in said
                if _is_under_way(one)
                and not (one.source.kind is SourceKind.LABEL and one.source.name in rows)
            ),
            default=-inf,
        )

    def mark_expecting_dirty(self, now: float) -> None:
        """Of these nodes other devices are to be expected than before: by what their peers have, or
        since work on them is stuck."""
        concerned = self._missing.concerned() | self._missing.shown_again(now)
        self.mark_devices_dirty(concerned & self.records.keys())

    def mark_upgraded_dirty(self, now: float) -> None:
        """Of these nodes other drivers are new than before."""
        self.dirty |= self._drivers.changed(now) & self.records.keys()

    def mark_all_dirty(self) -> None:
        """Something changed that every node may see, of any pool."""
        self._shared_views.clear()
        self.dirty.update(self._stores.nodes, self.records)

    def note_registered_units(self, node: str, units: frozenset[UnitId]) -> None:
        """All GPUs that a device plugin says the node has; none if it does not."""
        if units:
            self._registered[node] = units
        else:
            self._registered.pop(node, None)

    def note_named_units(self, node: str, units: frozenset[UnitId]) -> None:
        """The units that a Node names now, each with all names that the Node gives it."""
        if units:
            self._named[node] = units
        else:
            self._named.pop(node, None)

    def note_unknown_signals(self, node: str, signals: tuple[UnknownSignal, ...]) -> None:
        """What a Node says that no rule names."""
        if signals == self._unknown_signals.get(node, ()):
            return
        self.dirty.add(node)
        if signals:
            self._unknown_signals[node] = signals
        else:
            del self._unknown_signals[node]

    def note_capacities(self, name: str, node: core.Node | None) -> None:
        """A Node as it is now, or None if it is gone. Its capacities say what to expect of its
        peers."""
        found = plugin_resources(node) if node is not None else ()
        labels = (node.metadata.labels or {}) if node is not None else {}
        capacities = {one.resource: one.capacity for one in found if one.capacity}
        self.dirty |= self._peers.put(name, labels, capacities if node is not None else None)

    def pod_came(self, node: str, key: str) -> None:
        """A pod names this node, which need not exist."""
        self._pods_on[node].add(key)

    def pod_left(self, node: str, key: str) -> None:
        pods = self._pods_on[node]
        pods.discard(key)
        if not pods:
            del self._pods_on[node]

    def pods_on(self, node: str) -> Collection[str]:
        """The keys of the pods that name this node."""
        return self._pods_on.get(node, ())

    def refresh_one(self, now: float) -> None:
        """Update the record of one dirty node."""
        name = self.dirty.pop()
        if not self.dirty:
            self.dirty = set()  # a set that held the whole fleet stays large, and slow to pop from
        node = self._stores.nodes.get(name)
        if node is None:
            self._devices.forget_node(name)
            self._missing.forget(name)
            self._drivers.forget(name)
            self._unlooked.discard(name)
            self._unknown_signals.pop(name, None)
            if self.records.pop(name, None) is not None:
                self.changed.add(name)
            return
        try:
            record = self._record(node, now)
        except Exception as error:  # one node that we fail on must not stop the others
            _LOG.exception("node cannot be judged", node=name)
            record = _unknown(node, f"Node {name}: cannot be judged: {error!r}")
        if record != self.records.get(name):
            self.records[name] = record
            self.changed.add(name)

    def _record(self, node: core.Node, now: float) -> NodeView:
        name, labels = node.metadata.name, node.metadata.labels or {}
        resources = plugin_resources(node)
        placing = self._placing(name, resources)
        own = self._book.assess(placing.node, (placing.node,), now)
        healths = unit_healths(placing, self._book, now)
        health = healths[placing.unplaced[0]] if placing.unplaced else own
        health = placing.with_absent_evidence(health, healths)
        pools, malformed = self._pools(NodeTarget(name, labels), placing, now)
        pods: Mapping[str, core.Pod] = self._stores.pods
        here = [pods[key] for key in self._pods_on.get(name, ()) if key in pods]
        known = NodeFacts(healths, health, here, labels, self._peers.missing(name))
        if name in self._unlooked:
            self._look_for_missing(node, resources, pools, now)
        plugins = plugin_views(resources, placing, known)
        self._drivers.note_soundness(name, sound=_is_sound(health, plugins, pools))
        return NodeView(
            name=name,
            labels=labels,
            health=health,
            plugins=plugins,
            pools=pools,
            quarantined=self._quarantine.of_node(name),
            malformed=malformed,
            taints=(node.spec.taints or ()) if node.spec is not None else (),
            kubelet=_kubelet(node),
            unread=name in self.partial,
            unknown_signals=self._unknown_signals.get(name, ()),
            unschedulable=node.spec is not None and node.spec.unschedulable,
            marks=_marks(node),
            missing=self._missing.of(name),
            new_drivers=self._drivers.of(name),
        )

    def _look_for_missing(
        self,
        node: core.Node,
        resources: tuple[PluginView, ...],
        pools: tuple[PoolView, ...],
        now: float,
    ) -> None:
        name = node.metadata.name
        self._drivers.look(node, self._devices.published_by(name), now)
        if name in self.partial or node.cut:  # nobody knows what it has
            self._missing.pass_over(name)
        else:
            seen = (self._devices.wholes_in(PoolId(one.driver, one.name), name) for one in pools)
            parts = {part for wholes in seen for part in counted_as_others(wholes)}
            devices = hardware(self._devices.published_by(name, replaced=False), parts)
            has = Has(resources, devices, unclear_drivers(pools))
            self._missing.look(node, has, now, self._worked_on_since(node))
        self._unlooked.discard(name)

    def _placing(self, name: str, resources: Iterable[PluginView]) -> UnitPlacement:
        return place_units(
            name,
            self._book.ledger.units(name),
            (self._book.ledger.named_units(name), self._named.get(name, ())),
            {one.resource for one in resources if one.capacity},
            self._devices.published_by(name),
            self._registered.get(name, ()),
        )

    def key_of(self, name: str, resource: str = "", unit: str = "") -> Subject:
        """What the health book calls a node, or a unit of it as the view names that."""
        node = self._stores.nodes.get(name)
        if node is None:
            return NodeId(name)
        placing = self._placing(name, plugin_resources(node))
        if not unit:
            return placing.unplaced[0] if placing.unplaced else placing.node
        gpus = (gpu[0] for gpu in placing.by_resource.get(resource, ()))
        return next((gpu for gpu in gpus if whole_device(gpu.unit) == unit), placing.node)

    def _pools(
        self, place: NodeTarget, placing: UnitPlacement, now: float
    ) -> tuple[tuple[PoolView, ...], str]:
        """The pools of a node; and why the allocator cannot gather them, "" if it can."""
        seen = self._devices.pools_on(place)
        gathered, visibilities = [pool for pool, _ in seen], {pool.id: at for pool, at in seen}
        views = []
        for pool in self._with_unclear_pools(gathered):
            visibility = visibilities.get(pool.id)
            if visibility is None or visibility.node:
                views.append(pool_view(pool, place.name, self._devices, self._book, placing, now))
                continue
            shared = self._shared_views.setdefault(pool.id, {})
            if visibility not in shared:
                shared[visibility] = pool_view(pool, "", self._devices, self._book, placing, now)
            views.append(shared[visibility])
        return tuple(views), next((pool.malformed for pool in gathered if pool.malformed), "")

    def _with_unclear_pools(self, gathered: list[Gathered]) -> list[Gathered]:
        """The pools, marked as unclear where unreadable objects may concern them."""
        if not self._quarantine.has_unclear_pools:
            return gathered
        placed = []
        for pool in gathered:
            why = self._quarantine.why_unclear(pool)
            placed.append((pool.order, mark_unclear(pool, why) if why else pool))
        for hidden in self._quarantine.hidden_pools({pool.id for pool in gathered}):
            pool = mark_unclear(Gathered(hidden.id), hidden.why)
            placed.append(((False, hidden.earliest), pool))  # it may have no binding conditions
        return [pool for _, pool in sorted(placed, key=itemgetter(0))]


def _is_sound(health: Health, plugins: Mapping[str, PluginView], pools: Iterable[PoolView]) -> bool:
    """Whether the node and all its own devices are."""
    units = (unit.health for plugin in plugins.values() for unit in plugin.units)
    own = (pool for pool in pools if pool.devices and pool.devices[0].published.local)
    devices = (device.health for pool in own for device in pool.devices)
    return not any(one.state in BAD_STATES for one in (health, *units, *devices))


def _is_under_way(one: Evidence) -> bool:
    """Whether it is work on the node that has begun."""
    return (
        one.family is Family.MAINTENANCE
        and one.standing is Standing.REPORTED
        and one.begins_in_s is None
    )


def _unknown(node: core.Node, why: str) -> NodeView:
    return NodeView(
        name=node.metadata.name,
        labels=node.metadata.labels or {},
        health=Health(UNKNOWN_SCORE, State.UNKNOWN),
        plugins={},
        pools=(),
        quarantined=(why,),
    )


def _marks(node: core.Node) -> NodeMarks:
    labels, annotations = node.metadata.labels or {}, node.metadata.annotations or {}
    conditions = (node.status.conditions if node.status is not None else None) or ()
    ours = next((c for c in conditions if c.type == DEVICES_SOUND), None)
    score, reason = _score_and_reason(annotations.get(HEALTH_REASON, ""))
    found = NodeMarks(
        tier=labels.get(HEALTH, ""),
        score=score,
        reason=reason,
        status=ours.status if ours is not None else "",
        cause=ours.reason if ours is not None else "",
        message=ours.message if ours is not None else "",
        cordon=annotations.get(CORDONED, ""),
        labels=tuple(sorted(one for one in labels.items() if one[0].startswith(HEALTH_OF))),
    )
    return UNMARKED if found == UNMARKED else found


def _score_and_reason(annotation: str) -> tuple[float | None, str]:
    """No score where others have changed it."""
    found = _SCORED.fullmatch(annotation)
    return (float(found[1]), found[2]) if found is not None else (None, annotation)


_SCORED = re.compile(r"([01]\.[0-9]): (.*)", re.DOTALL)


def _kubelet(node: core.Node) -> str:
    info = node.status.node_info if node.status is not None else None
    return info.kubelet_version if info is not None else ""
