"""Lists and maps as CEL holds them, with the ways in which Kubernetes' differ from Python's.

Runs in the worker.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from fettle.cel.library.semver import Version
from fettle.cel.library.values import (
    Address,
    Duration,
    Ended,
    Format,
    Network,
    Uint,
    Undecidable,
    Value,
)

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
        for candidate in _alike(key) if self._entries else ():
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


def _alike(key: Value) -> list[tuple[type, Value]]:
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
