"""A part of an expression, and what a device has instead, in words for people.

Runs where expressions are compiled. Nothing is evaluated here.
"""

from fettle.selectors import rows, syntax
from fettle.selectors.conditions import read, sides
from fettle.selectors.reading import path
from fettle.selectors.syntax import (
    Again,
    Call,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Node,
    Select,
)
from fettle.wire.resource import Device, DeviceAttribute

_LONGEST = 80
_MOST_ALTERNATIVES = 3
_SHOWN = {"quantity", "semver"}


def shortfall(term: Node, driver: str, device: Device) -> str:
    """Why a device does not meet one condition: "memory 80Gi < 96Gi"."""
    if isinstance(term, Call) and term.function == syntax.OR:
        return _all_of([shortfall(arg, driver, device) for arg in term.args])
    lacking = _lacking(term, driver, device)
    if lacking:
        return lacking
    compared = sides(term)
    if compared is not None:
        left, right = (_with_value(s, driver, device) for s in (compared.left, compared.right))
        return f"{left} {compared.holds} {right}"
    negated, inner = False, term
    if isinstance(term, Call) and term.function == syntax.NOT:
        negated, inner = True, term.args[0]
    if read(inner) is not None and not (isinstance(inner, Select) and inner.test):
        return _with_value(inner, driver, device)
    return f"{_short(inner)} is {'true' if negated else 'not true'}"


def _all_of(parts: list[str]) -> str:
    """What is lacking of each alternative, the first few of them."""
    distinct = list(dict.fromkeys(parts))
    more = ["…"] if len(distinct) > _MOST_ALTERNATIVES else []
    return " and ".join(distinct[:_MOST_ALTERNATIVES] + more)


def _lacking(term: Node, driver: str, device: Device) -> str:
    """The first value that a condition looks at and the device does not have."""
    left = [term]
    while left:
        node = left.pop(0)
        where = read(node)
        if where is None:
            left.extend(syntax.children(node))
        elif rows.look(where, driver, device) is None and not _is_lenient(node):
            kind = "attribute" if where.field == "attributes" else "capacity"
            return f"no {kind} {where.domain}/{where.name}"
    return ""


def _is_lenient(node: Node) -> bool:
    """Whether an expression minds that a value is missing."""
    if isinstance(node, Select):
        return node.test
    return isinstance(node, Call) and node.function != syntax.INDEX


def _with_value(node: Node, driver: str, device: Device) -> str:
    where = read(node)
    if where is None:
        return _plain(node, driver)
    return f"{where.name} {_value(rows.look(where, driver, device))}"


def _plain(node: Node, driver: str) -> str:
    if _scalar(node) == "driver":
        return f'driver "{driver}"'
    if isinstance(node, Call) and node.function in _SHOWN and isinstance(node.args[0], Literal):
        return str(node.args[0].value)
    return _short(node)


def _scalar(node: Node) -> str:
    to = path(node, {})
    return to[1] if to is not None and len(to) == 2 else ""


def _value(value: object) -> str:
    if isinstance(value, DeviceAttribute):
        for known in (value.int_, value.version, value.ints, value.bools, value.versions):
            if known is not None:
                return _literal(list(known)) if isinstance(known, tuple) else str(known)
        if value.bool_ is not None:
            return _literal(value.bool_)
        return _literal(list(value.strings) if value.strings is not None else value.string)
    return "(none)" if value is None else str(value)


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    return "null" if value is None else str(value)


def _short(node: Node) -> str:
    text = written(node)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def written(node: Node) -> str:
    """A part as one might have written it."""
    match node.origin or node:
        case Literal(value=value):
            return _literal(value)
        case Ident(name=name):
            return name
        case Select(operand=operand, field=field):
            return f"{written(operand)}.{field}"
        case ListOf(items=items):
            return f"[{', '.join(map(written, items))}]"
        case MapOf(entries=entries):
            inside = ", ".join(f"{written(e.key)}: {written(e.value)}" for e in entries)
            return f"{{{inside}}}"
        case Again(of=of):
            return written(of)
        case Call() as call:
            return _call(call)
    return "…"


def _call(node: Call) -> str:
    args = [written(arg) for arg in node.args]
    name = node.function
    match name:
        case syntax.INDEX:
            return f"{args[0]}[{args[1]}]"
        case syntax.OPTIONAL_INDEX:
            return f"{args[0]}[?{args[1]}]"
        case syntax.OPTIONAL_SELECT:
            return f"{args[0]}.?{args[1][1:-1]}"
        case syntax.EITHER:
            return f"({args[0]} ? {args[1]} : {args[2]})"
        case syntax.IN:
            return f"{args[0]} in {args[1]}"
        case syntax.NOT | syntax.NEGATE:
            return f"{name[0]}{args[0]}"
    if name.startswith("_") and name.endswith("_"):
        return f"({f' {name[1:-1]} '.join(args)})"
    call = f"{name}({', '.join(args)})"
    return call if node.target is None else f"{written(node.target)}.{call}"
