"""Equality, order and arithmetic of values, as Kubernetes' evaluator has them.

Numbers of different types are compared by value. Quantities, versions and addresses cannot be
compared with anything else, not even for being unequal. Integers have 64 bits and never wrap.
"""

import math

from fettle.cel.library import times
from fettle.cel.library.quantity import MutableQuantity
from fettle.cel.library.values import (
    MAPS,
    MAX_SIZE,
    NO_OVERLOAD,
    Address,
    CelError,
    Concatenated,
    Duration,
    Format,
    Frame,
    Growing,
    Network,
    Optional,
    Timestamp,
    Type,
    Uint,
    Undecidable,
    Unordered,
    Url,
    Value,
    Version,
)

NUMBERS = (int, Uint, float)
_ALONE = (MutableQuantity, Version, Address, Network, Url, Format)
_MIN, _MAX = -(2**63), 2**63 - 1


# Equality


def equal(left: Value, right: Value) -> bool:
    """`==`; raises CelError if Kubernetes refuses to compare the types."""
    if left is None or right is None:
        return left is right
    return same(left, right)


def same(left: Value, right: Value) -> bool:
    """As `equal`, but null is a value like any other, which quantities cannot be compared with."""
    kind = type(left)
    if kind in (str, bool, bytes, Duration):
        return type(right) is kind and bool(left == right)
    if kind in NUMBERS:
        return type(right) in NUMBERS and compare_numbers(left, right) == 0
    if kind in _ALONE:
        return _same_alone(left, right)
    if isinstance(left, list):
        return isinstance(right, list) and _same_lists(left, right)
    if isinstance(left, MAPS):
        return isinstance(right, MAPS) and _same_maps(left, right)
    if kind is Timestamp:
        return type(right) is Timestamp and bool(left.nanos == right.nanos)
    if kind is Optional:
        return type(right) is Optional and _same_optionals(left, right)
    if kind is Type:
        return type(right) is Type and bool(left.name == right.name)
    return left is None and right is None


def _same_alone(left: Value, right: Value) -> bool:
    if type(left) is not type(right):
        raise CelError(NO_OVERLOAD)
    if type(left) is MutableQuantity:
        if right.derived:
            raise CelError(NO_OVERLOAD)
        return bool(left.compare(right) == 0)
    if type(left) is Format:
        return bool(left.name == right.name)
    return bool(left == right)


def unequal(left: Value, right: Value) -> bool:
    """`!=`; true if `==` is an error."""
    try:
        return not equal(left, right)
    except CelError:
        return True


def _same_lists(left: list[Value], right: list[Value]) -> bool:
    if len(left) != len(right):
        return False
    if Unordered in (type(left), type(right)):
        raise Undecidable("a list made from a map is in no particular order")
    failure: CelError | None = None
    for one, other in zip(left, right, strict=True):
        try:
            if not equal(one, other):
                return False
        except CelError as error:  # only an unequal pair ends the comparison, not an error
            failure = failure or error
    if failure is not None and type(left) is Concatenated:
        raise failure
    return True


def _same_maps(left: Value, right: Value) -> bool:
    if len(left) != len(right):
        return False
    for key in left:
        missing = object()
        other = right.find(key, missing)
        if other is missing:
            return False
        try:
            if not equal(left.get(key), other):
                return False
        except CelError:
            continue
    return True


def _same_optionals(left: Optional, right: Optional) -> bool:
    if not left.values or not right.values:
        return left.values == right.values
    return same(left.values[0], right.values[0])


def equal_or_error(left: Value, right: Value) -> bool:
    """Whether two values are equal; an error counts as no."""
    try:
        return same(left, right)
    except CelError:
        return False


# Order


def compare_numbers(left: float, right: float) -> int:
    """-1, 0 or 1, or 2 for NaN. As in Go, an int is rounded to a double to compare it with one."""
    if left != left or right != right:
        return 2
    if type(left) is not type(right) and float in (type(left), type(right)):
        return _compare_with_double(left, right)
    return (left > right) - (left < right)


