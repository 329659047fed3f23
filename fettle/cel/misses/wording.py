"""Parts of expressions and values, in words for people.

Runs where expressions are compiled. Nothing is evaluated here.
"""

from fettle.api.resource import DeviceAttribute
from fettle.cel.language import syntax
from fettle.cel.language.syntax import (
    Again,
    Call,
    Construct,
    Expr,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Select,
)
from fettle.cel.library import conversions
from fettle.cel.library.amounts import MutableQuantity
from fettle.cel.library.containers import Concatenated, Growing
from fettle.cel.library.quoting import ESCAPES
from fettle.cel.library.semver import Version
from fettle.cel.library.signatures import Type
from fettle.cel.library.values import Duration, Optional, Timestamp, Uint, Value
from fettle.cel.misses.conditions import read
from fettle.cel.runtime.rows import Value as Published

_LONGEST = 80
_LISTS = (list, Growing, Concatenated)
_UNIT = 10**9
_SUFFIXES = ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"))


def published(value: Published) -> str:
    """What a device publishes: quantities and versions as they are written there."""
    if not isinstance(value, DeviceAttribute):
        return str(value)
    if value.version is not None:
        return value.version
    if value.versions is not None:
        return _cut(f"[{', '.join(value.versions)}]")
    known = (value.int_, value.bool_, value.string, value.ints, value.bools, value.strings)
    found = next(each for each in known if each is not None)
    return _cut(_literal(list(found) if isinstance(found, tuple) else found))


def computed(value: Value) -> str:
    """What a part of an expression came to; "" where there are no short words for it."""
    return _cut(_worded(value))


def _worded(value: Value) -> str:
    match value:
        case Version(major, minor, patch, _, pre):
            ids = ".".join(text or str(number) for _, number, text in pre)
            return f"{major}.{minor}.{patch}{'-' if pre else ''}{ids}"
        case MutableQuantity(nano=nano):
            return _quantity(nano)
        case Type(name=name):
            return name
        case Duration() | Timestamp():
            return conversions.text(value)
        case Optional(values=()):
            return "optional.none()"
        case Optional(values=(inner,)):
            text = _worded(inner)
            return text and f"optional.of({text})"
    if type(value) in _LISTS:
        texts = [_worded(item) for item in value[:_LONGEST]]
        return f"[{', '.join(texts)}]" if all(texts) else ""
    return _literal(value) if type(value) in _SIMPLE else ""


_SIMPLE = (bool, int, Uint, float, str, bytes, type(None))


def _quantity(nano: int) -> str:
    whole, rest = divmod(abs(nano), _UNIT)
    sign = "-" if nano < 0 else ""
    if rest:
        return f"{sign}{whole}.{rest:09d}".rstrip("0")
    for bits, suffix in _SUFFIXES:
        if whole and not whole % 2**bits:
            return f"{sign}{whole >> bits}{suffix}"
    return f"{sign}{whole}"


def _literal(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Uint():
            return f"{int(value)}u"
        case float():
            return conversions.text(value)
        case str():
            return f'"{value.translate(ESCAPES)}"'
        case bytes():
            return f'b"{value.decode("latin-1").translate(_BYTES)}"'
        case list():
            return f"[{', '.join(map(_literal, value))}]"
    return "null" if value is None else str(value)


_BYTES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 256))} | ESCAPES


def brief(node: Expr) -> str:
    """A part as one might have written it, with bare names for the values of the device."""
    return _cut(written(node, bare=True))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def written(node: Expr, *, bare: bool = False) -> str:
    """A part as one might have written it; `bare`: with names alone for what a device publishes."""
    if bare and (where := read(node)) is not None and not _is_alternative(node):
        return where.name
    match node.origin or node:
        case Literal(value=float() as value):
            text = _literal(value)
            return f"{text}.0" if text.lstrip("-").isdigit() else text
        case Literal(value=value):
            return _literal(value)
        case Ident(name=name):
            return name
        case Select(operand=operand, field=field):
            return f"{written(operand, bare=bare)}.{field}"
        case ListOf(items=items):
            return f"[{', '.join(written(item, bare=bare) for item in items)}]"
        case MapOf(entries=entries):
            parts = [(written(e.key, bare=bare), written(e.value, bare=bare)) for e in entries]
            inside = ", ".join(f"{key}: {value}" for key, value in parts)
            return f"{{{inside}}}"
        case Construct(name=name, entries=entries):
            parts = [(written(e.key).strip('"'), written(e.value, bare=bare)) for e in entries]
            return f"{name}{{{', '.join(f'{key}: {value}' for key, value in parts)}}}"
        case Again(of=of):
            return written(of, bare=bare)
        case Call() as call:
            return _call(call, bare=bare)
    return "…"


def _is_alternative(node: Expr) -> bool:
    return isinstance(node, Call) and node.function == "orValue"


def _call(node: Call, *, bare: bool) -> str:
    args = [written(arg, bare=bare) for arg in node.args]
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
    return call if node.target is None else f"{written(node.target, bare=bare)}.{call}"
