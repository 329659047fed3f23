"""The type checker: refuses, before anything runs, what Kubernetes' compiler refuses.

It annotates the parser's tree: each part with its type, each call with the overloads that remain,
each variable with its slot. `validate` then checks what is wrong about literals although their
types are right: patterns that are none, lists and maps of mixed items, and format strings that do
not fit their arguments.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fettle.cel.language import syntax
from fettle.cel.language.environment import FUNCTIONS, STORED, Environment
from fettle.cel.language.macros import ACCUMULATOR
from fettle.cel.language.syntax import (
    Again,
    Bind,
    Call,
    Construct,
    Expr,
    Fold,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Refused,
    Select,
    Unsupported,
    children,
    dotted,
)
from fettle.cel.library import regexes, strings, values
from fettle.cel.library.messages import MESSAGES, NULL_VALUE
from fettle.cel.library.strings import Clause
from fettle.cel.library.values import (
    ANY,
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DURATION,
    DYN,
    ERROR,
    INT,
    NULL,
    NULLABLE,
    OPTIONAL,
    STRING,
    TIMESTAMP,
    UINT,
    CelError,
    Nullable,
    Type,
    Uint,
    list_of,
    map_of,
    optional_of,
    type_of,
)

TYPE_NAMES = {
    type_.name: type_
    for type_ in (
        *(BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, list_of(DYN), map_of(DYN, DYN)),
        *(values.DURATION, values.TIMESTAMP, values.TYPE, optional_of(DYN)),
        *(values.IP, values.CIDR, values.EMPTY, values.ENTRY),
    )
}
_LITERALS: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}

_Scope = dict[str, tuple[Type, int | None]]


def check(tree: Expr, environment: Environment = STORED) -> int:
    """Annotate a tree; returns the number of slots for its variables. Raises Refused."""
    checker = _Checker(environment)
    checker.check(tree)
    for node in checker.seen:
        node.type = checker.types.resolved(node.type, final=True)
    return checker.slots


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._fields = environment.fields
        self.types = Unifier()
        self.slots = 0
        self.seen: list[Expr] = []
        self._scope: _Scope = {}

    def check(self, node: Expr) -> Type:
        node.type = _CHECKS[type(node)](self, node)
        self.seen.append(node)
        return node.type

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _within(self, names: _Scope, parts: list[Expr]) -> list[Type]:
        """The types of parts that may use these variables too."""
        outer = self._scope
        self._scope = {**outer, **names}
        found = [self.check(part) for part in parts]
        self._scope = outer
        return found

    # Names and fields

    def literal(self, node: Literal) -> Type:
        return _LITERALS[type(node.value)]

    def ident(self, node: Ident) -> Type:
        if node.name in self._scope and not node.name.startswith("."):
            type_, node.slot = self._scope[node.name]
            return type_
        found = self._global(node.name.removeprefix("."))
        if found is None:
            raise Refused(f"undeclared reference to {node.name!r}")
        return found

    def construct(self, node: Construct) -> Type:
        name = node.name.removeprefix(".")
        message = MESSAGES.get(name)
        if message is None:
            raise Refused(f"{node.name!r} is no message")
        if message.make is None:
            raise Unsupported(f"constructing {name} is not supported")
        fields = self._fields if message.type == DEVICE else message.fields
        for entry in node.entries:
            given = self.check(entry.value)
            assert isinstance(entry.key, Literal)
            if entry.key.value not in fields:
                raise Refused(f"undefined field {entry.key.value!r}")
            wanted = fields[entry.key.value]
            self._expect(wanted, self._unwrapped(given) if entry.optional else given)
        return message.type

    def select(self, node: Select) -> Type:
        # It may be the name of a type, if it is not the field of a variable.
        if (
            (named := dotted(node)) is not None
            and named[0].name not in self._scope
            and (found := self._global(named[1])) is not None
        ):
            return found
        field = self._field(node.operand, node.field, optional=False)
        return BOOL if node.test else self.types.resolved(field)

    def _field(self, operand: Expr, field: str, *, optional: bool) -> Type:
        type_ = self.types.resolved(self.check(operand))
        if type_.name == OPTIONAL:
            type_, optional = type_.of[0], True
        result = self._field_of(type_, field)
        return optional_of(result) if optional else result

    def _field_of(self, type_: Type, field: str) -> Type:
        if type_.name == "map":
            return type_.of[1]
        if type_ == DEVICE:
            if field not in self._fields:
                raise Refused(f"undefined field {field!r}")
            return self._fields[field]
        if type_.parameter:
            self.types.assignable([DYN], [type_])
        elif not _is_open(type_):
            raise Refused(f"type {type_} does not support field selection")
        return DYN

    # Calls

    def call(self, node: Call) -> Type:
        if node.function == syntax.OPTIONAL_SELECT:
            name = node.args[1]
            assert isinstance(name, Literal)
            self.check(name)
            return self.types.resolved(self._field(node.args[0], name.value, optional=True))
        given = [self.check(arg) for arg in node.args]
        if node.target is None:
            return self._resolved(node, node.function.removeprefix("."), given, member=False)
        namespace = dotted(node.target)
        if namespace is not None and f"{namespace[1]}.{node.function}" in FUNCTIONS:
            node.function, node.target = f"{namespace[1]}.{node.function}", None
            return self._resolved(node, node.function, given, member=False)
        return self._resolved(node, node.function, [self.check(node.target), *given], member=True)

    def _resolved(self, node: Call, name: str, given: list[Type], *, member: bool) -> Type:
        overloads = FUNCTIONS.get(name)
        if overloads is None or not self._environment.knows(name):
            raise Refused(f"undeclared reference to {name!r}")
        if name in (syntax.AND, syntax.OR):
            for type_ in given:
                self._expect(BOOL, type_)
            return BOOL
        node.function = name
        result: Type | None = None
        for overload in overloads:
            if overload.member is not member:
                continue
            gives, *takes = self.types.instance([overload.gives, *overload.takes])
            if self.types.assignable(given, takes):
                node.overloads.append(overload)
                gives = self.types.resolved(gives)
                if result is None:
                    result = gives
                elif result not in (DYN, gives):
                    result = DYN
        if result is None:
            types = ", ".join(str(self.types.resolved(type_, final=True)) for type_ in given)
            raise Refused(f"found no matching overload for {name!r} applied to ({types})")
        return result

    def _expect(self, wanted: Type, given: Type) -> None:
        if not self.types.assignable([wanted], [given]):
            raise Refused(f"expected type {wanted} but found {self.types.resolved(given)}")

    # Lists and maps

    def list_of(self, node: ListOf) -> Type:
        element: Type | None = None
        for at, item in enumerate(node.items):
            type_ = self.check(item)
            if at in node.optional:
                type_ = self._unwrapped(type_)
            element = self._joined(element, type_)
        return list_of(self.types.fresh() if element is None else element)

    def map_of(self, node: MapOf) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for entry in node.entries:
            keys = self._joined(keys, self.check(entry.key))
            type_ = self.check(entry.value)
            values = self._joined(values, self._unwrapped(type_) if entry.optional else type_)
        if keys is None or values is None:
            return map_of(self.types.fresh(), self.types.fresh())
        return map_of(keys, values)

    def _unwrapped(self, type_: Type) -> Type:
        if type_.name == OPTIONAL:
            return type_.of[0]
        if type_ not in (DYN, ANY):
            raise Refused(f"expected type {optional_of(type_)} but found {type_}")
        return type_

    def _joined(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if self.types.assignable([previous], [current]):
            return _general(previous, current)
        return DYN

    # Macros

    def fold(self, node: Fold) -> Type:
        self.check(node.range)
        accumulator = self.check(node.init)
        range_ = self.types.resolved(node.range.type)
        types = self._iterated(range_, len(node.variables))
        node.slots = tuple(self._slot() for _ in node.variables)
        names: _Scope = {ACCUMULATOR: (accumulator, None)}
        for name, type_, slot in zip(node.variables, types, node.slots, strict=True):
            names[name] = (type_, slot)
        (step,) = self._within(names, [node.step])
        self._expect(accumulator, step)
        (result,) = self._within({ACCUMULATOR: (accumulator, None)}, [node.result])
        return self.types.resolved(result)

    def _iterated(self, range_: Type, count: int) -> tuple[Type, ...]:
        """The types of a macro's variables."""
        if range_.name == "list":
            return range_.of if count == 1 else (INT, range_.of[0])
        if range_.name == "map":
            return range_.of[:count]
        if range_ == ANY or (not _is_open(range_) and not range_.parameter):
            raise Refused(f"expression of type {range_} cannot be the range of a macro")
        self.types.assignable([DYN], [range_])
        return (DYN,) * count

    def bind(self, node: Bind) -> Type:
        value = self.check(node.value)
        if node.variable.startswith("."):  # Kubernetes looks it up among the global names
            self._expect(value, self.check(Ident(node.variable)))
        node.slot = self._slot()
        (body,) = self._within({node.variable: (value, node.slot)}, [node.body])
        return self.types.resolved(body)

    def again(self, node: Again) -> Type:
        return node.of.type

    def _global(self, name: str) -> Type | None:
        return DEVICE if name == self._environment.variable else _global(name)