def _compare_with_double(left: float, right: float) -> int:
    if type(left) is float:
        return -_compare_with_double(right, left)
    low, high = (0, 2**64) if type(left) is Uint else (_MIN, 2**63)
    if right < low:
        return 1
    if right > high:
        return -1
    rounded = float(left)
    return (rounded > right) - (rounded < right)


def order(left: Value, right: Value) -> int:
    """-1, 0 or 1; raises CelError if the two cannot be ordered."""
    kind = type(left)
    if kind in NUMBERS and type(right) in NUMBERS:
        sign = compare_numbers(left, right)
        if sign == 2:
            raise CelError("NaN values cannot be ordered")
        return sign
    if kind is type(right) and kind in (str, bool, bytes, Duration):
        return int(left > right) - int(left < right)
    if kind is type(right) and kind is Timestamp:
        return int(left.nanos > right.nanos) - int(left.nanos < right.nanos)
    raise CelError(NO_OVERLOAD)


_INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
_INTEGERS = (int, Uint)


# Arithmetic


def _in_64_bits(number: int, kind: type = int) -> int:
    """The number as int64 or uint64; raises CelError if it overflows."""
    if number not in (_UINT64 if kind is Uint else _INT64):
        raise CelError("integer overflow")
    return Uint(number) if kind is Uint else number


def add(frame: Frame, left: Value, right: Value) -> Value:
    kind = type(left)
    if kind in (Duration, Timestamp):
        return times.add(left, right)
    if isinstance(left, list) and isinstance(right, list):
        return _concatenated(frame, left, right)
    if kind is not type(right):
        raise CelError(NO_OVERLOAD)
    if kind in _INTEGERS:
        return _in_64_bits(int(left) + int(right), kind)
    if kind is float:
        return left + right
    if kind in (str, bytes):
        _afford(frame, left, right)
        return left + right
    raise CelError(NO_OVERLOAD)


def _concatenated(frame: Frame, left: list[Value], right: list[Value]) -> list[Value]:
    _afford(frame, left, right)
    if type(left) is Growing:
        if type(right) is Growing:
            raise Undecidable("a list that grows added to itself")
        left.extend(right)
        return left
    if not left or not right:
        return left or right
    if Unordered in (type(left), type(right)):
        return Unordered([*left, *right])
    return Concatenated([*left, *right])


def _afford(frame: Frame, left: Value, right: Value) -> None:
    frame.spend(1 + (len(left) + len(right)) // 10)
    if len(left) + len(right) > MAX_SIZE:
        raise Undecidable("it makes too large a value")


def subtract(_frame: Frame, left: Value, right: Value) -> Value:
    if type(left) in (Duration, Timestamp):
        return times.subtract(left, right)
    kind = _shared(left, right)
    return left - right if kind is float else _in_64_bits(int(left) - int(right), kind)


def multiply(_frame: Frame, left: Value, right: Value) -> Value:
    kind = _shared(left, right)
    return left * right if kind is float else _in_64_bits(int(left) * int(right), kind)


def divide(_frame: Frame, left: Value, right: Value) -> Value:
    kind = _shared(left, right)
    if kind is float:
        return _divided(left, right)
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    return _in_64_bits(quotient if (left < 0) == (right < 0) else -quotient, kind)


def _divided(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder(_frame: Frame, left: Value, right: Value) -> Value:
    kind = _shared(left, right)
    if kind is float:
        raise CelError(NO_OVERLOAD)
    if right == 0:
        raise CelError("modulus by zero")
    if (left, right) == (-(2**63), -1):
        raise CelError("integer overflow")
    rest = abs(int(left)) % abs(int(right))
    return _in_64_bits(rest if left >= 0 else -rest, kind)


def negate(_frame: Frame, value: Value) -> Value:
    if type(value) is int:
        return _in_64_bits(-value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return times.negated(value)
    raise CelError(NO_OVERLOAD)


def _shared(left: Value, right: Value) -> type:
    kind = type(left)
    if kind is not type(right) or kind not in (int, Uint, float):
        raise CelError(NO_OVERLOAD)
    return kind
