"""JSON to structs: leniently where Go is lenient, strictly where an unknown field would matter.

Users can store JSON in a cluster that strict decoders refuse: the opaque parameters of a claim may
nest thousands of levels deep, or hold invalid UTF-8 or halves of surrogate pairs. None of this may
break the list or watch that carries it, or hide the rest of the claim. On the other hand, a field
that no struct names is skipped, and for specs that decide an allocation that would be wrong: such a
field must be noticed.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from fettle.api.meta import Unread
from fettle.api.resource import ResourceSlice
from fettle.api.trimming import CUT, LONGEST_KEY
from fettle.pacing import pause

MAX_JSON_DEPTH = 100
"""Levels of nesting that are read. The deepest field that Fettle knows lies at about 20."""
MAX_NULL_DEPTH = 20
"""Levels of which nulls are left out: a DevicePolicy has ten."""
_LOOSE: "msgspec.json.Decoder[Any]" = msgspec.json.Decoder()
_NULL = b"null"
# Possessive, so that no text is looked at twice, also where the last one has no end.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_UNKNOWN = rb"\ufffd"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"  # half of one
    rb"|\\.",
    re.DOTALL,
)


def decode_lenient(decoder: "msgspec.json.Decoder[Any]", raw: bytes | msgspec.Raw) -> Any:
    """Decodes the JSON; if that fails, decodes what `mend` makes of it. Raises what `decoder`
    raises."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if (readable := mend(bytes(raw))) == raw:
            raise
        return decoder.decode(readable)


def mend(raw: bytes) -> bytes:
    """The same JSON, with null for what nests deeper than MAX_JSON_DEPTH and U+FFFD for invalid
    characters."""
    text = raw.decode(errors="replace").encode()
    if _SURROGATE.search(text):
        text = _ESCAPE.sub(_whole, text)
    return shallow(text)


def _whole(found: "re.Match[bytes]") -> bytes:
    pause()
    return _UNKNOWN if found[1] else found[0]


