"""Which fields Kubernetes' objects have, as its API server tells: the files beside this module.

`tests/controlplane/kubernetes_shapes.py` makes them, and says how it writes types. Each is read
once something asks.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

_FILE = Path(__file__).with_name("kubernetes.json")
_WHOLES = _FILE.with_name("wholes.json")


class Place(NamedTuple):
    """What a field may hold: `type` as in the file. `since` and `until` are the first and last
    version that has it, "" if all older or newer ones have it."""

    type: str
    required: bool
    since: str
    until: str


class Kubernetes(msgspec.Struct, frozen=True):
    """`versions`: the oldest first. `kinds`: by group and version, kind → type, as a field's.
    `types`: by name, its fields."""

    versions: tuple[str, ...]
    kinds: Mapping[str, Mapping[str, str]]
    types: Mapping[str, Mapping[str, str]]

    @property
    def span(self) -> str:
        return f"{self.versions[0]} to {self.versions[-1]}"

    def type_of(self, api_version: str, kind: str) -> str:
        """The type of objects of a kind; "" if their fields are not known."""
        named = place(self.kinds.get(api_version, {}).get(kind, "")).type
        return named if named in self.types else ""

    def elsewhere(self, kind: str) -> list[str]:
        """The API groups and versions that have a kind, the preferred one of a group first."""
        return [version for version, kinds in self.kinds.items() if kind in kinds]


@cache
def kubernetes() -> Kubernetes:
    return msgspec.json.decode(_FILE.read_bytes(), type=Kubernetes)


@cache
def whole_objects() -> Kubernetes:
    """Fields of more kinds, and also what others write, such as the status. Only which there are:
    a type that it lacks is as in `kubernetes`."""
    return msgspec.json.decode(_WHOLES.read_bytes(), type=Kubernetes)


@cache
def place(text: str) -> Place:
    """`=In|NotIn! since 1.36` as its parts."""
    said, _, until = text.partition(" until ")
    said, _, since = said.partition(" since ")
    return Place(said.removesuffix("!"), said.endswith("!"), since, until)
