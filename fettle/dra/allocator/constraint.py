"""The constraints matchAttribute and distinctAttribute during a search.

Ports of `matchAttributeConstraint` and `distinctAttributeConstraint` of
k8s.io/dynamic-resource-allocation/structured: for single values (incubating) and for lists as sets
(experimental, if the gate is on). Upstream's defects are ported too, for prediction.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from fettle.api.resource import DeviceAttribute
from fettle.dra.allocator.features import Profile
from fettle.dra.allocator.matching import Need, most_served
from fettle.dra.claims import Alternative, Constraint, Request
from fettle.dra.pools import DeviceView
from fettle.pacing import pause


class ConstraintTracker(Protocol):
    """A constraint with the devices that it has accepted so far, for requests that it `concerns`.

    `remove` undoes the last `add` that returned true.
    """

    def concerns(self, request: Request, alternative: Alternative) -> bool: ...

    def add(self, request: Request, device: DeviceView) -> bool: ...

    def remove(self, request: Request) -> None: ...


def new_constraint_tracker(constraint: Constraint, profile: Profile) -> ConstraintTracker:
    """An empty tracker for one search."""
    lists = profile.features.list_type_attributes
    if not constraint.distinct:
        quirk = profile.quirks.intersection_kept
        return (
            MatchAttributeOfLists(constraint, kept=quirk) if lists else MatchAttribute(constraint)
        )
    if profile.quirks.distinct_by_request:
        return DistinctAttributeByRequest(constraint, lists=lists)
    return DistinctAttribute(constraint, lists=lists)


def lookup_attribute(name: str | None, device: DeviceView) -> DeviceAttribute | None:
    """The attribute that a constraint compares, as upstream's `lookupAttribute` finds it.

    By its full name, otherwise by its bare name if the domain is the driver. None if the device
    lacks it, or if the constraint names none.
    """
    attributes = device.published.device.attributes or {}
    found = attributes.get(name or "")
    if found is not None:
        return found
    domain, slash, bare = (name or "").partition("/")
    if not slash or domain != device.published.id.driver:
        return None
    return attributes.get(bare)


def value_of(found: DeviceAttribute) -> object:
    """A single value, with its type; None for lists and for attributes with several values."""
    if not _is_single(found):
        return None
    values = [
        (kind, value)
        for kind, value in enumerate((found.string, found.int_, found.bool_, found.version))
        if value is not None
    ]
    return values[0]


def equality_pattern(name: str, devices: Iterable[DeviceView]) -> Hashable:
    """Which devices have the same value of an attribute, and which have none: all that constraints
    depend on. If some values are lists, the values themselves."""
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


class MatchAttribute(_Tracker):
    """All devices have the value of the first one. The first may have any value, even a list, which
    equals nothing."""

    def __init__(self, constraint: Constraint) -> None:
        super().__init__(constraint)
        self._first: DeviceAttribute | None = None
        self._devices = 0

    @property
    def agreed(self) -> DeviceAttribute | None:
        """The value that all devices must have; None before the first device."""
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


class MatchAttributeOfLists(_Tracker):
    """All devices have at least one value in common. A single value counts as a list of one."""

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
            values = common_values(self._common[-1], values)
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


class DistinctAttribute(_Tracker):
    """No value occurs twice. Without lists, values of different types are distinct."""

    def __init__(self, constraint: Constraint, *, lists: bool) -> None:
        super().__init__(constraint)
        self._lists = lists
        self._seen: list[DeviceAttribute] = []

    def add(self, request: Request, device: DeviceView) -> bool:
        found = lookup_attribute(self._constraint.attribute, device)
        if found is None or not is_distinct(found, self._seen, lists=self._lists):
            return False
        self._seen.append(found)
        return True

    def remove(self, request: Request) -> None:
        self._seen.pop()


class DistinctAttributeByRequest(_Tracker):
    """The defect up to 1.36: only the last value of each request counts."""

    def __init__(self, constraint: Constraint, *, lists: bool) -> None:
        super().__init__(constraint)
        self._lists = lists
        self._seen: dict[str, DeviceAttribute] = {}
        self._devices = 0

    def add(self, request: Request, device: DeviceView) -> bool:
        found = lookup_attribute(self._constraint.attribute, device)
        if found is None:
            return False
        if self._devices and not is_distinct(found, self._seen.values(), lists=self._lists):
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
    """The values as a set; None if there is none of a known type."""
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


def common_values(one: Values, other: Values) -> Values | None:
    """The values that two sets share; None if there are none."""
    both = one[1] & other[1] if one[0] == other[0] else frozenset()
    return (one[0], both) if both else None


def equal(new: DeviceAttribute, first: DeviceAttribute) -> bool:
    """Whether two single values have the same type and are equal. Lists never are."""
    if new.string is not None:
        return new.string == first.string
    if new.int_ is not None:
        return new.int_ == first.int_
    if new.bool_ is not None:
        return new.bool_ is first.bool_
    return new.version is not None and new.version == first.version


def is_distinct(new: DeviceAttribute, seen: Collection[DeviceAttribute], *, lists: bool) -> bool:
    """Whether a value differs from all those seen."""
    if lists:
        values = as_set(new)
        if values is None:
            return False
        others = (as_set(other) for other in seen)
        return all(other is None or common_values(values, other) is None for other in others)
    known = any(v is not None for v in (new.string, new.int_, new.bool_, new.version))
    return not seen or (known and not any(equal(new, other) for other in seen))


# How many devices a constraint allows, for explanations


class Value(NamedTuple):
    """A value of an attribute; values of different types differ."""

    type: str
    value: object

    def __str__(self) -> str:
        return json.dumps(self.value, ensure_ascii=False)


class Most(NamedTuple):
    """`number` of devices, with their common `value` (None if there is none).

    `wanted`: more devices with one of these values would raise the number.
    """

    number: int
    value: Value | None
    wanted: frozenset[Value]


def values_of(
    constraint: Constraint, device: DeviceView, *, lists: bool
) -> Collection[Value] | None:
    """The values that a constraint compares; none if the device lacks the attribute.

    None: the value is a list, and the scheduler does not compare lists by their items.
    """
    found = lookup_attribute(constraint.attribute, device)
    if found is None:
        return ()
    if lists:
        kind, items = as_set(found) or ("", ())
        return sorted((Value(kind, item) for item in items), key=repr)
    scalars = (
        Value("string", found.string),
        Value("int", found.int_),
        Value("bool", found.bool_),
        Value("version", found.version),
    )
    values = [scalar for scalar in scalars if scalar.value is not None]
    return values if len(values) == 1 else None


def most_agreeing(
    constraint: Constraint,
    needs: Sequence[Need],
    values: Mapping[int, Collection[Value]],
    shared: Collection[int],
) -> Most:
    """The most devices that the requests of a constraint can get if nothing else is allocated.

    `values` are by candidate, also of candidates that no request can get: among values that serve
    equally many, the most frequent one is reported.
    """
    having: dict[Value, int] = {}
    for found in values.values():
        for value in found:
            having[value] = having.get(value, 0) + 1
        pause()
    if constraint.distinct:
        return _most_distinct(needs, values, having)
    indices = [_by_value(need, values) for need in needs]
    best = Most(0, None, frozenset(having))
    for value in sorted(having, key=having.__getitem__, reverse=True):
        of_value = [
            Need(need.number, by_value.get(value, ()))
            for need, by_value in zip(needs, indices, strict=True)
        ]
        number = most_served(of_value, shared)
        if number > best.number:
            best = Most(number, value, frozenset((value,)))
    return best


def _by_value(need: Need, values: Mapping[int, Collection[Value]]) -> Mapping[Value, Sequence[int]]:
    """The candidates of a need, by each of their values."""
    indices: defaultdict[Value, list[int]] = defaultdict(list)
    for at in need.candidates:
        for value in values[at]:
            indices[value].append(at)
        pause()
    return indices


def _most_distinct(
    needs: Sequence[Need], values: Mapping[int, Collection[Value]], having: Collection[Value]
) -> Most:
    """As many as there are values; if lists overlap, even fewer may fit."""
    places = {value: place for place, value in enumerate(having)}
    by_value: list[Need] = []
    had: set[int] = set()
    for need in needs:
        indices: set[int] = set()
        for at in need.candidates:
            indices.update(places[value] for value in values[at])
            pause()
        by_value.append(Need(need.number, indices))
        had |= indices
    number = most_served(by_value, ())
    return Most(number, None, frozenset(value for value in having if places[value] not in had))
