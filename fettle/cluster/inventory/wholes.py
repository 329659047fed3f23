"""Which devices of a pool are parts of others, such as a MIG device of its GPU: a fault of the
whole is a fault of each part (decision 0053).

Attributes tell: a part names its parent. A device of another `type` at the same address is the same
hardware, as a GPU and the VFIO device of it are. Where attributes say nothing, shared counters do:
what takes all of a counter set is the whole, what takes less of it is a part. This holds on one
node only: counters of the network join devices of many nodes.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from fettle.dra import PublishedDevice
from fettle.health import gpu_names
from fettle.model import DeviceId

Wholes = Mapping[DeviceId, tuple[DeviceId, ...]]
"""By part, the devices whose faults are its own too."""
_NONE: Wholes = {}


def find_wholes(
    devices: Collection[PublishedDevice], counter_sets: Mapping[str, Mapping[str, int]]
) -> Wholes:
    """The wholes of all parts. `counter_sets`: the totals of each counter, in 1e-9."""
    if not counter_sets and _are_alike(devices):
        return _NONE  # as in nearly all pools
    known = [_known(published) for published in devices]
    by_name: dict[str, list[_Known]] = defaultdict(list)
    for one in known:
        for name in one.names if not one.is_part else ():
            by_name[name].append(one)
    by_set = _wholes_by_counter_set(devices, counter_sets)
    found = {}
    for one in known:
        wholes = _by_attributes(one, by_name) or tuple(
            whole
            for set_ in dict.fromkeys(set_ for (set_, _), _ in one.published.consumes)
            if one.published.id not in (takers := by_set.get(set_, ()))
            for whole in takers
        )
        if wholes:
            found[one.published.id] = wholes
    return found


def _are_alike(devices: Collection[PublishedDevice]) -> bool:
    """Whether all have the same attributes and `type`, as a whole and its parts never have."""
    if not devices:
        return True
    first, *others = (published.device for published in devices)
    names, kind = (first.attributes or {}).keys(), gpu_names.kind(first)
    return all(
        (other.attributes or {}).keys() == names and gpu_names.kind(other) == kind
        for other in others
    )


class _Known(NamedTuple):
    """What attributes say of a device; `names` are those of its hardware, the best first."""

    published: PublishedDevice
    is_part: bool
    kind: str
    names: tuple[str, ...]


def _known(published: PublishedDevice) -> _Known:
    device = published.device
    is_part, names = gpu_names.is_part(device), tuple(gpu_names.of_hardware(device))
    return _Known(published, is_part, gpu_names.kind(device), names)


def _by_attributes(one: _Known, by_name: Mapping[str, list[_Known]]) -> tuple[DeviceId, ...]:
    """The devices that have the most reliable name of its hardware."""
    for name in one.names:
        if not one.is_part and not gpu_names.is_own(name):
            continue  # an index counts devices of one type
        wholes = tuple(
            whole.published.id
            for whole in by_name.get(name, ())
            if (one.is_part or whole.kind != one.kind)
            and not gpu_names.contradict(one.names, whole.names, name)
        )
        if wholes:
            return wholes
    return ()


def _wholes_by_counter_set(
    devices: Collection[PublishedDevice], counter_sets: Mapping[str, Mapping[str, int]]
) -> Mapping[str, tuple[DeviceId, ...]]:
    """By counter set, the node's own devices that take all of it."""
    wholes: dict[str, tuple[DeviceId, ...]] = defaultdict(tuple)
    for published in devices if counter_sets else ():
        taken = dict(published.consumes) if published.local else {}
        for set_ in {set_ for set_, _ in taken}:
            total = counter_sets.get(set_)
            if total and all(taken.get((set_, name), 0) >= all_ for name, all_ in total.items()):
                wholes[set_] += (published.id,)
    return wholes
