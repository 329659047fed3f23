"""The device plugin's units that evidence names: which device each of them is, and what a view says
of them.

Evidence about a named unit counts for the DRA devices and the plugin's units that have one of its
names. If nothing on the node has one, it counts for the whole node, since any device may be the
one; unless each device is known to be another, since a driver that restarts does not publish a lost
GPU. This is decided whenever a node's record is made, so evidence follows its device as that comes
and goes.

Device plugins do not say which units they have withdrawn, only how many: capacity minus allocatable
and, after a restart without a lost GPU, fewer than the node's peers have. Fettle assumes that these
are the units that the kubelet calls Unhealthy, then the worst of those that are not Healthy:
plugins withdraw GPUs in trouble, and a light trace is no trouble. A unit that the kubelet calls
Healthy never counts as withdrawn.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import NamedTuple

import msgspec

from fettle.api import core, kinds
from fettle.cluster.inventory.unit_counts import (
    candidate_resources,
    expected_units,
    plain_resource,
    shown_replicas,
    whole_device,
)
from fettle.cluster.view import PluginView, UnitView
from fettle.dra import PublishedDevice, is_device_resource, units_of
from fettle.health import DEVICE_STATUS_SOURCE, HealthBook, gpu_names, one_line
from fettle.model import (
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    State,
    Subject,
    UnitId,
    Weighed,
)
from fettle.pacing import pause

MOST_NAMED = 256
"""Devices of a node that are followed by name; all replicas of one count as one."""
_MOST_NAMES = 16
"""Names of one GPU that each have a past of their own. It has five, unless it has replicas."""

Gpu = tuple[UnitId, ...]
"""Units that are one GPU, by what is known of its names now; the most reliable name first."""


class UnitPlacement(NamedTuple):
    """For one node: which units each DRA device is, and which GPUs each resource may have.

    - `gpus`: all of them. In `by_resource`, a GPU occurs once for each resource it may belong to.
    - `unplaced`: units that may be any device of the node. `absent`: units that are none of them.
    - `others`: the less reliable names of each GPU.
    - `left_out`: how many more devices evidence names.
    """

    node: NodeId
    gpus: tuple[Gpu, ...] = ()
    by_device: Mapping[DeviceId, Gpu] = {}
    by_resource: Mapping[str, tuple[Gpu, ...]] = {}
    unplaced: Gpu = ()
    absent: Gpu = ()
    others: Mapping[Gpu, tuple[str, ...]] = {}
    left_out: int = 0

    @property
    def whole(self) -> tuple[Subject, ...]:
        """The subjects whose evidence applies to every device on the node."""
        return (self.node, *self.unplaced)

    def with_unplaced_evidence(self, health: Health) -> Health:
        """The health, in which evidence about unplaced units says that it is about them."""
        if not self.unplaced:
            return health
        evidence = tuple(
            _worded(w, subject, "which is not a known device")
            if isinstance(subject := w.evidence.subject, UnitId) and subject in self.unplaced
            else w
            for w in health.evidence
        )
        return msgspec.structs.replace(health, evidence=evidence)

    def with_absent_evidence(self, health: Health, by_unit: Mapping[UnitId, Health]) -> Health:
        """The node's own health, with the evidence about absent units, which weighs nothing here,
        and a remark about devices that are left out."""
        if not self.absent and not self.left_out:
            return health
        left_out = (self._left_out(health),) if self.left_out else ()
        remarks = left_out + tuple(
            msgspec.structs.replace(_worded(w, unit, "a GPU that is no longer there"), weight=0.0)
            for unit in self.absent
            for w in by_unit[unit].evidence
            if w.evidence.subject == unit
        )
        return msgspec.structs.replace(health, evidence=health.evidence + remarks)

    def _left_out(self, health: Health) -> Weighed:
        remark = Evidence(
            subject=self.node,
            family=Family.NODE,
            kind=EvidenceKind.LEVEL,
            weight=0.0,
            source=Source(SourceKind.NAMED_DEVICES),
            reporter=ReporterId(kinds.NODE.name, self.node.node),
            said=f"reports name {self.left_out} devices more than the {MOST_NAMED} that are read",
            observed_at=max(
                (w.evidence.observed_at for w in health.evidence), default=health.since
            ),
        )
        return Weighed(remark, 0.0)


def place_units(
    node: str,
    units: Collection[UnitId],
    named: Iterable[Iterable[UnitId]],
    resources: Collection[str],
    devices: Iterable[PublishedDevice],
    registered: Collection[UnitId] = (),
) -> UnitPlacement:
    """Finds the device of each unit. `registered`: all GPUs that the node has, by UUID, if a
    device plugin says so; a GPU with another UUID is not there any more.

    `units` are those that evidence is about, `named` those that anybody names now, each with all
    its names, whom to believe most last. `resources` are those of which a device plugin has units,
    `devices` the node's own.
    """
    if not units:
        return UnitPlacement(NodeId(node))
    by_gpu: dict[UnitId, Gpu] = defaultdict(tuple)
    by_device: dict[DeviceId, Gpu] = defaultdict(tuple)
    unplaced: Gpu = ()
    absent: Gpu = ()
    published = [(one, frozenset(gpu_names.published(one.device))) for one in devices]
    known = _known((*named, _hardware(node, units, published)))
    homes: dict[UnitId, tuple[str, ...]] = {}
    others: dict[UnitId, tuple[str, ...]] = {}
    placed: dict[UnitId, list[DeviceId]] = {}
    kept, left_out = _most_reliable(units)
    for unit in kept:
        pause()
        resource, name = plain_resource(unit.resource), whole_device(unit.unit)
        names = known.get((resource, name), (name, *unit.others))
        gpu = UnitId(node, resource, names[0])
        others[gpu] = names[1:]
        by_gpu[gpu] += (unit,)
        if _is_unregistered(unit, registered):
            homes[gpu] = ()
            absent += (unit,)
            continue
        by_all_names = gpu._replace(others=names[1:])
        # Units of one GPU with the same names need one search.
        if (found := placed.get(by_all_names)) is None:
            found = placed[by_all_names] = _devices(by_all_names, published)
        for id_ in found:
            by_device[id_] += (unit,)
        homes[gpu] = candidate_resources(resource, resources)
        if homes[gpu] or found:
            continue
        # What cannot be placed counts for the whole node, unless the GPU is surely gone.
        if _is_absent(by_all_names, published):
            absent += (unit,)
        else:
            unplaced += (unit,)
    by_resource: dict[str, tuple[Gpu, ...]] = defaultdict(tuple)
    for gpu, same in by_gpu.items():
        for home in homes[gpu]:
            by_resource[home] += (same,)
    return UnitPlacement(
        NodeId(node),
        tuple(by_gpu.values()),
        by_device,
        by_resource,
        unplaced,
        absent,
        {same: others[gpu] for gpu, same in by_gpu.items()},
        left_out,
    )


def _most_reliable(units: Iterable[UnitId]) -> tuple[list[UnitId], int]:
    """Those of MOST_NAMED devices, in the order of `_order`, and how many devices these are not.
    Each resource has its share, so that no plugin's many devices hide those of another."""
    found: dict[str, dict[str, list[UnitId]]] = defaultdict(lambda: defaultdict(list))
    for unit in sorted(units, key=_order):
        found[unit.resource][whole_device(unit.unit)].append(unit)
    share = max(1, MOST_NAMED // len(found))
    kept = [same for devices in found.values() for same in islice(devices.values(), share)]
    left_out = sum(map(len, found.values())) - len(kept)
    return [unit for same in kept for unit in same], left_out


def _hardware(
    node: str, units: Collection[UnitId], published: Iterable[tuple[PublishedDevice, Set[str]]]
) -> Iterator[UnitId]:
    """The devices that have a name of one of these units, each with all its names."""
    wanted = {whole_device(name) for unit in units for name in unit.names}
    resources = {plain_resource(unit.resource) for unit in units}
    for one, names in published:
        if not wanted.isdisjoint(names):
            first, *others = gpu_names.of_hardware(one.device)
            for resource in resources:
                if gpu_names.is_same_vendor(resource, one.id.driver):
                    yield UnitId(node, resource, first, tuple(others))


def _order(unit: UnitId) -> tuple[str, tuple[int, str], tuple[str, ...]]:
    return unit.resource, gpu_names.rank(unit.unit), unit.others


def _known(named: Iterable[Iterable[UnitId]]) -> dict[tuple[str, str], tuple[str, ...]]:
    """By resource and name, all names of that GPU, the most reliable first."""
    layers: dict[str, list[list[tuple[str, ...]]]] = defaultdict(list)
    for together in named:
        groups: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for unit in sorted(together, key=_order):
            pause()
            groups[plain_resource(unit.resource)].append((whole_device(unit.unit), *unit.others))
        for resource, of in groups.items():
            layers[resource].append(of)
    return {
        (resource, name): names
        for resource, of_resource in layers.items()
        for name, names in gpu_names.joined(of_resource).items()
    }


def _devices(unit: UnitId, named: list[tuple[PublishedDevice, frozenset[str]]]) -> list[DeviceId]:
    """The devices that share the most reliable name, and devices that are parts of them. One in the
    same slot with another UUID is another device."""
    ranked = [
        (rank, published)
        for published, names in named
        if (rank := gpu_names.closeness(unit, published.id.driver, names)) is not None
        and not gpu_names.is_replaced(unit, names)
    ]
    if not ranked:
        return []
    best = min(rank for rank, _ in ranked)
    found = [published for rank, published in ranked if rank == best]
    wholes = {gpu_names.own_uuid(published.device) for published in found} - {""}
    ids = dict.fromkeys(published.id for published in found)
    ids.update((published.id, None) for published, names in named if not wholes.isdisjoint(names))
    return list(ids)


def _is_absent(unit: UnitId, named: list[tuple[PublishedDevice, frozenset[str]]]) -> bool:
    """Whether drivers of the unit's vendor publish GPUs by name, and each of these is known to be
    another.

    A driver that names none publishes other things, such as ComputeDomains.
    """
    others: dict[str, list[bool]] = defaultdict(list)
    for one, names in named:
        if gpu_names.is_same_vendor(unit.resource, one.id.driver):
            others[one.id.driver].append(gpu_names.is_other(unit, names))
    of_gpus = [known for known in others.values() if any(known)]
    return bool(of_gpus) and all(map(all, of_gpus))


def _is_unregistered(unit: UnitId, registered: Collection[UnitId]) -> bool:
    name = whole_device(unit.unit)
    return (
        bool(registered)
        and gpu_names.is_uuid(name)
        and all(
            gpu_names.is_other(UnitId(unit.node, unit.resource, name), (one.unit,))
            and one.unit != name
            for one in registered
        )
    )


def _worded(weighed: Weighed, unit: UnitId, what: str) -> Weighed:
    """The same evidence, saying which unit it is about."""
    return worded(weighed, f"{unit.resource} {unit.unit}, {what}")


def worded(weighed: Weighed, about: str) -> Weighed:
    """The same evidence, saying what it is about."""
    evidence = msgspec.structs.replace(weighed.evidence, about=one_line(about))
    return msgspec.structs.replace(weighed, evidence=evidence)


_HEALTHY = "Healthy"
"""The kubelet's word for a unit that is not withdrawn."""


class NodeFacts(NamedTuple):
    """What else is known of a node: the health of its units and its own, its live pods, its labels,
    and how many more units its peers have."""

    healths: Mapping[UnitId, Health]
    own: Health
    pods: Iterable[core.Pod] = ()
    labels: Mapping[str, str] = {}
    missing: Mapping[str, int] = {}


def plugin_resources(node: core.Node) -> tuple[PluginView, ...]:
    """The node's extended resources: how many units exist and may be allocated."""
    status = node.status
    if status is None:
        return ()
    capacity, allocatable = status.capacity or {}, status.allocatable or {}
    names = sorted(r for r in {*capacity, *allocatable} if is_device_resource(r))
    return tuple(
        PluginView(
            name,
            units_of(capacity.get(name, 0)),
            units_of(allocatable.get(name, 0)),
        )
        for name in names
    )


def unit_healths(placing: UnitPlacement, book: HealthBook, now: float) -> dict[UnitId, Health]:
    """The health of every unit that evidence names; for an unplaced one, that of the whole node."""
    healths: dict[UnitId, Health] = {}
    for gpu in placing.gpus:
        its = frozenset(gpu)
        about: tuple[Subject, ...] = (*gpu, *(one for one in placing.whole if one not in its))
        for unit in gpu[:_MOST_NAMES]:
            pause()
            healths[unit] = placing.with_unplaced_evidence(book.assess(unit, about, now))
        healths |= dict.fromkeys(gpu[_MOST_NAMES:], healths[gpu[0]])
    return healths


def plugin_views(
    found: Iterable[PluginView], placing: UnitPlacement, known: NodeFacts
) -> dict[str, PluginView]:
    """The resources, with the units that some evidence names."""
    views = {
        one.resource: msgspec.structs.replace(one, fewer=known.missing.get(one.resource, 0))
        for one in found
    }
    if placing.by_resource:
        of_node = _NodeUnits(views, placing, known)
        for name, units in of_node.named().items():
            one = views[name]
            others = max(0, of_node.held(name) - sum(unit.allocated for unit in units))
            views[name] = msgspec.structs.replace(one, units=units, others_held=others)
    return views


class _NodeUnits:
    """The units of one node. `_gaps` are units that are withdrawn and not yet known by name."""

    def __init__(
        self, views: Mapping[str, PluginView], placing: UnitPlacement, known: NodeFacts
    ) -> None:
        self._capacities = {name: one.capacity for name, one in views.items()}
        self._gaps = {name: one.withdrawn for name, one in views.items()}
        self._known = known
        self._others = placing.others
        self._homes: dict[Gpu, tuple[str, ...]] = defaultdict(tuple)
        for resource, gpus in placing.by_resource.items():
            for gpu in gpus:
                self._homes[gpu] += (resource,)
        self._held: Counter[tuple[str, str]] = Counter()
        self._held_healthy: Counter[tuple[str, str]] = Counter()
        self._held_of: Counter[str] = Counter()
        self._ids: dict[str, set[str]] = defaultdict(set)
        for (resource, id_), health in _held(known.pods).items():
            pause()
            device = resource, whole_device(id_)
            self._held[device] += 1
            self._held_of[resource] += 1
            self._held_healthy[device] += health == _HEALTHY
            self._ids[resource].add(id_)
        for unit in (unit for gpu in self._homes for unit in gpu):
            self._ids[unit.resource].add(unit.unit)
        self._shown = {resource: shown_replicas(ids) for resource, ids in self._ids.items()}
        for resource, number in known.missing.items():
            if number <= sum(map(self._is_faulty, placing.by_resource.get(resource, ()))):
                self._gaps[resource] += number  # else the node was built or divided this way

    def named(self) -> dict[str, tuple[UnitView, ...]]:
        """By resource, in the order of the names."""
        views: dict[str, dict[Gpu, UnitView]] = defaultdict(dict)
        for gpu in sorted(self._homes, key=self._withdrawal_order):
            pause()
            homes = self._resources_of(gpu)
            for resource in homes:
                views[resource][gpu] = self._view(gpu, resource, homes)
        return {
            resource: tuple(of[gpu] for gpu in self._homes if gpu in of)
            for resource, of in views.items()
        }

    def held(self, resource: str) -> int:
        """How many units of it live pods are known to hold."""
        return self._held_of[resource]

    def _withdrawal_order(self, gpu: Gpu) -> tuple[bool, float]:
        """What most likely has been withdrawn sorts first."""
        return not self._reported_unhealthy(gpu), self._known.healths[gpu[0]].score

    def _resources_of(self, gpu: Gpu) -> tuple[str, ...]:
        """The resources that a GPU may belong to; just one, if the kubelet names it or the plugin
        has withdrawn it."""
        homes = self._homes[gpu]
        called = self._reported_unhealthy(gpu)
        if named := [r for r in homes if r in called or self._count(self._held, r, gpu)]:
            return tuple(named)
        gaps = [r for r in homes if self._gaps[r]]
        return (max(gaps, key=self._gaps.__getitem__),) if gaps and self._is_faulty(gpu) else homes

    def _view(self, gpu: Gpu, resource: str, homes: tuple[str, ...]) -> UnitView:
        held = self._count(self._held, resource, gpu)
        name = whole_device(gpu[0].unit)
        expected = expected_units(
            name,
            resource,
            homes,
            self._capacities,
            self._known.labels,
            self._shown.get(resource, 1),
        )
        count = max(held, expected)
        withdrawn = 0
        if self._is_faulty(gpu):
            vouched = self._count(self._held_healthy, resource, gpu)
            withdrawn = min(self._gaps[resource], count - vouched)
            self._gaps[resource] -= withdrawn
        return UnitView(
            unit=name,
            health=self._known.healths[gpu[0]],
            allocated=held,
            count=count,
            withdrawn=withdrawn,
            alternatives=tuple(home for home in homes if home != resource),
            others=self._others.get(gpu, ()),
        )

    def _is_faulty(self, gpu: Gpu) -> bool:
        """Whether the GPU itself is in trouble, and not only as part of its node."""
        health, own = self._known.healths[gpu[0]], self._known.own
        if health.held and not any(
            isinstance(w.evidence.subject, UnitId) and w.evidence.family is not Family.OPERATOR
            for w in health.evidence
        ):
            return False  # an operator's hold says nothing of why a plugin withdraws units
        return health.state in (State.DEGRADED, State.UNHEALTHY) and health.score < own.score

    def _reported_unhealthy(self, gpu: Gpu) -> set[str]:
        """The resources as whose units the kubelet calls the GPU Unhealthy, or did lately."""
        its = frozenset(gpu)
        return {
            subject.resource
            for w in self._known.healths[gpu[0]].evidence
            if isinstance(subject := w.evidence.subject, UnitId)
            and subject in its
            and w.evidence.source == DEVICE_STATUS_SOURCE
            and w.evidence.kind is not EvidenceKind.UNKNOWN
        }

    def _count(self, counts: Counter[tuple[str, str]], resource: str, gpu: Gpu) -> int:
        """How many of its units are counted, by all its names."""
        names = {whole_device(name) for unit in gpu for name in unit.names}
        names.update(self._others.get(gpu, ()))
        return sum(counts[resource, name] for name in names)


def _held(pods: Iterable[core.Pod]) -> dict[tuple[str, str], str]:
    """(resource, unit) that live pods hold according to the kubelet, with what it says of their
    health."""
    return {
        (status.name, health.resource_id): health.health
        for pod in pods
        if not pod.terminal
        for container in pod.container_statuses()
        for status in container.allocated_resources_status or ()
        for health in status.resources or ()
    }


def node_and_held_units(pod: core.Pod | None) -> tuple[str, Mapping[tuple[str, str], str]]:
    """The node of a pod ("" if none), and what the kubelet says of the units it holds, by resource
    and name."""
    if pod is None or not (node := pod.node_name):
        return "", {}
    return node, _held((pod,))
