"""The functions on lists and sets."""

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise

from fettle.cel.library import operators
from fettle.cel.library.values import (
    BOOL,
    COMPARABLE,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    MAX_SIZE,
    NOTHING,
    UINT,
    A,
    Apply,
    CelError,
    Duration,
    Frame,
    Functions,
    Optional,
    Overload,
    Timestamp,
    Type,
    Uint,
    Undecidable,
    Unordered,
    Value,
    function,
    list_of,
    method,
    optional_of,
    ordered,
    ordered_like,
    traverse,
)

Items = list[Value]

_MAX_RANGE = 1_000_000
_STABLE = 12
"""Go sorts up to so many items by insertion, which keeps equal ones in order."""


def contains(frame: Frame, container: Items, item: Value) -> bool:
    frame.spend(1 + len(container))
    return any(operators.equal_or_error(item, other) for other in container)


def _first_at(frame: Frame, items: Items, item: Value) -> int:
    traverse(frame, items)
    for at, other in enumerate(ordered(items)):
        if operators.equal_or_error(other, item):
            return at
    return -1


def _last_at(frame: Frame, items: Items, item: Value) -> int:
    at = _first_at(frame, ordered(items)[::-1], item)
    return at if at < 0 else len(items) - 1 - at


def _includes(frame: Frame, value: Value, item: Value) -> bool:
    traverse(frame, value)
    if isinstance(value, list):
        return any(operators.equal_or_error(other, item) for other in value)
    return operators.equal_or_error(value, item)


def _is_sorted(frame: Frame, items: Items) -> bool:
    traverse(frame, items)
    for at, item in enumerate(ordered(items)):
        _require_comparable(item)
        if at and _order_or_none(items[at - 1], item) == 1:
            return False
    return True


def _order_or_none(one: Value, other: Value) -> int | None:
    """The order of two values; None if they cannot be compared, which is no error here."""
    try:
        return operators.order(one, other)
    except CelError:
        return None


def _require_comparable(value: Value) -> None:
    if type(value) not in _COMPARABLE:
        raise CelError("no such overload")


def _sum(zero: Value) -> Apply:
    def apply(frame: Frame, items: Items) -> Value:
        frame.spend(1 + len(items))
        if type(items) is Unordered and (type(zero) is float or _may_overflow(items)):
            raise Undecidable("a sum in no particular order")
        total = zero
        for item in items:
            total = operators.add(frame, total, item)
        return total

    return apply


def _may_overflow(items: Items) -> bool:
    numbers = [item.nanos if type(item) is Duration else item for item in items]
    return not all(isinstance(number, int) for number in numbers) or sum(map(abs, numbers)) > 2**62


def _extreme(name: str, preferred: int) -> Apply:
    def apply(frame: Frame, items: Items) -> Value:
        traverse(frame, items)
        if not items:
            raise CelError(f"{name} called on empty list")
        for item in items:
            _require_comparable(item)
        if type(items) is Unordered and len({type(item) for item in items}) > 1:
            raise Undecidable("the order of unlike items in no particular order")
        found = items[0]
        for item in items[1:]:
            if _order_or_none(found, item) == preferred:
                found = item
        return found

    return apply


def _slice(frame: Frame, items: Items, start: int, end: int) -> Items:
    frame.spend(1 + len(items))
    if not 0 <= start <= end <= len(items):
        raise CelError(f"cannot slice({start}, {end})")
    return ordered(items)[start:end]


def _flatten(frame: Frame, items: Items, depth: int = 1) -> Items:
    if not isinstance(items, list) or type(depth) is not int:
        raise CelError("no such overload: flatten")
    if depth < 0:
        raise CelError("level must be non-negative")
    frame.spend(0, sure=depth * len(items))  # Kubernetes counts the depth that is asked for
    return _flattened(frame, items, depth)


def _flattened(frame: Frame, items: Items, depth: int) -> Items:
    frame.spend(1 + len(items))
    found: Items = []
    for item in items:
        if isinstance(item, list) and depth > 0:
            found += ordered(_flattened(frame, item, depth - 1))
        else:
            found.append(item)
    if len(found) > MAX_SIZE:
        raise Undecidable("it makes too large a value")
    return ordered_like(items, found)


