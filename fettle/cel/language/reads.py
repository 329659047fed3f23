"""What an expression reads of a device, what it needs, and which attributes it compares with what.

All are found in the tree, and conservative. Where an expression uses the device other than by
constant names, it reads the whole device. Where it asks for types itself, no comparison is listed.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fettle.cel.language import syntax
from fettle.cel.language.syntax import (
    Bind,
    Call,
    Expr,
    Fold,
    Ident,
    ListOf,
    Literal,
    Select,
    children,
)
from fettle.cel.runtime.rows import LABELS, AttributeRead, Equation, Field, Reads

_SCALARS = ("driver", "allowMultipleAllocations")
_ENDS = tuple((scalar,) for scalar in _SCALARS)  # no path goes on behind these
_LONGEST = 4  # the path to a value
_MAY_SKIP = (syntax.AND, syntax.OR, syntax.EITHER, "or", "orValue")
"""Functions that need not read all of their arguments."""

Path = tuple[str, ...]
Names = dict[str, Path | None]
"""The path from the device that each variable in scope stands for; None if it stands for none."""


class _Whole(Exception):
    """The expression may read anything of the device."""


def reads(tree: Expr) -> Reads:
    """What the expression reads, sorted; None for the whole device."""
    found: set[AttributeRead] = set()
    try:
        _collect(tree, {}, found)
    except _Whole:
        return None
    return tuple(sorted(found))


def driver(tree: Expr) -> str:
    """The driver that the expression compares first, as those of classes do: devices of other
    drivers do not match, whatever they are. "" if it begins with something else."""
    while isinstance(tree, Call) and tree.function == syntax.AND:
        tree = tree.args[0]
    if isinstance(tree, Call) and tree.function == syntax.EQUALS:
        for one, other in (tree.args, reversed(tree.args)):
            if path(one, {}) == ("device", "driver"):
                return _string(other)
    return ""


def _collect(node: Expr, names: Names, found: set[AttributeRead]) -> None:
    """Add what a part reads, whatever its value is used for."""
    left: list[tuple[Expr, Names]] = [(node, names)]
    while left:
        node, names = left.pop()
        to = path(node, names)
        if to is not None:
            found.update(_read_of(to))
        elif isinstance(node, Fold):
            inner = {**names, **dict.fromkeys(node.variables)}
            left.append((node.range, names))
            left += [(part, inner) for part in (node.body, node.filter) if part is not None]
        elif isinstance(node, Bind):
            bound = path(node.value, names)
            left.append((node.body, {**names, node.variable: bound}))
            if bound is None or len(bound) == _LONGEST:  # a value, not a map on the way to one
                left.append((node.value, names))
        elif not _membership(node, names, found):
            left.extend((child, names) for child in children(node))


def _read_of(to: Path) -> list[AttributeRead]:
    """The read that a path stands for."""
    match to:
        case ("device", scalar) if scalar in _SCALARS:
            return []
        case ("device", "attributes" | "capacity" as field, domain, name):
            return [AttributeRead(_field(field), domain, name)]
        case ("node", "labels", name):
            return [AttributeRead("attributes", LABELS, name)]
        case _:
            raise _Whole


def _membership(node: Expr, names: Names, found: set[AttributeRead]) -> bool:
    """Add `"domain" in device.attributes` or `"name" in device.attributes["domain"]`; false if it
    is neither."""
    if not isinstance(node, Call) or node.function != syntax.IN:
        return False
    key, to = _string(node.args[0]), path(node.args[1], names)
    if not key or to is None:
        return False
    match to:
        case ("device", "attributes" | "capacity" as field):
            found.add(AttributeRead(_field(field), key, ""))
        case ("device", "attributes" | "capacity" as field, domain):
            found.add(AttributeRead(_field(field), domain, key))
        case ("node", "labels"):
            found.add(AttributeRead("attributes", LABELS, key))
        case _:
            return False
    return True


def _field(name: str) -> Field:
    return "attributes" if name == "attributes" else "capacity"


def path(node: Expr, names: Names) -> Path | None:
    """`device.attributes["a"].?b` as ("device", "attributes", "a", "b"); at most four items."""
    if isinstance(node, Ident):
        if node.slot is not None:
            return names.get(node.name)
        name = node.name.removeprefix(".")
        return (name,) if name in ("device", "node") else None
    if isinstance(node, Select):
        operand, name = node.operand, node.field
    elif isinstance(node, Call) and node.function in (
        syntax.INDEX,
        syntax.OPTIONAL_INDEX,
        syntax.OPTIONAL_SELECT,
    ):
        operand, name = node.args[0], _string(node.args[1])
    else:
        return None
    owner = path(operand, names)
    if not name or owner is None or len(owner) >= _LONGEST or owner[1:2] in _ENDS:
        return None
    return (*owner, name)


def _string(node: Expr) -> str:
    return node.value if isinstance(node, Literal) and isinstance(node.value, str) else ""


def needed(tree: Expr) -> tuple[AttributeRead, ...]:
    """What a device must have for the expression to match, sorted: without one of these it is false
    or fails, whatever else the device has."""
    return tuple(sorted(_needs(tree, {}).true))


_Set = frozenset[AttributeRead]


class _Needs(NamedTuple):
    """What a device must have for a part to be true, and for it to be false."""

    true: _Set = frozenset()
    false: _Set = frozenset()


def _needs(node: Expr, names: Names) -> _Needs:
    match node:
        case Call(function=syntax.AND):
            parts = [_needs(part, names) for part in _split(node, syntax.AND)]
            return _Needs(_all(part.true for part in parts), _any(part.false for part in parts))
        case Call(function=syntax.OR):
            parts = [_needs(part, names) for part in _split(node, syntax.OR)]
            return _Needs(_any(part.true for part in parts), _all(part.false for part in parts))
        case Call(function=syntax.NOT, args=[inner]):
            true, false = _needs(inner, names)
            return _Needs(false, true)
        case Call(function=syntax.EITHER, args=[condition, one, other]):
            asked, first, second = (_needs(part, names) for part in (condition, one, other))
            return _Needs(
                (asked.true | first.true) & (asked.false | second.true),
                (asked.true | first.false) & (asked.false | second.false),
            )
        case Call(function=syntax.IN):
            found: set[AttributeRead] = set()
            if _membership(node, names, found):
                return _Needs(frozenset(found))
        case Select(test=True):
            return _Needs(frozenset(_value_at(path(node, names))))
        case Bind(variable=variable, value=value, body=body):
            bound = path(value, names) if _is_plain(value) else None
            return _needs(body, {**names, variable: bound})
    every = _read_always(node, names)
    return _Needs(every, every)


def _all(sets: Iterable[_Set]) -> _Set:
    return frozenset().union(*sets)


def _any(sets: Iterable[_Set]) -> _Set:
    first, *others = sets
    return first.intersection(*others)


def _read_always(node: Expr, names: Names) -> _Set:
    """What a part reads whatever comes out: it fails without."""
    found: set[AttributeRead] = set()
    left = [node]
    while left:
        node = left.pop()
        if (to := path(node, names)) is not None:
            found.update(_value_at(to) if _is_plain(node) else ())
        elif isinstance(node, Fold):
            left.append(node.range)
        elif not isinstance(node, Bind) and not (
            isinstance(node, Call) and node.function in _MAY_SKIP
        ):
            left += children(node)
    return frozenset(found)


def _value_at(to: Path | None) -> list[AttributeRead]:
    is_value = to is not None and to[0] == "device" and len(to) == _LONGEST
    return _read_of(to) if to is not None and is_value else []


def equations(tree: Expr) -> tuple[Equation, ...]:
    """All comparisons of one attribute with a value, in the order of the text."""
    found: list[Equation] = []
    for number, part in enumerate(_split(tree, syntax.AND), 1):
        needed = all(map(_is_equation, _split(part, syntax.OR)))
        left = [part]
        while left:
            node = left.pop()
            if isinstance(node, Call):
                if node.function == "type":
                    return ()
                found.extend(each._replace(part=number * needed) for each in _of_call(node))
            left += reversed(syntax.children(node))
    return tuple(dict.fromkeys(found))


def _split(tree: Expr, function: str) -> Iterator[Expr]:
    """The parts that `&&` or `||` joins, in the order of the text."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, Call) and node.function == function:
            left += reversed(node.args)
        else:
            yield node


