"""What a view says of one node's devices, made from what the inventory and the health book know."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from fettle import asks, pools
from fettle.health import HealthBook
from fettle.model import DeviceId, NodeId, Subject, UnitId
from fettle.pools import PoolDevices, PoolId
from fettle.view import DeviceView, PluginView, PoolView, UnitView
from fettle.wire import core, resource

_Selector = tuple[str | None, str | None, str | None]


class Selected:
    """DeviceTaintRules by what they select, so that a device's taints are eight lookups."""

    def __init__(self) -> None:
        self._by_selector: dict[_Selector, dict[str, resource.DeviceTaintRule]] = defaultdict(dict)

    def add(self, rule: resource.DeviceTaintRule) -> None:
        if (selector := _selector(rule)) is not None:
            self._by_selector[selector][rule.metadata.name] = rule

    def remove(self, rule: resource.DeviceTaintRule) -> None:
        if (selector := _selector(rule)) is not None:
            self._by_selector[selector].pop(rule.metadata.name, None)
            if not self._by_selector[selector]:
                del self._by_selector[selector]

    def taints(self, device: DeviceId) -> tuple[resource.DeviceTaint, ...]:
        """The taints that rules add to a device, by rule name."""
        if not self._by_selector:
            return ()
        found = {
            name: rule.spec.taint
            for driver in (None, device.driver)
            for pool in (None, device.pool)
            for name_ in (None, device.device)
            for name, rule in self._by_selector.get((driver, pool, name_), {}).items()
        }
        return tuple(found[name] for name in sorted(found))

    def rules_for(self, pool: PoolId) -> set[str]:
        """Names of the rules that may select a device of this pool."""
        return {
            name
            for (driver, pool_name, _), rules in self._by_selector.items()
            if driver in (None, pool.driver) and pool_name in (None, pool.pool)
            for name in rules
        }


def _selector(rule: resource.DeviceTaintRule) -> _Selector | None:
    """None: the rule has no selector and selects nothing."""
    selector = rule.spec.device_selector
    return None if selector is None else (selector.driver, selector.pool, selector.device)


def pool(
    assembled: PoolDevices,
    node: str | None,
    book: HealthBook,
    rules: Selected,
    holders: Mapping[DeviceId, object],
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
                taints=(device.taints or ()) + rules.taints(id_),
                health=book.assess(id_, subjects, now),
                allocated=id_ in holders,
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
    held = _units_held(pods) if known else set()
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


def _units_held(pods: Iterable[core.Pod]) -> set[tuple[str, str]]:
    """(resource, unit) that the kubelet says live pods hold."""
    return {
        (status.name, health.resource_id)
        for pod in pods
        if not pod.terminal
        for container in pod.container_statuses()
        for status in container.allocated_resources_status or ()
        for health in status.resources or ()
    }
