"""The static types of an expression, checked as Kubernetes checks them before it runs anything.

Runs in the worker. Annotates the parser's tree: each part with its type, each call with the
overloads that remain, each variable with its slot. Raises Refused at the first error.
"""

from collections.abc import Callable
from typing import Any

from fettle.cel.language import syntax
from fettle.cel.language.declarations import FUNCTIONS
from fettle.cel.language.environments import STORED, Environment
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
)
from fettle.cel.language.unifying import Unifier, general, is_open
from fettle.cel.library import signatures
from fettle.cel.library.messages import MESSAGES, NULL_VALUE
from fettle.cel.library.signatures import (
    ANY,
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DYN,
    INT,
    NULL,
    OPTIONAL,
    STRING,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from fettle.cel.library.values import Uint

TYPE_NAMES = {
    type_.name: type_
    for type_ in (
        *(BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, list_of(DYN), map_of(DYN, DYN)),
        *(signatures.DURATION, signatures.TIMESTAMP, signatures.TYPE, optional_of(DYN)),
        *(signatures.IP, signatures.CIDR, signatures.EMPTY, signatures.ENTRY),
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

Scope = dict[str, tuple[Type, int | None]]


def check(tree: Expr, environment: Environment = STORED) -> int:
    """Annotate a tree; the number of slots that its variables need. Raises Refused."""
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
        self._scope: Scope = {}

    def check(self, node: Expr) -> Type:
        node.type = _CHECKS[type(node)](self, node)
        self.seen.append(node)
        return node.type

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _within(self, names: Scope, parts: list[Expr]) -> list[Type]:
        """The types of parts that see these variables too."""
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
        name = None if node.test else self._qualified(node)
        if name is not None and (found := self._global(name)) is not None:
            return found
        field = self._field(node.operand, node.field, optional=False)
        return BOOL if node.test else self.types.resolved(field)

    def _qualified(self, node: Expr) -> str | None:
        """`a.b.c` where it may be the name of a type, and not of a variable's field."""
        names: list[str] = []
        while isinstance(node, Select) and not node.test:
            names.append(node.field)
            node = node.operand
        if not isinstance(node, Ident) or node.name in self._scope:
            return None
        return ".".join([node.name.removeprefix("."), *reversed(names)])

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
        elif not is_open(type_):
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
        name_ = self._namespace(node.target)
        if name_ is not None and f"{name_}.{node.function}" in FUNCTIONS:
            node.function, node.target = f"{name_}.{node.function}", None
            return self._resolved(node, node.function, given, member=False)
        return self._resolved(node, node.function, [self.check(node.target), *given], member=True)

    def _namespace(self, node: Expr) -> str | None:
        """`a.b` where it may be the namespace of a function."""
        names: list[str] = []
        while isinstance(node, Select) and not node.test:
            names.append(node.field)
            node = node.operand
        if not isinstance(node, Ident):
            return None
        return ".".join([node.name.removeprefix("."), *reversed(names)])

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
            return general(previous, current)
        return DYN

    # Macros

    def fold(self, node: Fold) -> Type:
        self.check(node.range)
        accumulator = self.check(node.init)
        range_ = self.types.resolved(node.range.type)
        types = self._iterated(range_, len(node.variables))
        node.slots = tuple(self._slot() for _ in node.variables)
        names: Scope = {ACCUMULATOR: (accumulator, None)}
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
        if range_ == ANY or (not is_open(range_) and not range_.parameter):
            raise Refused(f"expression of type {range_} cannot be the range of a macro")
        self.types.assignable([DYN], [range_])
        return (DYN,) * count

    def bind(self, node: Bind) -> Type:
        value = self.check(node.value)
        if node.variable.startswith("."):  # it is looked for among the names that all see
            self._expect(value, self.check(Ident(node.variable)))
        node.slot = self._slot()
        (body,) = self._within({node.variable: (value, node.slot)}, [node.body])
        return self.types.resolved(body)

    def again(self, node: Again) -> Type:
        return node.of.type

    def _global(self, name: str) -> Type | None:
        return DEVICE if name == self._environment.variable else _global(name)


def _global(name: str) -> Type | None:
    """The type of a name that every expression sees."""
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
