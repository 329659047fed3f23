"""What the operators and calls of an expression do at run time, over their compiled operands.

Runs in the worker. Each maker takes the parts and gives the whole; the signatures say which types
Kubernetes' compiler lets each operator take.
"""

from collections.abc import Callable

from fettle.selectors import functions, values
from fettle.selectors.functions import Function
from fettle.selectors.signatures import (
    BOOL,
    DOUBLE,
    INT,
    STRING,
    UINT,
    A,
    B,
    Signature,
    list_of,
    map_of,
)
from fettle.selectors.values import CelError, Entries, Frame, Run, Undecidable, Value
from fettle.selectors.versions import Version

ORDERED = (
    *(Signature((t, t), BOOL) for t in (BOOL, INT, DOUBLE, STRING)),
    Signature((INT, DOUBLE), BOOL),
    Signature((DOUBLE, INT), BOOL),
)
EQUALITY = (Signature((A, A), BOOL),)
MEMBERSHIP = (Signature((A, list_of(A)), BOOL), Signature((A, map_of(A, B)), BOOL))
INDEXING = (Signature((list_of(A), INT), A), Signature((map_of(A, B), A), B))
_NUMERIC = (Signature((INT, INT), INT), Signature((DOUBLE, DOUBLE), DOUBLE))
_INTEGRAL = (Signature((INT, INT), INT), Signature((UINT, UINT), UINT))
_ADDITION = (
    *_NUMERIC,
    Signature((STRING, STRING), STRING),
    Signature((list_of(A), list_of(A)), list_of(A)),
)
ARITHMETIC: dict[str, tuple[tuple[Signature, ...], Callable[..., Value]]] = {
    "addition_add": (_ADDITION, values.add),
    "addition_sub": (_NUMERIC, values.subtract),
    "multiplication_mul": (_NUMERIC, values.multiply),
    "multiplication_div": (_NUMERIC, values.divide),
    "multiplication_mod": (_INTEGRAL, values.remainder),
}
_ORDERINGS: dict[str, Callable[[int], bool]] = {
    "relation_lt": lambda sign: sign < 0,
    "relation_le": lambda sign: sign <= 0,
    "relation_gt": lambda sign: sign > 0,
    "relation_ge": lambda sign: sign >= 0,
}
EITHER = (Signature((A, A), A),)
NEGATIVE = (Signature((INT,), INT), Signature((DOUBLE,), DOUBLE))


def select(owner: Run, name: str) -> Run:
    def run(frame: Frame) -> Value:
        frame.spend(1)
        value = owner(frame)
        if type(value) is not Entries:
            raise CelError(f"no such key: {name}")
        return value.find(name)

    return run


def look(owner: Run, key: Run) -> Run:
    def run(frame: Frame) -> Value:
        frame.spend(1)
        return values.index(owner(frame), key(frame))

    return run


def has(owner: Run, name: str) -> Run:
    def run(frame: Frame) -> Value:
        frame.spend(1)
        value = owner(frame)
        if type(value) is not Entries:
            raise Undecidable("has() of a field of something that is no map")
        return name in value

    return run


def listing(parts: list[Run]) -> Run:
    def run(frame: Frame) -> Value:
        frame.spend(len(parts))
        return [part(frame) for part in parts]

    return run


def logical(terms: list[Run], *, decisive: bool) -> Run:
    """`||` (decided by a true) or `&&` (decided by a false); errors beside that are lost."""

    def run(frame: Frame) -> Value:
        failure: CelError | None = None
        for term in terms:
            frame.spend(1)
            try:
                value = term(frame)
            except CelError as error:
                failure = failure or error
                continue
            if value is decisive:
                return decisive
            if type(value) is not bool:
                failure = failure or CelError("no such overload")
        if failure is not None:
            raise failure
        return not decisive

    return run


def conditional(test: Run, yes: Run, no: Run) -> Run:
    def run(frame: Frame) -> Value:
        frame.spend(1)
        value = test(frame)
        if type(value) is not bool:
            raise CelError("no such overload")
        return yes(frame) if value else no(frame)

    return run


def ordering(operator: str, left: Run, right: Run) -> Run:
    test = _ORDERINGS[operator]

    def run(frame: Frame) -> Value:
        frame.spend(1)
        return test(values.order(left(frame), right(frame)))

    return run


def equality(left: Run, right: Run, *, negated: bool) -> Run:
    compare = values.unequal if negated else values.equal

    def run(frame: Frame) -> Value:
        first, second = left(frame), right(frame)
        frame.spend(1 + (len(first) // 10 if type(first) in (str, list) else 0))
        return compare(first, second)

    return run


def membership(item: Run, container: Run, *, literals: bool) -> Run:
    """`in`; Kubernetes turns a list of literals into a set, which not every type can be in."""

    def run(frame: Frame) -> Value:
        value = item(frame)
        if literals and type(value) is Version:
            raise CelError("a version is looked for among literals")
        if literals and type(value) not in (bool, int, str, float):
            raise Undecidable("membership of this type in a list of literals")
        return values.contains(frame, value, container(frame))

    return run


def arithmetic(apply: Callable[..., Value], left: Run, right: Run) -> Run:
    def run(frame: Frame) -> Value:
        frame.spend(1)
        return apply(frame, left(frame), right(frame))

    return run


def negation(of: Run) -> Run:
    def run(frame: Frame) -> Value:
        value = of(frame)
        if type(value) is not bool:
            raise CelError("no such overload")
        return not value

    return run


def negative(of: Run) -> Run:
    return lambda frame: values.negate(frame, of(frame))


def bind(value: Run, slot: int, body: Run) -> Run:
    """`cel.bind`; an error in the value is one only where the variable is used."""

    def run(frame: Frame) -> Value:
        try:
            frame.slots[slot] = value(frame)
        except CelError as error:
            frame.slots[slot] = error
        return body(frame)

    return run


def whole_device(frame: Frame) -> Value:
    raise Undecidable("the device as a whole")


def variable(slot: int) -> Run:
    def read(frame: Frame) -> Value:
        value = frame.slots[slot]
        if isinstance(value, CelError):
            raise value
        return value

    return read


def call(name: str, function: Function, indices: list[int], runs: list[Run]) -> Run:
    """Picks the overload by the values' types, as Kubernetes does where types are not static."""
    candidates = [function.overloads[index] for index in indices]

    def run(frame: Frame) -> Value:
        frame.spend(1)
        given = [part(frame) for part in runs]
        for overload in candidates:
            if all(map(functions.fits, overload.signature.takes, given)):
                return overload.apply(frame, *given)
        if not function.complete:
            raise Undecidable(f"{name} of these types")
        raise CelError(f"no such overload: {name}")

    return run
