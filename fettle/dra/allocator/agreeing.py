"""How many devices a constraint lets requests have at once: for explanations. Pure.

`constraints` knows whether one more device may be taken; here all of them are compared beforehand.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from fettle.dra.allocator import contending
from fettle.dra.allocator.constraints import as_set, attribute
from fettle.dra.allocator.contending import Need
from fettle.dra.claims import Constraint
from fettle.dra.pools import DeviceView
from fettle.pacing import pause


class Value(NamedTuple):
    """Of an attribute: values of different types differ."""

    type: str
    value: object

    def __str__(self) -> str:
        return json.dumps(self.value, ensure_ascii=False)


class Most(NamedTuple):
    """`number` of devices, with the common `value` (None where there is none).

    `wanted`: with more devices of one of these values, it could be more.
    """

    number: int
    value: Value | None
    wanted: frozenset[Value]


def values_of(
    constraint: Constraint, device: DeviceView, *, lists: bool
) -> Collection[Value] | None:
    """What a constraint compares of a device: nothing where it lacks the attribute.

    None: it compares in other ways, as a list does without `lists`.
    """
    found = attribute(constraint.attribute, device)
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


def most(
    constraint: Constraint,
    needs: Sequence[Need],
    values: Mapping[int, Collection[Value]],
    shared: Collection[int],
) -> Most:
    """The most devices that the requests of a constraint can have if nothing else is taken.

    `values` by candidate, also of some that no request can have: of the values that serve equally
    many, the one that most candidates have is told.
    """
    having: dict[Value, int] = {}
    for found in values.values():
        for value in found:
            having[value] = having.get(value, 0) + 1
        pause()
    if constraint.distinct:
        return _most_distinct(needs, values, having)
    able = [_by_value(need, values) for need in needs]
    best = Most(0, None, frozenset(having))
    for value in sorted(having, key=having.__getitem__, reverse=True):
        of_value = [
            Need(need.number, by_value.get(value, ()))
            for need, by_value in zip(needs, able, strict=True)
        ]
        number = contending.most(of_value, shared)
        if number > best.number:
            best = Most(number, value, frozenset((value,)))
    return best


def _by_value(need: Need, values: Mapping[int, Collection[Value]]) -> Mapping[Value, Sequence[int]]:
    """The candidates that a need may have, by each value that they have."""
    able: defaultdict[Value, list[int]] = defaultdict(list)
    for at in need.able:
        for value in values[at]:
            able[value].append(at)
        pause()
    return able


def _most_distinct(
    needs: Sequence[Need], values: Mapping[int, Collection[Value]], having: Collection[Value]
) -> Most:
    """Each device has a value for itself; where lists overlap, even fewer may go together."""
    places = {value: place for place, value in enumerate(having)}
    by_value: list[Need] = []
    had: set[int] = set()
    for need in needs:
        able: set[int] = set()
        for at in need.able:
            able.update(places[value] for value in values[at])
            pause()
        by_value.append(Need(need.number, able))
        had |= able
    number = contending.most(by_value, ())
    return Most(number, None, frozenset(value for value in having if places[value] not in had))
