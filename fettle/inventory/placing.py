"""Where evidence about named units of one node counts.

On the DRA devices and the device plugin's unit that bear one of its names; where nothing on the
node does, on the node as a whole, since any device of it may be the one. Decided anew whenever a
node's record is made, so that evidence follows its device as that comes and goes. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from fettle.evidence import naming
from fettle.evidence.reports import short
from fettle.inventory import pools
from fettle.model import DeviceId, Health, NodeId, Subject, UnitId
from fettle.published import Published

Gpu = tuple[UnitId, ...]
"""Units that are one GPU, named by several sources; the best name first."""


class Placing(NamedTuple):
    """Of one node: which units each DRA device is, and which there are of each resource.

    `gpus` are all of them, `homeless` the units that nothing on the node is.
    """

    node: NodeId
    gpus: tuple[Gpu, ...] = ()
    by_device: Mapping[DeviceId, Gpu] = {}
    by_resource: Mapping[str, tuple[Gpu, ...]] = {}
    homeless: Gpu = ()

    @property
    def whole(self) -> tuple[Subject, ...]:
        """Whom evidence names that counts for all devices of the node."""
        return (self.node, *self.homeless)

    def told(self, health: Health) -> Health:
        """The health with evidence about units that are not to be found saying so."""
        if not self.homeless:
            return health
        evidence = tuple(
            msgspec.structs.replace(
                w,
                evidence=msgspec.structs.replace(w.evidence, text=_lost(subject, w.evidence.text)),
            )
            if isinstance(subject := w.evidence.subject, UnitId) and subject in self.homeless
            else w
            for w in health.evidence
        )
        return msgspec.structs.replace(health, evidence=evidence)


def place(
    node: str,
    units: Collection[UnitId],
    resources: Collection[str],
    devices: Iterable[Published],
) -> Placing:
    """`resources` are those of which a device plugin has units, `devices` the node's own."""
    if not units:
        return Placing(NodeId(node))
    by_device: dict[DeviceId, Gpu] = {}
    by_resource: dict[str, tuple[Gpu, ...]] = defaultdict(tuple)
    homeless: Gpu = ()
    named = [(published, frozenset(pools.aliases(published.device))) for published in devices]
    gpus = _gpus(units)
    for gpu in gpus:
        found = _devices(gpu, named)
        for id_ in found:
            by_device[id_] = (*by_device.get(id_, ()), *gpu)
        resource = gpu[0].resource
        if resource in resources:
            by_resource[resource] = (*by_resource[resource], gpu)
        elif not found:
            homeless += gpu
    return Placing(NodeId(node), gpus, by_device, by_resource, homeless)


def _gpus(units: Iterable[UnitId]) -> tuple[Gpu, ...]:
    """Units of a resource that share a name, together."""
    by_resource: dict[str, list[UnitId]] = defaultdict(list)
    for unit in sorted(units, key=lambda u: (u.resource, naming.rank(u.unit), u.others)):
        by_resource[unit.resource].append(unit)
    gpus: dict[tuple[str, str], Gpu] = {}
    for resource, ordered in by_resource.items():
        known = naming.joined(unit.names for unit in ordered)
        for unit in ordered:
            key = (resource, known[unit.unit][0])
            gpus[key] = (*gpus.get(key, ()), unit)
    return tuple(gpus.values())


def _devices(gpu: Gpu, named: list[tuple[Published, frozenset[str]]]) -> list[DeviceId]:
    """Those that share the best name, and what is a part of them."""
    ranked = [
        (min(ranks), published)
        for published, names in named
        if (ranks := list(_ranks(gpu, published.id.driver, names)))
    ]
    if not ranked:
        return []
    best = min(rank for rank, _ in ranked)
    found = [published for rank, published in ranked if rank == best]
    wholes = {naming.own_uuid(published.device) for published in found} - {""}
    ids = dict.fromkeys(published.id for published in found)
    ids.update((published.id, None) for published, names in named if not wholes.isdisjoint(names))
    return list(ids)


def _ranks(gpu: Gpu, driver: str, names: frozenset[str]) -> Iterable[int]:
    ranks = (naming.closeness(unit, driver, names) for unit in gpu)
    return (rank for rank in ranks if rank is not None)


def _lost(unit: UnitId, text: str) -> str:
    return short(f"{unit.resource} {unit.unit}, which is no device known here: {text}")