def _global(name: str) -> Type | None:
    """The type of a name that every expression may use."""
    if name in TYPE_NAMES:
        return type_of(TYPE_NAMES[name])
    return INT if name == NULL_VALUE else None


_CHECKS: dict[type[Expr], Callable[[_Checker, Any], Type]] = {
    Literal: _Checker.literal,
    Ident: _Checker.ident,
    Select: _Checker.select,
    Call: _Checker.call,
    ListOf: _Checker.list_of,
    MapOf: _Checker.map_of,
    Construct: _Checker.construct,
    Fold: _Checker.fold,
    Bind: _Checker.bind,
    Again: _Checker.again,
}


# Type parameters

_PARAMETRIC = ("list", "map", OPTIONAL)

_Bound = dict[Type, Type]


class Unifier:
    """Decides whether a value of one type may stand where another is expected.

    It keeps what is learnt of type parameters on the way, if the whole comparison succeeds.
    """

    def __init__(self) -> None:
        self._bound: _Bound = {}
        self._made = 0

    def fresh(self) -> Type:
        self._made += 1
        return Type(f"_{self._made}", parameter=True)

    def instance(self, types: Sequence[Type]) -> list[Type]:
        """The types of a signature, with new type parameters for this call."""
        names: _Bound = {}
        return [self._renamed(type_, names) for type_ in types]

    def _renamed(self, type_: Type, names: _Bound) -> Type:
        if type_.parameter:
            if type_ not in names:
                names[type_] = self.fresh()
            return names[type_]
        if not type_.of:
            return type_
        return Type(type_.name, tuple(self._renamed(inner, names) for inner in type_.of))

    def assignable(self, wanted: Sequence[Type], given: Sequence[Type]) -> bool:
        """Whether all given types may stand for those wanted, pair by pair."""
        attempt = dict(self._bound)
        if len(wanted) != len(given):
            return False
        for one, other in zip(wanted, given, strict=True):
            if not _assignable(attempt, one, other):
                return False
        self._bound = attempt
        return True

    def resolved(self, type_: Type, *, final: bool = False) -> Type:
        """The type with its parameters replaced by what is known; if `final`, others by `dyn`."""
        known = self._bound.get(type_)
        if known is not None:
            return self.resolved(known, final=final)
        if type_.parameter:
            return DYN if final else type_
        if not type_.of:
            return type_
        return Type(type_.name, tuple(self.resolved(inner, final=final) for inner in type_.of))


