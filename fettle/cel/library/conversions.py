"""The type of a value at run time, conversions between the simple types, `size` and `dyn`."""

import math
import re

from fettle.cel.library import times
from fettle.cel.library.quantity import MutableQuantity
from fettle.cel.library.values import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    FORMAT,
    INT,
    IP,
    MAPS,
    NULL,
    QUANTITY,
    SEMVER,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    URL,
    A,
    Address,
    B,
    CelError,
    Duration,
    Format,
    Frame,
    Functions,
    Network,
    Optional,
    Timestamp,
    Type,
    Uint,
    Undecidable,
    Url,
    Value,
    Version,
    function,
    list_of,
    map_of,
    method,
    number_of,
    optional_of,
    type_of,
)

FOLDED = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
"""Kubernetes runs these at compile time if the argument is constant, and errors are found then."""

_TYPES: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
    Duration: DURATION,
    Timestamp: TIMESTAMP,
    MutableQuantity: QUANTITY,
    Version: SEMVER,
    Address: IP,
    Network: CIDR,
    Url: URL,
    Format: FORMAT,
    Optional: optional_of(DYN),
    Type: TYPE,
}
_LIST, _MAP = list_of(DYN), map_of(DYN, DYN)


def type_of_value(value: Value) -> Type:
    """The type of a value at run time, without the types of its items."""
    found = _TYPES.get(type(value))
    if found is not None:
        return found
    if isinstance(value, list):
        return _LIST
    if isinstance(value, MAPS):
        return _MAP
    raise Undecidable("a value of an unknown type")


def type_name(value: Value) -> str:
    """The type of a value at run time, for messages."""
    name = type_of_value(value).name
    return "null" if name == NULL.name else name


def fits(type_: Type, value: Value) -> bool:
    """Whether Kubernetes accepts a value for a type at run time: of a list, it checks one item."""
    if type_ == DYN or type_.parameter:
        return True
    if type_of_value(value).name != type_.name:
        return False
    if type_.name == "list" and value:
        (of,) = type_.of
        return of == DYN or of.parameter or fits(of, value[0])
    if type_.name == "map" and len(value):
        return all(fits(type_.of[0], key) and fits(type_.of[1], value.get(key)) for key in value)
    return True


_INT = re.compile(r"([+-]?)([0-9]+)")
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_FLOAT = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def text(value: Value) -> str:
    """`string(value)` of a simple value; raises CelError."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise CelError("invalid UTF-8 in bytes, cannot convert to string") from error
        case int():
            return str(int(value))
        case float():
            return _float_text(value)
        case Timestamp():
            return times.timestamp_text(value)
        case Duration():
            return times.duration_text(value)
        case _:
            raise CelError("type conversion error to 'string'")


def key_text(key: Value) -> str:
    """A map's key or an index, for messages."""
    if type(key) is str:
        return key
    return text(key) if type(key) in (bool, int, Uint, float) else type_name(key)


