"""Fields and indices: how a value is reached from another, strictly or if it is there.

Runs in the worker. Once one step of a chain is optional, so are all after it, and its result.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fettle.cel.library.containers import MAPS, ordered
from fettle.cel.library.conversions import key_text, type_name
from fettle.cel.library.values import NOTHING, CelError, Frame, Optional, Run, Uint, Value

KEYS = (str, int, Uint, bool, float)
_MISSING = object()


class Qualifier(NamedTuple):
    """One field or index: `key` where it is constant, else what computes it."""

    key: Value
    run: Run | None = None
    optional: bool = False


def qualify(value: Value, key: Value) -> Value:
    """The value at a key; raises CelError where there is none."""
    if isinstance(value, MAPS):
        found = value.find(key, _MISSING)
        if found is _MISSING:
            raise CelError(f"no such key: {key_text(key)}")
        return found
    if isinstance(value, list):
        at = _position(key)
        if not 0 <= at < len(value):
            raise CelError(f"index out of bounds: {key_text(key)}")
        return ordered(value)[at]
    raise CelError(f"no such key: {key_text(key)}")


def qualify_if_present(value: Value, key: Value) -> Value:
    """The value at a key, or the mark of its absence."""
    if isinstance(value, MAPS):
        return value.find(key, _MISSING)
    if isinstance(value, list):
        at = _position(key)
        return ordered(value)[at] if 0 <= at < len(value) else _MISSING
    return _MISSING


def _position(key: Value) -> int:
    if type(key) in (int, Uint) and key < 2**63:
        return int(key)
    if type(key) is float and key.is_integer() and abs(key) < 2**63:
        return int(key)
    if isinstance(key, (int, float)) and type(key) is not bool:
        raise CelError(f"unsupported index value {key_text(key)} in list")
    raise CelError(f"unsupported index type '{type_name(key)}' in list")


def strict(base: Run, keys: Sequence[str | Value]) -> Run:
    """A chain of constant keys, none of them optional."""
    steps = [Qualifier(key) for key in keys]

    def run(frame: Frame) -> Value:
        value = base(frame)
        if type(value) is Optional:
            return _walk(frame, value, steps)
        for key in keys:
            value = qualify(value, key)
        return value

    return run


def chain(base: Run, steps: Sequence[Qualifier]) -> Run:
    if all(step.run is None and not step.optional for step in steps):
        return strict(base, tuple(step.key for step in steps))
    return lambda frame: _walk(frame, base(frame), steps)


def presence(base: Run, steps: Sequence[Qualifier]) -> Run:
    """`has()` of the last step."""
    *before, last = steps
    lenient = any(step.optional for step in before)

    def run(frame: Frame) -> bool:
        value = base(frame)
        optional = lenient or type(value) is Optional
        if before or optional:
            value = _walk(frame, value, before)
        if optional:
            if not value.values:
                return False
            value = value.values[0]
        return qualify_if_present(value, last.key) is not _MISSING

    return run


def _walk(frame: Frame, value: Value, steps: Sequence[Qualifier]) -> Value:
    optional = type(value) is Optional
    if optional:
        if not value.values:
            return value
        value = value.values[0]
    for step in steps:
        optional = optional or step.optional
        key = step.key if step.run is None else _key(step.run(frame))
        if not optional:
            value = qualify(value, key)
            continue
        value = qualify_if_present(value, key)
        if value is _MISSING:
            return NOTHING
    return Optional((value,)) if optional else value


def _key(key: Value) -> Value:
    if type(key) not in KEYS:
        raise CelError(f"invalid qualifier type: {type_name(key)}")
    return key
