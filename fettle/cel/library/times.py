"""Durations and timestamps: how they are parsed, written, added and taken apart."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo

from fettle.cel.library.values import (
    DURATION,
    INT,
    NO_OVERLOAD,
    STRING,
    TIMESTAMP,
    Apply,
    CelError,
    Duration,
    Frame,
    Functions,
    Timestamp,
    Undecidable,
    Value,
    method,
    number_of,
)

_SECOND = 10**9
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
_INT64 = range(-(2**63), 2**63)
_FIRST, _LAST = -62135596800, 253402300799
_STAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_ZONE_NAME = re.compile(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+)*")
_OFFSET = re.compile(r"([+-]?)([0-9]+):([+-]?)([0-9]+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> Duration:
    """The duration of Go's notation, as "1h15m30.5s"; raises CelError."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return Duration(0)
    nanos, position = 0, 0
    while position < len(rest):
        match = _PART.match(rest, position)
        unit = None if match is None else _UNITS.get(match[3])
        if match is None or unit is None or not (match[1] or match[2]):
            raise CelError(f"{text[:40]!r} is not a duration")
        nanos += number_of(match[1]) * unit + _fraction(match[2] or "", unit)
        position = match.end()
    if not rest or nanos * sign not in _INT64:
        raise CelError(f"{text[:40]!r} is not a duration")
    return Duration(nanos * sign)


def _fraction(digits: str, unit: int) -> int:
    """A fraction of a unit, computed as in Go: with doubles, and only as many digits as fit."""
    number, scale = 0, 1.0
    for digit in digits:
        longer = number * 10 + int(digit)
        if number > (2**63 - 1) // 10 or longer > 2**63:
            break
        number, scale = longer, scale * 10
    return int(float(number) * (float(unit) / scale))


