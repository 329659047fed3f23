"""`+ - * / %` and the sign, with the overflows of 64 bits.

Runs in the worker.
"""

import math

from fettle.cel.library import times
from fettle.cel.library.containers import Concatenated, Growing, Unordered
from fettle.cel.library.values import (
    MAX_SIZE,
    NO_OVERLOAD,
    CelError,
    Duration,
    Frame,
    Timestamp,
    Uint,
    Undecidable,
    Value,
)

INT64 = range(-(2**63), 2**63)
_UINT64 = range(2**64)
_INTEGERS = (int, Uint)


def whole(number: int, kind: type = int) -> int:
    """An int64 or uint64, or the error of its overflow."""
    if number not in (_UINT64 if kind is Uint else INT64):
        raise CelError("integer overflow")
    return Uint(number) if kind is Uint else number


def add(frame: Frame, left: Value, right: Value) -> Value:
    kind = type(left)
    if kind in (Duration, Timestamp):
        return times.add(left, right)
    if isinstance(left, list) and isinstance(right, list):
        return _joined(frame, left, right)
    if kind is not type(right):
        raise CelError(NO_OVERLOAD)
    if kind in _INTEGERS:
        return whole(int(left) + int(right), kind)
    if kind is float:
        return left + right
    if kind in (str, bytes):
        _afford(frame, left, right)
        return left + right
    raise CelError(NO_OVERLOAD)


def _joined(frame: Frame, left: list[Value], right: list[Value]) -> list[Value]:
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
    return left - right if kind is float else whole(int(left) - int(right), kind)


def multiply(_frame: Frame, left: Value, right: Value) -> Value:
    kind = _shared(left, right)
    return left * right if kind is float else whole(int(left) * int(right), kind)


def divide(_frame: Frame, left: Value, right: Value) -> Value:
    kind = _shared(left, right)
    if kind is float:
        return _divided(left, right)
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    return whole(quotient if (left < 0) == (right < 0) else -quotient, kind)


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
    return whole(rest if left >= 0 else -rest, kind)


def negate(_frame: Frame, value: Value) -> Value:
    if type(value) is int:
        return whole(-value)
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
