"""The names by which monitors, device plugins and drivers know one GPU: its UUID, `pci:<address>`,
`index:<n>`.

A UUID belongs to the GPU itself. A PCI address belongs to its slot, and partitions share it. An
index is what its monitor counts, so it only means something to drivers of the same vendor that
publish it. In this order they rank from the most to the least reliable.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from fettle.api import resource
from fettle.model import UnitId

_PCI = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-9a-f]))?")
_UUID = re.compile(r"(gpu|mig)-([0-9a-f-]{8,60})", re.IGNORECASE)
_DASH_OR_DIGIT = re.compile(r"[-0-9]")
_RANKS = {"pci": 1, "index": 2}

_ADDRESSES = ("parentPciAddr", "pciBusID", "pcieBusID", "pciAddr", "pciAddress")
"""As gpu.nvidia.com, gpu.amd.com and gpu.intel.com publish them, with and without the domain of
Kubernetes."""


def pci(address: str) -> str:
    """`pci:0000:c4:00.0`, as NVML and sysfs write it. The kernel's log omits the function."""
    found = _PCI.fullmatch(address.lower())
    if found is None:
        return f"pci:{address.lower()}"
    domain, bus, device, function = found.groups()
    return f"pci:{domain}:{bus}:{device}.{function or 0}"


def uuid(text: str) -> str:
    """As NVML writes it, `GPU-` and small letters; a name of another form as it is."""
    found = _UUID.fullmatch(text)
    return f"{found[1].upper()}-{found[2].lower()}" if found is not None else text


def index(number: object) -> str:
    return f"index:{number}"


def is_index(name: str) -> bool:
    return name.startswith("index:")


def normal(name: str) -> str:
    """A name that people or a device plugin wrote, as it is written here: a number is an index, an
    address may stand alone, and a UUID may have letters of either case."""
    if name.isdecimal():
        return index(name)
    address = name.removeprefix("pci:")
    return pci(address) if address != name or _PCI.fullmatch(address.lower()) else uuid(name)


def rank(name: str) -> tuple[int, str]:
    """A sort key: the most reliable names sort first."""
    return _RANKS.get(name.partition(":")[0], 0), name


def prefix(name: str) -> str:
    """What names of one kind begin with, such as `GPU`, `MIG`, `nvidia`, `pci:` or `index:`."""
    return _DASH_OR_DIGIT.split(name, maxsplit=1)[0]


def is_own(name: str) -> bool:
    """Whether a name belongs to one device or slot, as an index does not."""
    return rank(name)[0] < _RANKS["index"]


def is_uuid(name: str) -> bool:
    return rank(name)[0] == 0