def parse_timestamp(text: str) -> Timestamp:
    """The timestamp in the notation of RFC 3339; raises CelError."""
    match = _STAMP.fullmatch(text)
    if match is None:
        raise CelError(f"{text[:40]!r} is not a timestamp")
    try:
        at = datetime(*(int(match[part]) for part in range(1, 7)), tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError as error:
        raise CelError(f"{text[:40]!r} is not a timestamp") from error
    hours, minutes = int(match[9] or 0), int(match[10] or 0)
    if hours > 24 or minutes > 60:
        raise CelError(f"{text[:40]!r} is not a timestamp")
    offset = (hours * 3600 + minutes * 60) * (-1 if match[8] == "-" else 1)
    seconds = int((at - _EPOCH).total_seconds()) - offset
    if not _FIRST <= seconds <= _LAST:
        raise CelError("timestamp overflow")
    return Timestamp(seconds * _SECOND + int((match[7] or "")[:9].ljust(9, "0")), offset)


def of_seconds(seconds: int) -> Timestamp:
    if not _FIRST <= seconds <= _LAST:
        raise CelError("timestamp overflow")
    return Timestamp(seconds * _SECOND)


def duration_text(duration: Duration) -> str:
    """The seconds as the nearest double, without an exponent."""
    number = _in_unit(_SECOND, duration.nanos)
    return f"{Decimal(repr(number)):f}".removesuffix(".0") + "s"


def _in_unit(unit: int, nanos: int) -> float:
    """As Go's Duration.Seconds, Minutes and Hours, which lose a small rest of a long duration."""
    seconds = _quotient(nanos, unit)
    return float(seconds) + float(nanos - seconds * unit) / unit


def _quotient(nanos: int, unit: int) -> int:
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def timestamp_text(stamp: Timestamp) -> str:
    at = _local(stamp, stamp.offset)
    fraction = f".{stamp.nanos % _SECOND:09d}".rstrip("0").rstrip(".")
    zone = "Z" if stamp.offset == 0 else _zone_text(stamp.offset)
    return f"{at.year:04d}-{at:%m-%dT%H:%M:%S}{fraction}{zone}"


def _zone_text(offset: int) -> str:
    sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"


def add(left: Value, right: Value) -> Value:
    if type(left) is Timestamp and type(right) is Duration:
        return _moved(left, right.nanos)
    if type(left) is Duration and type(right) is Timestamp:
        return _moved(right, left.nanos)
    if type(left) is Duration and type(right) is Duration:
        return _duration(left.nanos + right.nanos)
    raise CelError(NO_OVERLOAD)


def subtract(left: Value, right: Value) -> Value:
    if type(left) is Timestamp and type(right) is Timestamp:
        return _duration(left.nanos - right.nanos)
    if type(right) is Duration:
        if type(left) is Timestamp:
            return _moved(left, negated(right).nanos)
        return _duration(left.nanos - right.nanos)
    raise CelError(NO_OVERLOAD)


def negated(duration: Duration) -> Duration:
    return _duration(-duration.nanos)


def _duration(nanos: int) -> Duration:
    if nanos not in _INT64:
        raise CelError("duration overflow")
    return Duration(nanos)


def _moved(stamp: Timestamp, nanos: int) -> Timestamp:
    moved = Timestamp(stamp.nanos + nanos, stamp.offset)
    if not _FIRST <= moved.nanos // _SECOND <= _LAST:
        raise CelError("timestamp overflow")
    return moved


def _local(stamp: Timestamp, zone: tzinfo | int) -> datetime:
    """The date and time in a zone, or that many seconds from UTC."""
    seconds = stamp.nanos // _SECOND
    try:
        if isinstance(zone, int):
            return _EPOCH + timedelta(seconds=seconds + zone)
        return (_EPOCH + timedelta(seconds=seconds)).astimezone(zone)
    except (OverflowError, ValueError) as error:
        raise Undecidable("a timestamp at the edge of the calendar") from error


def _zone(name: str) -> tzinfo | int:
    if ":" in name:
        return _offset(name)
    if name in ("", "UTC"):
        return UTC
    if name == "Local":
        raise Undecidable("the time zone of the scheduler")
    if _ZONE_NAME.fullmatch(name) is None:
        raise CelError(f"unknown time zone {name[:40]!r}")
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        if _has_zones():
            raise CelError(f"unknown time zone {name[:40]!r}") from error
        raise Undecidable(f"the time zone {name[:40]!r}") from error


def _offset(name: str) -> int:
    """The seconds of an offset such as "-05:30". Any size is allowed, and wraps as in Go."""
    match = _OFFSET.fullmatch(name)
    if match is None:
        raise CelError(f"{name[:40]!r} is not a time zone")
    hours, minutes = (number_of(match[at]) * (-1 if match[at - 1] == "-" else 1) for at in (2, 4))
    if hours not in _INT64 or minutes not in _INT64:
        raise CelError(f"the time zone {name[:40]!r} does not fit 64 bits")
    offset = _wrapped(hours * 60 + (-minutes if name.startswith("-") else minutes))
    return int(_in_unit(_SECOND, _wrapped(offset * 60 * _SECOND)))


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _has_zones() -> bool:
    """Whether this machine knows time zones at all."""
    try:
        return bool(ZoneInfo("Europe/Berlin"))
    except (OSError, ValueError, KeyError):
        return False


def _part(part: Apply) -> Apply:
    def apply(_frame: Frame, stamp: Timestamp, zone: str = "UTC") -> int:
        return int(part(_local(stamp, _zone(zone)), stamp))

    return apply


def _span(span: Callable[[int], int]) -> Apply:
    def apply(_frame: Frame, duration: Duration) -> int:
        return span(duration.nanos)

    return apply


_PARTS: dict[str, Apply] = {
    "getFullYear": lambda at, _stamp: at.year,
    "getMonth": lambda at, _stamp: at.month - 1,
    "getDayOfYear": lambda at, _stamp: at.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda at, _stamp: at.day - 1,
    "getDate": lambda at, _stamp: at.day,
    "getDayOfWeek": lambda at, _stamp: at.isoweekday() % 7,
    "getHours": lambda at, _stamp: at.hour,
    "getMinutes": lambda at, _stamp: at.minute,
    "getSeconds": lambda at, _stamp: at.second,
    "getMilliseconds": lambda _at, stamp: stamp.nanos % _SECOND // 10**6,
}
_SPANS: dict[str, Callable[[int], int]] = {
    "getHours": lambda nanos: int(_in_unit(3600 * _SECOND, nanos)),
    "getMinutes": lambda nanos: int(_in_unit(60 * _SECOND, nanos)),
    "getSeconds": lambda nanos: int(_in_unit(_SECOND, nanos)),
    "getMilliseconds": lambda nanos: _quotient(nanos, 10**6),
}

FUNCTIONS: Functions = {
    name: (
        method((TIMESTAMP,), INT, _part(part)),
        method((TIMESTAMP, STRING), INT, _part(part)),
        *([method((DURATION,), INT, _span(_SPANS[name]))] if name in _SPANS else []),
    )
    for name, part in _PARTS.items()
}
