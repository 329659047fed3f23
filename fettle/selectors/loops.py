"""What the macros over a list or a map do, as Kubernetes' evaluator does it.

Runs in the worker. Each maker takes what gives the range, the slot of the variable, and the body.
"""

from collections.abc import Callable
from typing import Any

from fettle.selectors.values import CelError, Entries, Frame, Run, Undecidable, Value


def _items(value: Value) -> Any:
    if type(value) not in (list, Entries):
        raise CelError(f"expected iterable type, got {type(value).__name__}")
    return value


def _quantified(*, decisive: bool) -> Callable[[Run, int, Run], Run]:
    """`exists` (decided by a true) and `all` (decided by a false); errors before that are lost."""

    def make(range_: Run, slot: int, body: Run) -> Run:
        def run(frame: Frame) -> Value:
            failure: CelError | None = None
            for item in _items(range_(frame)):
                frame.spend(2)
                frame.slots[slot] = item
                try:
                    value = body(frame)
                except CelError as error:
                    failure = error
                    continue
                if value is decisive:
                    return decisive
                if type(value) is not bool:
                    failure = CelError("no such overload")
            if failure is not None:
                raise failure
            return not decisive

        return run

    return make


def _chosen(frame: Frame, range_: Run, slot: int, body: Run) -> list[Value]:
    """The items for which the body is true; any error ends it."""
    found = []
    for item in _items(range_(frame)):
        frame.spend(2)
        frame.slots[slot] = item
        value = body(frame)
        if type(value) is not bool:
            raise CelError("no such overload")
        if value:
            found.append(item)
    return found


def _exists_one(range_: Run, slot: int, body: Run) -> Run:
    return lambda frame: len(_chosen(frame, range_, slot, body)) == 1


def _filter(range_: Run, slot: int, body: Run) -> Run:
    return lambda frame: _chosen(frame, _ordered(range_), slot, body)


def _map(range_: Run, slot: int, body: Run) -> Run:
    ordered = _ordered(range_)

    def run(frame: Frame) -> list[Value]:
        made = []
        for item in _items(ordered(frame)):
            frame.spend(2)
            frame.slots[slot] = item
            made.append(body(frame))
        return made

    return run


def _ordered(range_: Run) -> Run:
    """A list is made from a map in no particular order, so only from one of a single entry."""

    def run(frame: Frame) -> Value:
        value = range_(frame)
        if type(value) is Entries and len(value) > 1:
            raise Undecidable("a list made from a map is in no particular order")
        return value

    return run


LOOPS: dict[str, Callable[[Run, int, Run], Run]] = {
    "all": _quantified(decisive=False),
    "exists": _quantified(decisive=True),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
}
