"""Which of some devices comes nearest to matching, and what it lacks.

Bounded in time. Where two devices fail equally many conditions, the distance between the compared
values decides.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from math import inf
from typing import NamedTuple

from fettle.api.resource import Device
from fettle.cel.language import syntax
from fettle.cel.language.compiler import judge, prepare
from fettle.cel.language.syntax import Call, Expr
from fettle.cel.library.operators import NUMBERS
from fettle.cel.library.quantity import MutableQuantity
from fettle.cel.library.values import Value
from fettle.cel.misses.conditions import Parts, Trial, sides
from fettle.cel.misses.shortfalls import failing, shortfall
from fettle.cel.runtime import rows
from fettle.cel.runtime.protocol import OutcomeKind
from fettle.cel.runtime.rows import RowFingerprint

_MOST_ITEMS = 64
_LONGEST_TEXT = 128
_SIMILAR = {"==", "starts with", "ends with", "contains"}
"""Relations that are closer to being true the more similar two texts are."""


class Distance(NamedTuple):
    """How far a device is from meeting a condition; the first field that differs decides.

    How many parts fail; how far quantities (in 1e-9) and numbers are apart; how different texts
    are, from 0 to 1; 0 for other values of one type. Infinite if nothing of that kind is compared.
    """

    failing: int = 1
    quantities: float = inf
    numbers: float = inf
    texts: float = inf
    others: float = inf


def distance(condition: Expr, trial: Trial, *, wanted: bool = True) -> Distance:
    """How far a condition is from being true, or false; of alternatives, the nearest counts."""
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
    """The smallest distance of each kind, among the alternatives with the fewest failed parts."""
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
    if isinstance(left, str) and relation in _SIMILAR:
        return Distance(texts=_difference(left, right))
    return Distance(others=0.0)


def _difference(text: str, other: str) -> float:
    one, two = (each[:_LONGEST_TEXT].lower() for each in (text, other))
    return 1 - SequenceMatcher(None, one, two).ratio()


_LONGEST_S = 0.1
_MOST_TERMS = 64


def nearest(expressions: Iterable[str], devices: Iterable[tuple[str, Device]]) -> str:
    """What the nearest device lacks: "memory 80Gi < 96Gi"; "" if one matches, or it is not known.

    The nearest fails the fewest conditions of all expressions. If several fail equally many and
    the same one first, it is the one closest to meeting that. Each device is given with its driver.

    Evaluates devices of one fingerprint once, and for at most 0.1 s of processor time; devices left
    then do not count. The words may take as long again.
    """
    until = time.process_time() + _LONGEST_S
    misses = _Misses(expressions, until)
    for driver, device in devices:
        if time.process_time() > until:
            break
        if misses.add(driver, device):
            return ""
    with suppress(Exception):  # a mistake here must not cost the other words of an explanation
        return misses.words()
    return ""


class _Miss(NamedTuple):
    """A device that fails some conditions, and its distance from meeting the first of them."""

    failing: int
    named: Sequence[tuple[Expr, Trial]]
    distance: Distance


class _Misses:
    """The nearest miss so far, and the fingerprints that were judged."""

    def __init__(self, expressions: Iterable[str], until: float) -> None:
        prepared = [prepare(expression) for expression in expressions]
        self._parts = [Parts(each, each.program) for each in prepared if each.program is not None]
        self._terms = [(term, parts) for parts in self._parts for term in parts.terms]
        self._until = until
        self._seen: set[tuple[RowFingerprint, ...]] = set()
        self._nearest: _Miss | None = None

    def add(self, driver: str, device: Device) -> bool:
        """Judge a device; true if it matches."""
        if rows.problem(driver, device):
            return False
        fingerprints = tuple(
            rows.row_fingerprint(parts.whole.reads, driver, device) for parts in self._parts
        )
        if not fingerprints or fingerprints in self._seen:
            return False
        self._seen.add(fingerprints)
        outcomes = [
            judge(parts.whole, rows.row(parts.whole.reads, fingerprint))
            for parts, fingerprint in zip(self._parts, fingerprints, strict=True)
        ]
        if any(
            outcome.kind in (OutcomeKind.NO_MATCH, OutcomeKind.WOULD_ABORT) for outcome in outcomes
        ):
            with suppress(Exception):
                self._note(fingerprints, driver, device)
        return all(outcome.matches for outcome in outcomes)

    def _note(self, fingerprints: tuple[RowFingerprint, ...], driver: str, device: Device) -> None:
        """Keep a miss if it is nearer than all before."""
        trials = {
            parts: Trial(parts, fingerprint, driver, device, self._until)
            for parts, fingerprint in zip(self._parts, fingerprints, strict=True)
        }
        conditions = [(term, trials[parts]) for term, parts in self._terms[:_MOST_TERMS]]
        kinds = [trial.outcome(term).kind for term, trial in conditions]
        judged = list(zip(conditions, kinds, strict=True))
        failed = [condition for condition, kind in judged if kind is not OutcomeKind.MATCH]
        named = [
            each for each, kind in judged if kind in (OutcomeKind.NO_MATCH, OutcomeKind.WOULD_ABORT)
        ]
        if not named:
            return
        best = self._nearest
        if best is not None:
            # Distances are comparable for the same condition only.
            is_same = named[0][0] is best.named[0][0]
            if len(failed) > best.failing or (len(failed) == best.failing and not is_same):
                return
        apart = distance(*named[0])
        if best is None or (len(failed), apart) < (best.failing, best.distance):
            self._nearest = _Miss(len(failed), named, apart)

    def words(self) -> str:
        """What the nearest miss lacks; "" if there is none."""
        if self._nearest is None:
            return ""
        until = time.process_time() + _LONGEST_S
        return shortfall(
            [(term, trial._replace(until=until)) for term, trial in self._nearest.named]
        )
