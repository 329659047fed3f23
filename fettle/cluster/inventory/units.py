"""What a view says of a node's extended resources: the device plugin's units that evidence names.

Which units the plugin has withdrawn it tells nobody, only how many: capacity less allocatable, and
once it has started anew without a lost GPU, fewer than the nodes of this kind have. So they are
taken to be those that the kubelet calls Unhealthy, then the worst of those that are worse than
Healthy: what a plugin withdraws is a GPU in trouble, and a light trace is none. A unit is never
taken for withdrawn against the kubelet's word. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fettle.api import core
from fettle.cluster.inventory import divisions
from fettle.cluster.inventory.placing import Gpu, Placing
from fettle.cluster.view import PluginView, UnitView
from fettle.dra import is_device_resource, units_of
from fettle.health import HealthBook
from fettle.health import pods as words
from fettle.model import EvidenceKind, Health, State, Subject, UnitId

_HEALTHY = "Healthy"
"""The kubelet's word for a unit that is not withdrawn."""


class Known(NamedTuple):
    """What else is known of a node: health by unit and its own, its live pods, its labels, how many
    units its peers have more."""

    healths: Mapping[UnitId, Health]
    own: Health
    pods: Iterable[core.Pod] = ()
    labels: Mapping[str, str] = {}
    missing: Mapping[str, int] = {}


def resources(node: core.Node) -> tuple[PluginView, ...]:
    """The node's extended resources: how many units there are, and may be allocated."""
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


def healths(placing: Placing, book: HealthBook, now: float) -> dict[UnitId, Health]:
    """The health of every unit that evidence names; of a homeless one, that of the whole node."""
    asked: dict[UnitId, tuple[Subject, ...]] = {}
    for gpu in placing.gpus:
        for unit in gpu:
            asked[unit] = (*gpu, *(one for one in placing.whole if one not in gpu))
    return {unit: placing.told(book.assess(unit, about, now)) for unit, about in asked.items()}


def plugins(found: Iterable[PluginView], placing: Placing, known: Known) -> dict[str, PluginView]:
    """The resources, with the units that some evidence names."""
    views = {one.resource: one for one in found}
    if placing.by_resource:
        for name, units in _Units(views, placing, known).named().items():
            one = views[name]
            views[name] = PluginView(name, one.capacity, one.allocatable, units)
    return views


class _Units:
    """Of one node; `_gaps` are units that are withdrawn and not yet known by name."""

    def __init__(self, views: Mapping[str, PluginView], placing: Placing, known: Known) -> None:
        self._capacities = {name: one.capacity for name, one in views.items()}
        self._gaps = {name: one.withdrawn for name, one in views.items()}
        self._known = known
        self._homes: dict[Gpu, tuple[str, ...]] = defaultdict(tuple)
        for resource, gpus in placing.by_resource.items():
            for gpu in gpus:
                self._homes[gpu] += (resource,)
        self._held: Counter[tuple[str, str]] = Counter()
        self._vouched: Counter[tuple[str, str]] = Counter()
        self._ids: dict[str, set[str]] = defaultdict(set)
        for (resource, id_), health in _held(known.pods).items():
            device = resource, divisions.whole(id_)
            self._held[device] += 1
            self._vouched[device] += health == _HEALTHY
            self._ids[resource].add(id_)
        for unit in (unit for gpu in self._homes for unit in gpu):
            self._ids[unit.resource].add(unit.unit)
        for resource, number in known.missing.items():
            if number <= sum(map(self._ails, placing.by_resource.get(resource, ()))):
                self._gaps[resource] += number  # else the node is divided otherwise, or built so

    def named(self) -> dict[str, tuple[UnitView, ...]]:
        """By resource, in the order of their names."""
        views: dict[str, dict[Gpu, UnitView]] = defaultdict(dict)
        for gpu in sorted(self._homes, key=self._likeliest):
            homes = self._of(gpu)
            for resource in homes:
                views[resource][gpu] = self._view(gpu, resource, homes)
        return {
            resource: tuple(of[gpu] for gpu in self._homes if gpu in of)
            for resource, of in views.items()
        }

    def _likeliest(self, gpu: Gpu) -> tuple[bool, float]:
        """What has been withdrawn, if anything has, sorts first."""
        return not self._called_ill(gpu), self._known.healths[gpu[0]].score

    def _of(self, gpu: Gpu) -> tuple[str, ...]:
        """The resources that a GPU may be of: one, where the kubelet names it or the plugin has
        withdrawn it."""
        homes = self._homes[gpu]
        called = self._called_ill(gpu)
        if named := [r for r in homes if r in called or self._count(self._held, r, gpu)]:
            return tuple(named)
        gaps = [r for r in homes if self._gaps[r]]
        return (max(gaps, key=self._gaps.__getitem__),) if gaps and self._ails(gpu) else homes

    def _view(self, gpu: Gpu, resource: str, homes: tuple[str, ...]) -> UnitView:
        held = self._count(self._held, resource, gpu)
        name = divisions.whole(gpu[0].unit)
        expected = divisions.units_of(
            name, resource, homes, self._capacities, self._known.labels, self._ids[resource]
        )
        count = max(held, expected)
        withdrawn = 0
        if self._ails(gpu):
            vouched = self._count(self._vouched, resource, gpu)
            withdrawn = min(self._gaps[resource], count - vouched)
            self._gaps[resource] -= withdrawn
        return UnitView(
            unit=name,
            health=self._known.healths[gpu[0]],
            allocated=held,
            count=count,
            withdrawn=withdrawn,
            alternatives=tuple(home for home in homes if home != resource),
        )

    def _ails(self, gpu: Gpu) -> bool:
        """Whether it is in trouble of its own, and not only as part of its node."""
        health, own = self._known.healths[gpu[0]], self._known.own
        return health.state in (State.DEGRADED, State.UNHEALTHY) and health.score < own.score

    def _called_ill(self, gpu: Gpu) -> set[str]:
        """The resources as units of which the kubelet calls it Unhealthy, or lately did."""
        return {
            subject.resource
            for w in self._known.healths[gpu[0]].evidence
            if isinstance(subject := w.evidence.subject, UnitId)
            and subject in gpu
            and w.evidence.source == words.SOURCE
            and w.evidence.kind is not EvidenceKind.UNKNOWN
        }

    @staticmethod
    def _count(counts: Counter[tuple[str, str]], resource: str, gpu: Gpu) -> int:
        """How many units of it are counted, by all its names."""
        names = {divisions.whole(name) for unit in gpu for name in unit.names}
        return sum(counts[resource, name] for name in names)


def _held(pods: Iterable[core.Pod]) -> dict[tuple[str, str], str]:
    """(resource, unit) that the kubelet says live pods hold, and what it says of its health."""
    return {
        (status.name, health.resource_id): health.health
        for pod in pods
        if not pod.terminal
        for container in pod.container_statuses()
        for status in container.allocated_resources_status or ()
        for health in status.resources or ()
    }


def place(pod: core.Pod | None) -> tuple[str, Mapping[tuple[str, str], str]]:
    """The node of a pod, "" if it has none, and what the kubelet says of the units it holds there,
    by resource and name."""
    if pod is None or not (node := pod.node_name):
        return "", {}
    return node, _held((pod,))
