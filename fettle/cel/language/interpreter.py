"""What each part of a program does at run time: operators, fields, calls and macros.

Each function here takes the compiled operands of one part of an expression, as closures, and
returns the closure of the whole.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fettle.cel.library import conversions, lists, operators, regexes
from fettle.cel.library.conversions import key_text, type_name
from fettle.cel.library.values import (
    MAPS,
    NO_OVERLOAD,
    NOTHING,
    UNHASHABLE,
    Apply,
    CelError,
    Ended,
    Frame,
    Growing,
    Map,
    Optional,
    Overload,
    Run,
    Uint,
    Undecidable,
    Value,
    compare_sizes,
    ordered,
    ordered_like,
    pairs,
)

ORDERINGS: dict[str, Callable[[int], bool]] = {
    "_<_": lambda sign: sign < 0,
    "_<=_": lambda sign: sign <= 0,
    "_>_": lambda sign: sign > 0,
    "_>=_": lambda sign: sign >= 0,
}
KEYS = (str, int, Uint, bool, float)
_CONTAINERS = (list, *MAPS)
_MISSING = object()


# Literals, containers and messages


def constant(value: Value) -> Run:
    return lambda _frame: value


def listing(parts: Sequence[Run], optional: frozenset[int]) -> Run:
    def run(frame: Frame) -> Value:
        return [part(frame) for part in parts]

    def run_with_optionals(frame: Frame) -> Value:
        made: list[Value] = []
        for at, part in enumerate(parts):
            value = part(frame)
            if at not in optional:
                made.append(value)
            else:
                made.extend(_entry_values(value))
        return made

    return run_with_optionals if optional else run


def mapping(entries: Sequence[tuple[Run, Run, bool]]) -> Run:
    def run(frame: Frame) -> Value:
        made = Map()
        for key_run, value_run, optional in entries:
            key, value = key_run(frame), value_run(frame)
            if not optional:
                made.put(key, value)
            elif content := _entry_values(value):
                made.put(key, content[0])
            else:
                made.drop(key)
        return made

    return run


def constructing(
    make: Callable[[dict[str, Value]], Value], fields: Sequence[tuple[str, Run, bool]]
) -> Run:
    """A message, made of the fields that are given."""

    def run(frame: Frame) -> Value:
        given: dict[str, Value] = {}
        for name, value_run, optional in fields:
            value = value_run(frame)
            if not optional:
                given[name] = value
            elif content := _entry_values(value):
                given[name] = content[0]
        return make(given)

    return run


def _entry_values(value: Value) -> tuple[Value, ...]:
    if type(value) is not Optional:
        raise CelError("cannot initialize an optional entry from a value that is not optional")
    return value.values


# Operators


def logical(terms: Sequence[Run], *, decisive: bool) -> Run:
    """`||` (decided by a true) or `&&` (decided by a false); once decided, errors do not count."""

    def run(frame: Frame) -> Value:
        # As in Kubernetes, an error counts only if no other term decides.
        failure: CelError | None = None
        for term in terms:
            try:
                value = term(frame)
            except CelError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if type(value) is not bool:
                failure = failure or CelError(NO_OVERLOAD)
        if failure is not None:
            raise failure
        return not decisive

    return run


def conditional(test: Run, yes: Run, no: Run) -> Run:
    def run(frame: Frame) -> Value:
        value = test(frame)
        if type(value) is not bool:
            raise CelError(NO_OVERLOAD)
        return yes(frame) if value else no(frame)

    return run


def ordering(operator: str, left: Run, right: Run) -> Run:
    test, order = ORDERINGS[operator], operators.order

    def run(frame: Frame) -> Value:
        first, second = left(frame), right(frame)
        compare_sizes(frame, first, second)
        return test(order(first, second))

    return run


def equality(left: Run, right: Run, *, negated: bool) -> Run:
    compare = operators.unequal if negated else operators.equal

    def run(frame: Frame) -> Value:
        first, second = left(frame), right(frame)
        compare_sizes(frame, first, second)
        # Most selectors compare texts: this saves them the way through `operators`.
        if type(first) is type(second) is str:
            return (first == second) is not negated
        return compare(first, second)

    return run


def membership(item: Run, container: Run) -> Run:
    def run(frame: Frame) -> Value:
        value, within = item(frame), container(frame)
        if isinstance(within, list):
            return lists.contains(frame, within, value)
        if isinstance(within, MAPS):
            return value in within
        raise CelError(NO_OVERLOAD)

    return run


def among_literals(item: Run, literals: list[Value]) -> Run | None:
    """`in` a list of literals, which Kubernetes turns into a set; None if it does not."""
    members: set[tuple[type, Value]] = set()
    for literal in literals:
        if type(literal) not in (bool, int, Uint, float, str):
            return None
        members.update(_set_members(literal))

    def run(frame: Frame) -> Value:
        value = item(frame)
        if type(value) in UNHASHABLE:
            raise Ended("a key that cannot be hashed")
        if type(value) not in (bool, int, Uint, float, str):
            return False
        return (type(value), value) in members

    return run


def _set_members(literal: Value) -> list[tuple[type, Value]]:
    """What Kubernetes puts into the set: a literal, and equal numbers of other types."""
    found: list[tuple[type, Value]] = [(type(literal), literal)]
    if type(literal) is float and literal.is_integer() and abs(literal) < 2**63:
        found.append((int, int(literal)))
    if type(literal) is float and literal.is_integer() and 0 <= literal < 2**64:
        found.append((Uint, Uint(int(literal))))
    if type(literal) in (int, Uint):
        found.append((float, float(literal)))
    if type(literal) is int and literal >= 0:
        found.append((Uint, Uint(literal)))
    if type(literal) is Uint and literal < 2**63:
        found.append((int, int(literal)))
    return found


def negation(of: Run) -> Run:
    def run(frame: Frame) -> Value:
        value = of(frame)
        if type(value) is not bool:
            raise CelError(NO_OVERLOAD)
        return not value

    return run


def alternative(first: Run, second: Run, *, unwrapped: bool) -> Run:
    """`or` and, unwrapped, `orValue`: the second is evaluated only if it is needed."""

    def run(frame: Frame) -> Value:
        optional = first(frame)
        if type(optional) is not Optional:
            raise CelError(NO_OVERLOAD)
        if not optional.values:
            return second(frame)
        return optional.values[0] if unwrapped else optional

    return run


# Variables


class LazyBinding:
    """What a variable of `cel.bind` holds until its first use evaluates it."""

    __slots__ = ("run",)

    def __init__(self, run: Run) -> None:
        self.run = run


def bind(value: Run, slot: int, body: Run) -> Run:
    """`cel.bind`; an error in the value counts only where the variable is used."""
    unread = LazyBinding(value)

    def run(frame: Frame) -> Value:
        frame.slots[slot] = unread
        result = body(frame)
        # Only the variable's list grows in place; what leaves its scope is an ordinary list.
        return list(result) if type(result) is Growing else result

    return run


def variable(slot: int) -> Run:
    def read(frame: Frame) -> Value:
        value = frame.slots[slot]
        if type(value) is LazyBinding:
            value = frame.slots[slot] = _evaluated(value.run, frame)
        if isinstance(value, Exception):
            raise value
        return value

    return read


def _evaluated(run: Run, frame: Frame) -> Value:
    try:
        value = run(frame)
    except (CelError, Ended, Undecidable) as error:
        return error
    return Growing() if isinstance(value, list) and not value else value


# Calls


def applied(apply: Apply, runs: Sequence[Run]) -> Run:
    """A call of a function that checks the types itself."""
    if len(runs) == 2:
        left, right = runs
        return lambda frame: apply(frame, left(frame), right(frame))
    return lambda frame: apply(frame, *[part(frame) for part in runs])


def call(name: str, overloads: Sequence[Overload], runs: Sequence[Run]) -> Run:
    """A call that picks the overload by the values' types, as Kubernetes does for dynamic types."""
    candidates = [overload for overload in overloads if len(overload.takes) == len(runs)]
    fits = conversions.fits

    def run(frame: Frame) -> Value:
        given = [part(frame) for part in runs]
        for overload in candidates:
            if not overload.guarded or all(map(fits, overload.takes, given)):
                return overload.apply(frame, *given)
        raise CelError(f"no such overload: {name}")

    return run


