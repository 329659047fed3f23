"""The protocol buffer messages that an expression may construct: `google.protobuf.Int64Value{}`.

Once made, most of them are plain values.
"""

import base64
import ctypes
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fettle.cel.library import times
from fettle.cel.library.values import (
    ANY,
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DURATION,
    DYN,
    EMPTY,
    ENTRY,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    CelError,
    Duration,
    Map,
    Nullable,
    Optional,
    Timestamp,
    Type,
    Uint,
    Undecidable,
    Value,
    list_of,
    map_of,
)

NULL_VALUE = "google.protobuf.NullValue.NULL_VALUE"
"""The only enum value with a name; it is zero."""

_SECOND = 10**9
_EXACT = 2**53
_PLAIN = (type(None), bool, int, Uint, float, str, bytes, list)
_JSON, _OBJECT, _ARRAY = DYN, map_of(STRING, DYN), list_of(DYN)

Fields = Mapping[str, Value]
Convert = Callable[[Value], Value]


class ProtoMessage(NamedTuple):
    """A message: the type of its value, its fields, and what makes the value of given fields.

    `make` is None if that is not known here.
    """

    type: Type
    fields: Mapping[str, Type] = {}
    make: Callable[[Fields], Value] | None = None


def _only(kind: type[Any], least: int | None = None, most: int = 0) -> Convert:
    def convert(given: Value) -> Value:
        value = _content(given)
        if type(value) is not kind:
            raise CelError("unsupported field type")
        if least is not None and not least <= value <= most:
            raise CelError("integer overflow")
        return value

    return convert


_INT32 = _only(int, -(2**31), 2**31 - 1)
_INT64 = _only(int)


def _float32(value: Value) -> float:
    return ctypes.c_float(_only(float)(value)).value


def _wrapper(of: Type, convert: Convert, zero: Value) -> ProtoMessage:
    def make(fields: Fields) -> Value:
        return convert(fields["value"]) if "value" in fields else zero

    return ProtoMessage(Nullable(of.name), {"value": of}, make)


def _nanos(fields: Fields) -> int:
    seconds, nanos = _INT64(fields.get("seconds", 0)), _INT32(fields.get("nanos", 0))
    return int(seconds) * _SECOND + int(nanos)


def _duration(fields: Fields) -> Duration:
    return Duration(max(-(2**63), min(_nanos(fields), 2**63 - 1)))


def _timestamp(fields: Fields) -> Timestamp:
    try:
        return times.add(times.of_seconds(0), Duration(_nanos(fields)))  # type: ignore[no-any-return]
    except CelError as error:
        raise Undecidable("a timestamp at the edge of the calendar") from error


def _any(_fields: Fields) -> Value:
    raise CelError("unsupported conversion to ref.Val")


def _content(value: Value) -> Value:
    """The content of an optional; any other value itself."""
    if type(value) is not Optional:
        return value
    if not value.values:
        raise CelError("optional.none() dereference")
    return _content(value.values[0])


def _json(given: Value) -> Value:
    """A value as in JSON: all numbers are doubles; integers that do not fit a double are text."""
    value = _content(given)
    if value is None or type(value) in (bool, float, str):
        return value
    if type(value) in (int, Uint):
        return float(value) if -_EXACT < value < _EXACT else str(int(value))
    if type(value) is bytes:
        return base64.b64encode(value).decode()
    if type(value) is Duration:
        return times.duration_text(value)
    if type(value) is Timestamp:
        return times.timestamp_text(value)
    return _object(value) if type(value) is Map else _array(value)


def _object(value: Value) -> Map:
    _expect(Map, value)
    for key in value:
        _expect(str, key)
    return Map([(key, _json(value.find(key, None))) for key in value])


def _array(value: Value) -> list[Value]:
    _expect(list, value)
    return [_json(item) for item in value]


def _expect(kind: type, value: Value) -> None:
    if type(value) in _PLAIN and type(value) is not kind:
        raise CelError("unsupported field type")
    if type(value) is not kind:
        raise Undecidable("a message of such a value")


def _null(value: Value) -> None:
    _INT32(value)


_KINDS: dict[str, tuple[Type, Convert]] = {
    "null_value": (INT, _null),
    "number_value": (DOUBLE, _only(float)),
    "string_value": (STRING, _only(str)),
    "bool_value": (BOOL, _only(bool)),
    "struct_value": (_OBJECT, _object),
    "list_value": (_ARRAY, _array),
}


def _value(fields: Fields) -> Value:
    if len(fields) > 1:
        raise Undecidable("a message with several of the fields that exclude each other")
    return next((_KINDS[name][1](value) for name, value in fields.items()), None)


def _unknown(name: str) -> Callable[[Fields], Value]:
    def make(_fields: Fields) -> Value:
        raise CelError(f"unknown type '{name}'")

    return make


_MOMENT = {"seconds": INT, "nanos": INT}
_WRAPPERS: dict[str, tuple[Type, Convert, Value]] = {
    "BoolValue": (BOOL, _only(bool), False),
    "BytesValue": (BYTES, _only(bytes), b""),
    "DoubleValue": (DOUBLE, _only(float), 0.0),
    "FloatValue": (DOUBLE, _float32, 0.0),
    "Int32Value": (INT, _INT32, 0),
    "Int64Value": (INT, _INT64, 0),
    "StringValue": (STRING, _only(str), ""),
    "UInt32Value": (UINT, _only(Uint, 0, 2**32 - 1), Uint(0)),
    "UInt64Value": (UINT, _only(Uint), Uint(0)),
}
MESSAGES: dict[str, ProtoMessage] = {
    **{f"google.protobuf.{name}": _wrapper(*of) for name, of in _WRAPPERS.items()},
    "google.protobuf.Duration": ProtoMessage(DURATION, _MOMENT, _duration),
    "google.protobuf.Timestamp": ProtoMessage(TIMESTAMP, _MOMENT, _timestamp),
    "google.protobuf.Any": ProtoMessage(ANY, {"type_url": STRING, "value": BYTES}, _any),
    "google.protobuf.Empty": ProtoMessage(EMPTY),
    "google.protobuf.Struct.FieldsEntry": ProtoMessage(ENTRY, {"key": STRING, "value": DYN}),
    "google.protobuf.Value": ProtoMessage(_JSON, {n: t for n, (t, _) in _KINDS.items()}, _value),
    "google.protobuf.Struct": ProtoMessage(
        _OBJECT, {"fields": _OBJECT}, lambda fields: _object(fields.get("fields", Map()))
    ),
    "google.protobuf.ListValue": ProtoMessage(
        _ARRAY, {"values": _ARRAY}, lambda fields: _array(fields.get("values", []))
    ),
    "list": ProtoMessage(_ARRAY, {"values": _ARRAY}, _unknown("list")),
    "null_type": ProtoMessage(NULL, {}, _unknown("null_type")),
    DEVICE.name: ProtoMessage(DEVICE, {}, _unknown(DEVICE.name)),
}
"""By name. Making one of the last is an error, which Kubernetes finds at run time."""
