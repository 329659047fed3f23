"""Objects of every kind that is watched, with every field that is read, and one of them a megabyte
long."""

import enum
import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from msgspec import inspect

from fettle.api import kinds
from fettle.api.kinds import Kind

MEGABYTE = 1_000_000
MIDDLE = 10_000
LEVELS = 300
"""Deeper than any field, and not too deep to be decoded."""
WATCHED = (*kinds.KINDS, *kinds.ON_DEMAND, *kinds.EVENTS)
Path = tuple[str | int, ...]
_NAMESPACED = (kinds.POD, kinds.CLAIM, kinds.TEMPLATE, *kinds.ON_DEMAND, *kinds.EVENTS)
_KEY = "k"
"""In every mapping, and in no struct: the API server drops fields that it does not know."""


class Place(NamedTuple):
    """A field of a kind."""

    kind: Kind
    path: Path

    def __str__(self) -> str:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return f"{self.kind.name}{steps}"


def example(of: inspect.Type) -> Any:
    """A value of this type, with all fields that a struct names."""
    match of:
        case inspect.StructType():
            return {field.encode_name: example(field.type) for field in of.fields}
        case inspect.UnionType():
            return example(next(t for t in of.types if not isinstance(t, inspect.NoneType)))
        case inspect.DictType():
            return {_KEY: example(of.value_type)}
        case inspect.ListType() | inspect.VarTupleType():
            return [example(of.item_type)]
        case inspect.FrozenSetType() | inspect.SetType():
            return [example(of.item_type)]
        case inspect.IntType():
            return 1
        case inspect.FloatType():
            return 0.5
        case inspect.BoolType():
            return True
        case inspect.DateTimeType():
            return "2026-11-28T00:00:00Z"
        case inspect.EnumType():
            member = next(iter(of.cls))
            return member.value if isinstance(member, enum.Enum) else member
        case inspect.LiteralType():
            return of.values[0]
    return "x"


def whole(kind: Kind) -> dict[str, Any]:
    """An object of the kind that Fettle reads all of."""
    made: dict[str, Any] = example(inspect.type_info(kind.struct))
    namespace = "default" if kind in _NAMESPACED else ""
    made["metadata"] |= {"name": "n", "namespace": namespace, "deletionTimestamp": None}
    for path, value in _MEANT.get(kind.name, {}).items():
        put_at(made, path, deepcopy(value))
    return made


_MEANT: dict[str, dict[Path, Any]] = {
    kinds.NODE.name: {
        ("status", "conditions", 0): {
            "type": "GpuXidWatch",
            "status": "True",
            "reason": "x",
            "message": "x",
            "lastTransitionTime": "2026-11-28T00:00:00Z",
            "lastHeartbeatTime": "2026-11-28T00:00:00Z",
        },
        ("status", "capacity", "nvidia.com/gpu"): "8",
        ("status", "allocatable", "nvidia.com/gpu"): "7",
        ("metadata", "annotations"): {
            _KEY: "x",
            "fettle.dev/hold": "x",
            "fettle.dev/repaired": "x",
            "hami.io/node-nvidia-register": "x",
            "hami.io/device-cordon": "x",
            "dgxc.nvidia.com/health": "x",
        },
    },
    kinds.NODE_EVENT.name: {
        ("involvedObject",): {"kind": "Node", "name": "n"},
        ("reason",): "GpuXidWatchIsNotHealthy",
    },
    kinds.EVENT.name: {
        ("involvedObject",): {"kind": "Pod", "namespace": "default", "name": "n"},
        ("reason",): kinds.PREPARE_FAILED,
    },
    kinds.POD.name: {
        ("spec", "containers", 0, "resources", "limits", "nvidia.com/gpu"): "1",
        ("spec", "nodeName"): "n",
        ("status", "phase"): "Failed",
        ("status", "reason"): "UnexpectedAdmissionError",
        ("status", "containerStatuses", 0, "state", "waiting", "reason"): "CreateContainerError",
    },
    kinds.SLICE.name: {("spec", "nodeName"): "n"},
}


def put_at(made: Any, path: Path, value: Any) -> None:
    *way, last = path
    for step in way:
        made = made[step]
    made[last] = value


def at(made: Any, path: Path) -> Any:
    for step in path:
        made = made[step]
    return made


def places() -> Iterator[Place]:
    """Every field of every kind."""
    for kind in WATCHED:
        for path in _paths(whole(kind), ()):
            yield Place(kind, path)


def _paths(value: Any, path: Path) -> Iterator[Path]:
    if path:
        yield path
    steps: Any = ()
    if isinstance(value, dict | list):
        steps = value.keys() if isinstance(value, dict) else range(len(value))
    for step in steps:
        yield from _paths(value[step], (*path, step))


def with_text(place: Place, text: str) -> bytes:
    made = whole(place.kind)
    put_at(made, place.path, text)
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()


def with_entries(place: Place, size: int = MEGABYTE) -> bytes | None:
    """The object with a list or mapping of as many entries as make up the size; None if the field
    is neither."""
    made = whole(place.kind)
    before = at(made, place.path)
    if isinstance(before, list) and before:
        one = json.dumps(before[0], separators=(",", ":"))
        put_at(made, place.path, [before[0]] * (size // (len(one) + 1)))
    elif isinstance(before, dict) and _KEY in before:
        one = json.dumps(next(iter(before.values())), separators=(",", ":"))
        more = {f"{i}": next(iter(before.values())) for i in range(size // (len(one) + 10))}
        put_at(made, place.path, deepcopy(before) | more)
    else:
        return None
    return json.dumps(made, separators=(",", ":")).encode()


def with_nested(place: Place, size: int, levels: int = LEVELS) -> bytes:
    """The object with mappings in mappings around a list of lists, as opaque parameters may be."""
    made = whole(place.kind)
    put_at(made, place.path, "HERE")
    nested = '{"a":' * levels + f"[{','.join(['[]'] * (size // 3))}]" + "}" * levels
    return json.dumps(made, separators=(",", ":")).replace('"HERE"', nested).encode()


def with_middling_entries(place: Place, size: int = MEGABYTE) -> bytes | None:
    """The object with a list of many entries, of which each has many in this list or mapping; None
    if it is in no list."""
    outer = next((i for i in reversed(range(len(place.path))) if place.path[i] == 0), None)
    if outer is None or (long := with_entries(place, MIDDLE)) is None:
        return None
    made = json.loads(long)
    entries = at(made, place.path[:outer])
    one = json.dumps(entries[0], separators=(",", ":"))
    entries *= max(1, size // len(one))
    return json.dumps(made, separators=(",", ":")).encode()


def with_key(place: Place, text: str) -> bytes | None:
    """The object with one more key in a mapping; None if the field is none."""
    made = whole(place.kind)
    before = at(made, place.path)
    if not isinstance(before, dict) or _KEY not in before:
        return None
    before[text] = next(iter(before.values()))
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()
