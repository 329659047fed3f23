"""matchAttribute and distinctAttribute while devices are taken and given back.

Ports of both of k8s.io/dynamic-resource-allocation/structured: for single values (incubating), and
for lists as sets (experimental, where the gate is on). Upstream's defects are there for prediction.
"""

from collections.abc import Collection, Hashable, Iterable
from typing import Protocol

from fettle.api.resource import DeviceAttribute
from fettle.dra.allocator.features import Profile
from fettle.dra.claims import Alternative, Constraint, Request
from fettle.dra.pools import DeviceView


class Tracked(Protocol):
    """A constraint with the devices it holds so far, of requests that it `concerns`. Each `add`
    that holds is undone by `remove`, the last one first."""

    def concerns(self, request: Request, alternative: Alternative) -> bool: ...

    def add(self, request: Request, device: DeviceView) -> bool: ...

    def remove(self, request: Request) -> None: ...


def constraint_tracker(constraint: Constraint, profile: Profile) -> Tracked:
    """An empty tracker for one search."""
    lists = profile.features.list_type_attributes
    if not constraint.distinct:
        quirk = profile.quirks.intersection_kept
        return Common(constraint, kept=quirk) if lists else Same(constraint)
    if profile.quirks.distinct_by_request:
        return DistinctByRequest(constraint, lists=lists)
    return Distinct(constraint, lists=lists)


def lookup_attribute(name: str | None, device: DeviceView) -> DeviceAttribute | None:
    """What a constraint compares: the attribute by its full name, else by its bare name where the
    domain is the driver. None: the device has none, or the constraint names none."""
    attributes = device.published.device.attributes or {}
    found = attributes.get(name or "")
    if found is not None:
        return found
    domain, slash, bare = (name or "").partition("/")
    if not slash or domain != device.published.id.driver:
        return None
    return attributes.get(bare)


def value_of(found: DeviceAttribute) -> object:
    """A single value, with its type; None where it compares in other ways, as lists may."""
    if not _is_single(found):
        return None
    values = [
        (kind, value)
        for kind, value in enumerate((found.string, found.int_, found.bool_, found.version))
        if value is not None
    ]
    return values[0]


def equality_pattern(name: str, devices: Iterable[DeviceView]) -> Hashable:
    """All that constraints on an attribute can tell of devices: which of them have the same value,
    as numbers, and which have none. The values themselves where some are not single ones."""
    values = [lookup_attribute(name, device) for device in devices]
    numbers: dict[DeviceAttribute | None, int | None] = {None: None}
    same = [numbers.setdefault(value, len(numbers)) for value in values]
    return tuple(same if all(map(_is_single, filter(None, numbers))) else values)


def _is_single(found: DeviceAttribute) -> bool:
    scalars = (found.string, found.int_, found.bool_, found.version)
    lists = (found.strings, found.ints, found.bools, found.versions)
    return scalars.count(None) == 3 and lists.count(None) == 4


class _Tracker:
    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint

    def concerns(self, request: Request, alternative: Alternative) -> bool:
        return self._constraint.concerns(request.name, alternative.name)


class Same(_Tracker):
    """All devices have the value of the first one. The first may have any, even one of a type
    that nothing equals."""

    def __init__(self, constraint: Constraint) -> None:
        super().__init__(constraint)
        self._first: DeviceAttribute | None = None
        self._devices = 0

    @property
    def agreed(self) -> DeviceAttribute | None:
        """What all have to have by now; None before there is one."""
        return self._first if self._devices else None

    def add(self, request: Request, device: DeviceView) -> bool:
        found = lookup_attribute(self._constraint.attribute, device)
        if found is None:
            return False
        if self._devices == 0:
            self._first = found
        elif self._first is None or not equal(found, self._first):
            return False
        self._devices += 1
        return True

    def remove(self, request: Request) -> None:
        self._devices -= 1


class Common(_Tracker):
    """All devices have at least one value in common; a single value is a list of one."""

    def __init__(self, constraint: Constraint, *, kept: bool = False) -> None:
        super().__init__(constraint)
        self._common: list[Values] = []
        self._devices = 0
        self._kept = kept

    def add(self, request: Request, device: DeviceView) -> bool:
        found = lookup_attribute(self._constraint.attribute, device)
        values = as_set(found) if found is not None else None
        if values is None:
            return False
        if self._devices:
            values = common(self._common[-1], values)
            if values is None:
                return False
        elif self._kept:
            self._common.clear()
        self._common.append(values)
        self._devices += 1
        return True

    def remove(self, request: Request) -> None:
        self._devices -= 1
        if not self._kept:
            self._common.pop()


class Distinct(_Tracker):
    """No value comes twice; without lists, values of different types differ."""

    def __init__(self, constraint: Constraint, *, lists: bool) -> None:
        super().__init__(constraint)
        self._lists = lists
        self._seen: list[DeviceAttribute] = []

    def add(self, request: Request, device: DeviceView) -> bool:
        found = lookup_attribute(self._constraint.attribute, device)
        if found is None or not differs(found, self._seen, lists=self._lists):
            return False
        self._seen.append(found)
        return True

    def remove(self, request: Request) -> None:
        self._seen.pop()


class DistinctByRequest(_Tracker):
    """As until 1.36: only the last value of each request is remembered."""

    def __init__(self, constraint: Constraint, *, lists: bool) -> None:
        super().__init__(constraint)
        self._lists = lists
        self._seen: dict[str, DeviceAttribute] = {}
        self._devices = 0

    def add(self, request: Request, device: DeviceView) -> bool:
        found = lookup_attribute(self._constraint.attribute, device)
        if found is None:
            return False
        if self._devices and not differs(found, self._seen.values(), lists=self._lists):
            return False
        self._seen[request.name] = found
        self._devices += 1
        return True

    def remove(self, request: Request) -> None:
        self._seen.pop(request.name, None)
        self._devices -= 1


Values = tuple[str, frozenset[object]]
"""(type, values)."""


def as_set(found: DeviceAttribute) -> Values | None:
    """None: no value of a known type."""
    for kind, items in (
        ("int", found.ints),
        ("bool", found.bools),
        ("string", found.strings),
        ("version", found.versions),
    ):
        if items:
            return kind, frozenset(items)
    for kind, item in (
        ("int", found.int_),
        ("bool", found.bool_),
        ("string", found.string),
        ("version", found.version),
    ):
        if item is not None:
            return kind, frozenset((item,))
    return None


def common(one: Values, other: Values) -> Values | None:
    """What two sets share; None where that is nothing."""
    both = one[1] & other[1] if one[0] == other[0] else frozenset()
    return (one[0], both) if both else None


def equal(new: DeviceAttribute, first: DeviceAttribute) -> bool:
    """Whether two single values are of one type and equal; lists never are."""
    if new.string is not None:
        return new.string == first.string
    if new.int_ is not None:
        return new.int_ == first.int_
    if new.bool_ is not None:
        return new.bool_ is first.bool_
    return new.version is not None and new.version == first.version


def differs(new: DeviceAttribute, seen: Collection[DeviceAttribute], *, lists: bool) -> bool:
    """Whether a value is none of those seen."""
    if lists:
        values = as_set(new)
        if values is None:
            return False
        others = (as_set(other) for other in seen)
        return all(other is None or common(values, other) is None for other in others)
    known = any(v is not None for v in (new.string, new.int_, new.bool_, new.version))
    return not seen or (known and not any(equal(new, other) for other in seen))
