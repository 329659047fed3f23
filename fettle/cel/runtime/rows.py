"""What an expression reads of a device, as a fingerprint and as a row.

Used on both sides of the worker's pipe. Devices with the same fingerprint need only one
evaluation, so a fleet of one model costs one.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

from fettle.api.resource import Device, DeviceAttribute
from fettle.cel.library import semver

Field = Literal["attributes", "capacity"]
Amount = str | int | float
Value = DeviceAttribute | Amount
RowFingerprint = tuple[object, ...]
V = TypeVar("V")


Variable = Literal["device", "node"]
"""What an expression is about."""
LABELS = "labels"
"""The domain under which a node's labels stand."""


class AttributeRead(NamedTuple):
    """One value that an expression reads; with `name` "", only whether the domain exists."""

    field: Field
    domain: str
    name: str


class Equation(NamedTuple):
    """An attribute that an expression compares for equality with a value.

    `type` is CEL's name for the value's type, "dyn" if that is not known. `value` is the text of a
    literal, else "". The expression matches only where one equation of each `part` but 0 holds.
    """

    read: AttributeRead
    type: str
    value: str
    part: int = 0


Reads = tuple[AttributeRead, ...] | None
"""None: the whole device."""


class DeviceRow(NamedTuple):
    """What an expression reads of a device, ready to be sent to the worker.

    `attributes` and `capacity` hold (domain, name, value); the value is None if the device has
    none. `domains` says which domains exist. In a `whole` row, what is not listed does not exist.
    """

    driver: str
    multiple: bool
    whole: bool
    attributes: tuple[tuple[str, str, DeviceAttribute | None], ...] = ()
    capacity: tuple[tuple[str, str, Amount | None], ...] = ()
    domains: tuple[tuple[Field, str, bool], ...] = ()


_EMPTY = DeviceAttribute()
_INT64 = range(-(2**63), 2**63)


def problem(driver: str, device: Device) -> str:
    """Why no expression can be decided on this device; "" if they can."""
    attributes = device.attributes or {}
    for name, value in attributes.items():
        if value.version is not None and not semver.is_version(value.version):
            return f"attribute {name}: {value.version!r} is not a semantic version"
        if value.int_ is not None and value.int_ not in _INT64:
            return f"attribute {name}: {value.int_} does not fit 64 bits"
        if "/" in name and _twice(name, driver, attributes):
            return f"attribute {name} is given twice, with and without its domain"
        if value == _EMPTY:
            return f"attribute {name} has no value of a known type"
        if value.ints is not None and any(item not in _INT64 for item in value.ints):
            return f"attribute {name} holds a number that does not fit 64 bits"
        if value.versions is not None and not all(map(semver.is_version, value.versions)):
            return f"attribute {name} holds something that is not a semantic version"
    for name in device.capacity or ():
        if "/" in name and _twice(name, driver, device.capacity or {}):
            return f"capacity {name} is given twice, with and without its domain"
    return ""


def row_fingerprint(reads: Reads, driver: str, device: Device) -> RowFingerprint:
    """What an expression with these reads can tell devices apart by; hashable."""
    multiple = bool(device.allow_multiple_allocations)
    if reads is None:
        return (driver, multiple, _items(device, "attributes"), _items(device, "capacity"))
    return (driver, multiple, *[value_at_read(read, driver, device) for read in reads])


def row(reads: Reads, fingerprint: RowFingerprint) -> DeviceRow:
    """The row that a fingerprint stands for."""
    driver, multiple, *values = fingerprint
    assert isinstance(driver, str)
    if reads is None:
        attributes, capacity = (_qualified(items, driver) for items in values)
        return DeviceRow(driver, bool(multiple), True, attributes, capacity)  # type: ignore[arg-type]
    seen = list(zip(reads, values, strict=True))
    return DeviceRow(
        driver,
        bool(multiple),
        False,
        tuple((r.domain, r.name, v) for r, v in seen if r.name and r.field == "attributes"),  # type: ignore[misc]
        tuple((r.domain, r.name, v) for r, v in seen if r.name and r.field == "capacity"),  # type: ignore[misc]
        tuple((r.field, r.domain, bool(v)) for r, v in seen if not r.name),
    )


def device_of_node(labels: Mapping[str, str]) -> Device:
    """A node as a device, for expressions about nodes: its labels are attributes of one domain."""
    attributes = {f"{LABELS}/{name}": DeviceAttribute(string=labels[name]) for name in labels}
    return Device(name="", attributes=attributes)


def split_name(name: str, driver: str) -> tuple[str, str]:
    """The domain and name of an attribute or capacity; by default, the driver is the domain."""
    domain, slash, rest = name.partition("/")
    return (domain, rest) if slash else (driver, name)


def _twice(name: str, driver: str, values: Mapping[str, object]) -> bool:
    domain, rest = split_name(name, driver)
    return domain == driver and rest in values


def value_at_read(read: AttributeRead, driver: str, device: Device) -> Value | bool | None:
    """What a device publishes for a read; None if nothing."""
    if not read.name:
        names = (device.attributes if read.field == "attributes" else device.capacity) or ()
        return any(split_name(name, driver)[0] == read.domain for name in names)
    if read.field == "attributes":
        return _found(read, driver, device.attributes or {})
    amount = _found(read, driver, device.capacity or {})
    return None if amount is None else amount.value


def _found(read: AttributeRead, driver: str, values: Mapping[str, V]) -> V | None:
    """The value, published with or without its domain; a domain ends at the first slash."""
    found = values.get(f"{read.domain}/{read.name}") if "/" not in read.domain else None
    if found is None and read.domain == driver and "/" not in read.name:
        found = values.get(read.name)
    return found


def _items(device: Device, field: Field) -> tuple[tuple[str, Value], ...]:
    if field == "attributes":
        return tuple(sorted((device.attributes or {}).items(), key=_first))
    return tuple(sorted(((n, c.value) for n, c in (device.capacity or {}).items()), key=_first))


def _first(item: tuple[str, Value]) -> str:
    return item[0]


def _qualified(items: object, driver: str) -> tuple[tuple[str, str, object], ...]:
    assert isinstance(items, tuple)
    return tuple((*split_name(name, driver), value) for name, value in items)
