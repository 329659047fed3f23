"""What an expression uses of CEL, and for which reasons Fettle may leave one undecided."""

from __future__ import annotations

from collections.abc import Iterator

from fettle.cel.language.parser import parse
from fettle.cel.language.syntax import (
    Bind,
    Call,
    Expr,
    Fold,
    Refused,
    Select,
    Unsupported,
    children,
)

LIMITS = (
    *("a list made from a map is in no particular order", "a sum in no particular order"),
    *("the order of unlike items in no particular order", "the order of items with equal keys"),
    *("a timestamp at the edge of the calendar", "the least integer taken from a quantity"),
    *("a hexadecimal double", "a double written with very many digits", "a very great precision"),
    *("a pattern with flags or classes on text that is not ASCII", "a map's key of this type"),
    *("a regular expression that may be read otherwise", "what Kubernetes words in its own way"),
    *("quoting a character that Unicode may not have", "constructing google.protobuf."),
    *("a message of such a value", "a message with several of the fields"),
    *("the exponent of ", "it makes too large a value"),
    *("it takes too many steps", "the order of something that is no number"),
)
"""How the reasons begin that `docs/predictions.md` tells of; any other is a failure."""


def is_known(reason: str) -> bool:
    return reason.removeprefix("undecided: ").startswith(LIMITS)


def used(expression: str) -> frozenset[str]:
    """The functions, operators and macros of an expression; none where it cannot be parsed."""
    try:
        return frozenset(_used(parse(expression)))
    except (Refused, Unsupported, ValueError, RecursionError):
        return frozenset()


def _used(node: Expr) -> Iterator[str]:
    match node:
        case Call():
            yield node.function
        case Fold():
            yield f"{node.kind} of {len(node.variables)}"
        case Bind():
            yield "cel.bind"
        case Select() if node.test:
            yield "has"
    for part in children(node):
        yield from _used(part)
