"""How many devices a constraint lets requests have at once: for explanations. Pure.

`constraints` knows whether one more device may be taken; here all of them are compared beforehand.
"""

import json
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import NamedTuple

from fettle.allocator.constraints import as_set, attribute
from fettle.allocator.contending import Need, served
from fettle.asks.claims import Constraint
from fettle.view import DeviceView


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
) -> Generator[None, None, Most]:
    """The most devices that the requests of a constraint can have if nothing else is taken.

    `values` by candidate, also of some that no request can have: of the values that serve equally
    many, the one that most candidates have is told.
    """
    having: dict[Value, set[int]] = {}
    for at, found in values.items():
        for value in found:
            having.setdefault(value, set()).add(at)
    if constraint.distinct:
        return (yield from _most_distinct(needs, values, having))
    best = Most(0, None, frozenset(having))
    for value in sorted(having, key=lambda value: len(having[value]), reverse=True):
        of_value = [Need(need.number, having[value].intersection(need.able)) for need in needs]
        number = yield from _served(of_value, shared)
        if number > best.number:
            best = Most(number, value, frozenset((value,)))
    return best


def _most_distinct(
    needs: Sequence[Need],
    values: Mapping[int, Collection[Value]],
    having: Collection[Value],
) -> Generator[None, None, Most]:
    """Each device has a value for itself; where lists overlap, even fewer may go together."""
    places = {value: place for place, value in enumerate(having)}
    by_value = [
        Need(need.number, {places[value] for at in need.able for value in values[at]})
        for need in needs
    ]
    number = yield from _served(by_value, ())
    had = {place for need in by_value for place in need.able}
    return Most(number, None, frozenset(value for value in having if places[value] not in had))


def _served(needs: Sequence[Need], shared: Collection[int]) -> Generator[None, None, int]:
    """How much of the needs can be met at once.

    What can be met together is a matroid: meeting one after the other, while that is possible,
    meets the most.
    """
    met = [Need(0, need.able) for need in needs]
    for place, (number, able) in enumerate(needs):
        for more in range(1, number + 1):
            trial = [*met[:place], Need(more, able), *met[place + 1 :]]
            if not served(trial, shared):
                break
            met = trial
            yield
    return sum(need.number for need in met)
