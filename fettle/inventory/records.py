"""What a view says of one node's devices, made from what the inventory and the health book know."""

from collections.abc import Collection, Iterable, Mapping

from fettle.asks import extended
from fettle.health import HealthBook
from fettle.inventory import pools, shapes
from fettle.inventory.devices import Devices
from fettle.inventory.holdings import Holdings
from fettle.inventory.pools import Gathered
from fettle.model import NodeId, Subject, UnitId
from fettle.published import CounterId, Published
from fettle.view import DeviceView, PluginView, PoolView, UnitView
from fettle.wire import core


def pool(
    gathered: Gathered,
    devices: Devices,
    book: HealthBook,
    units: Collection[UnitId],
    now: float,
) -> PoolView:
    """One pool as a node sees it, with each device's health; `units` are those of the node."""
    driver, name = gathered.id
    made = PoolView(
        driver=driver,
        name=name,
        devices=tuple(
            DeviceView(
                published=published,
                taints=(published.device.taints or ()) + devices.taints.of(published.id),
                health=book.assess(published.id, _subjects(published, units), now),
                allocated=devices.holdings.alone(published.id),
                shared=devices.holdings.shared(published.id),
                consumed=devices.holdings.consumed(published.id),
                here=here,
                misplaced=misplaced,
            )
            for published, here, misplaced in gathered.devices
        ),
        counters=counters_left(gathered, devices.holdings),
        incomplete=gathered.incomplete,
        slices=gathered.slices,
        invalid=gathered.invalid,
        unclear=gathered.unclear,
    )
    return shapes.looked_at(made, gathered.look, gathered.columns)


def counters_left(gathered: Gathered, holdings: Holdings) -> Mapping[CounterId, int]:
    """A pool's shared counters without what allocated devices consume, in 1e-9; may be negative."""
    if not gathered.counters:
        return gathered.counters
    left = dict(gathered.counters)
    for published in (*(p for p, _, _ in gathered.devices), *gathered.others):
        if holdings.alone(published.id) or holdings.shared(published.id):
            for counter, value in published.consumes:
                left[counter] = left.get(counter, 0) - value
    return left


def _subjects(published: Published, units: Collection[UnitId]) -> list[Subject]:
    """Whom evidence about a device may name: itself; what is local to a node, more."""
    subjects: list[Subject] = [published.id]
    if published.local:
        subjects.append(NodeId(published.local))
        if units:
            named = set(pools.aliases(published.device))
            subjects += [u for u in units if u.unit in named]
    return subjects


def plugins(
    node: core.Node, book: HealthBook, pods: Iterable[core.Pod], now: float
) -> dict[str, PluginView]:
    """The node's extended resources, with the units that some evidence names."""
    status = node.status
    if status is None:
        return {}
    capacity, allocatable = status.capacity or {}, status.allocatable or {}
    names = sorted(r for r in {*capacity, *allocatable} if extended.is_device_resource(r))
    if not names:
        return {}
    id_ = NodeId(node.metadata.name)
    known = book.units(id_.node)
    held = units_held(pods) if known else set()
    views = {}
    for name in names:
        units = tuple(
            UnitView(u.unit, book.assess(u, (u, id_), now), (name, u.unit) in held)
            for u in sorted(known)
            if u.resource == name
        )
        views[name] = PluginView(
            name,
            extended.units_of(capacity.get(name, 0)),
            extended.units_of(allocatable.get(name, 0)),
            units,
        )
    return views


def units_held(pods: Iterable[core.Pod]) -> set[tuple[str, str]]:
    """(resource, unit) that the kubelet says live pods hold."""
    return {
        (status.name, health.resource_id)
        for pod in pods
        if not pod.terminal
        for container in pod.container_statuses()
        for status in container.allocated_resources_status or ()
        for health in status.resources or ()
    }


def place(pod: core.Pod | None) -> tuple[str, frozenset[tuple[str, str]]]:
    """The node of a pod, "" if it has none, and the units that it holds there by name."""
    if pod is None or pod.spec is None or not pod.spec.node_name:
        return "", frozenset()
    return pod.spec.node_name, frozenset(units_held((pod,)))