def with_constant_pattern(apply: Apply, runs: Sequence[Run]) -> Run:
    """A call with a constant pattern: Kubernetes compiles that beforehand, then checks no types."""
    return lambda frame: apply(frame, *[regexes.held(part(frame)) for part in runs])


def measured(runs: Sequence[Run], at: int, kind: str) -> list[Run]:
    """The arguments of a call whose cost Kubernetes counts by the size of one of them.

    If that argument is an error or has another type, the count fails, and the evaluation ends.
    """

    def measure(frame: Frame) -> Value:
        try:
            value = runs[at](frame)
        except CelError as error:
            raise Ended(str(error)) from error
        if conversions.type_of_value(value).name != kind:
            raise Ended(NO_OVERLOAD)
        return value

    def before(part: Run) -> Run:
        def run(frame: Frame) -> Value:
            try:
                return part(frame)
            except CelError:
                measure(frame)
                raise

        return run

    return [*map(before, runs[:at]), measure, *runs[at + 1 :]]


def inserted(frame: Frame, made: Map, key: Value, value: Value) -> None:
    """Insert an entry, as `transformMap` does."""
    if key in made:
        raise CelError(f"insert failed: key {conversions.key_text(key)} already exists")
    frame.spend(1)
    made.put(key, value)


# Fields and indices


