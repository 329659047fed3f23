"""The functions on strings, which count characters, not bytes.

Runs in the worker.
"""

from fettle.cel.library import regexes
from fettle.cel.library.containers import ordered
from fettle.cel.library.formatting import formatted
from fettle.cel.library.quoting import ESCAPES
from fettle.cel.library.signatures import (
    BOOL,
    DYN,
    INT,
    STRING,
    Functions,
    Overload,
    function,
    list_of,
    method,
)
from fettle.cel.library.values import MAX_SIZE, CelError, Frame, Undecidable, Value

_TWO = (STRING, STRING)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def _starts_with(frame: Frame, text: Value, part: Value) -> bool:
    _strings(text, part)
    frame.read(part)
    return bool(text.startswith(part))


def _ends_with(frame: Frame, text: Value, part: Value) -> bool:
    _strings(text, part)
    frame.read(part)
    return bool(text.endswith(part))


def _contains(frame: Frame, text: Value, part: Value) -> bool:
    _strings(text, part)
    frame.spend(1 + len(text) * len(part) // 40)
    return part in text


def _strings(*texts: Value) -> None:
    if any(type(text) is not str for text in texts):
        raise CelError("no such overload")


def _lower(frame: Frame, text: str) -> str:
    frame.read(text)
    return text.translate(_LOWER)


def _upper(frame: Frame, text: str) -> str:
    frame.read(text)
    return text.translate(_UPPER)


def _trim(frame: Frame, text: str) -> str:
    frame.read(text)
    return text.strip(_SPACES)


def _index_of(frame: Frame, text: str, part: str, start: int = 0) -> int:
    frame.spend(1 + len(text) * len(part) // 40)
    if start < 0:
        raise CelError(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return text.find(part, start)


def _last_index_of(frame: Frame, text: str, part: str) -> int:
    frame.spend(1 + len(text) * len(part) // 40)
    return text.rfind(part)


def _last_index_of_from(frame: Frame, text: str, part: str, start: int) -> int:
    frame.spend(1 + len(text) * len(part) // 40)
    if start < 0:
        raise CelError(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _substring_from(frame: Frame, text: str, start: int) -> str:
    return _substring(frame, text, start, len(text)) if start <= len(text) else _outside(start)


def _substring(frame: Frame, text: str, start: int, end: int) -> str:
    frame.read(text)
    if not 0 <= start <= end <= len(text):
        _outside(start)
    return text[start:end]


def _outside(at: int) -> str:
    raise CelError(f"index out of range: {at}")


def _char_at(_frame: Frame, text: str, at: int) -> str:
    return text[at : at + 1] if 0 <= at <= len(text) else _outside(at)


def _replace(frame: Frame, text: str, old: str, new: str, count: int = -1) -> str:
    frame.spend(1 + len(text) * (len(old) + 1) // 40)
    most = len(text) + 1 if not old else text.count(old)
    if most * len(new) + len(text) > MAX_SIZE:
        raise Undecidable("it makes too large a value")
    frame.spend(most * len(new) // 10)
    return text.replace(old, new, count if count >= 0 else -1)


def _split(frame: Frame, text: str, separator: str, count: int = -1) -> list[str]:
    frame.spend(1 + len(text))
    if count == 0:
        return []
    if separator:
        return text.split(separator, count - 1 if count > 0 else -1)
    if 0 < count < len(text):
        return [*text[: count - 1], text[count - 1 :]]
    return list(text)


def _join(frame: Frame, parts: list[Value], separator: str = "") -> str:
    for part in ordered(parts):
        if type(part) is not str:
            raise CelError("join: invalid input")
    length = sum(map(len, parts)) + len(parts) * len(separator)
    frame.spend(1 + length)
    if length > MAX_SIZE:
        raise Undecidable("it makes too large a value")
    return separator.join(parts)


def _quote(frame: Frame, text: str) -> str:
    frame.read(text)
    return f'"{text.translate(ESCAPES)}"'


_LOOSE = {
    "startsWith": _starts_with,
    "endsWith": _ends_with,
    "contains": _contains,
}
_MATCHES = Overload(_TWO, BOOL, regexes.matches, guarded=False)

FUNCTIONS: Functions = {
    **{
        name: (Overload(_TWO, BOOL, apply, member=True, guarded=False),)
        for name, apply in _LOOSE.items()
    },
    "matches": (_MATCHES, _MATCHES._replace(member=True)),
    "find": (method(_TWO, STRING, regexes.find),),
    "findAll": (
        method(_TWO, list_of(STRING), regexes.find_all),
        method((STRING, STRING, INT), list_of(STRING), regexes.find_all),
    ),
    "charAt": (method((STRING, INT), STRING, _char_at),),
    "indexOf": (
        method(_TWO, INT, _index_of),
        method((STRING, STRING, INT), INT, _index_of),
    ),
    "lastIndexOf": (
        method(_TWO, INT, _last_index_of),
        method((STRING, STRING, INT), INT, _last_index_of_from),
    ),
    "lowerAscii": (method((STRING,), STRING, _lower),),
    "upperAscii": (method((STRING,), STRING, _upper),),
    "trim": (method((STRING,), STRING, _trim),),
    "replace": (
        method((STRING, STRING, STRING), STRING, _replace),
        method((STRING, STRING, STRING, INT), STRING, _replace),
    ),
    "split": (
        method(_TWO, list_of(STRING), _split),
        method((STRING, STRING, INT), list_of(STRING), _split),
    ),
    "substring": (
        method((STRING, INT), STRING, _substring_from),
        method((STRING, INT, INT), STRING, _substring),
    ),
    "join": (
        method((list_of(STRING),), STRING, _join),
        method((list_of(STRING), STRING), STRING, _join),
    ),
    "format": (method((STRING, list_of(DYN)), STRING, formatted),),
    "strings.quote": (function((STRING,), STRING, _quote),),
}