def _general(left: Type, right: Type) -> Type:
    """The less specific of two types that are assignable."""
    return left if _at_most_as_specific(left, right) else right


def _is_open(type_: Type) -> bool:
    return type_ in (DYN, ANY, ERROR)


def _at_most_as_specific(left: Type, right: Type) -> bool:
    if left in (DYN, ANY) or left.parameter:
        return True
    if right in (DYN, ANY) or right.parameter or left.name != right.name:
        return False
    if left.name == "type":
        return True
    return len(left.of) == len(right.of) and all(
        _at_most_as_specific(one, other) for one, other in zip(left.of, right.of, strict=True)
    )


def _assignable(bound: _Bound, left: Type, right: Type) -> bool:
    if right.parameter:
        fits, known = _substitutes(bound, left, right)
        if fits or known:
            return fits
    if left.parameter:
        return _substitutes(bound, right, left)[0]
    if _is_open(left) or _is_open(right):
        return True
    if left == NULL:
        return _nullable(right)
    if right == NULL:
        return _nullable(left)
    if left.name == "type":
        return right.name == "type"
    if left.name in _PARAMETRIC:
        return (
            left.name == right.name
            and len(left.of) == len(right.of)
            and all(_assignable(bound, a, b) for a, b in zip(left.of, right.of, strict=True))
        )
    return left == right


