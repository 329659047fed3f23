"""Where evidence about named units of one node counts.

On the DRA devices and the device plugin's units that bear one of its names; where nothing on the
node does, on the node as a whole, since any device of it may be the one. Unless each of them is
known to be another: a driver that starts anew does not publish a GPU that is lost. Decided anew
whenever a node's record is made, by what is published and named then, so that evidence follows its
device as that comes and goes, and no name counts that nobody says any more. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from fettle.cluster.inventory import divisions
from fettle.dra import PublishedDevice
from fettle.health import naming, short
from fettle.model import DeviceId, Health, NodeId, Subject, UnitId, Weighed

Gpu = tuple[UnitId, ...]
"""Units that are one GPU, by what is known of its names now; the best name first."""


class Placing(NamedTuple):
    """Of one node: which units each DRA device is, and which there may be of each resource.

    `gpus` are all of them, `homeless` the units that any device of the node may be, `absent` those
    that none is. In `by_resource`, a GPU stands once for each resource that it may be units of.
    """

    node: NodeId
    gpus: tuple[Gpu, ...] = ()
    by_device: Mapping[DeviceId, Gpu] = {}
    by_resource: Mapping[str, tuple[Gpu, ...]] = {}
    homeless: Gpu = ()
    absent: Gpu = ()

    @property
    def whole(self) -> tuple[Subject, ...]:
        """The subjects whose evidence applies to every device on the node."""
        return (self.node, *self.homeless)

    def told(self, health: Health) -> Health:
        """The health, where evidence about units that were not found says so."""
        if not self.homeless:
            return health
        evidence = tuple(
            _worded(w, subject, "which is not a known device")
            if isinstance(subject := w.evidence.subject, UnitId) and subject in self.homeless
            else w
            for w in health.evidence
        )
        return msgspec.structs.replace(health, evidence=evidence)

    def remarked(self, health: Health, by_unit: Mapping[UnitId, Health]) -> Health:
        """The node's own health, with what is said of absent units: it weighs on nothing here."""
        if not self.absent:
            return health
        remarks = tuple(
            msgspec.structs.replace(_worded(w, unit, "which is none of its devices"), weight=0.0)
            for unit in self.absent
            for w in by_unit[unit].evidence
            if w.evidence.subject == unit
        )
        return msgspec.structs.replace(health, evidence=health.evidence + remarks)


def place(
    node: str,
    units: Collection[UnitId],
    named: Collection[UnitId],
    resources: Collection[str],
    devices: Iterable[PublishedDevice],
) -> Placing:
    """`units` are those that evidence is about, `named` those that the Node names now, `resources`
    those of which a device plugin has units, `devices` the node's own."""
    if not units:
        return Placing(NodeId(node))
    by_gpu: dict[UnitId, Gpu] = defaultdict(tuple)
    by_device: dict[DeviceId, Gpu] = defaultdict(tuple)
    homeless: Gpu = ()
    absent: Gpu = ()
    published = [(one, frozenset(naming.published(one.device))) for one in devices]
    known = _known(named)
    homes: dict[UnitId, tuple[str, ...]] = {}
    for unit in sorted(units, key=_order):
        resource, name = divisions.plain(unit.resource), divisions.whole(unit.unit)
        names = known.get((resource, name), (name, *unit.others))
        gpu = UnitId(node, resource, names[0])
        by_gpu[gpu] += (unit,)
        by_all_names = gpu._replace(others=names[1:])
        found = _devices(by_all_names, published)
        for id_ in found:
            by_device[id_] += (unit,)
        homes[gpu] = divisions.homes(resource, resources)
        if homes[gpu] or found:
            continue
        if _is_absent(by_all_names, published):
            absent += (unit,)
        else:
            homeless += (unit,)
    by_resource: dict[str, tuple[Gpu, ...]] = defaultdict(tuple)
    for gpu, same in by_gpu.items():
        for home in homes[gpu]:
            by_resource[home] += (same,)
    return Placing(NodeId(node), tuple(by_gpu.values()), by_device, by_resource, homeless, absent)


def _order(unit: UnitId) -> tuple[str, tuple[int, str], tuple[str, ...]]:
    return unit.resource, naming.rank(unit.unit), unit.others


def _known(named: Iterable[UnitId]) -> dict[tuple[str, str], tuple[str, ...]]:
    """By resource and name, all names of that GPU, best first."""
    groups: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for unit in sorted(named, key=_order):
        groups[unit.resource].append(unit.names)
    return {
        (resource, name): names
        for resource, together in groups.items()
        for name, names in naming.joined(together).items()
    }


def _devices(unit: UnitId, named: list[tuple[PublishedDevice, frozenset[str]]]) -> list[DeviceId]:
    """Those that share the best name, and what is a part of them."""
    ranked = [
        (rank, published)
        for published, names in named
        if (rank := naming.closeness(unit, published.id.driver, names)) is not None
    ]
    if not ranked:
        return []
    best = min(rank for rank, _ in ranked)
    found = [published for rank, published in ranked if rank == best]
    wholes = {naming.own_uuid(published.device) for published in found} - {""}
    ids = dict.fromkeys(published.id for published in found)
    ids.update((published.id, None) for published, names in named if not wholes.isdisjoint(names))
    return list(ids)


def _is_absent(unit: UnitId, named: list[tuple[PublishedDevice, frozenset[str]]]) -> bool:
    """Whether drivers of the unit's vendor publish GPUs by name, and each is known to be another.

    A driver that names none publishes other things, such as ComputeDomains.
    """
    others: dict[str, list[bool]] = defaultdict(list)
    for one, names in named:
        if naming.is_same_vendor(unit.resource, one.id.driver):
            others[one.id.driver].append(naming.is_other(unit, names))
    of_gpus = [told for told in others.values() if any(told)]
    return bool(of_gpus) and all(map(all, of_gpus))


def _worded(weighed: Weighed, unit: UnitId, what: str) -> Weighed:
    """The same, saying of which unit it speaks."""
    text = short(f"{unit.resource} {unit.unit}, {what}: {weighed.evidence.text}")
    evidence = msgspec.structs.replace(weighed.evidence, text=text)
    return msgspec.structs.replace(weighed, evidence=evidence)