def _is_equation(node: Expr) -> bool:
    """Whether a part holds only if an attribute has one of the values that are listed for it."""
    if not isinstance(node, Call) or node.function not in (syntax.EQUALS, syntax.IN):
        return False
    one, other = node.args
    if node.function == syntax.EQUALS:
        return (_attribute(one) is None) is not (_attribute(other) is None)
    return _attribute(one) is not None and isinstance(other, ListOf)


def _of_call(call: Call) -> Iterator[Equation]:
    if call.function not in (syntax.EQUALS, syntax.DIFFERS, syntax.IN):
        return
    one, other = call.args
    if call.function == syntax.IN:
        items = other.items if isinstance(other, ListOf) else []
        pairs = [(one, item) for item in items]
    else:
        pairs = [(one, other), (other, one)]
    for side, value in pairs:
        if (attribute := _attribute(side)) is not None:
            text = str(value.value) if isinstance(value, Literal) else ""
            yield Equation(attribute, value.type.name, text)


def _attribute(node: Expr) -> AttributeRead | None:
    """The attribute that a part stands for, if it is an error that a device lacks it."""
    place = path(node, {})
    if place is None or not _is_plain(node):
        return None
    match place:
        case ("device", "attributes", domain, name):
            return AttributeRead("attributes", domain, name)
    return None


def _is_plain(node: Expr) -> bool:
    """Whether a path has no optional step and no `has()`."""
    while not isinstance(node, Ident):
        if isinstance(node, Select) and not node.test:
            node = node.operand
        elif isinstance(node, Call) and node.function == syntax.INDEX:
            node = node.args[0]
        else:
            return False
    return True
