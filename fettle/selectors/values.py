"""CEL values at run time and the operators on them, as Kubernetes' evaluator behaves.

Runs in the worker. Values are Python's own bool, int, float, str, None and list, and `Quantity`,
`Version`, `Entries` (a map). `CelError` is an error of CEL, which `||` and `&&` may absorb;
`Undecidable` never is: it ends the evaluation without a decision.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from fettle.selectors.quantities import Quantity
from fettle.selectors.versions import Version

Value = Any

MAX_SIZE = 20_000
"""Longest string or list that an evaluation may make."""

_MAX_COST = 20_000
_EXACT_FLOAT = 2**53
_INT64 = range(-(2**63), 2**63)


class CelError(Exception):
    """An error of CEL itself; where it reaches the top, the scheduler's attempt ends."""


class Undecidable(Exception):
    """Something whose outcome is not surely known here; `str()` says what."""


class Frame:
    """One evaluation: the device's fields, the variables of macros, and what it may still cost."""

    __slots__ = ("cost", "device", "slots")

    def __init__(self, device: dict[str, Value], slots: int) -> None:
        self.device = device
        self.slots: list[Value] = [None] * slots
        self.cost = 0

    def spend(self, cost: int) -> None:
        """Count work; far below the point where Kubernetes itself would stop."""
        self.cost += cost
        if self.cost > _MAX_COST:
            raise Undecidable("it takes too many steps")

    def read(self, *texts: str) -> None:
        """Count the work of reading texts once."""
        self.spend(1 + sum(map(len, texts)) // 10)


Run = Callable[[Frame], Value]
"""A compiled part of an expression."""


class Entries:
    """A map from string: a domain's attributes, or the domains themselves.

    `missing` makes the value for an absent key (an unknown domain is an empty map), or raises.
    What `present` does not hold either way was not sent along: then nothing is known.
    """

    __slots__ = ("_missing", "_present", "_values", "_whole")

    def __init__(
        self,
        values: dict[str, Value],
        present: dict[str, bool] | None,
        missing: Callable[[str], Value] | None = None,
    ) -> None:
        self._values = values
        self._present = present or {}
        self._whole = present is None
        self._missing = missing

    def find(self, key: Value) -> Value:
        if type(key) is not str:
            if self._missing is not None:
                raise Undecidable("a domain that is no string")
            raise CelError(f"no such key: {key}")
        if key in self._values:
            return self._values[key]
        if self._missing is not None:
            return self._missing(key)
        if not self._whole and key not in self._present:
            raise Undecidable(f"{key!r} was not looked up beforehand")
        raise CelError(f"no such key: {key}")

    def __contains__(self, key: Value) -> bool:
        if type(key) is not str:
            return False
        if self._whole:
            return key in self._values
        if key not in self._present:
            raise Undecidable(f"{key!r} was not looked up beforehand")
        return self._present[key]

    def __iter__(self) -> Iterator[str]:
        self._all()
        return iter(self._values)

    def __len__(self) -> int:
        self._all()
        return len(self._values)

    def _all(self) -> None:
        if not self._whole:
            raise Undecidable("the whole map was not looked up beforehand")


def equal(left: Value, right: Value) -> bool:
    """`==`; raises CelError where Kubernetes' types refuse to compare."""
    if left is None or right is None:
        return left is right
    kind = type(left)
    if kind in (Quantity, Version):
        if kind is not type(right):
            raise CelError("no such overload")
        if kind is Quantity and (left.derived or right.derived):
            raise Undecidable("equality with a quantity made by add or sub")
        return bool(left.nano == right.nano) if kind is Quantity else bool(left == right)
    if _is_number(left) and _is_number(right):
        return _order(left, right) == 0
    if kind is not type(right):
        return False
    if kind is list:
        return _equal_lists(left, right)
    if kind is Entries:
        raise Undecidable("equality of maps")
    return bool(left == right)


def unequal(left: Value, right: Value) -> bool:
    """`!=`, which is true where `==` is an error."""
    try:
        return not equal(left, right)
    except CelError:
        return True


def _equal_lists(left: list[Value], right: list[Value]) -> bool:
    if len(left) != len(right):
        return False
    for one, other in zip(left, right, strict=True):
        try:
            if not equal(one, other):
                return False
        except CelError:
            continue  # an error is not "false", and only "false" ends the comparison
    return True


def order(left: Value, right: Value) -> int:
    """-1, 0 or 1 where the two can be ordered, else CelError."""
    if _is_number(left) and _is_number(right):
        return _order(left, right)
    if type(left) is type(right) and type(left) in (bool, str):
        return int(left > right) - int(left < right)
    raise CelError("no such overload")


def _order(left: float, right: float) -> int:
    if type(left) is not type(right) and max(abs(left), abs(right)) >= _EXACT_FLOAT:
        raise Undecidable("int compared with double beyond 2^53")
    return (left > right) - (left < right)


def _is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def contains(frame: Frame, item: Value, container: Value) -> bool:
    """`in`."""
    if type(container) is Entries:
        return item in container
    if type(container) is not list:
        raise CelError("no such overload")
    frame.spend(len(container))
    return any(_equal_or_error(item, other) for other in container)


def _equal_or_error(left: Value, right: Value) -> bool:
    try:
        return equal(left, right)
    except CelError:
        return False


def index(container: Value, key: Value) -> Value:
    """`[]`."""
    if type(container) is Entries:
        return container.find(key)
    if type(container) is not list:
        raise CelError("no such key")
    if type(key) is float:
        raise Undecidable("a list indexed by a double")
    if type(key) is not int or not 0 <= key < len(container):
        raise CelError(f"index out of bounds: {key}")
    return container[key]


def whole(number: int) -> int:
    """An int64, or the error of its overflow."""
    if number not in _INT64:
        raise CelError("integer overflow")
    return number


def add(frame: Frame, left: Value, right: Value) -> Value:
    kind = _shared(left, right)
    if kind is int:
        return whole(left + right)
    if kind is float:
        return finite(left + right)
    if kind in (str, list):
        frame.spend(1 + (len(left) + len(right)) // 10)
        if len(left) + len(right) > MAX_SIZE:
            raise Undecidable("it makes too large a value")
        return left + right
    raise CelError("no such overload")


def subtract(_frame: Frame, left: Value, right: Value) -> Value:
    if _arithmetic(left, right) is int:
        return whole(left - right)
    return finite(left - right)


def multiply(_frame: Frame, left: Value, right: Value) -> Value:
    if _arithmetic(left, right) is int:
        return whole(left * right)
    return finite(left * right)


def divide(_frame: Frame, left: Value, right: Value) -> Value:
    if _arithmetic(left, right) is int:
        if right == 0:
            raise CelError("division by zero")
        quotient = abs(left) // abs(right)
        return whole(quotient if (left < 0) == (right < 0) else -quotient)
    if right == 0:
        raise Undecidable("a double divided by zero")
    return finite(left / right)


def remainder(_frame: Frame, left: Value, right: Value) -> Value:
    if _shared(left, right) is not int:
        raise CelError("no such overload")
    if right == 0:
        raise CelError("modulus by zero")
    if (left, right) == (-(2**63), -1):
        raise Undecidable("the remainder of the least integer by -1")
    rest = abs(left) % abs(right)
    return rest if left >= 0 else -rest


def negate(_frame: Frame, value: Value) -> Value:
    if type(value) is int:
        return whole(-value)
    if type(value) is float:
        return -value
    raise CelError("no such overload")


def _shared(left: Value, right: Value) -> type | None:
    return type(left) if type(left) is type(right) else None


def _arithmetic(left: Value, right: Value) -> type:
    kind = _shared(left, right)
    if kind is int or kind is float:
        return kind
    raise CelError("no such overload")


def finite(number: float) -> float:
    if not math.isfinite(number):
        raise Undecidable("a double that is not finite")
    return number
