"""The macros of Kubernetes' CEL: calls that stand for a loop, a binding or a test.

The parser expands them. To the type checker, each is the tree that Kubernetes expands it to.
"""

from collections.abc import Callable

from fettle.cel.language import syntax
from fettle.cel.language.syntax import (
    Again,
    Bind,
    Call,
    Expr,
    Fold,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Refused,
    Select,
)

ACCUMULATOR = "@result"
_SORTED = "@sorted"
_FORBIDDEN = (ACCUMULATOR, "__result__")

Macro = Callable[[Expr, list[Expr]], Expr | None]
Collecting = Callable[[tuple[str, ...], Expr], tuple[str, Expr]]
"""Makes the kind of the loop and its step from the variables and the body."""


def expand(name: str, target: Expr | None, args: list[Expr]) -> Expr | None:
    """What the call of a macro stands for; None for an ordinary call. Raises Refused."""
    if target is None:
        return _has(args[0]) if name == "has" and len(args) == 1 else None
    macro = _MACROS.get((name, len(args)))
    return None if macro is None else macro(target, args)


def _has(argument: Expr) -> Expr:
    """The test for a field; `has(has(a.b))` is the same test."""
    if not isinstance(argument, Select):
        raise Refused("invalid argument to has() macro")
    return Select(argument.operand, argument.field, test=True)


def _variable(node: Expr) -> str:
    if not isinstance(node, Ident):
        raise Refused("a macro's variable must be a simple name")
    if node.name in _FORBIDDEN:
        raise Refused("a macro's variable overwrites the accumulator")
    return node.name


def _variables(args: list[Expr], count: int) -> tuple[str, ...]:
    names = tuple(_variable(arg) for arg in args[:count])
    if len(set(names)) < count:
        raise Refused(f"duplicate variable name: {names[0]}")
    return names


def _accumulator() -> Ident:
    return Ident(ACCUMULATOR)


def _operation(function: str, *args: Expr) -> Call:
    return Call(function, None, list(args))


def _quantifier(kind: str, count: int) -> Macro:
    def make(target: Expr, args: list[Expr]) -> Expr:
        names, body = _variables(args, count), args[count]
        init: Expr = Literal(kind == "all")
        step = _operation(syntax.AND if kind == "all" else syntax.OR, _accumulator(), body)
        result: Expr = _accumulator()
        if kind == "exists_one":
            init = Literal(0)
            more = _operation("_+_", _accumulator(), Literal(1))
            step = _operation(syntax.EITHER, body, more, _accumulator())
            result = _operation(syntax.EQUALS, _accumulator(), Literal(1))
        return Fold(kind, target, names, body, None, init, step, result)

    return make


def _collector(count: int, init: Callable[[], Expr], add: Collecting) -> Macro:
    """`map`, `transformList` and the like: one more argument is a filter before the body."""

    def make(target: Expr, args: list[Expr]) -> Expr:
        names, rest = _variables(args, count), args[count:]
        body, filter_ = rest[-1], rest[0] if len(rest) > 1 else None
        kind, step = add(names, body)
        if filter_ is not None:
            step = _operation(syntax.EITHER, filter_, step, _accumulator())
        return Fold(kind, target, names, body, filter_, init(), step, _accumulator())

    return make


def _appending(_names: tuple[str, ...], body: Expr) -> tuple[str, Expr]:
    return "list", _operation("_+_", _accumulator(), ListOf([body]))


def _inserting(names: tuple[str, ...], body: Expr) -> tuple[str, Expr]:
    return "map", _operation("cel.@mapInsert", _accumulator(), Ident(names[0]), body)


def _merging(_names: tuple[str, ...], body: Expr) -> tuple[str, Expr]:
    return "entries", _operation("cel.@mapInsert", _accumulator(), body)


def _filter(target: Expr, args: list[Expr]) -> Expr:
    (name,) = _variables(args, 1)
    step = _operation("_+_", _accumulator(), ListOf([args[0]]))
    step = _operation(syntax.EITHER, args[1], step, _accumulator())
    return Fold("list", target, (name,), args[0], args[1], ListOf([]), step, _accumulator())


def _bind(target: Expr, args: list[Expr]) -> Expr | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    if not isinstance(args[0], Ident):
        raise Refused("cel.bind() variable names must be simple identifiers")
    return Bind(_bound(args[0]), args[1], args[2])


def _bound(node: Expr) -> str:
    if not isinstance(node, Ident):
        raise Refused("a bound variable must be a simple name")
    return node.name


def _optional_map(target: Expr, args: list[Expr]) -> Expr:
    inner = Bind(_bound(args[0]), Call("value", Again(target), []), args[1])
    return _where_present(target, _operation("optional.of", inner))


def _optional_flat_map(target: Expr, args: list[Expr]) -> Expr:
    return _where_present(target, Bind(_bound(args[0]), Call("value", Again(target), []), args[1]))


def _where_present(target: Expr, then: Expr) -> Expr:
    nothing = Call("optional.none", None, [])
    return _operation(syntax.EITHER, Call("hasValue", target, []), then, nothing)


def _sort_by(target: Expr, args: list[Expr]) -> Expr:
    if isinstance(target, (Literal, MapOf)):
        raise Refused("sortBy cannot be applied to a literal")
    keys = _MACROS["map", 2](Ident(_SORTED), args)
    assert keys is not None
    return Bind(_SORTED, target, Call("@sortByAssociatedKeys", Ident(_SORTED), [keys]))


def _empty_list() -> Expr:
    return ListOf([])


def _empty_map() -> Expr:
    return MapOf([])


_MAP = _collector(1, _empty_list, _appending)
_TRANSFORM_LIST = _collector(2, _empty_list, _appending)
_TRANSFORM_MAP = _collector(2, _empty_map, _inserting)
_TRANSFORM_ENTRY = _collector(2, _empty_map, _merging)
_MACROS: dict[tuple[str, int], Macro] = {
    ("all", 2): _quantifier("all", 1),
    ("all", 3): _quantifier("all", 2),
    ("exists", 2): _quantifier("exists", 1),
    ("exists", 3): _quantifier("exists", 2),
    ("exists_one", 2): _quantifier("exists_one", 1),
    ("exists_one", 3): _quantifier("exists_one", 2),
    ("existsOne", 3): _quantifier("exists_one", 2),
    ("map", 2): _MAP,
    ("map", 3): _MAP,
    ("filter", 2): _filter,
    ("transformList", 3): _TRANSFORM_LIST,
    ("transformList", 4): _TRANSFORM_LIST,
    ("transformMap", 3): _TRANSFORM_MAP,
    ("transformMap", 4): _TRANSFORM_MAP,
    ("transformMapEntry", 3): _TRANSFORM_ENTRY,
    ("transformMapEntry", 4): _TRANSFORM_ENTRY,
    ("bind", 3): _bind,
    ("optMap", 2): _optional_map,
    ("optFlatMap", 2): _optional_flat_map,
    ("sortBy", 2): _sort_by,
}
