"""The types of CEL, and the overloads of functions over them.

Pure; imports nothing of Fettle. `dyn` fits everything and is what device attributes are; a type
parameter stands for one type throughout a signature.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Type(NamedTuple):
    """`of`: a list's elements, a map's keys and values, what an optional or a type is of."""

    name: str
    of: tuple["Type", ...] = ()
    parameter: bool = False

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.of))})" if self.of else self.name


class Nullable(Type):
    """Equal to the type it is named after, except that a null may stand in for it."""

    __slots__ = ()


DYN = Type("dyn")
ANY = Type("google.protobuf.Any")
"""As open as `dyn`, but nothing that a macro may go over."""
ERROR = Type("error")
NULL = Type("null_type")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
DURATION = Type("google.protobuf.Duration")
TIMESTAMP = Type("google.protobuf.Timestamp")
TYPE = Type("type")
QUANTITY = Type("kubernetes.Quantity")
SEMVER = Type("kubernetes.Semver")
URL = Type("kubernetes.URL")
FORMAT = Type("kubernetes.NamedFormat")
DEVICE = Type("kubernetes.DRADevice")
EMPTY = Type("google.protobuf.Empty")
ENTRY = Type("google.protobuf.Struct.FieldsEntry")
IP = Type("net.IP")
CIDR = Type("net.CIDR")
AUTHORIZERS = {
    name: Type(f"kubernetes.authorization.{name}")
    for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
}
A = Type("A", parameter=True)
B = Type("B", parameter=True)

OPTIONAL = "optional_type"
COMPARABLE = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
NULLABLE = frozenset(
    (DURATION, TIMESTAMP, QUANTITY, SEMVER, URL, FORMAT, DEVICE, EMPTY, ENTRY, IP, CIDR)
).union(AUTHORIZERS.values())
"""Besides optionals and `dyn`, what a null may stand in for."""


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type(OPTIONAL, (value,))


def type_of(value: Type) -> Type:
    return Type("type", (value,))


Apply = Callable[..., Any]


class Overload(NamedTuple):
    """One overload; `apply` takes the frame, then the arguments (a method's object first).

    Where `guarded`, Kubernetes checks the arguments' types as it runs.
    """

    takes: tuple[Type, ...]
    gives: Type
    apply: Apply
    member: bool = False
    guarded: bool = True


Functions = dict[str, tuple[Overload, ...]]


def function(takes: tuple[Type, ...], gives: Type, apply: Apply) -> Overload:
    return Overload(takes, gives, apply)


def method(takes: tuple[Type, ...], gives: Type, apply: Apply) -> Overload:
    return Overload(takes, gives, apply, member=True)


def merged(*libraries: Functions) -> Functions:
    """All functions of some libraries; those of one name have their overloads in that order."""
    found: Functions = {}
    for library in libraries:
        for name, overloads in library.items():
            found[name] = (*found.get(name, ()), *overloads)
    return found
