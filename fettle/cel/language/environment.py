"""What an expression may refer to: its variable, and all functions with their overloads.

Kubernetes has two environments. Stored objects, which the scheduler reads, may use everything. For
objects that are being written, the API server is stricter: it allows what the feature gates of the
release before allow. Overloads stand in the order in which Kubernetes tries them, since that
decides what an unknown type is taken for.
"""

from typing import NamedTuple

from fettle.cel.language import syntax
from fettle.cel.library import (
    addresses,
    conversions,
    formats,
    lists,
    operators,
    quantity,
    semver,
    strings,
    times,
)
from fettle.cel.library.values import (
    ANY,
    AUTHORIZERS,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NO_OVERLOAD,
    NOTHING,
    QUANTITY,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Apply,
    B,
    CelError,
    Frame,
    Functions,
    Optional,
    Overload,
    Type,
    Value,
    function,
    list_of,
    map_of,
    merged,
    method,
    optional_of,
)
from fettle.cel.runtime.rows import Variable


class Environment(NamedTuple):
    """What depends on feature gates, and what an expression is about.

    `multiple`: whether `allowMultipleAllocations` is known. `lists`: whether attributes may be
    lists. `variable`: the name of the one variable.
    """

    multiple: bool = True
    lists: bool = True
    variable: Variable = "device"

    @property
    def attribute(self) -> Type:
        return DYN if self.lists else ANY

    @property
    def fields(self) -> dict[str, Type]:
        """The fields of the variable."""
        if self.variable == "node":
            return {"labels": map_of(STRING, STRING)}
        known = {
            "driver": STRING,
            "attributes": map_of(STRING, map_of(STRING, self.attribute)),
            "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
        }
        return {**known, "allowMultipleAllocations": BOOL} if self.multiple else known

    def knows(self, function: str) -> bool:
        return self.lists or function != "includes"


STORED = Environment()
NODE = Environment(variable="node")
"""For what policies require of nodes: DRA's functions, with a node instead of a device."""


# Operators


def _built_in(*_arguments: Value) -> Value:
    raise CelError(NO_OVERLOAD)


def _operator(*takes_and_gives: Type) -> Overload:
    *takes, gives = takes_and_gives
    return Overload(tuple(takes), gives, _built_in, guarded=False)


def _applied(apply: Apply, *overloads: Overload) -> tuple[Overload, ...]:
    return tuple(overload._replace(apply=apply) for overload in overloads)


def _compared_with(number: Type) -> tuple[Type, ...]:
    """The types of numbers that a number is compared with, its own first."""
    return (number, *(other for other in (DOUBLE, INT, UINT) if other != number))


_LIST, _MAP, _OPTIONAL = list_of(A), map_of(A, B), optional_of(A)
_ORDERED = tuple(
    _operator(left, right, BOOL)
    for left, right in (
        (BOOL, BOOL),
        *((left, right) for left in (INT, UINT, DOUBLE) for right in _compared_with(left)),
        *((type_, type_) for type_ in (STRING, BYTES, TIMESTAMP, DURATION)),
    )
)
_NUMERIC = tuple(_operator(type_, type_, type_) for type_ in (DOUBLE, INT, UINT))
_DOUBLE, _INT, _UINT = _NUMERIC
_ADDED = (
    _operator(BYTES, BYTES, BYTES),
    _DOUBLE,
    _operator(DURATION, DURATION, DURATION),
    _operator(DURATION, TIMESTAMP, TIMESTAMP),
    _operator(TIMESTAMP, DURATION, TIMESTAMP),
    _INT,
    _operator(_LIST, _LIST, _LIST),
    _operator(STRING, STRING, STRING),
    _UINT,
)
_SUBTRACTED = (
    _DOUBLE,
    _operator(DURATION, DURATION, DURATION),
    _INT,
    _operator(TIMESTAMP, DURATION, TIMESTAMP),
    _operator(TIMESTAMP, TIMESTAMP, DURATION),
    _UINT,
)
_INDEXED = (_operator(_LIST, INT, A), _operator(_MAP, A, B))
_OF_OPTIONAL = (
    _operator(optional_of(_LIST), INT, _OPTIONAL),
    _operator(optional_of(_MAP), A, optional_of(B)),
)