def _distinct(frame: Frame, items: Items) -> Items:
    frame.spend(1 + len(items) * len(items) // 2, sure=2 * len(items) * len(items))
    found: Items = []
    for at, item in enumerate(items):
        others = (other for j, other in enumerate(found) if j != at)
        if not any(operators.equal_or_error(item, other) for other in others):
            found.append(item)
    return ordered_like(items, found)


def _reverse(frame: Frame, items: Items) -> Items:
    frame.spend(1 + len(items))
    return ordered_like(items, items[::-1])


def _range(frame: Frame, size: int) -> Items:
    if not 0 <= size <= _MAX_RANGE:
        raise CelError(f"lists.range: size {size} is out of range")
    frame.spend(1 + size, sure=size)
    return list(range(size))


def sort(frame: Frame, items: Value, keys: Value = None) -> Items:
    """The items in the order of their keys; by default, each is its own key."""
    keys = items if keys is None else keys
    if not isinstance(items, list) or not isinstance(keys, list):
        raise CelError("no such overload: sort")
    if len(items) != len(keys):
        raise CelError("a list of another size than its keys")
    if not items:
        return items
    frame.spend(1 + len(items) * len(items) // 2, sure=2 * len(items) * len(items))
    _require_comparable(keys[0])
    if len({type(key) for key in keys}) > 1:
        raise CelError("list elements must have the same type")
    if len(keys) > 1 and any(key != key for key in keys):
        raise Undecidable("the order of something that is no number")
    pairs = sorted(
        zip(keys, items, strict=True),
        key=cmp_to_key(_by_key),
    )
    if type(items) is Unordered or len(items) > _STABLE:
        _require_clear(pairs)
    return [item for _, item in pairs]


def _by_key(one: tuple[Value, Value], other: tuple[Value, Value]) -> int:
    return operators.order(one[0], other[0])


def _require_clear(pairs: list[tuple[Value, Value]]) -> None:
    """Raise Undecidable if different items have equal keys, so that several orders are possible."""
    for (key, item), (other_key, other) in pairwise(pairs):
        if operators.order(key, other_key) == 0 and (item is not other and item != other):
            raise Undecidable("the order of items with equal keys")


def _ends(at: int) -> Apply:
    def apply(_frame: Frame, items: Items) -> Optional:
        return Optional((ordered(items)[at],)) if items else NOTHING

    return apply


def _unwrapped(frame: Frame, items: Items) -> Items:
    frame.spend(1 + len(items))
    if any(type(item) is not Optional for item in items):
        raise CelError("value is not optional")
    return ordered_like(items, [item.values[0] for item in items if item.values])


def _contains_all(frame: Frame, items: Items, others: Items) -> bool:
    _compare_each(frame, items, others)
    return _holds_all(frame, items, others)


def _holds_all(frame: Frame, items: Items, others: Items) -> bool:
    return all(contains(frame, items, other) for other in others)


def _equivalent(frame: Frame, items: Items, others: Items) -> bool:
    _compare_each(frame, items, others)
    _compare_each(frame, others, items)
    return _holds_all(frame, items, others) and _holds_all(frame, others, items)


def _intersects(frame: Frame, items: Items, others: Items) -> bool:
    _compare_each(frame, items, others)
    return any(contains(frame, others, item) for item in items)


def _compare_each(frame: Frame, items: Items, others: Items) -> None:
    """Count every pair, as Kubernetes does even if the answer is found early."""
    pairs_of = len(items) * len(others)
    frame.spend(pairs_of // 10, sure=pairs_of)


def _each(types: tuple[Type, ...], make: Callable[[Type], Overload]) -> tuple[Overload, ...]:
    return tuple(make(type_) for type_ in types)


_COMPARABLE = frozenset({bool, int, Uint, float, str, bytes, Duration, Timestamp})
_LIST = list_of(A)
_ZEROS: dict[Type, Value] = {INT: 0, UINT: Uint(0), DOUBLE: 0.0, DURATION: Duration(0)}
_SETS = {"contains": _contains_all, "equivalent": _equivalent, "intersects": _intersects}

FUNCTIONS: Functions = {
    "includes": (method((DYN, DYN), BOOL, _includes),),
    "isSorted": _each(COMPARABLE, lambda t: method((list_of(t),), BOOL, _is_sorted)),
    "sum": tuple(method((list_of(t),), t, _sum(zero)) for t, zero in _ZEROS.items()),
    "max": _each(COMPARABLE, lambda t: method((list_of(t),), t, _extreme("max", -1))),
    "min": _each(COMPARABLE, lambda t: method((list_of(t),), t, _extreme("min", 1))),
    "indexOf": (method((_LIST, A), INT, _first_at),),
    "lastIndexOf": (method((_LIST, A), INT, _last_at),),
    "slice": (method((_LIST, INT, INT), _LIST, _slice),),
    "flatten": (
        Overload((list_of(_LIST),), _LIST, _flatten, member=True, guarded=False),
        Overload((list_of(DYN), INT), list_of(DYN), _flatten, member=True, guarded=False),
    ),
    "sort": _each(
        COMPARABLE,
        lambda t: Overload((list_of(t),), list_of(t), sort, member=True, guarded=False),
    ),
    "@sortByAssociatedKeys": _each(
        COMPARABLE,
        lambda t: Overload((_LIST, list_of(t)), _LIST, sort, member=True, guarded=False),
    ),
    "lists.range": (function((INT,), list_of(INT), _range),),
    "reverse": (method((_LIST,), _LIST, _reverse),),
    "distinct": (method((_LIST,), _LIST, _distinct),),
    "first": (method((_LIST,), optional_of(A), _ends(0)),),
    "last": (method((_LIST,), optional_of(A), _ends(-1)),),
    "optional.unwrap": (function((list_of(optional_of(A)),), _LIST, _unwrapped),),
    "unwrapOpt": (method((list_of(optional_of(A)),), _LIST, _unwrapped),),
    **{f"sets.{name}": (function((_LIST, _LIST), BOOL, apply),) for name, apply in _SETS.items()},
}
