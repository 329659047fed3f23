"""Checks values against JSON Schemas; the files beside this one are those of shipped drivers.

Supports the keywords that structural schemas of Kubernetes use: `type, properties, required,
additionalProperties, items, enum, minimum, maximum, pattern` (RE2). Any other keyword is refused,
so that no schema checks less than its author thinks.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]

from fettle.lint.manifests import Field
from fettle.lint.names import nearest

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_KEYWORDS = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "items", "description"),
        *("enum", "minimum", "maximum", "pattern"),
    )
)
_SHOWN = 60


class Problem(NamedTuple):
    """What is wrong, and where.

    `denies` false: an installed driver that is newer than the schema may accept it.
    """

    field: Field
    message: str
    denies: bool = True


class Schema:
    """One schema; raises ValueError if it uses an unsupported keyword."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        _check(schema, "schema")
        self._schema = schema

    def problems(self, field: Field, skip: tuple[str, ...] = ()) -> Iterator[Problem]:
        """What does not fit the schema; `skip` are members of the root that it does not cover."""
        return _problems(self._schema, field, skip)


def _check(schema: object, where: str) -> None:
    if not isinstance(schema, Mapping):
        raise ValueError(f"{where} must be an object")
    if unknown := sorted(set(schema) - _KEYWORDS):
        raise ValueError(f"{where} uses {', '.join(unknown)}, which is not supported")
    if "type" in schema and schema["type"] not in _TYPES:
        raise ValueError(f"{where}.type must be one of {', '.join(_TYPES)}")
    if "pattern" in schema:
        _pattern(schema["pattern"], where)
    for name, below in schema.get("properties", {}).items():
        _check(below, f"{where}.properties.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema and not isinstance(schema[keyword], bool):
            _check(schema[keyword], f"{where}.{keyword}")


@cache
def _pattern(pattern: str, where: str = "pattern") -> Any:
    try:
        return re2.compile(pattern)
    except re2.error as error:
        raise ValueError(f"{where}.pattern is not a valid regular expression: {error}") from error


def _problems(
    schema: Mapping[str, Any], field: Field, skip: tuple[str, ...] = ()
) -> Iterator[Problem]:
    value, wanted = field.value, schema.get("type")
    if wanted is not None and not _is(value, wanted):
        yield Problem(field, f"must be of type {wanted}, not {_shown(value)}")
        return
    if "enum" in schema and value not in schema["enum"]:
        # "" means that the field is left out; nobody needs to write it.
        allowed = ", ".join(str(one) for one in schema["enum"] if one != "")
        yield Problem(field, f"must be one of {allowed}, not {_shown(value)}")
    if isinstance(value, int | float):
        yield from _in_range(schema, field)
    if (
        isinstance(value, str)
        and "pattern" in schema
        and not _pattern(schema["pattern"]).search(value)
    ):
        yield Problem(field, f"{_shown(value)} does not match {schema['pattern']}")
    if isinstance(value, list) and "items" in schema:
        for entry in field.entries():
            yield from _problems(schema["items"], entry)
    if isinstance(value, dict):
        yield from _members(schema, field, skip)


def _members(schema: Mapping[str, Any], field: Field, skip: tuple[str, ...]) -> Iterator[Problem]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if field.value.get(name) is None:
            yield Problem(field.at(name), "is required")
    for name, member in field.members():
        if name in skip:
            continue
        if name in properties:
            if member.exists:  # null counts as absent, as in the API
                yield from _problems(properties[name], member)
        elif others is False:
            yield Problem(member, _unknown_field(name, properties), denies=False)
        elif isinstance(others, Mapping):
            yield from _problems(others, member)


def _unknown_field(name: str, properties: Mapping[str, Any]) -> str:
    near = nearest(name, properties)
    meant = f"; did you mean {near}?" if near else ""
    known = f" (known: {', '.join(properties)})" if properties else ""
    return f"unknown field{known}: only a driver newer than this schema accepts it{meant}"


def _in_range(schema: Mapping[str, Any], field: Field) -> Iterator[Problem]:
    if "minimum" in schema and field.value < schema["minimum"]:
        yield Problem(field, f"must be at least {schema['minimum']}, not {field.value}")
    if "maximum" in schema and field.value > schema["maximum"]:
        yield Problem(field, f"must be at most {schema['maximum']}, not {field.value}")


def _is(value: object, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES[wanted])


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
