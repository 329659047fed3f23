"""What the macros over a list or a map do, as Kubernetes' evaluator does it.

Runs in the worker. A macro of one variable goes over a list's items or a map's keys; one of two
over indices and items, or keys and values. `cost` is what one turn counts.
"""

from collections.abc import Callable, Iterator

from fettle.cel.library.containers import MAPS, Map, like, pairs
from fettle.cel.library.conversions import type_name
from fettle.cel.library.operators import inserted
from fettle.cel.library.values import NO_OVERLOAD, CelError, Frame, Run, Value

_CONTAINERS = (list, *MAPS)


def turns(slots: tuple[int, ...], cost: int) -> Callable[[Frame, Value], Iterator[None]]:
    """Goes over a list or a map, and sets the variables turn by turn."""

    def one(frame: Frame, container: Value) -> Iterator[None]:
        (slot,) = slots
        if not isinstance(container, _CONTAINERS):
            raise CelError(f"got '{type_name(container)}', expected iterable type")
        for item in list(container):
            frame.spend(cost)
            frame.slots[slot] = item
            yield

    def two(frame: Frame, container: Value) -> Iterator[None]:
        first, second = slots
        if not isinstance(container, _CONTAINERS):
            raise CelError(f"unsupported comprehension range type: {type_name(container)}")
        for key, value in pairs(container):
            frame.spend(cost)
            frame.slots[first], frame.slots[second] = key, value
            yield

    return one if len(slots) == 1 else two


def quantified(range_: Run, slots: tuple[int, ...], body: Run, cost: int, *, decisive: bool) -> Run:
    """`exists` (decided by a true) and `all` (decided by a false); errors before that are lost."""
    each = turns(slots, cost)

    def run(frame: Frame) -> Value:
        failure: CelError | None = None
        for _ in each(frame, range_(frame)):
            try:
                value = body(frame)
            except CelError as error:
                failure = error
                continue
            if value is decisive:
                return decisive
            if type(value) is not bool:
                failure = CelError(NO_OVERLOAD)
        if failure is not None:
            raise failure
        return not decisive

    return run


def _true(test: Run, frame: Frame) -> bool:
    value = test(frame)
    if type(value) is not bool:
        raise CelError(NO_OVERLOAD)
    return value


def exactly_one(range_: Run, slots: tuple[int, ...], body: Run, cost: int) -> Run:
    each = turns(slots, cost)
    return lambda frame: sum(_true(body, frame) for _ in each(frame, range_(frame))) == 1


def collected(
    range_: Run, slots: tuple[int, ...], body: Run, filter_: Run | None, cost: int
) -> Run:
    """`map`, `filter` and `transformList`."""
    each = turns(slots, cost)

    def run(frame: Frame) -> Value:
        container = range_(frame)
        made = [
            body(frame) for _ in each(frame, container) if filter_ is None or _true(filter_, frame)
        ]
        return like(container, made)

    return run


def mapped(
    range_: Run, slots: tuple[int, ...], body: Run, filter_: Run | None, cost: int, *, entries: bool
) -> Run:
    """`transformMap` and, with `entries`, `transformMapEntry`."""
    each = turns(slots, cost)

    def run(frame: Frame) -> Value:
        made = Map()
        for _ in each(frame, range_(frame)):
            if filter_ is not None and not _true(filter_, frame):
                continue
            value = body(frame)
            if not entries:
                inserted(frame, made, frame.slots[slots[0]], value)
                continue
            if not isinstance(value, MAPS):
                raise CelError(NO_OVERLOAD)
            for key in value:
                inserted(frame, made, key, value.get(key))
        return made

    return run
