"""The functions that an expression may call, with their overloads, as a table.

Runs in the worker. A function that is not here is undecided, and so is the odd corner of one that
is: an answer is given only where Kubernetes' own is known.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from fettle.selectors import amounts, texts
from fettle.selectors.quantities import Quantity
from fettle.selectors.signatures import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    QUANTITY,
    SEMVER,
    STRING,
    A,
    B,
    Signature,
    Type,
    list_of,
    map_of,
)
from fettle.selectors.values import (
    CelError,
    Entries,
    Frame,
    Undecidable,
    Value,
    equal,
    whole,
)
from fettle.selectors.versions import Version

Apply = Callable[..., Value]


class Overload(NamedTuple):
    """One overload; `apply` takes the frame, then the arguments (a method's object first)."""

    signature: Signature
    apply: Apply


class Function(NamedTuple):
    """`complete`: all of Kubernetes' overloads are here, so what fits none is surely an error."""

    overloads: tuple[Overload, ...]
    complete: bool = True


def fits(type_: Type, value: Value) -> bool:
    """Whether a value is of a type, as far as overloads are told apart at run time."""
    expected = _PYTHON.get(type_.name)
    return expected is None or type(value) is expected


_PYTHON: dict[str, type] = {
    "bool": bool,
    "int": int,
    "double": float,
    "string": str,
    "quantity": Quantity,
    "semver": Version,
    "list": list,
    "map": Entries,
}


_INT = re.compile(r"[+-]?[0-9]{1,25}")
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def _int_of_string(frame: Frame, text: str) -> int:
    if _INT.fullmatch(text) is None:
        if len(text) > 25:
            raise Undecidable("the int of a long string")
        raise CelError("type conversion error from 'string' to 'int'")
    return whole(int(text))


def _int_of_double(frame: Frame, number: float) -> int:
    if abs(number) >= 2**53:
        raise Undecidable("the int of a large double")
    return int(number)


def _string_of_bool(frame: Frame, value: bool) -> str:
    return "true" if value else "false"


def _bool_of_string(frame: Frame, text: str) -> bool:
    if text not in _BOOLS:
        raise CelError("type conversion error from 'string' to 'bool'")
    return _BOOLS[text]


def _double_of_int(frame: Frame, number: int) -> float:
    if abs(number) > 2**53:
        raise Undecidable("the double of a large int")
    return float(number)


def _same(frame: Frame, value: Value) -> Value:
    return value


def _size(frame: Frame, value: Value) -> int:
    return len(value)


def _includes(frame: Frame, value: Value, item: Value) -> bool:
    if type(value) is Entries or type(item) in (Entries, list):
        raise Undecidable("includes of a map or a list")
    items = value if type(value) is list else [value]
    frame.spend(1 + len(items))
    if any(type(i) in (Version, Quantity) and type(i) is not type(item) for i in items):
        raise Undecidable("includes over values of unlike types")
    return any(equal(i, item) for i in items)


def _below(compare: Apply) -> Apply:
    return lambda frame, left, right: compare(frame, left, right) < 0


def _above(compare: Apply) -> Apply:
    return lambda frame, left, right: compare(frame, left, right) > 0


def _of(*overloads: tuple[tuple[Type, ...], Type, Apply], complete: bool = True) -> Function:
    return Function(
        tuple(Overload(Signature(takes, gives), apply) for takes, gives, apply in overloads),
        complete,
    )


_TWO_STRINGS = (STRING, STRING)
_SIZE = _of(
    ((STRING,), INT, _size),
    ((list_of(A),), INT, _size),
    ((map_of(A, B),), INT, _size),
)
_COMPARABLE = (
    ((QUANTITY, QUANTITY), amounts.compare_quantities),
    ((SEMVER, SEMVER), amounts.compare_versions),
)

METHODS: dict[str, Function] = {
    "size": _SIZE,
    "startsWith": _of((_TWO_STRINGS, BOOL, texts.starts_with)),
    "endsWith": _of((_TWO_STRINGS, BOOL, texts.ends_with)),
    "contains": _of((_TWO_STRINGS, BOOL, texts.has_part)),
    "matches": _of((_TWO_STRINGS, BOOL, texts.matches)),
    "lowerAscii": _of(((STRING,), STRING, texts.lower)),
    "upperAscii": _of(((STRING,), STRING, texts.upper)),
    "trim": _of(((STRING,), STRING, texts.trim)),
    "indexOf": _of((_TWO_STRINGS, INT, texts.index_of), complete=False),
    "lastIndexOf": _of((_TWO_STRINGS, INT, texts.last_index_of), complete=False),
    "substring": _of(
        ((STRING, INT), STRING, texts.substring_from), ((STRING, INT, INT), STRING, texts.substring)
    ),
    "charAt": _of(((STRING, INT), STRING, texts.char_at)),
    "replace": _of(((STRING, STRING, STRING), STRING, texts.replace), complete=False),
    "split": _of((_TWO_STRINGS, list_of(STRING), texts.split), complete=False),
    "join": _of(
        ((list_of(STRING),), STRING, texts.join),
        ((list_of(STRING), STRING), STRING, texts.join_with),
    ),
    "compareTo": _of(*[(takes, INT, compare) for takes, compare in _COMPARABLE]),
    "isLessThan": _of(*[(takes, BOOL, _below(compare)) for takes, compare in _COMPARABLE]),
    "isGreaterThan": _of(*[(takes, BOOL, _above(compare)) for takes, compare in _COMPARABLE]),
    "asInteger": _of(((QUANTITY,), INT, amounts.integer)),
    "isInteger": _of(((QUANTITY,), BOOL, amounts.is_integer)),
    "add": _of(
        ((QUANTITY, QUANTITY), QUANTITY, amounts.add_quantity),
        ((QUANTITY, INT), QUANTITY, amounts.add_int),
    ),
    "sub": _of(
        ((QUANTITY, QUANTITY), QUANTITY, amounts.sub_quantity),
        ((QUANTITY, INT), QUANTITY, amounts.sub_int),
    ),
    "major": _of(((SEMVER,), INT, amounts.number("major"))),
    "minor": _of(((SEMVER,), INT, amounts.number("minor"))),
    "patch": _of(((SEMVER,), INT, amounts.number("patch"))),
    "includes": _of(((DYN, DYN), BOOL, _includes)),
}

GLOBALS: dict[str, Function] = {
    "size": _SIZE,
    "matches": _of((_TWO_STRINGS, BOOL, texts.matches)),
    "dyn": _of(((A,), DYN, _same)),
    "int": _of(
        ((INT,), INT, _same),
        ((DOUBLE,), INT, _int_of_double),
        ((STRING,), INT, _int_of_string),
        complete=False,
    ),
    "double": _of(((DOUBLE,), DOUBLE, _same), ((INT,), DOUBLE, _double_of_int), complete=False),
    "string": _of(
        ((STRING,), STRING, _same),
        ((INT,), STRING, lambda _frame, number: str(number)),
        ((BOOL,), STRING, _string_of_bool),
        complete=False,
    ),
    "bool": _of(((BOOL,), BOOL, _same), ((STRING,), BOOL, _bool_of_string)),
    "quantity": _of(((STRING,), QUANTITY, amounts.quantity)),
    "isQuantity": _of(((STRING,), BOOL, amounts.is_quantity)),
    "sign": _of(((QUANTITY,), INT, amounts.sign)),
    "semver": _of(((STRING,), SEMVER, amounts.semver), ((STRING, BOOL), SEMVER, amounts.semver)),
    "isSemver": _of(
        ((STRING,), BOOL, amounts.is_semver), ((STRING, BOOL), BOOL, amounts.is_semver)
    ),
}

CONVERSIONS = frozenset({"int", "double", "string", "bool"})
"""Kubernetes runs these at compile time where the argument is a literal, and fails then."""

FORM_DEPENDENT = frozenset({"asInteger", "isInteger"})
FORM_CHANGING = frozenset({"compareTo", "isLessThan", "isGreaterThan", "add", "sub", "sign"})
"""In Kubernetes, comparing a quantity may change how it is held, which the first set depends on."""
