"""Places in a raw object: where a path of fields leads, and how a place is called.

A path is fields joined by dots, in which `*` stands for every member or entry. A place is called
by its fields too, with entries of lists by their name, so that it is found again in an object
whose list has changed.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fettle.pacing import pause

_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


class FieldPath(NamedTuple):
    """Keys and positions to go there, and what it is called."""

    path: tuple[str | int, ...] = ()
    name: str = ""

    def at(self, *keys: str | int) -> "FieldPath":
        """The place below."""
        place = self
        for key in keys:
            place = place.entry(key, str(key))
        return place

    def entry(self, key: str | int, called: str) -> "FieldPath":
        if isinstance(key, int) or set(key) & set(".[]/"):
            return FieldPath((*self.path, key), f"{self.name}[{called}]")
        return FieldPath((*self.path, key), f"{self.name}.{key}" if self.name else key)


def places(document: Any, path: str) -> Iterator[FieldPath]:
    """Where a path leads; the last field of it may be absent, what is above it not."""
    *above, last = path.split(".")
    found: list[tuple[FieldPath, Any]] = [(FieldPath(), document)]
    for key in above:
        found = [below for place, value in found for below in _below(place, value, key)]
    for place, value in found:
        pause()
        if isinstance(value, dict):
            yield place.at(last)


def value_at(document: Any, path: Iterable[str | int]) -> Any:
    """What stands there; None where nothing does."""
    for key in path:
        if isinstance(document, dict) and isinstance(key, str):
            document = document.get(key)
        elif isinstance(document, list) and isinstance(key, int) and key < len(document):
            document = document[key]
        else:
            return None
    return document


def called(document: Any, name: str) -> FieldPath | None:
    """The place of that name; None where what is above it does not exist."""
    place, value = FieldPath(), document
    for part in (bracketed or plain for bracketed, plain in _PART.findall(name)):
        if isinstance(value, list):
            index = _index(value, part)
            if index is None:
                return None
            place, value = place.entry(index, part), value[index]
        elif isinstance(value, dict):
            place, value = place.at(part), value.get(part)
        elif value is None:
            place = place.at(part)
        else:
            return None
    return place


def _index(entries: list[Any], name: str) -> int | None:
    for index, entry in enumerate(entries):
        if isinstance(entry, dict) and entry.get("name") == name:
            return index
    return int(name) if name.isdecimal() and name.isascii() and int(name) < len(entries) else None


def _below(place: FieldPath, value: Any, key: str) -> Iterator[tuple[FieldPath, Any]]:
    pause()
    if key != "*":
        if isinstance(value, dict) and isinstance(value.get(key), dict | list):
            yield place.at(key), value[key]
    elif isinstance(value, dict):
        yield from ((place.at(name), member) for name, member in value.items())
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            pause()
            name = entry.get("name") if isinstance(entry, dict) else None
            yield place.entry(index, name if isinstance(name, str) else str(index)), entry
