"""Errors about values of which there are only a few, told with those that there are. Pure."""

import re
from typing import Any

import msgspec
from msgspec import inspect

_WRONG = re.compile(r"Invalid enum value .*? - at `\$(?P<path>[^`]*)`", re.DOTALL)
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[[^\]]*\]")


def describe_error(error: msgspec.ValidationError, read_as: Any) -> str:
    """The text of an error in reading something as a type; one about an enum lists its values."""
    text = str(error)
    found = _WRONG.fullmatch(text)
    choices = _choices(read_as, found["path"]) if found is not None else ()
    return f"{text}; expected one of {', '.join(choices)}" if choices else text


def _choices(read_as: Any, path: str) -> tuple[str, ...]:
    types = [inspect.type_info(read_as)]
    for step in _STEP.finditer(path):
        types = [below for one in _flat(types) for below in _below(one, step["field"])]
    enums = [one.cls for one in _flat(types) if isinstance(one, inspect.EnumType)]
    return tuple(str(member.value) for enum in enums for member in enum)


def _flat(types: list[inspect.Type]) -> list[inspect.Type]:
    return [
        member
        for one in types
        for member in (one.types if isinstance(one, inspect.UnionType) else (one,))
    ]


def _below(of: inspect.Type, field: str | None) -> list[inspect.Type]:
    """The types of a field of that name, or of what a list or mapping holds."""
    match of:
        case inspect.StructType():
            return [known.type for known in of.fields if known.encode_name == field]
        case inspect.DictType():
            return [of.value_type]
        case inspect.ListType() | inspect.VarTupleType():
            return [of.item_type]
    return []
