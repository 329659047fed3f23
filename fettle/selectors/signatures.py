"""The types of CEL, and how a call's arguments choose among a function's overloads.

Pure; imports nothing of Fettle. `dyn` fits everything and is what device attributes are; a type
variable stands for one type throughout a signature.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Type(NamedTuple):
    """`of`: a list's elements; a map's keys and values."""

    name: str
    of: tuple["Type", ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.of))})" if self.of else self.name


DYN = Type("dyn")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
QUANTITY = Type("quantity")
SEMVER = Type("semver")
DEVICE = Type("device")
A = Type("A")
B = Type("B")
_VARIABLES = (A, B)


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


class Signature(NamedTuple):
    takes: tuple[Type, ...]
    gives: Type


Bound = dict[Type, Type]


def choose(
    signatures: Sequence[Signature], arguments: Sequence[Type]
) -> tuple[list[int], Type] | None:
    """Indices of the signatures that may apply, and the type of the result; None if none does."""
    fits: list[int] = []
    results: set[Type] = set()
    for index, signature in enumerate(signatures):
        bound: Bound = {}
        if len(signature.takes) == len(arguments) and all(
            _unify(wanted, given, bound)
            for wanted, given in zip(signature.takes, arguments, strict=True)
        ):
            fits.append(index)
            results.add(_substituted(signature.gives, bound))
    if not fits:
        return None
    return fits, results.pop() if len(results) == 1 else DYN


def unites(left: Type, right: Type) -> bool:
    """Whether two types may be the same one once `dyn` is known."""
    return _unify(left, right, {})


def is_open(type_: Type) -> bool:
    """Whether `dyn` is anywhere in a type."""
    return type_ == DYN or any(map(is_open, type_.of))


def _unify(wanted: Type, given: Type, bound: Bound) -> bool:
    if wanted in _VARIABLES:
        known = bound.setdefault(wanted, given)
        if not _unify(known, given, bound):
            return False
        bound[wanted] = _joined(known, given)
        return True
    if DYN in (wanted, given):
        return True
    return (
        wanted.name == given.name
        and len(wanted.of) == len(given.of)
        and all(_unify(w, g, bound) for w, g in zip(wanted.of, given.of, strict=True))
    )


def _joined(left: Type, right: Type) -> Type:
    """The more general of two types that unite."""
    if DYN in (left, right):
        return DYN
    inner = zip(left.of, right.of, strict=True)
    return Type(left.name, tuple(_joined(one, other) for one, other in inner))


def _substituted(type_: Type, bound: Bound) -> Type:
    if type_ in _VARIABLES:
        return bound.get(type_, DYN)
    return Type(type_.name, tuple(_substituted(inner, bound) for inner in type_.of))
