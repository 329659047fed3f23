"""One condition of an expression, and what it comes to on one device."""

import time
from typing import NamedTuple, TypeGuard

from fettle.api.resource import Device
from fettle.cel.language import syntax
from fettle.cel.language.compiler import Prepared, Program, evaluate, judge
from fettle.cel.language.reads import path
from fettle.cel.language.syntax import Again, Call, Expr, Ident, Literal, Select
from fettle.cel.library.values import CelError, Ended, Uint, Undecidable, Value
from fettle.cel.runtime import rows
from fettle.cel.runtime.protocol import TOO_SLOW, Outcome
from fettle.cel.runtime.rows import AttributeRead, Field, RowFingerprint

_ORDERS = frozenset((-1, 0, 1))
"""How the left side may compare with the right: below, equal, above."""
_TRUE_FOR = {
    syntax.EQUALS: {0},
    syntax.DIFFERS: {-1, 1},
    "_<_": {-1},
    "_<=_": {-1, 0},
    "_>_": {1},
    "_>=_": {0, 1},
    "isLessThan": {-1},
    "isGreaterThan": {1},
}
_SIGNS = {
    frozenset((0,)): "==",
    frozenset((-1, 1)): "!=",
    frozenset((-1,)): "<",
    frozenset((-1, 0)): "<=",
    frozenset((1,)): ">",
    frozenset((0, 1)): ">=",
}
_VERBS = {
    syntax.IN: ("is in", "is not in"),
    "startsWith": ("starts with", "does not start with"),
    "endsWith": ("ends with", "does not end with"),
    "contains": ("contains", "does not contain"),
    "includes": ("includes", "does not include"),
    "matches": ("matches", "does not match"),
}
"""The words between both sides where the condition is true, and where it is false."""


class Sides(NamedTuple):
    """The two sides of a comparison, and what stands between them: "<", "is not in"."""

    left: Expr
    relation: str
    right: Expr

    @property
    def are_compared(self) -> bool:
        return self.relation in _SIGNS.values()


def sides(condition: Expr, *, true: bool) -> Sides | None:
    """How the sides of a comparison compare if it is true, or false.

    If one side is a value of the device, it is the left one.
    """
    if not isinstance(condition, Call):
        return None
    operands = _operands(condition)
    if condition.function in _VERBS and len(operands) == 2:
        return Sides(operands[0], _VERBS[condition.function][not true], operands[1])
    if condition.function not in _TRUE_FOR:
        return None
    left, right = operands
    orders = _ORDERS & _TRUE_FOR[condition.function]
    orders = orders if true else _ORDERS - orders
    return _compared(left, orders, right) or _related(left, orders, right)


def _compared(left: Expr, orders: frozenset[int], right: Expr) -> Sides | None:
    """The sides of `compareTo`, if its result is compared with a number."""
    if _is_number(left):
        left, right, orders = right, left, _mirrored(orders)
    if not _is_number(right) or not isinstance(left, Call) or left.function != "compareTo":
        return None
    than = right.value
    orders = frozenset(o for o in _ORDERS if (o > than) - (o < than) in orders)
    one, other = _operands(left)
    return _related(one, orders, other)


def _related(left: Expr, orders: frozenset[int], right: Expr) -> Sides | None:
    if (read(right) is not None and read(left) is None) or (
        is_constant(left) and not is_constant(right)
    ):
        left, right, orders = right, left, _mirrored(orders)
    return Sides(left, _SIGNS[orders], right) if orders in _SIGNS else None


def _operands(call: Call) -> list[Expr]:
    return call.args if call.target is None else [call.target, *call.args]


def _is_number(node: Expr) -> TypeGuard[Literal]:
    return isinstance(node, Literal) and type(node.value) in (int, float, Uint)


def _mirrored(orders: frozenset[int]) -> frozenset[int]:
    return frozenset(-order for order in orders)


def read(node: Expr) -> AttributeRead | None:
    """The value of the device that a part stands for, if it stands for one."""
    if isinstance(node, Call) and node.function == "orValue" and node.target is not None:
        return read(node.target)
    place = None if isinstance(node, Select) and node.test else _place(path(node, {}))
    return place if place is not None and place.name else None


def presence(node: Expr) -> AttributeRead | None:
    """The value whose presence a condition tests; with name "", it tests for the domain."""
    if isinstance(node, Select) and node.test:
        return _place(path(node, {}))
    if isinstance(node, Call) and node.function == syntax.IN:
        key, within = node.args
        to = path(within, {})
        if isinstance(key, Literal) and type(key.value) is str and key.value and to is not None:
            return _place((*to, key.value))
    return None


def is_constant(node: Expr) -> bool:
    """Whether it is the same on every device."""
    if isinstance(node, Ident):
        return node.slot is not None or node.type.name == "type"
    return not isinstance(node, Again) and all(map(is_constant, syntax.children(node)))


def scalar(node: Expr) -> str:
    """The name of the device's own field that a part stands for, such as `driver`; else ""."""
    to = None if isinstance(node, Select) and node.test else path(node, {})
    return to[1] if to is not None and len(to) == 2 and to[1] not in _FIELDS else ""


_FIELDS: dict[str, Field] = {"attributes": "attributes", "capacity": "capacity"}


def _place(to: tuple[str, ...] | None) -> AttributeRead | None:
    match to:
        case ("device", field, domain) if field in _FIELDS:
            return AttributeRead(_FIELDS[field], domain, "")
        case ("device", field, domain, name) if field in _FIELDS:
            return AttributeRead(_FIELDS[field], domain, name)
    return None


# Evaluation on a device


class Parts:
    """The parts of an expression, each compiled when it is first needed."""

    def __init__(self, prepared: Prepared, program: Program) -> None:
        self.whole = prepared
        self.terms = program.terms()
        self._program = program
        self._prepared: dict[Expr, Prepared] = {}

    def prepared(self, part: Expr) -> Prepared:
        found = self._prepared.get(part)
        if found is None:
            found = self.whole._replace(program=self._program.part(part))
            self._prepared[part] = found
        return found


class Trial(NamedTuple):
    """An expression on one device, evaluated part by part.

    `until` is the processor time in seconds after which nothing more is evaluated.
    """

    parts: Parts
    fingerprint: RowFingerprint
    driver: str
    device: Device
    until: float

    def outcome(self, part: Expr) -> Outcome:
        """What a condition comes to."""
        if self._is_over():
            return TOO_SLOW
        return judge(self.parts.prepared(part), rows.row(self.parts.whole.reads, self.fingerprint))

    def value(self, part: Expr) -> tuple[Value, ...]:
        """What a part comes to; empty if that is an error, or not known."""
        if self._is_over():
            return ()
        row = rows.row(self.parts.whole.reads, self.fingerprint)
        try:
            return (evaluate(self.parts.prepared(part), row),)
        except (CelError, Ended, Undecidable):
            return ()

    def published(self, read: AttributeRead) -> rows.Value | bool | None:
        """What the device publishes for a read; None if nothing."""
        return rows.value_at_read(read, self.driver, self.device)

    def _is_over(self) -> bool:
        return time.process_time() > self.until
