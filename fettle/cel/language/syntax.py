"""The tree of an expression: the parser makes it, the checker annotates it.

Operators are calls with the names that cel-go gives them, and most macros are a `Fold`. So what is
written here is checked and evaluated as Kubernetes does it.
"""

from dataclasses import dataclass, field
from typing import Any

from fettle.cel.library.values import ERROR, Overload, Type

OR, AND, NOT, NEGATE, EITHER = "_||_", "_&&_", "!_", "-_", "_?_:_"
EQUALS, DIFFERS, IN = "_==_", "_!=_", "@in"
INDEX, OPTIONAL_INDEX, OPTIONAL_SELECT = "_[_]", "_[?_]", "_?._"


class Refused(Exception):
    """Kubernetes' own compiler refuses the expression; `str()` says why."""


class Unsupported(Exception):
    """It is not known here what Kubernetes does with the expression; `str()` says why."""


@dataclass(slots=True, eq=False, kw_only=True)
class Expr:
    """A part of an expression.

    `height` is how deep Kubernetes' parser recurses over it. The checker sets `type`. `origin` is
    the call of the macro that was expanded to it.
    """

    height: int = 0
    type: Type = ERROR
    origin: "Call | None" = None


@dataclass(slots=True, eq=False)
class Literal(Expr):
    value: Any


@dataclass(slots=True, eq=False)
class Ident(Expr):
    name: str
    slot: int | None = None
    """The slot of a macro's variable; None for a global name."""


@dataclass(slots=True, eq=False)
class Select(Expr):
    """`operand.field`, or with `test` the `has()` of it."""

    operand: Expr
    field: str
    test: bool = False


@dataclass(slots=True, eq=False)
class Call(Expr):
    function: str
    target: Expr | None
    args: list[Expr]
    overloads: list[Overload] = field(default_factory=list)
    """Those that the types of the arguments allow; set by the checker."""


@dataclass(slots=True, eq=False)
class ListOf(Expr):
    items: list[Expr]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapEntry:
    key: Expr
    value: Expr
    optional: bool = False


@dataclass(slots=True, eq=False)
class MapOf(Expr):
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class Construct(Expr):
    """A message; the keys of its entries are literals with the names of fields."""

    name: str
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class Again(Expr):
    """A part that stands elsewhere in the tree too, and is evaluated again here."""

    of: Expr


@dataclass(slots=True, eq=False)
class Fold(Expr):
    """A macro over `range`: `kind` is its name, `variables` are one or two names.

    `body` and `filter` are as written, and are evaluated. `init`, `step` and `result` are what
    Kubernetes expands the macro to, over the accumulator `@result`; only the checker uses them.
    """

    kind: str
    range: Expr
    variables: tuple[str, ...]
    body: Expr
    filter: Expr | None
    init: Expr
    step: Expr
    result: Expr
    slots: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Bind(Expr):
    """`cel.bind`: the value is evaluated once, where the variable is first used."""

    variable: str
    value: Expr
    body: Expr
    slot: int = 0


def operands(node: Expr, function: str) -> list[Expr]:
    """The operands of a chain of one operator, as `a`, `b`, `c` of `a && b && c`."""
    if isinstance(node, Call) and node.function == function:
        return [operand for arg in node.args for operand in operands(arg, function)]
    return [node]


def dotted(node: Expr) -> tuple[Ident, str] | None:
    """The name that a chain of fields begins with, and all of it as `a.b.c`; None if it begins with
    something else, or asks with `has()`."""
    names: list[str] = []
    while isinstance(node, Select) and not node.test:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return node, ".".join([node.name.removeprefix("."), *reversed(names)])


def children(node: Expr) -> list[Expr]:
    """The parts directly below a node, as written, each once."""
    match node:
        case Select(operand=operand):
            return [operand]
        case Call(target=target, args=args):
            return args if target is None else [target, *args]
        case ListOf(items=items):
            return items
        case MapOf(entries=entries):
            return [part for entry in entries for part in (entry.key, entry.value)]
        case Construct(entries=entries):
            return [entry.value for entry in entries]
        case Fold(range=range_, filter=filter_, body=body):
            return [range_, body] if filter_ is None else [range_, filter_, body]
        case Bind(value=value, body=body):
            return [value, body]
        case _:
            return []
