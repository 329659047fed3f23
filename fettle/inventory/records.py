"""What a view says of one node's devices, made from what the inventory and the health book know."""

from collections.abc import Iterable, Mapping
from itertools import starmap

from fettle.asks import extended
from fettle.health import HealthBook
from fettle.inventory import shapes
from fettle.inventory.devices import Devices
from fettle.inventory.holdings import Holdings
from fettle.inventory.placing import Placing
from fettle.inventory.pools import Gathered
from fettle.model import Health, Subject, UnitId
from fettle.published import CounterId, Published
from fettle.view import DeviceView, PluginView, PoolView, UnitView
from fettle.wire import core


def pool(
    gathered: Gathered,
    devices: Devices,
    book: HealthBook,
    placing: Placing,
    now: float,
) -> PoolView:
    """One pool as a node sees it, with each device's health."""

    def device(published: Published, here: bool = True, misplaced: str = "") -> DeviceView:
        return DeviceView(
            published=published,
            taints=(published.device.taints or ()) + devices.taints.of(published.id),
            health=placing.told(book.assess(published.id, _subjects(published, placing), now)),
            allocated=devices.holdings.alone(published.id),
            shared=devices.holdings.shared(published.id),
            consumed=devices.holdings.consumed(published.id),
            here=here,
            misplaced=misplaced,
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


def _subjects(published: Published, placing: Placing) -> tuple[Subject, ...]:
    """The subjects that evidence about a device may name: the device, and more if it is
    node-local.
    """
    if not published.local:
        return (published.id,)
    return (published.id, *placing.whole, *placing.by_device.get(published.id, ()))


def of_units(placing: Placing, book: HealthBook, now: float) -> dict[UnitId, Health]:
    """The health of every unit that evidence names; of a homeless one, that of the whole node."""
    asked: dict[UnitId, tuple[Subject, ...]] = {}
    for gpu in placing.gpus:
        for unit in gpu:
            asked[unit] = (*gpu, *(one for one in placing.whole if one not in gpu))
    return {unit: placing.told(book.assess(unit, about, now)) for unit, about in asked.items()}


def plugin_resources(node: core.Node) -> dict[str, tuple[int, int]]:
    """The node's extended resources: how many units there are, and may be allocated."""
    status = node.status
    if status is None:
        return {}
    capacity, allocatable = status.capacity or {}, status.allocatable or {}
    names = sorted(r for r in {*capacity, *allocatable} if extended.is_device_resource(r))
    return {
        name: (
            extended.units_of(capacity.get(name, 0)),
            extended.units_of(allocatable.get(name, 0)),
        )
        for name in names
    }


def plugins(
    resources: Mapping[str, tuple[int, int]],
    placing: Placing,
    healths: Mapping[UnitId, Health],
    pods: Iterable[core.Pod],
) -> dict[str, PluginView]:
    """Extended resources, with the units that some evidence names."""
    held = units_held(pods) if placing.by_resource else set()
    views = {}
    for name, (capacity, allocatable) in resources.items():
        units = tuple(
            UnitView(
                gpu[0].unit,
                healths[gpu[0]],
                any((name, n) in held for unit in gpu for n in unit.names),
            )
            for gpu in placing.by_resource.get(name, ())
        )
        views[name] = PluginView(name, capacity, allocatable, units)
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
