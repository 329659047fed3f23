"""How far a device is from meeting a condition, by the values that are compared there.

Runs in the worker.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from math import inf
from typing import NamedTuple

from fettle.cel.language import syntax
from fettle.cel.language.syntax import Call, Expr
from fettle.cel.library.amounts import MutableQuantity
from fettle.cel.library.comparing import NUMBERS
from fettle.cel.library.values import Value
from fettle.cel.misses.conditions import sides
from fettle.cel.misses.shortfalls import failing
from fettle.cel.misses.trials import Trial

_MOST_ITEMS = 64
_LONGEST = 128
_ASK_FOR_LIKE = {"==", "starts with", "ends with", "contains"}
"""Relations that are nearer to being so the more alike two texts are."""


class Distance(NamedTuple):
    """To be compared with other devices' for the same condition, the gravest first: how many parts
    fail; how far quantities (in 1e-9) and numbers are apart; how unlike texts are, from 0 to 1;
    0 for other values of one type. Infinite where nothing of that kind is compared.
    """

    failing: int = 1
    quantities: float = inf
    numbers: float = inf
    texts: float = inf
    others: float = inf


def distance(condition: Expr, trial: Trial, *, wanted: bool = True) -> Distance:
    """How far a condition is from being true, or false; from the nearest of alternatives."""
    match condition:
        case Call(function=syntax.NOT, args=[inner]):
            return distance(inner, trial, wanted=not wanted)
        case Call(function=syntax.OR | syntax.AND as operator):
            parts = syntax.operands(condition, operator)
            if wanted is (operator == syntax.OR):
                return _nearest([distance(part, trial, wanted=wanted) for part in parts])
            lacking = failing(parts, trial, wanted=wanted)
            apart = [distance(part, trial, wanted=wanted) for part in lacking]
            every = sum(each.failing for each in apart)
            return apart[0]._replace(failing=every) if apart else Distance()
    compared = sides(condition, true=wanted)
    if compared is None:
        return Distance()
    for left in trial.value(compared.left):
        for right in trial.value(compared.right):
            return _between(left, compared.relation, right)
    return Distance()


def _nearest(alternatives: Sequence[Distance]) -> Distance:
    """Of those of which the fewest parts fail, the least of each kind."""
    fewest = min((each.failing for each in alternatives), default=1)
    some = [each[1:] for each in alternatives if each.failing == fewest]
    return Distance(fewest, *map(min, zip(*some, strict=True)))


def _between(left: Value, relation: str, right: Value) -> Distance:
    if relation == "is in" and isinstance(right, list):
        return _nearest([_between(left, "==", item) for item in right[:_MOST_ITEMS]])
    if relation == "includes" and isinstance(left, list):
        return _nearest([_between(item, "==", right) for item in left[:_MOST_ITEMS]])
    if isinstance(left, MutableQuantity) and isinstance(right, MutableQuantity):
        return Distance(quantities=float(abs(left.nano - right.nano)))
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return Distance(numbers=float(abs(left - right)))
    if type(left) is not type(right):
        return Distance()
    if isinstance(left, str) and relation in _ASK_FOR_LIKE:
        return Distance(texts=_unlike(left, right))
    return Distance(others=0.0)


def _unlike(text: str, other: str) -> float:
    one, two = (each[:_LONGEST].lower() for each in (text, other))
    return 1 - SequenceMatcher(None, one, two).ratio()