class Qualifier(NamedTuple):
    """One field or index: `key` if it is constant, else `run`, which computes it."""

    key: Value
    run: Run | None = None
    optional: bool = False


def qualify(value: Value, key: Value) -> Value:
    """The value at a key; raises CelError if there is none."""
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
    """The value at a key, or `_MISSING`."""
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
    """A chain of fields and indices; after an optional one, all are, and so is the result."""
    if all(step.run is None and not step.optional for step in steps):
        return strict(base, tuple(step.key for step in steps))
    return lambda frame: _walk(frame, base(frame), steps)


def presence(base: Run, steps: Sequence[Qualifier]) -> Run:
    """`has()` of the last field."""
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
        key = step.key if step.run is None else _checked_key(step.run(frame))
        if not optional:
            value = qualify(value, key)
            continue
        value = qualify_if_present(value, key)
        if value is _MISSING:
            return NOTHING
    return Optional((value,)) if optional else value


def _checked_key(key: Value) -> Value:
    if type(key) not in KEYS:
        raise CelError(f"invalid qualifier type: {type_name(key)}")
    return key


# Macros


def _iterations(slots: tuple[int, ...], cost: int) -> Callable[[Frame, Value], Iterator[None]]:
    """Goes over a list or a map, and sets the variables for each iteration.

    One variable takes a list's items or a map's keys; two take indices and items, or keys and
    values. Each iteration counts `cost`.
    """

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
    """`exists` (decided by a true) or `all` (decided by a false); once decided, errors do not
    count."""
    each = _iterations(slots, cost)

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


def _holds(test: Run, frame: Frame) -> bool:
    value = test(frame)
    if type(value) is not bool:
        raise CelError(NO_OVERLOAD)
    return value


def exactly_one(range_: Run, slots: tuple[int, ...], body: Run, cost: int) -> Run:
    each = _iterations(slots, cost)
    return lambda frame: sum(_holds(body, frame) for _ in each(frame, range_(frame))) == 1


def collected(
    range_: Run, slots: tuple[int, ...], body: Run, filter_: Run | None, cost: int
) -> Run:
    """`map`, `filter` and `transformList`."""
    each = _iterations(slots, cost)

    def run(frame: Frame) -> Value:
        container = range_(frame)
        made = [
            body(frame) for _ in each(frame, container) if filter_ is None or _holds(filter_, frame)
        ]
        return ordered_like(container, made)

    return run


def mapped(
    range_: Run, slots: tuple[int, ...], body: Run, filter_: Run | None, cost: int, *, entries: bool
) -> Run:
    """`transformMap` and, with `entries`, `transformMapEntry`."""
    each = _iterations(slots, cost)

    def run(frame: Frame) -> Value:
        made = Map()
        for _ in each(frame, range_(frame)):
            if filter_ is not None and not _holds(filter_, frame):
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