def without_nulls(raw: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
    """The same JSON without the fields that are null, as the API server stores a custom resource.
    Entries of lists stay, and so does what cannot be read.

    >>> without_nulls(b'{"a":null,"b":[null]}')
    b'{"b":[null]}'
    """
    if _NULL not in bytes(raw):
        return raw
    try:
        value = decode_lenient(_LOOSE, raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw
    return msgspec.json.encode(_full(value, MAX_NULL_DEPTH))


def _full(value: Any, levels: int) -> Any:
    pause()
    if not levels:
        return value
    if isinstance(value, dict):
        return {k: _full(v, levels - 1) for k, v in value.items() if v is not None}
    return [_full(entry, levels - 1) for entry in value] if isinstance(value, list) else value


def shallow(raw: bytes, levels: int = MAX_JSON_DEPTH) -> bytes:
    """The same JSON, with null for every list and object nested deeper than `levels`.

    >>> shallow(b'{"a":{"b":[1]}}', 2)
    b'{"a":{"b":null}}'
    """
    pieces: list[bytes] = []
    depth = kept_to = 0
    for token in _TOKENS.finditer(raw):
        pause()
        sign = token[0]
        if sign in (b"[", b"{"):
            depth += 1
            if depth == levels + 1:
                pieces += (raw[kept_to : token.start()], _NULL)
        elif sign in (b"]", b"}"):
            if depth == levels + 1:
                kept_to = token.end()
            depth -= 1
    if depth > levels:  # the text is cut off: let the decoder report it
        return raw[: MAX_JSON_DEPTH * 2]
    pieces.append(raw[kept_to:])
    return b"".join(pieces)


_WRONG = re.compile(
    r"(Invalid enum value|Expected `(?P<types>[^`]*)`, got `(?P<got>[^`]*)`).*? - at "
    r"`\$(?P<path>[^`]*)`",
    re.DOTALL,
)
_UNKNOWN_FIELD = re.compile(
    r"Object contains unknown field `(?P<field>.*?)`( - at `\$(?P<path>[^`]*)`)?"
)
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[[^\[\]]*+\]")
_TRUTH = "unquoted, YAML reads On, Off, Yes and No as true or false"


def describe_error(error: msgspec.ValidationError, read_as: Any) -> str:
    """The text of a validation error. If it is about an enum or literals, the valid values are
    listed, and of an unknown field the one that was probably meant."""
    text = str(error)
    if len(text) > LONGEST_KEY:  # somebody's own words
        return f"{text[:LONGEST_KEY]}{CUT}"
    if (unknown := _UNKNOWN_FIELD.fullmatch(text)) is not None:
        return text + suggest_field(read_as, unknown["path"] or "", unknown["field"])
    found = _WRONG.fullmatch(text)
    choices = _choices(read_as, found["path"]) if found is not None else ()
    if found is None or not choices:
        return text
    if "null" in (found["types"] or ""):
        choices = (*choices, "null")
    said = f"{text}; expected one of {', '.join(choices)}"
    return f"{said} ({_TRUTH})" if found["got"] == "bool" else said


def suggest_field(read_as: Any, path: str, field: str) -> str:
    """What to write instead of an unknown field at a path (`.policies[0]`), as the end of a
    sentence; "" if there are no fields."""
    known = [
        one.encode_name
        for of in _types_at(read_as, path)
        if isinstance(of, inspect.StructType)
        for one in of.fields
    ]
    if near := get_close_matches(field, known, 1):
        return f"; write {near[0]}"
    return f"; its fields are {', '.join(known)}" if known else ""


def _choices(read_as: Any, path: str) -> tuple[str, ...]:
    return tuple(str(value) for one in _types_at(read_as, path) for value in _values(one))


def _types_at(read_as: Any, path: str) -> list[inspect.Type]:
    types = [inspect.type_info(read_as)]
    for step in _STEP.finditer(path):
        types = [below for one in _flat(types) for below in _below(one, step["field"])]
    return _flat(types)


def _values(of: inspect.Type) -> Iterator[object]:
    match of:
        case inspect.EnumType():
            yield from (member.value for member in of.cls)
        case inspect.LiteralType():
            yield from of.values


def _flat(types: list[inspect.Type]) -> list[inspect.Type]:
    return [
        member
        for one in types
        for member in (one.types if isinstance(one, inspect.UnionType) else (one,))
    ]


def _below(of: inspect.Type, field: str | None) -> list[inspect.Type]:
    """The types of a struct's field with that name, or of the items of a list or mapping."""
    match of:
        case inspect.StructType():
            return [known.type for known in of.fields if known.encode_name == field]
        case inspect.DictType():
            return [of.value_type]
        case inspect.ListType() | inspect.VarTupleType():
            return [of.item_type]
    return []


UnknownFieldProbe = Callable[[bytes | msgspec.Raw], str]
"""Returns the first unknown field of an object, with its path; "" if there is none."""


def unknown_field_probe(*path: str, struct: type[msgspec.Struct]) -> UnknownFieldProbe:
    """A probe for unknown fields in what an object has under `path` (`spec`), which `struct` reads.

    It decodes the bytes once more, with structs that refuse unknown fields.
    """
    inner: Any = strict_struct(struct)
    for field in reversed(path):
        inner = msgspec.defstruct("Probed", [(field, inner | None, None)], frozen=True)
    decoder = msgspec.json.Decoder(inner, strict=False)

    def unknown(raw: bytes | msgspec.Raw) -> str:
        try:
            decode_lenient(decoder, raw)
        except msgspec.ValidationError as error:
            return str(error)
        return ""

    return unknown


@cache
def strict_struct(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A copy of the struct that refuses unknown fields, at any depth."""
    fields = msgspec.structs.fields(struct)
    return msgspec.defstruct(
        struct.__name__,
        [(f.name, _strict_type(f.type), None) for f in fields],
        rename={f.name: f.encode_name for f in fields},
        forbid_unknown_fields=True,
        frozen=True,
        kw_only=True,
    )


def _strict_type(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint if hint is Unread else strict_struct(hint)
    arguments = tuple(_strict_type(argument) for argument in get_args(hint))
    if not arguments:
        return hint
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return reduce(or_, arguments)
    return origin[arguments]


def share_equal_values(slice_: ResourceSlice) -> None:
    """Makes equal values of a slice's devices the same object. Call it before anybody else has the
    slice.

    Partitions of a GPU differ in little but their names, and a node has hundreds. Decoded
    separately, each value would be an object of its own. Quantities without quotes are left alone:
    1 equals 1.0, but the API reads them differently.
    """
    kept: dict[Any, Any] = {}
    keep = kept.setdefault
    for device in slice_.spec.devices or ():
        if attributes := device.attributes:
            for name, attribute in attributes.items():
                attributes[name] = keep(attribute, attribute)
        if capacities := device.capacity:
            for name, capacity in capacities.items():
                if type(capacity.value) is str and capacity.request_policy is None:
                    capacities[name] = keep(capacity, capacity)
        for consumption in device.consumes_counters or ():
            if counters := consumption.counters:
                for name, counter in counters.items():
                    if type(counter.value) is str:
                        counters[name] = keep(counter, counter)
