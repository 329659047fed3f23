"""A value in a manifest together with the path that leads there, so that a finding can name it.

What is missing or of a wrong type reads as empty: that is for the API server to refuse.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fettle.api.raw import Raw, integer, mapping, strings, text
from fettle.pacing import pause

_MARKS = frozenset(".[]/ ")


class Field(NamedTuple):
    """`spec.devices.requests[0]` and what stands there."""

    path: str
    value: Any

    def at(self, *keys: str) -> "Field":
        """The field below, by keys; its value is None where there is none."""
        pause()
        value, path = self.value, self.path
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
            path = below(path, key)
        return Field(path, value)

    def each(self, *keys: str) -> Iterator["Field"]:
        """The entries of a list below that are objects."""
        return (entry for entry in self.entries(*keys) if isinstance(entry.value, dict))

    def entries(self, *keys: str) -> Iterator["Field"]:
        """All entries of a list below."""
        field = self.at(*keys)
        if isinstance(field.value, list):
            for index, entry in enumerate(field.value):
                pause()
                yield Field(f"{field.path}[{index}]", entry)

    def members(self, *keys: str) -> Iterator[tuple[str, "Field"]]:
        """The members of an object below, by name."""
        field = self.at(*keys)
        for key, value in mapping(field.value).items():
            pause()
            name = str(key)  # in YAML a key may be a number
            yield name, Field(below(field.path, name), value)

    def text(self, *keys: str) -> str:
        return text(self.at(*keys).value)

    def integer(self, *keys: str) -> int | None:
        return integer(self.at(*keys).value)

    def raw(self, *keys: str) -> Raw:
        return mapping(self.at(*keys).value)

    def strings(self, *keys: str) -> Mapping[str, str]:
        return strings(self.at(*keys).value)

    @property
    def exists(self) -> bool:
        return self.value is not None


def below(path: str, key: str) -> str:
    """A key that a dot would break is written in brackets."""
    if not key or not _MARKS.isdisjoint(key):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key