def joined(layers: Iterable[Iterable[tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """By name, all names of that GPU, the most reliable first, from layers of groups that each name
    one GPU. A later layer is believed more.

    Two UUIDs are never one GPU, whatever other name they share. A name that two of them claim in
    one layer belongs to neither.
    """
    known: dict[str, tuple[str, ...]] = {}
    for layer in layers:
        groups = list(layer)
        contested = _contested(groups)
        for name in contested.intersection(known):
            kept = tuple(other for other in known.pop(name) if other not in contested)
            known.update(dict.fromkeys(kept, kept))
        for group in groups:
            names = [name for name in group if name not in contested]
            union = sorted({n for name in names for n in known.get(name, (name,))}, key=rank)
            if sum(map(is_uuid, union)) > 1:
                union = sorted(names, key=rank)
            known.update(dict.fromkeys(union, tuple(union)))
    return known


def _contested(groups: Iterable[tuple[str, ...]]) -> set[str]:
    """Addresses and indices that groups of different UUIDs have. A group without a UUID is of the
    one that has its most reliable name."""
    owners: dict[str, set[str]] = defaultdict(set)
    for names in sorted((sorted(group, key=rank) for group in groups if group), key=_first_rank):
        its = {names[0]} if is_uuid(names[0]) else owners[names[0]]
        for name in names:
            owners[name] |= its
    return {name for name, of in owners.items() if len(of) > 1 and not is_uuid(name)}


def _first_rank(names: list[str]) -> int:
    return rank(names[0])[0]


def published(device: resource.Device) -> Iterator[str]:
    """Names of a DRA device, and of the GPU that it is a part of: a fault of the GPU affects its
    parts."""
    if is_part(device) and (own := own_uuid(device)):
        yield own
    yield from of_hardware(device)


def of_hardware(device: resource.Device) -> Iterator[str]:
    """Names of the GPU that a DRA device is, or of which it is a part; the most reliable first.

    A part is only known by the index of its parent: its own index is its number within its GPU.
    """
    values = _values(device)
    own, number = ("parentUUID", "parentIndex") if is_part(device) else ("uuid", "index")
    if own in values:
        yield uuid(values[own])
    yield from dict.fromkeys(pci(values[name]) for name in _ADDRESSES if name in values)
    if number in values:
        yield index(values[number])


def is_part(device: resource.Device) -> bool:
    """Whether a device says that it is a part of another one, such as a MIG device of its GPU."""
    return kind(device) == "mig" or any(
        name.rpartition("/")[2].startswith("parent") for name in device.attributes or ()
    )


def kind(device: resource.Device) -> str:
    """The attribute `type`; "" if there is none."""
    attributes = device.attributes or {}
    found = attributes.get("type") or next(
        (value for name, value in attributes.items() if name.endswith("/type")), None
    )
    return (found.string or "") if found is not None else ""


def own_uuid(device: resource.Device) -> str:
    """The UUID that a device publishes for itself; "" if none."""
    return uuid(_values(device).get("uuid", ""))


def _values(device: resource.Device) -> dict[str, str]:
    """Attributes as text, by name without a domain."""
    return {
        name.rpartition("/")[2]: str(value.int_) if value.string is None else value.string
        for name, value in (device.attributes or {}).items()
        if value.string is not None or value.int_ is not None
    }


def contradict(names: Iterable[str], others: Iterable[str], shared: str) -> bool:
    """Whether names that are more reliable than a `shared` one tell two devices apart.

    >>> contradict(["GPU-1", "index:0"], ["GPU-2", "index:0"], "index:0")
    True
    """
    better = {name for name in names if rank(name)[0] < rank(shared)[0]}
    unlike = {_form(other) for other in others if other not in better}
    return any(_form(name) in unlike for name in better)


def is_other(unit: UnitId, names: Iterable[str]) -> bool:
    """Whether a device that shares no name with a unit certainly is another device: it has a UUID
    of the same form, or an address."""
    forms = {_form(name) for name in unit.names} - {""}
    return any(_form(name) in forms for name in names)


def is_replaced(unit: UnitId, names: frozenset[str]) -> bool:
    """Whether a device that shares a name with a unit is another one in its place: its UUID
    differs."""
    shared = sorted(names.intersection(unit.names), key=rank)
    return bool(shared) and contradict(filter(is_uuid, unit.names), names, shared[0])


def _form(name: str) -> str:
    """Names of the same form can be compared; "" for an index, which is not the GPU's own name."""
    kind = rank(name)[0]
    if kind == _RANKS["index"]:
        return ""
    return f"{'pci' if kind else name.partition('-')[0]} {len(name)}"


def closeness(unit: UnitId, driver: str, names: Iterable[str]) -> int | None:
    """The rank of the most reliable name that a unit shares with a driver's device; None if they
    share none.

    >>> unit = UnitId("gpu-01", "nvidia.com/gpu", "GPU-1", ("index:0",))
    >>> closeness(unit, "gpu.nvidia.com", ["index:0"]), closeness(unit, "gpu.amd.com", ["index:0"])
    (2, None)
    """
    shared = set(names).intersection(unit.names)
    if not is_same_vendor(unit.resource, driver):
        shared = {name for name in shared if not name.startswith("index:")}
    return min((rank(name)[0] for name in shared), default=None)


def is_same_vendor(resource_name: str, driver: str) -> bool:
    """`nvidia.com/gpu` belongs to the same vendor as `gpu.nvidia.com`.

    >>> is_same_vendor("nvidia.com/gpu", "gpu.nvidia.com")
    True
    """
    vendor = resource_name.partition("/")[0]
    return driver == vendor or driver.endswith(f".{vendor}")
