"""The types of CEL, the values of these types, and the signatures of functions over them.

Booleans, ints, floats, strings, bytes, None and lists are Python's own. All other values have a
class here. `CelError` is an error of CEL, which `||` and `&&` may absorb. `Undecidable` is never
absorbed: it ends the evaluation without a decision. `Frame` is one evaluation, and counts its
cost.
"""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

# Types


class Type(NamedTuple):
    """A type of CEL; `dyn` fits everything.

    `of` holds the types of a list's items, of a map's keys and values, or the type that an optional
    or a type is of. A `parameter` stands for one type throughout a signature.
    """

    name: str
    of: tuple["Type", ...] = ()
    parameter: bool = False

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.of))})" if self.of else self.name


class Nullable(Type):
    """The type of this name, but null is a value of it too."""

    __slots__ = ()


DYN = Type("dyn")
ANY = Type("google.protobuf.Any")
"""Fits everything, as `dyn` does, but a macro may not go over it."""
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
"""The types that null is a value of, besides optionals and `dyn`."""


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type(OPTIONAL, (value,))


def type_of(value: Type) -> Type:
    return Type("type", (value,))


# Signatures

Apply = Callable[..., Any]


class Overload(NamedTuple):
    """One overload; `apply` takes the frame, then the arguments (a method's object first).

    If it is `guarded`, Kubernetes checks the types of the arguments at run time.
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


def comparisons(type_: Type, compare: Apply) -> Functions:
    """The methods that compare two values of a type of Kubernetes."""
    return {
        "compareTo": (method((type_, type_), INT, compare),),
        "isLessThan": (method((type_, type_), BOOL, lambda *args: compare(*args) < 0),),
        "isGreaterThan": (method((type_, type_), BOOL, lambda *args: compare(*args) > 0),),
    }


def merged(*libraries: Functions) -> Functions:
    """The functions of all these libraries; the overloads of one name keep the libraries' order."""
    found: Functions = {}
    for library in libraries:
        for name, overloads in library.items():
            found[name] = (*found.get(name, ()), *overloads)
    return found


# Errors and limits

Value = Any

MAX_SIZE = 20_000
"""The longest string or list that an evaluation may make."""

COST_LIMIT = 1_000_000
"""`CELSelectorExpressionMaxCost`: where Kubernetes ends an evaluation."""
_MAX_COST = 100_000
"""The limit here: lower, since a cost here may be only a tenth of the one in Kubernetes."""


class CelError(Exception):
    """An error of CEL itself. If nothing absorbs it, the scheduler's attempt ends."""


class Ended(Exception):
    """An internal error of Kubernetes' evaluator. Nothing absorbs it: the evaluation ends."""


class Undecidable(Exception):
    """It is not known here what Kubernetes does; `str()` says with what."""


def number_of(digits: str, base: int = 10) -> int:
    """The number; for very many digits, any number that does not fit 64 bits."""
    significant = digits.lstrip("0")
    return int(significant or "0", base) if len(significant) < _LONG else 2**64


_LONG = 30
NO_OVERLOAD = "no such overload"


# Values


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Duration(NamedTuple):
    nanos: int


class Timestamp(NamedTuple):
    """`nanos` since 1970 in UTC; `offset` is the zone that it was written in, in seconds."""

    nanos: int
    offset: int = 0


class Address(NamedTuple):
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address


class Network(NamedTuple):
    """`address` may have bits set beyond the prefix."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    bits: int


class Url(NamedTuple):
    """The parts, as written; Go's accessors unescape some."""

    scheme: str = ""
    opaque: str = ""
    user: str = ""
    host: str = ""
    path: str = ""
    query: str = ""
    fragment: str = ""
    bare_query: bool = False
    """Whether it has a question mark with nothing behind it."""


Identifier = tuple[int, int, str]  # (0, number, "") sorts before (1, 0, text), as semver 2.0 asks


class Version(NamedTuple):
    """A semantic version; comparing its fields in turn orders it as semver 2.0 says.

    A `release` has no `pre`.
    """

    major: int
    minor: int
    patch: int
    release: bool = True
    pre: tuple[Identifier, ...] = ()


