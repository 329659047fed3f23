"""The types of CEL, the values of these types, and the signatures of functions over them.

Booleans, ints, floats, strings, bytes, None and lists are Python's own. All other values have a
class here. `CelError` is an error of CEL, which `||` and `&&` may absorb. `Undecidable` is never
absorbed: it ends the evaluation without a decision. `Frame` is one evaluation, and counts its
cost.
"""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn


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


def comparisons(type_: Type, compare: Apply) -> Functions:
    """The methods that compare two values of a type of Kubernetes."""
    return {
        "compareTo": (method((type_, type_), INT, compare),),
        "isLessThan": (method((type_, type_), BOOL, lambda *args: compare(*args) < 0),),
        "isGreaterThan": (method((type_, type_), BOOL, lambda *args: compare(*args) > 0),),
    }


def merged(*libraries: Functions) -> Functions:
    """All functions of some libraries; those of one name have their overloads in that order."""
    found: Functions = {}
    for library in libraries:
        for name, overloads in library.items():
            found[name] = (*found.get(name, ()), *overloads)
    return found


Value = Any

MAX_SIZE = 20_000
"""Longest string or list that an evaluation may make."""

COST_LIMIT = 1_000_000
"""`CELSelectorExpressionMaxCost`: where Kubernetes ends an evaluation."""
_MAX_COST = 100_000
"""Far below that limit, since not all that counts there counts here: but a tenth of it does."""


class CelError(Exception):
    """An error of CEL itself; where it reaches the top, the scheduler's attempt ends."""


class Ended(Exception):
    """An internal error of Kubernetes' evaluator, which ends the evaluation: nothing absorbs it."""


class Undecidable(Exception):
    """Something whose outcome is not surely known here; `str()` says what."""


def number_of(digits: str, base: int = 10) -> int:
    """The number; a very long one only as something that fits no 64 bits."""
    significant = digits.lstrip("0")
    return int(significant or "0", base) if len(significant) < _LONG else 2**64


_LONG = 30
NO_OVERLOAD = "no such overload"


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Duration(NamedTuple):
    nanos: int


class Timestamp(NamedTuple):
    """`nanos` since 1970 in UTC; `offset` is the zone it was written in, in seconds."""

    nanos: int
    offset: int = 0


class Address(NamedTuple):
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address


class Network(NamedTuple):
    """`address` may have bits beyond the prefix."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    bits: int


class Url(NamedTuple):
    """The parts, unescaped only where Go's accessors unescape them."""

    scheme: str = ""
    opaque: str = ""
    user: str = ""
    host: str = ""
    path: str = ""
    query: str = ""
    fragment: str = ""
    bare_query: bool = False
    """Whether it ends in a lonely question mark."""


Identifier = tuple[int, int, str]  # (0, number, "") sorts before (1, 0, text), as semver 2.0 asks


class Version(NamedTuple):
    """Equal and ordered as semver 2.0 says, by its fields in turn; a `release` has no `pre`."""

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
    """A named format; `problems` are the reasons that a text has for not being of it."""

    name: str
    problems: Callable[[str], list[str]]


class Frame:
    """One evaluation: the device, the variables of macros, and what it may still cost."""

    __slots__ = ("cost", "device", "slots", "sure")

    def __init__(self, device: Value, slots: int) -> None:
        self.device = device
        self.slots: list[Value] = [None] * slots
        self.cost = 0
        self.sure = 0

    def spend(self, cost: int, sure: int = 0) -> None:
        """Count work that repeats or grows, at a tenth of what Kubernetes counts or more.

        `sure`: what it counts at least; beyond its limit, nothing absorbs that.
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


_MISSING = object()
_KEYS = (bool, int, Uint, float, str, type(None), Duration, Address, Network)
UNHASHABLE = (bytes, Version, Format)
"""What Kubernetes' maps and sets cannot hold: looking for one ends the evaluation."""


class Concatenated(list[Value]):
    """Made by `+`; alone among lists, it does not forget errors when it is compared."""


class Growing(list[Value]):
    """An empty list that `cel.bind` gave a name to: in Kubernetes, `+` appends to it in place."""


class Unordered(list[Value]):
    """Made from a map, so in no particular order: only what does not depend on it is known."""


class Unworded(list[Value]):
    """Texts that Kubernetes words in a way not known here: only how many there are is.

    Whatever looks at one of them, in any way that Python has, leaves the expression undecided.
    """

    def _unknown(self, *_arguments: Value) -> NoReturn:
        raise Undecidable("what Kubernetes words in its own way")

    __iter__ = __reversed__ = __getitem__ = __contains__ = _unknown
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown
    __add__ = __radd__ = __mul__ = __rmul__ = _unknown
    index = count = copy = _unknown
    __hash__ = None


def ordered(items: list[Value]) -> list[Value]:
    """A list whose order matters to the caller."""
    if type(items) is Unordered:
        raise Undecidable("a list made from a map is in no particular order")
    return items


def like(source: Value, items: list[Value]) -> list[Value]:
    """A list made item by item from another container, as ordered as that was."""
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
        """The value; a number also finds the equal number of another type."""
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
    """A map from string that the device brings: its domains, or a domain's values.

    `missing` makes the value that a look-up finds for an absent key (an unknown domain is an empty
    map). What `present` does not hold was not sent along: then nothing is known.
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
        """As a look-up sees it."""
        if type(key) is str and key in self._values:
            return self._values[key]
        if self._missing is not None:
            return self._missing(key)
        self._known(key)
        return default

    def get(self, key: Value, default: Value = None) -> Value:
        """As `in` and comparison see it: an unknown domain is absent."""
        if type(key) is str and key in self._values and self._there(key):
            return self._values[key]
        self._known(key)
        return default

    def __contains__(self, key: Value) -> bool:
        if type(key) is not str:
            return False
        self._known(key)
        return self._there(key)

    def _there(self, key: str) -> bool:
        return key in self._values if self._present is None else self._present[key]

    def _known(self, key: Value) -> None:
        if type(key) is str and self._present is not None and key not in self._present:
            raise Undecidable(f"{key!r} was not looked up beforehand")

    def __iter__(self) -> Iterator[str]:
        self._all()
        return iter(self._values)

    def __len__(self) -> int:
        self._all()
        return len(self._values)

    def _all(self) -> None:
        if self._present is not None:
            raise Undecidable("the whole map was not looked up beforehand")


MAPS = (Map, Entries)


def pairs(value: Value) -> Any:
    """What a macro of two variables goes over: indices and items, or keys and values."""
    if isinstance(value, list):
        return list(enumerate(ordered(value)))
    return [(key, value.get(key)) for key in value]


_SINGLE = frozenset({bool, int, Uint, float, type(None)})
_BRIEF = 64
"""Texts up to that length cost nothing worth counting to compare."""


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
    """Count the work of comparing two values: that of going through the smaller one."""
    kind = type(first)
    if kind in _SINGLE or (kind is str and len(first) <= _BRIEF):
        return
    frame.spend(min(_size(first), _size(second)) // 10)


def _size(value: Value) -> int:
    """The size of what has one; that of anything else is 1."""
    if type(value) is Optional:
        return _size(value.values[0]) if value.values else 1
    return len(value) if isinstance(value, (str, bytes, list, *MAPS)) else 1
