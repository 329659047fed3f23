"""What a view says of one node's devices, made from what the inventory and the health book know."""

from collections.abc import Collection, Iterable

from fettle import asks, pools
from fettle.devices import Devices
from fettle.health import HealthBook
from fettle.model import DeviceId, NodeId, Subject, UnitId
from fettle.pools import PoolDevices
from fettle.view import DeviceView, PluginView, PoolView, UnitView
from fettle.wire import core


def pool(
    assembled: PoolDevices,
    node: str | None,
    book: HealthBook,
    published: Devices,
    units: Collection[UnitId],
    now: float,
) -> PoolView:
    """One pool as seen on `node` (None: not local to one), with each device's health."""
    driver, name = assembled.id
    devices = []
    for slice_, device in assembled.devices:
        if node is not None and slice_.spec.node_name not in (None, "", node):
            continue
        id_ = DeviceId(driver, name, device.name)
        subjects: list[Subject] = [id_]
        if node is not None:
            subjects.append(NodeId(node))
        if units:
            named = set(pools.aliases(device))
            subjects += [u for u in units if u.unit in named]
        devices.append(
            DeviceView(
                id=id_,
                device=device,
                taints=(device.taints or ()) + published.taints.of(id_),
                health=book.assess(id_, subjects, now),
                allocated=id_ in published.holders,
                unsupported=pools.unsupported(slice_, device),
            )
        )
    return PoolView(driver, name, assembled.complete, tuple(devices))


def plugins(
    node: core.Node, book: HealthBook, pods: Iterable[core.Pod], now: float
) -> dict[str, PluginView]:
    """The node's extended resources, with the units that some evidence names."""
    status = node.status
    if status is None:
        return {}
    capacity, allocatable = status.capacity or {}, status.allocatable or {}
    names = sorted(r for r in {*capacity, *allocatable} if asks.is_device_resource(r))
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
            asks.units_of(capacity.get(name, 0)),
            asks.units_of(allocatable.get(name, 0)),
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
