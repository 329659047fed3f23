"""Access to JSON of any form: a value of the wrong type reads as absent, never as an error.

For code that works on the raw object. A typed struct would refuse all of it for one bad field, and
would lose the fields it does not know.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fettle.pacing import pause

Raw = Mapping[str, Any]


def mapping(value: object, *path: str) -> Raw:
    """The object at a path of keys; empty if there is none."""
    for key in path:
        if not isinstance(value, dict):
            return {}
        value = value.get(key)
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> Iterator[tuple[int, Raw]]:
    """The objects in a list, each with its index."""
    for index, item in enumerate(value) if isinstance(value, list) else ():
        pause()
        if isinstance(item, dict):
            yield index, item


def text(value: object) -> str:
    """The value if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def integer(value: object) -> int | None:
    """The value if it is an integer (a boolean is not one), else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def strings(value: object) -> dict[str, str]:
    """The entries of an object whose values are strings, such as labels and annotations. In YAML a
    key may be something else, such as `on`."""
    found = mapping(value)
    return {k: v for k, v in found.items() if isinstance(v, str) and isinstance(k, str)}