_OPERATORS: Functions = {
    syntax.AND: (_operator(BOOL, BOOL, BOOL),),
    syntax.OR: (_operator(BOOL, BOOL, BOOL),),
    syntax.NOT: (_operator(BOOL, BOOL),),
    syntax.NEGATE: _applied(operators.negate, _operator(DOUBLE, DOUBLE), _operator(INT, INT)),
    syntax.EITHER: (_operator(BOOL, A, A, A),),
    syntax.EQUALS: (_operator(A, A, BOOL),),
    syntax.DIFFERS: (_operator(A, A, BOOL),),
    syntax.IN: (_operator(A, _LIST, BOOL), _operator(A, _MAP, BOOL)),
    syntax.INDEX: (*_INDEXED, *_OF_OPTIONAL),
    syntax.OPTIONAL_INDEX: (
        _operator(_LIST, INT, _OPTIONAL),
        _OF_OPTIONAL[0],
        _operator(_MAP, A, optional_of(B)),
        _OF_OPTIONAL[1],
    ),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _ORDERED),
    "_+_": _applied(operators.add, *_ADDED),
    "_-_": _applied(operators.subtract, *_SUBTRACTED),
    "_*_": _applied(operators.multiply, *_NUMERIC),
    "_/_": _applied(operators.divide, *_NUMERIC),
    "_%_": _applied(operators.remainder, _INT, _UINT),
    "cel.@mapInsert": (_operator(_MAP, A, B, _MAP), _operator(_MAP, _MAP, _MAP)),
}


# Optionals


def _value(_frame: Frame, optional: Optional) -> Value:
    if not optional.values:
        raise CelError("optional.none() dereference")
    return optional.values[0]


def _of_non_zero(_frame: Frame, value: Value) -> Optional:
    return NOTHING if _is_zero(value) else Optional((value,))


def _is_zero(value: Value) -> bool:
    kind = conversions.type_of_value(value).name
    if kind == DURATION.name:
        return bool(value.nanos == 0)
    if kind == TIMESTAMP.name:
        return bool(value.nanos == times.parse_timestamp("0001-01-01T00:00:00Z").nanos)
    if kind in ("list", "map"):
        return len(value) == 0
    simple = ("bool", "int", "uint", "double", "string", "bytes", "null_type")
    return kind in simple and not value


_OPTIONALS: Functions = {
    "optional.of": (function((A,), _OPTIONAL, lambda _frame, value: Optional((value,))),),
    "optional.ofNonZeroValue": (function((A,), _OPTIONAL, _of_non_zero),),
    "optional.none": (function((), _OPTIONAL, lambda _frame: NOTHING),),
    "value": (method((_OPTIONAL,), A, _value),),
    "hasValue": (method((_OPTIONAL,), BOOL, lambda _frame, optional: bool(optional.values)),),
    "or": (method((_OPTIONAL, _OPTIONAL), _OPTIONAL, _built_in),),
    "orValue": (method((_OPTIONAL, A), A, _built_in),),
}


# Authorization


def _authorizer(owner: str, *takes: Type, gives: str | Type) -> Overload:
    result = AUTHORIZERS[gives] if isinstance(gives, str) else gives
    return method((AUTHORIZERS[owner], *takes), result, _built_in)


_AUTHORIZATION: Functions = {
    "path": (_authorizer("Authorizer", STRING, gives="PathCheck"),),
    "group": (_authorizer("Authorizer", STRING, gives="GroupCheck"),),
    "serviceAccount": (_authorizer("Authorizer", STRING, STRING, gives="Authorizer"),),
    "resource": (_authorizer("GroupCheck", STRING, gives="ResourceCheck"),),
    "subresource": (_authorizer("ResourceCheck", STRING, gives="ResourceCheck"),),
    "namespace": (_authorizer("ResourceCheck", STRING, gives="ResourceCheck"),),
    "name": (_authorizer("ResourceCheck", STRING, gives="ResourceCheck"),),
    "fieldSelector": (_authorizer("ResourceCheck", STRING, gives="ResourceCheck"),),
    "labelSelector": (_authorizer("ResourceCheck", STRING, gives="ResourceCheck"),),
    "check": (
        _authorizer("PathCheck", STRING, gives="Decision"),
        _authorizer("ResourceCheck", STRING, gives="Decision"),
    ),
    "errored": (_authorizer("Decision", gives=BOOL),),
    "error": (_authorizer("Decision", gives=STRING),),
    "allowed": (_authorizer("Decision", gives=BOOL),),
    "reason": (_authorizer("Decision", gives=STRING),),
}
"""No value has these functions; they only decide what compiles."""

FUNCTIONS: Functions = merged(
    _OPERATORS,
    conversions.FUNCTIONS,
    times.FUNCTIONS,
    _OPTIONALS,
    quantity.FUNCTIONS,
    semver.FUNCTIONS,
    strings.FUNCTIONS,
    lists.FUNCTIONS,
    addresses.FUNCTIONS,
    formats.FUNCTIONS,
    _AUTHORIZATION,
)
"""All functions by name; overloads stand in the order in which Kubernetes tries them."""
