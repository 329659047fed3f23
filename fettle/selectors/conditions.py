"""A condition that compares something with something else: its sides, and what holds instead.

Runs where expressions are compiled. Nothing is evaluated here.
"""

import math
from typing import NamedTuple, TypeGuard

from fettle.selectors import quantities, rows, syntax
from fettle.selectors.reading import path
from fettle.selectors.rows import Read
from fettle.selectors.syntax import Call, Literal, Node
from fettle.selectors.values import Uint
from fettle.wire.resource import Device, DeviceAttribute

_ORDERS = frozenset((-1, 0, 1))
"""How one side may stand to the other: below, equal, above."""
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
_WORDS = {
    frozenset((0,)): "==",
    frozenset((-1, 1)): "!=",
    frozenset((-1,)): "<",
    frozenset((-1, 0)): "<=",
    frozenset((1,)): ">",
    frozenset((0, 1)): ">=",
}


class Sides(NamedTuple):
    """`holds`: what is true between the two where the condition is not ("<", "is not in")."""

    left: Node
    holds: str
    right: Node


def sides(term: Node, *, negated: bool = False) -> Sides | None:
    """The sides of a comparison, with the device's value on the left if one side is one."""
    if not isinstance(term, Call):
        return None
    if term.function == syntax.NOT:
        return sides(term.args[0], negated=not negated)
    if term.function == syntax.IN:
        return Sides(term.args[0], "is in" if negated else "is not in", term.args[1])
    if term.function not in _TRUE_FOR:
        return None
    left, right = _operands(term)
    true_for = _ORDERS & _TRUE_FOR[term.function]
    if _is_number(left):
        left, right, true_for = right, left, _mirrored(true_for)
    if _is_compared(left):
        if not _is_number(right):
            return None
        than = right.value
        true_for = frozenset(o for o in _ORDERS if (o > than) - (o < than) in true_for)
        left, right = _operands(left)
    instead = true_for if negated else _ORDERS - true_for
    if read(left) is None and read(right) is not None:
        left, right, instead = right, left, _mirrored(instead)
    return Sides(left, _WORDS[instead], right) if instead in _WORDS else None


def _operands(term: Call) -> tuple[Node, Node]:
    left, right = term.args if term.target is None else (term.target, *term.args)
    return left, right


def _is_number(node: Node) -> TypeGuard[Literal]:
    return isinstance(node, Literal) and type(node.value) in (int, float, Uint)


def _is_compared(node: Node) -> TypeGuard[Call]:
    return isinstance(node, Call) and node.function == "compareTo" and len(node.args) == 1


def _mirrored(orders: frozenset[int]) -> frozenset[int]:
    return frozenset(-order for order in orders)


def read(node: Node) -> Read | None:
    """The one value of the device that a part stands for, if it does."""
    if isinstance(node, Call) and node.function == "orValue" and node.target is not None:
        return read(node.target)
    to = path(node, {})
    if to is None or len(to) != 4 or to[1] not in ("attributes", "capacity"):
        return None
    return Read("attributes" if to[1] == "attributes" else "capacity", to[2], to[3])


def distance(term: Node, driver: str, device: Device) -> float:
    """How far the two sides of a comparison of numbers or quantities are apart, to be compared
    with other devices' for the same condition; infinite where that is not known."""
    compared = sides(term)
    if compared is None:
        return math.inf
    left = _number(compared.left, driver, device)
    right = _number(compared.right, driver, device)
    return math.inf if left is None or right is None else float(abs(left - right))


def _number(node: Node, driver: str, device: Device) -> int | float | None:
    """A number, or a quantity in units of 1e-9."""
    if _is_number(node):
        number: int | float = node.value
        return number
    where = read(node)
    value = None if where is None else rows.look(where, driver, device)
    if isinstance(value, DeviceAttribute):
        return value.int_
    if isinstance(node, Call) and node.function == "quantity" and isinstance(node.args[0], Literal):
        value = node.args[0].value
    return None if value is None else _nano(str(value).strip())


def _nano(text: str) -> int | None:
    try:
        return quantities.parse(text).nano
    except (ValueError, quantities.Unsure):
        return None
