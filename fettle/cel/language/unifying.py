"""Whether a value of one type may stand where another is expected, as Kubernetes' checker decides.

Runs in the worker. What is learnt of type parameters on the way is kept only where the whole
comparison succeeds.
"""

from collections.abc import Sequence

from fettle.cel.library.signatures import (
    ANY,
    DYN,
    ERROR,
    NULL,
    NULLABLE,
    OPTIONAL,
    Nullable,
    Type,
)

_PARAMETRIC = ("list", "map", OPTIONAL)

Bound = dict[Type, Type]


class Unifier:
    """What is known of type parameters; `fresh` makes a new one."""

    def __init__(self) -> None:
        self._bound: Bound = {}
        self._made = 0

    def fresh(self) -> Type:
        self._made += 1
        return Type(f"_{self._made}", parameter=True)

    def instance(self, types: Sequence[Type]) -> list[Type]:
        """The types of a signature with parameters of their own."""
        names: Bound = {}
        return [self._renamed(type_, names) for type_ in types]

    def _renamed(self, type_: Type, names: Bound) -> Type:
        if type_.parameter:
            if type_ not in names:
                names[type_] = self.fresh()
            return names[type_]
        if not type_.of:
            return type_
        return Type(type_.name, tuple(self._renamed(inner, names) for inner in type_.of))

    def assignable(self, wanted: Sequence[Type], given: Sequence[Type]) -> bool:
        """Whether all of them are, pair by pair."""
        attempt = dict(self._bound)
        if len(wanted) != len(given):
            return False
        for one, other in zip(wanted, given, strict=True):
            if not _assignable(attempt, one, other):
                return False
        self._bound = attempt
        return True

    def resolved(self, type_: Type, *, final: bool = False) -> Type:
        """The type with what is known put in; where `final`, what is not known is `dyn`."""
        known = self._bound.get(type_)
        if known is not None:
            return self.resolved(known, final=final)
        if type_.parameter:
            return DYN if final else type_
        if not type_.of:
            return type_
        return Type(type_.name, tuple(self.resolved(inner, final=final) for inner in type_.of))


def general(left: Type, right: Type) -> Type:
    """The less specific of two types that fit."""
    return left if _at_most_as_specific(left, right) else right


def is_open(type_: Type) -> bool:
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


def _assignable(bound: Bound, left: Type, right: Type) -> bool:
    if right.parameter:
        fits, known = _substitutes(bound, left, right)
        if fits or known:
            return fits
    if left.parameter:
        return _substitutes(bound, right, left)[0]
    if is_open(left) or is_open(right):
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


def _substitutes(bound: Bound, type_: Type, parameter: Type) -> tuple[bool, bool]:
    """Whether a type may be what a parameter stands for, and whether that was known before."""
    if type_ == parameter:
        return True, True
    known = bound.get(parameter)
    if known is not None:
        if type_ == known:
            return True, True
        if not _assignable(bound, type_, known):
            return False, True
        wider = general(type_, known)
        if _absent(bound, parameter, wider):
            bound[parameter] = wider
        return True, True
    if not _absent(bound, parameter, type_):
        return False, False
    bound[parameter] = type_
    return True, False


def _absent(bound: Bound, parameter: Type, within: Type) -> bool:
    """Whether a parameter is nowhere within a type, so that it may stand for it."""
    if within == parameter:
        return False
    if within.parameter:
        known = bound.get(within)
        return known is None or _absent(bound, parameter, known)
    return all(_absent(bound, parameter, inner) for inner in within.of)
