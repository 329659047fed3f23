"""What going through values costs, where Kubernetes counts it by their sizes.

Runs in the worker. A tenth of what counts there counts here, or more: see `Frame.spend`.
"""

from fettle.cel.library.containers import MAPS, pairs
from fettle.cel.library.values import Frame, Optional, Uint, Value

_SINGLE = frozenset({bool, int, Uint, float, type(None)})
_BRIEF = 64
"""Texts up to that length cost nothing worth counting to compare."""


def traverse(frame: Frame, value: Value) -> None:
    """Count the work of going through a value to its last part."""
    if isinstance(value, list):
        frame.spend(1 + len(value))
        for item in value:
            if type(item) not in _SINGLE:
                traverse(frame, item)
    elif isinstance(value, MAPS):
        for key, inner in pairs(value):
            frame.spend(2)
            traverse(frame, key)
            traverse(frame, inner)
    elif type(value) in (str, bytes):
        frame.spend(1 + len(value) // 10)


def compare_sizes(frame: Frame, first: Value, second: Value) -> None:
    """Count the work of comparing two values: that of going through the smaller one."""
    kind = type(first)
    if kind in _SINGLE or (kind is str and len(first) <= _BRIEF):
        return
    frame.spend(min(_size(first), _size(second)) // 10)


def _size(value: Value) -> int:
    """The size of what has one; that of anything else is 1."""
    if type(value) is Optional:
        return _size(value.values[0]) if value.values else 1
    return len(value) if isinstance(value, (str, bytes, list, *MAPS)) else 1
