"""What a pod that is on a node holds there, and what its policy says of that. Pure.

A claim names its devices. The units of a device plugin have names only where the kubelet reports
them. Otherwise a pod may hold any unit that no pod is known to hold. It certainly holds a unit if
the other units are too few for it, as when it has all units of the node.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fettle.api import core
from fettle.cluster import NodeView, PluginView, UnitView, whole_device
from fettle.dra import device_units
from fettle.health import gpu_names
from fettle.model import Health, UnitId, reasons
from fettle.scheduling.demand import Bound, Demand
from fettle.scheduling.judge.acceptance import (
    Acceptance,
    complaint,
    unrelated_domains,
    without_domains,
    without_planned,
)
from fettle.scheduling.judge.claims import bound_part
from fettle.scheduling.judge.parts import Part, node_part
from fettle.scheduling.judge.verdicts import Verdict, combine

WITHDRAWAL_S = 60.0
"""If a device plugin withdraws a bad unit, it does so within so many seconds after the unit's state
began."""

# Who holds a unit


class UnitUsers(NamedTuple):
    """The pods (`namespace/name`) that certainly hold a unit, and those that may hold it.

    `in_use`: some pod certainly does, though perhaps it is not known which.
    """

    certain: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()
    in_use: bool = False


class _Share(NamedTuple):
    """What one pod holds of a resource: `named` are the devices that the kubelet names, `unnamed`
    counts units of which nobody says which they are."""

    pod: str
    runs: bool
    named: Mapping[str, int]
    unnamed: int

    def as_told_apart_from(self, names: Collection[str]) -> "_Share":
        """The same, in which only names of the kinds that a unit has say which units these are: a
        MIG device, or the `nvidia0` of a device file, may be any GPU with a UUID."""
        kinds = {*map(gpu_names.prefix, names)}
        named = {name: n for name, n in self.named.items() if gpu_names.prefix(name) in kinds}
        unclear = sum(self.named.values()) - sum(named.values())
        return self._replace(named=named, unnamed=self.unnamed + unclear) if unclear else self


class PluginUse:
    """Who holds the units of one extended resource on a node, by the live pods that are bound to
    it."""

    def __init__(self, plugin: PluginView, pods: Iterable[core.Pod]) -> None:
        self._plugin = plugin
        shares = (_share(pod, plugin.resource) for pod in pods)
        self._shares = [share for share in shares if share.unnamed or share.named]
        existing = plugin.allocatable + sum(unit.withdrawn for unit in plugin.units)
        self.existing = max(plugin.capacity, existing)
        """How many units there are, withdrawn ones included."""

    @property
    def taken(self) -> int:
        """How many units pods hold, or will once they start."""
        return sum(share.unnamed + sum(share.named.values()) for share in self._shares)

    def of(self, unit: UnitView) -> UnitUsers:
        """Who holds a unit of this resource."""
        names = _names(unit)
        sure = [s.pod for s in self._shares if not names.isdisjoint(s.named)]
        known = sum(
            number for s in self._shares for name, number in s.named.items() if name in names
        )
        left = unit.count - known
        shares = [s.as_told_apart_from(names) for s in self._shares]
        others = [s for s in shares if s.unnamed and s.pod not in sure and left > 0]
        unnamed = self.existing - sum(sum(s.named.values()) for s in shares)
        # So many units a pod can hold without holding this one; whoever holds more has it, too. If
        # it may belong to another resource, even all units of this one need not include it.
        spare = unnamed if unit.alternatives else unnamed - left
        sure += [s.pod for s in others if s.runs and s.unnamed > spare]
        return UnitUsers(
            tuple(sorted(sure)),
            tuple(sorted(s.pod for s in others if s.pod not in sure)),
            bool(sure) or sum(s.unnamed for s in others if s.runs) > spare,
        )

    def came_after_withdrawal(self, unit: UnitView, bound_at: float) -> bool:
        """Whether a pod that was bound at that time can hardly hold the unit, since the device
        plugin had withdrawn it by then."""
        late = bound_at > unit.health.since + WITHDRAWAL_S
        return late and not unit.left and self.taken <= self._plugin.allocatable


def _share(pod: core.Pod, resource: str) -> _Share:
    named = Counter(whole_device(id_) for id_ in held_units(pod, resource))
    count = dict(device_units(pod)).get(resource, 0)
    runs = pod.status is not None and pod.status.phase == "Running"
    return _Share(pod.metadata.key, runs, named, max(0, count - sum(named.values())))


def held_units(pod: core.Pod, resource: str) -> dict[str, None]:
    """The ids of a resource's units that a pod's containers hold, as the kubelet reports."""
    return {
        one.resource_id: None
        for status in pod.container_statuses()
        for allocated in status.allocated_resources_status or ()
        if allocated.name == resource
        for one in allocated.resources or ()
    }


def worst_held(pod: core.Pod, node: NodeView, claims: Iterable[Bound]) -> Health:
    """The worst health of what a pod certainly holds on its node, the node included."""
    wanted = {held.device for bound in claims for held in bound.held if not held.admin_access}
    pools = {(id_.driver, id_.pool) for id_ in wanted}
    found = [node.health]
    for pool in node.pools:
        if (pool.driver, pool.name) in pools:
            devices = (*pool.devices, *pool.withheld)
            found += [device.health for device in devices if device.id in wanted]
    for resource, _ in device_units(pod):
        if (plugin := node.plugins.get(resource)) is not None and plugin.units:
            use = PluginUse(plugin, (pod,))
            found += [unit.health for unit in plugin.units if use.of(unit).certain]
    return min(found, key=lambda health: health.score)


def _names(unit: UnitView) -> set[str]:
    """All names of the unit: its own, and those that evidence uses for it."""
    names = {unit.unit, *unit.others}
    for weighed in unit.health.evidence:
        if isinstance(subject := weighed.evidence.subject, UnitId):
            names.update(map(whole_device, subject.names))
    return names


def without_held(plugin: PluginView, pod: core.Pod) -> PluginView:
    """The resource once a pod has given back the units that it is known to hold."""
    share = _share(pod, plugin.resource)
    units, left = [], sum(share.named.values())
    for unit in plugin.units:
        mine = sum(number for name, number in share.named.items() if name in _names(unit))
        left -= mine
        units.append(msgspec.structs.replace(unit, allocated=max(0, unit.allocated - mine)))
    return msgspec.structs.replace(
        plugin, units=tuple(units), others_held=max(0, plugin.others_held - max(0, left))
    )


# What the policy says


class HeldUnit(NamedTuple):
    """A unit that a placed pod certainly holds, or may hold."""

    resource: str
    unit: str
    certain: bool
    health: Health


class PlacedVerdict(NamedTuple):
    """What a policy says of where a pod is. `verdict.devices` are the devices of its claims."""

    verdict: Verdict
    units: tuple[HeldUnit, ...]


def judge_placed(
    pod: core.Pod,
    demand: Demand,
    node: NodeView,
    acceptance: Acceptance,
    uses: Mapping[str, PluginUse],
    bound_at: float,
) -> PlacedVerdict:
    """The verdict on the node that a pod is bound to, by what the pod holds there.

    `demand` has the units that the pod was given and, as `bound`, its claims. `uses` are those of
    the node's resources, `bound_at` is when the pod was bound.
    """
    node = without_domains(unrelated_domains(demand, node), node, acceptance.thresholds)
    node, _ = without_planned(node, acceptance)
    parts: list[Part] = []
    held: list[HeldUnit] = []
    for units in demand.units:
        if (plugin := node.plugins.get(units.resource)) is not None:
            mine = [*_held(pod, plugin, node, uses[units.resource], bound_at)]
            held += mine
            parts.append(_units_part(units.resource, mine, acceptance))
    parts += [bound_part(bound, node, acceptance) for bound in demand.bound]
    pools = frozenset[str]().union(*(part.pools for part in parts))
    of_node = node_part(node, acceptance, pools, only_admin_access=demand.only_admin_access)
    parts.insert(0, of_node)
    return PlacedVerdict(combine(parts, node, acceptance), tuple(held))


def _held(
    pod: core.Pod, plugin: PluginView, node: NodeView, use: PluginUse, bound_at: float
) -> Iterator[HeldUnit]:
    reported = {whole_device(id_) for id_ in held_units(pod, plugin.resource)}
    for unit in plugin.units:
        users = use.of(unit)
        certain = pod.metadata.key in users.certain
        if certain or (
            pod.metadata.key in users.possible and not use.came_after_withdrawal(unit, bound_at)
        ):
            yield HeldUnit(plugin.resource, unit.unit, certain, unit.health)
        reported -= _names(unit)
    for name in sorted(reported):  # no evidence names these
        yield HeldUnit(plugin.resource, name, True, node.health)


def _units_part(resource: str, held: Sequence[HeldUnit], acceptance: Acceptance) -> Part:
    part = Part(frozenset((resource,)))
    for unit in held:
        if (found := complaint(unit.health, acceptance.placement)) is not None:
            why = reasons.UnitNotAcceptable(
                resource,
                unit.unit,
                unit.certain,
                found,
                unit.health,
                acceptance.placement.min_score,
            )
            part.refusals.append(why)
    return part