class Optional(NamedTuple):
    """`values` holds one value or none."""

    values: tuple[Value, ...] = ()


NOTHING = Optional()


class Format(NamedTuple):
    """A named format; `problems` lists why a text is not of it."""

    name: str
    problems: Callable[[str], list[str]]


# Evaluation


class Frame:
    """One evaluation: the device, the variables of macros, and the cost so far."""

    __slots__ = ("cost", "device", "slots", "sure")

    def __init__(self, device: Value, slots: int) -> None:
        self.device = device
        self.slots: list[Value] = [None] * slots
        self.cost = 0
        self.sure = 0

    def spend(self, cost: int, sure: int = 0) -> None:
        """Count work that repeats or grows, with at least a tenth of what Kubernetes counts for it.

        `sure` is what Kubernetes counts at least; beyond its limit, the evaluation ends there too.
        """
        self.cost += cost
        if sure:
            self.sure += sure
            if self.sure > COST_LIMIT:
                raise Ended("actual cost limit exceeded")
        if self.cost > _MAX_COST:
            raise Undecidable("it takes too many steps")

    def read(self, *texts: str) -> None:
        """Count the work of reading texts once."""
        self.spend(1 + sum(map(len, texts)) // 10)


Run = Callable[[Frame], Value]
"""A compiled part of an expression."""


# Lists and maps

_MISSING = object()
_KEYS = (bool, int, Uint, float, str, type(None), Duration, Address, Network)
UNHASHABLE = (bytes, Version, Format)
"""Values that Kubernetes cannot use as keys: looking for one ends the evaluation."""


class Concatenated(list[Value]):
    """A list made by `+`. Comparing it raises the errors of its items, which other lists drop."""


class Growing(list[Value]):
    """An empty list in a variable of `cel.bind`: in Kubernetes, `+` appends to it in place."""


class Unordered(list[Value]):
    """A list made from a map, so in no particular order. What depends on the order is undecided."""


class Unworded(list[Value]):
    """Texts in Kubernetes' words, which are not known here; only their number is.

    Any other use of them, by any means of Python, leaves the expression undecided.
    """

    def _unknown(self, *_arguments: Value) -> NoReturn:
        raise Undecidable("what Kubernetes words in its own way")

    __iter__ = __reversed__ = __getitem__ = __contains__ = _unknown
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __add__ = __radd__ = __mul__ = __rmul__ = _unknown
    index = count = copy = _unknown
    __hash__ = None


def ordered(items: list[Value]) -> list[Value]:
    """The list, for a caller that depends on its order; raises Undecidable if it has none."""
    if type(items) is Unordered:
        raise Undecidable("a list made from a map is in no particular order")
    return items


def ordered_like(source: Value, items: list[Value]) -> list[Value]:
    """A list made item by item from another container; unordered if that was."""
    loose = type(source) is Unordered or (not isinstance(source, list) and len(source) > 1)
    return Unordered(items) if loose and len(items) > 1 else items


class Map:
    """A map made by an expression. Keys of different types are different, even `1` and `1u`."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Sequence[tuple[Value, Value]] = ()) -> None:
        self._entries: dict[tuple[type, Value], Value] = {}
        for key, value in entries:
            self.put(key, value)

    def put(self, key: Value, value: Value) -> None:
        self._entries[_hashable(key)] = value

    def drop(self, key: Value) -> None:
        self._entries.pop(_hashable(key), None)

    def find(self, key: Value, default: Value = None) -> Value:
        """The value at a key; a number finds equal numbers of other types too."""
        for candidate in _equal_keys(key) if self._entries else ():
            value = self._entries.get(candidate, _MISSING)
            if value is not _MISSING:
                return value
        return default

    def get(self, key: Value, default: Value = None) -> Value:
        return self.find(key, default)

    def __contains__(self, key: Value) -> bool:
        return self.find(key, _MISSING) is not _MISSING

    def __iter__(self) -> Iterator[Value]:
        return iter([key for _, key in self._entries])

    def __len__(self) -> int:
        return len(self._entries)


def _hashable(key: Value) -> tuple[type, Value]:
    if type(key) in UNHASHABLE:
        raise Ended("a key that cannot be hashed")
    if type(key) not in _KEYS:
        raise Undecidable("a map's key of this type")
    return type(key), key


def _equal_keys(key: Value) -> list[tuple[type, Value]]:
    kind = type(key)
    if kind in UNHASHABLE:
        raise Ended("a key that cannot be hashed")
    found: list[tuple[type, Value]] = [(kind, key)] if kind in _KEYS else []
    if kind is float and key == key and abs(key) < 2**64 and key == int(key):
        found += [(int, int(key)), (Uint, Uint(int(key)))]
    if kind is int and key >= 0:
        found.append((Uint, Uint(key)))
    if kind is Uint:
        found.append((int, int(key)))
    return found


class Entries:
    """A map of the device with strings as keys: its domains, or the values of a domain.

    `missing` makes the value of an absent key, since an absent domain is an empty map. Nothing is
    known of keys that `present` does not hold: the row does not include them.
    """

    __slots__ = ("_missing", "_present", "_values")

    def __init__(
        self,
        values: dict[str, Value],
        present: dict[str, bool] | None = None,
        missing: Callable[[Value], Value] | None = None,
    ) -> None:
        self._values = values
        self._present = present
        self._missing = missing

    def find(self, key: Value, default: Value = None) -> Value:
        """The value at a key, for an index."""
        if type(key) is str and key in self._values:
            return self._values[key]
        if self._missing is not None:
            return self._missing(key)
        self._require_known(key)
        return default

    def get(self, key: Value, default: Value = None) -> Value:
        """The value at a key, for `in` and comparison: an absent domain has none."""
        if type(key) is str and key in self._values and self._is_present(key):
            return self._values[key]
        self._require_known(key)
        return default

    def __contains__(self, key: Value) -> bool:
        if type(key) is not str:
            return False
        self._require_known(key)
        return self._is_present(key)

    def _is_present(self, key: str) -> bool:
        return key in self._values if self._present is None else self._present[key]

    def _require_known(self, key: Value) -> None:
        if type(key) is str and self._present is not None and key not in self._present:
            raise Undecidable(f"{key!r} was not looked up beforehand")

    def __iter__(self) -> Iterator[str]:
        self._require_whole()
        return iter(self._values)

    def __len__(self) -> int:
        self._require_whole()
        return len(self._values)

    def _require_whole(self) -> None:
        if self._present is not None:
            raise Undecidable("the whole map was not looked up beforehand")


MAPS = (Map, Entries)


def pairs(value: Value) -> Any:
    """What a macro with two variables goes over: indices and items, or keys and values."""
    if isinstance(value, list):
        return list(enumerate(ordered(value)))
    return [(key, value.get(key)) for key in value]


# Costs

_SINGLE = frozenset({bool, int, Uint, float, type(None)})
_BRIEF = 64
"""The longest text whose comparison is not worth counting."""


def traverse(frame: Frame, value: Value) -> None:
    """Count the work of going through a value to its last part."""
    if isinstance(value, list):
        frame.spend(1 + len(value))
        for item in value:
            if type(item) not in _SINGLE:
                traverse(frame, item)
    elif isinstance(value, MAPS):
        for key, inner in pairs(value):
            frame.spend(2)
            traverse(frame, key)
            traverse(frame, inner)
    elif type(value) in (str, bytes):
        frame.spend(1 + len(value) // 10)


def compare_sizes(frame: Frame, first: Value, second: Value) -> None:
    """Count the work of comparing two values, which is that of going through the smaller one."""
    kind = type(first)
    if kind in _SINGLE or (kind is str and len(first) <= _BRIEF):
        return
    frame.spend(min(_size(first), _size(second)) // 10)


def _size(value: Value) -> int:
    """The size of a text, list or map; any other value has the size 1."""
    if type(value) is Optional:
        return _size(value.values[0]) if value.values else 1
    return len(value) if isinstance(value, (str, bytes, list, *MAPS)) else 1
