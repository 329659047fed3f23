"""Sound objects with one field changed at random, as by a slip: dropped, emptied, of another case,
sign or type, or twice. The same for the same seed."""

import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from tests.fettle.lint.builders import Object

DROPPED = object()
Path = tuple[str | int, ...]


def edited(made: Object, chance: random.Random) -> tuple[str, Object]:
    """What was changed, and the object."""
    parts = ("spec", "metadata")
    path = chance.choice([p for p in _paths(made) if len(p) > 1 and p[0] in parts])
    name, value = chance.choice(list(_edits(_at(made, path))))
    made = deepcopy(made)
    above = _at(made, path[:-1])
    if value is DROPPED:
        del above[path[-1]]
    else:
        above[path[-1]] = value
    return f"{made['kind']} {'.'.join(map(str, path))} {name}", made


def _paths(value: Any, above: Path = ()) -> Iterator[Path]:
    items: Any = value.items() if isinstance(value, dict) else ()
    for key, below in enumerate(value) if isinstance(value, list) else items:
        yield (*above, key)
        yield from _paths(below, (*above, key))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _edits(value: Any) -> Iterator[tuple[str, Any]]:
    yield "dropped", DROPPED
    match value:
        case bool():
            yield from (("other", not value), ("text", str(value).lower()))
        case str():
            yield from (("empty", ""), ("small", value.lower()), ("more", f"{value}X"))
            yield "number", 7
        case int():
            yield from (("text", str(value)), ("negative", -1), ("zero", 0), ("half", value + 0.5))
        case list():
            yield from (("empty", []), ("object", {}), ("twice", [*value, *value[:1]]))
        case dict():
            yield from (("empty", {}), ("list", []), ("misspelt", _misspelt(value)))


def _misspelt(value: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{key}x" if index == 0 else key: part for index, (key, part) in enumerate(value.items())
    }