def _float_text(number: float) -> str:
    """The shortest form, as Go's %g has it."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    mantissa, _, exponent = f"{number!r}".partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits.strip("0"):
        return f"{sign}0"
    point = len(whole.lstrip("0")) if whole.strip("0") else len(digits) - len(fraction)
    power = point - 1 + int(exponent or "0")
    digits = digits.rstrip("0")
    if power < -4 or power >= 6:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    if len(digits) <= power + 1:
        return sign + digits.ljust(power + 1, "0")
    return f"{sign}{digits[: power + 1]}.{digits[power + 1 :]}"


def _int_of_string(_frame: Frame, source: str) -> int:
    match = _INT.fullmatch(source)
    number = 2**64 if match is None else number_of(match[2])
    if source.startswith("-"):
        number = -number
    if not -(2**63) <= number < 2**63:
        raise CelError("type conversion error from 'string' to 'int'")
    return number


def _uint_of_string(_frame: Frame, source: str) -> Uint:
    number = number_of(source) if source.isascii() and source.isdigit() else 2**64
    if number >= 2**64:
        raise CelError("type conversion error from 'string' to 'uint'")
    return Uint(number)


def _float_of_string(_frame: Frame, source: str) -> float:
    if _SPECIAL.fullmatch(source):
        return float(source)
    if _FLOAT.fullmatch(source) is None:
        if "x" in source.lower():
            raise Undecidable("a hexadecimal double")
        raise CelError("type conversion error from 'string' to 'double'")
    number = float(source.replace("_", ""))
    if math.isinf(number):
        raise CelError("type conversion error from 'string' to 'double'")
    return number


def _bool_of_string(_frame: Frame, source: str) -> bool:
    if source not in _BOOLS:
        raise CelError("type conversion error from 'string' to 'bool'")
    return _BOOLS[source]


def _int_of_float(_frame: Frame, number: float) -> int:
    if not -(2.0**63) < number < 2.0**63:
        raise CelError("integer overflow")
    return int(number)


def _uint_of_float(_frame: Frame, number: float) -> Uint:
    if not 0 <= number < 2.0**64:
        raise CelError("unsigned integer overflow")
    return Uint(int(number))


def _int_of_uint(_frame: Frame, number: Uint) -> int:
    if number >= 2**63:
        raise CelError("integer overflow")
    return int(number)


def _uint_of_int(_frame: Frame, number: int) -> Uint:
    if number < 0:
        raise CelError("unsigned integer overflow")
    return Uint(number)


def _same(_frame: Frame, value: Value) -> Value:
    return value


def _float_of_int(_frame: Frame, number: int) -> float:
    return float(number)


def _text(frame: Frame, value: Value) -> str:
    if type(value) is bytes:
        frame.spend(len(value) // 10)
    return text(value)


def _bytes(frame: Frame, source: str) -> bytes:
    frame.spend(len(source) // 10)
    return source.encode()


def _size(_frame: Frame, value: Value) -> int:
    return len(value)


def _type(_frame: Frame, value: Value) -> Type:
    return type_of_value(value)


_SIZED = (BYTES, list_of(A), map_of(A, B), STRING)

FUNCTIONS: Functions = {
    "size": (
        *(function((type_,), INT, _size) for type_ in _SIZED),
        *(method((type_,), INT, _size) for type_ in _SIZED),
    ),
    "type": (function((A,), type_of(A), _type),),
    "dyn": (function((A,), DYN, _same),),
    "bool": (function((BOOL,), BOOL, _same), function((STRING,), BOOL, _bool_of_string)),
    "bytes": (function((BYTES,), BYTES, _same), function((STRING,), BYTES, _bytes)),
    "double": (
        function((DOUBLE,), DOUBLE, _same),
        function((INT,), DOUBLE, _float_of_int),
        function((STRING,), DOUBLE, _float_of_string),
        function((UINT,), DOUBLE, _float_of_int),
    ),
    "duration": (
        function((DURATION,), DURATION, _same),
        function((STRING,), DURATION, lambda _frame, source: times.parse_duration(source)),
    ),
    "int": (
        function((INT,), INT, _same),
        function((DOUBLE,), INT, _int_of_float),
        function((DURATION,), INT, lambda _frame, duration: duration.nanos),
        function((STRING,), INT, _int_of_string),
        function((TIMESTAMP,), INT, lambda _frame, stamp: stamp.nanos // 10**9),
        function((UINT,), INT, _int_of_uint),
    ),
    "string": tuple(
        function((type_,), STRING, _text)
        for type_ in (STRING, BOOL, BYTES, DOUBLE, DURATION, INT, TIMESTAMP, UINT)
    ),
    "timestamp": (
        function((TIMESTAMP,), TIMESTAMP, _same),
        function((INT,), TIMESTAMP, lambda _frame, number: times.of_seconds(number)),
        function((STRING,), TIMESTAMP, lambda _frame, source: times.parse_timestamp(source)),
    ),
    "uint": (
        function((UINT,), UINT, _same),
        function((DOUBLE,), UINT, _uint_of_float),
        function((INT,), UINT, _uint_of_int),
        function((STRING,), UINT, _uint_of_string),
    ),
}