def _nullable(type_: Type) -> bool:
    is_nullable = type_ in NULLABLE or isinstance(type_, Nullable)
    return type_ == NULL or is_nullable or type_.name == OPTIONAL


def _substitutes(bound: _Bound, type_: Type, parameter: Type) -> tuple[bool, bool]:
    """Whether a parameter may stand for a type, and whether it was bound before."""
    if type_ == parameter:
        return True, True
    known = bound.get(parameter)
    if known is not None:
        if type_ == known:
            return True, True
        if not _assignable(bound, type_, known):
            return False, True
        wider = _general(type_, known)
        if _occurs_not(bound, parameter, wider):
            bound[parameter] = wider
        return True, True
    if not _occurs_not(bound, parameter, type_):
        return False, False
    bound[parameter] = type_
    return True, False


def _occurs_not(bound: _Bound, parameter: Type, within: Type) -> bool:
    """Whether a parameter occurs nowhere within a type, so that it may stand for that."""
    if within == parameter:
        return False
    if within.parameter:
        known = bound.get(within)
        return known is None or _occurs_not(bound, parameter, known)
    return all(_occurs_not(bound, parameter, inner) for inner in within.of)


# Literals

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
    """Check the literals of a checked tree; raises Refused."""
    left: list[tuple[Expr, bool]] = [(tree, False)]
    while left:
        node, exempt = left.pop()
        if isinstance(node, Call):
            _validate_call(node)
            exempt = exempt or node.function == _FORMATTED
        if not exempt and isinstance(node, ListOf):
            _require_one_type(
                [_item_type(item, at in node.optional) for at, item in enumerate(node.items)]
            )
        if not exempt and isinstance(node, MapOf):
            _require_one_type([entry.key.type for entry in node.entries])
            _require_one_type([_item_type(entry.value, entry.optional) for entry in node.entries])
        left.extend((child, exempt) for child in children(node))


def _item_type(node: Expr, optional: bool) -> Type:
    if not optional:
        return node.type
    if node.type.name != OPTIONAL:
        raise Unsupported("an optional item that may not be optional")
    return node.type.of[0]


def _require_one_type(types: list[Type]) -> None:
    for type_ in types[1:]:
        if type_ != types[0]:
            raise Refused(f"expected type '{types[0]}' but found '{type_}'")


def _validate_call(node: Call) -> None:
    if node.function == "matches" and isinstance(node.args[0], Literal):
        _validate_pattern(node.args[0].value)
    if node.function == _FORMATTED and node.target is not None:
        (values,) = node.args
        if isinstance(node.target, Literal) and isinstance(values, ListOf):
            _validate_format(node.target.value, values)


def _validate_pattern(pattern: object) -> None:
    """Check the first argument, as Kubernetes does, although in `matches(text, pattern)` that is
    the text."""
    if isinstance(pattern, str):
        try:
            regexes.compiled(pattern)
        except CelError as error:
            raise Refused(f"invalid matches argument: {error}") from error


def _validate_format(text: str, values: ListOf) -> None:
    try:
        found = [part for part in strings.clauses(text) if isinstance(part, Clause)]
    except CelError as error:
        raise Refused(str(error)) from error
    if len(found) != len(values.items):
        raise Refused(f"format string takes {len(found)} arguments, not {len(values.items)}")
    for clause, value in zip(found, values.items, strict=True):
        if clause.verb == "s":
            _require_writable(value)
        elif value.type != DYN and value.type not in _VERBS[clause.verb]:
            raise Refused(f"%{clause.verb} cannot write {value.type}")


def _require_writable(node: Expr) -> None:
    type_ = node.type
    if type_ != DYN and type_ not in _SIMPLE and type_.name not in ("list", "map", "type"):
        raise Refused(f"%s cannot write {type_}")
    if isinstance(node, (ListOf, MapOf)):
        for part in children(node):
            _require_writable(part)
