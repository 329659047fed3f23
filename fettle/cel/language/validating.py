"""What Kubernetes refuses about literals although their types are right.

Runs in the worker, between the type check and compilation: patterns that are none, lists and maps
of unlike items, and format strings that do not go with their arguments.
"""

from fettle.cel.language.syntax import (
    Call,
    Expr,
    ListOf,
    Literal,
    MapOf,
    Refused,
    Unsupported,
    children,
)
from fettle.cel.library import formatting, regexes
from fettle.cel.library.formatting import Clause
from fettle.cel.library.signatures import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    OPTIONAL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
)
from fettle.cel.library.values import CelError

_FORMATTED = "format"
_SIMPLE = (INT, UINT, DOUBLE, BOOL, STRING, TIMESTAMP, BYTES, DURATION, NULL)
_VERBS: dict[str, tuple[Type, ...]] = {
    "d": (INT, UINT),
    "f": (DOUBLE, STRING),
    "e": (DOUBLE, STRING),
    "b": (INT, UINT, BOOL),
    "x": (INT, UINT, STRING, BYTES),
    "X": (INT, UINT, STRING, BYTES),
    "o": (INT, UINT),
}


def validate(tree: Expr) -> None:
    """Raises Refused for what is wrong anywhere in a checked tree."""
    left: list[tuple[Expr, bool]] = [(tree, False)]
    while left:
        node, exempt = left.pop()
        if isinstance(node, Call):
            _call(node)
            exempt = exempt or node.function == _FORMATTED
        if not exempt and isinstance(node, ListOf):
            _alike([_item(item, at in node.optional) for at, item in enumerate(node.items)])
        if not exempt and isinstance(node, MapOf):
            _alike([entry.key.type for entry in node.entries])
            _alike([_item(entry.value, entry.optional) for entry in node.entries])
        left.extend((child, exempt) for child in children(node))


def _item(node: Expr, optional: bool) -> Type:
    if not optional:
        return node.type
    if node.type.name != OPTIONAL:
        raise Unsupported("an optional item that may not be optional")
    return node.type.of[0]


def _alike(types: list[Type]) -> None:
    for type_ in types[1:]:
        if type_ != types[0]:
            raise Refused(f"expected type '{types[0]}' but found '{type_}'")


def _call(node: Call) -> None:
    if node.function == "matches" and isinstance(node.args[0], Literal):
        _pattern(node.args[0].value)
    if node.function == _FORMATTED and node.target is not None:
        (values,) = node.args
        if isinstance(node.target, Literal) and isinstance(values, ListOf):
            _format(node.target.value, values)


def _pattern(pattern: object) -> None:
    """The first argument, which in `matches(text, pattern)` is the text: so Kubernetes does."""
    if isinstance(pattern, str):
        try:
            regexes.compiled(pattern)
        except CelError as error:
            raise Refused(f"invalid matches argument: {error}") from error


def _format(text: str, values: ListOf) -> None:
    try:
        found = [part for part in formatting.clauses(text) if isinstance(part, Clause)]
    except CelError as error:
        raise Refused(str(error)) from error
    if len(found) != len(values.items):
        raise Refused(f"format string takes {len(found)} arguments, not {len(values.items)}")
    for clause, value in zip(found, values.items, strict=True):
        if clause.verb == "s":
            _writable(value)
        elif value.type != DYN and value.type not in _VERBS[clause.verb]:
            raise Refused(f"%{clause.verb} cannot write {value.type}")


def _writable(node: Expr) -> None:
    type_ = node.type
    if type_ != DYN and type_ not in _SIMPLE and type_.name not in ("list", "map", "type"):
        raise Refused(f"%s cannot write {type_}")
    if isinstance(node, (ListOf, MapOf)):
        for part in children(node):
            _writable(part)
