"""A part of an expression, and what a device has instead, in words for people.

Runs where expressions are compiled. Nothing is evaluated here.
"""

from fettle.selectors import rows, syntax
from fettle.selectors.reading import path
from fettle.selectors.rows import Read
from fettle.selectors.syntax import (
    Again,
    Bind,
    Call,
    Fold,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Node,
    Select,
)
from fettle.wire.resource import Device, DeviceAttribute

_LONGEST = 80
_OPPOSITE = {
    syntax.EQUALS: "!=",
    syntax.DIFFERS: "==",
    "_<_": ">=",
    "_<=_": ">",
    "_>_": "<=",
    "_>=_": "<",
}
_METHODS = {"isGreaterThan": "<=", "isLessThan": ">="}
_SHOWN = {"quantity", "semver"}


def shortfall(term: Node, driver: str, device: Device) -> str:
    """Why a device does not meet one condition: "memory 80Gi < 96Gi"."""
    lacking = _lacking(term, driver, device)
    if lacking:
        return lacking
    sides = _sides(term)
    if sides is not None:
        left, comparison, right = sides
        return f"{_with_value(left, driver, device)} {comparison} {_plain(right, driver)}"
    negated, inner = False, term
    if isinstance(term, Call) and term.function == syntax.NOT:
        negated, inner = True, term.args[0]
    if _read(inner) is not None and not (isinstance(inner, Select) and inner.test):
        return _with_value(inner, driver, device)
    return f"{_short(inner)} is {'true' if negated else 'not true'}"


def _lacking(term: Node, driver: str, device: Device) -> str:
    """The first value that a condition looks at and the device does not have."""
    left = [term]
    while left:
        node = left.pop(0)
        read = _read(node)
        if read is None:
            left.extend(syntax.children(node))
        elif rows.look(read, driver, device) is None and not _is_lenient(node):
            kind = "attribute" if read.field == "attributes" else "capacity"
            return f"no {kind} {read.domain}/{read.name}"
    return ""


def _is_lenient(node: Node) -> bool:
    """Whether an expression minds that a value is missing."""
    if isinstance(node, Select):
        return node.test
    return isinstance(node, Call) and node.function != syntax.INDEX


def _sides(term: Node) -> tuple[Node, str, Node] | None:
    """The two sides of a comparison, and what holds between them where it fails."""
    if not isinstance(term, Call):
        return None
    if term.function in _OPPOSITE:
        left, right = term.args
        if _is_compared(left) and isinstance(left, Call) and left.target is not None:
            return left.target, _OPPOSITE[term.function], left.args[0]
        return left, _OPPOSITE[term.function], right
    if term.function == syntax.IN:
        return term.args[0], "is not in", term.args[1]
    if term.function in _METHODS and term.target is not None:
        return term.target, _METHODS[term.function], term.args[0]
    return None


def _is_compared(node: Node) -> bool:
    return isinstance(node, Call) and node.function == "compareTo" and len(node.args) == 1


def _with_value(node: Node, driver: str, device: Device) -> str:
    read = _read(node)
    if read is None:
        return _plain(node, driver)
    return f"{read.name} {_value(rows.look(read, driver, device))}"


def _plain(node: Node, driver: str) -> str:
    if _scalar(node) == "driver":
        return f'driver "{driver}"'
    if isinstance(node, Call) and node.function in _SHOWN and isinstance(node.args[0], Literal):
        return str(node.args[0].value)
    return _short(node)


def _scalar(node: Node) -> str:
    to = path(node, {})
    return to[1] if to is not None and len(to) == 2 else ""


def _read(node: Node) -> Read | None:
    """The one value of the device that a part stands for, if it does."""
    if isinstance(node, Call) and node.function == "orValue" and node.target is not None:
        return _read(node.target)
    to = path(node, {})
    if to is None or len(to) != 4 or to[1] not in ("attributes", "capacity"):
        return None
    return Read("attributes" if to[1] == "attributes" else "capacity", to[2], to[3])


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
    match node:
        case Literal(value=value):
            return _literal(value)
        case Ident(name=name):
            return name
        case Select(operand=operand, field=field, test=test):
            text = f"{written(operand)}.{field}"
            return f"has({text})" if test else text
        case ListOf(items=items):
            return f"[{', '.join(map(written, items))}]"
        case MapOf(entries=entries):
            inside = ", ".join(f"{written(e.key)}: {written(e.value)}" for e in entries)
            return f"{{{inside}}}"
        case Bind(variable=variable, value=value, body=body):
            return f"cel.bind({variable}, {written(value)}, {written(body)})"
        case Fold(kind=kind, range=range_, variables=variables, body=body):
            return f"{written(range_)}.{kind}({', '.join(variables)}, {written(body)})"
        case Again(of=of):
            return written(of)
        case Call():
            return _call(node)
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
