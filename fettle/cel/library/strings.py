"""The functions on strings, with `format` and Go's quoting. They count characters, not bytes."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fettle.cel.library import conversions, regexes, times
from fettle.cel.library.values import (
    BOOL,
    DYN,
    INT,
    MAPS,
    MAX_SIZE,
    STRING,
    CelError,
    Duration,
    Frame,
    Functions,
    Overload,
    Timestamp,
    Type,
    Uint,
    Undecidable,
    Value,
    function,
    list_of,
    method,
    ordered,
)

# Quoting

ESCAPES = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)
_ASCII_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | ESCAPES


def quoted(text: str) -> str | None:
    """Go's `%q`; None if a character is unassigned in the Unicode that Python knows."""
    text = text.translate(_ASCII_ESCAPES)
    if not text.isprintable():
        strange = {char for char in text if not char.isprintable()}
        if any(unicodedata.category(char) == "Cn" for char in strange):
            return None
        text = text.translate({ord(char): _escaped(ord(char)) for char in strange})
    return f'"{text}"'


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# Formatting

_CLAUSE = re.compile(r"%(?:\.([0-9]*))?(.?)", re.DOTALL)
_MOST_DIGITS = 30


class Clause(NamedTuple):
    precision: int
    verb: str


def clauses(text: str) -> Iterator[str | Clause]:
    """The literal parts and the clauses of a format string, in turn; raises CelError."""
    position = 0
    while position < len(text):
        at = text.find("%", position)
        if at < 0:
            yield text[position:]
            return
        if at > position:
            yield text[position:at]
        if text.startswith("%%", at):
            yield "%"
            position = at + 2
            continue
        match = _CLAUSE.match(text, at)
        assert match is not None
        yield _clause(match)
        position = match.end()


def _clause(match: re.Match[str]) -> Clause:
    digits, verb = match[1], match[2]
    if digits == "" or verb not in tuple("sdfebxXo"):
        raise CelError(f"could not parse formatting clause {match.group()!r}")
    if digits is not None and len(digits) > 4:
        raise Undecidable("a very great precision")
    return Clause(6 if digits is None else int(digits), verb)


def formatted(frame: Frame, text: str, values: list[Value]) -> str:
    frame.spend(1 + len(text))
    made: list[str] = []
    given = iter(ordered(values))
    for part in clauses(text):
        if isinstance(part, str):
            made.append(part)
            continue
        try:
            value = next(given)
        except StopIteration:
            raise CelError("more clauses than values") from None
        made.append(_VERBS[part.verb](value, part))
        frame.spend(1 + len(made[-1]) // 10)
    whole = "".join(made)
    if len(whole) > MAX_SIZE:
        raise Undecidable("it makes too large a value")
    return whole


def _format_string(value: Value, _clause: Clause) -> str:
    if isinstance(value, list):
        return _format_list(value)
    if isinstance(value, MAPS):
        return _format_map(value)
    if value is None:
        return "null"
    if type(value) is Type:
        return value.name
    return conversions.text(value)


def _format_list(items: list[Value]) -> str:
    return f"[{', '.join(_format_item(item) for item in ordered(items))}]"


def _format_map(value: Value) -> str:
    entries = []
    for key in value:
        if type(key) not in (str, bool, int, Uint):
            raise CelError("no formatting function for map key")
        entries.append((_format_item(key), _format_item(value.get(key))))
    return f"{{{', '.join(f'{key}:{item}' for key, item in sorted(entries, key=_first))}}}"


def _first(entry: tuple[str, str]) -> str:
    return entry[0]


def _format_item(value: Value) -> str:
    """A value inside a list or map."""
    match value:
        case str():
            return _format_quoted(value)
        case bytes():
            return "b" + _format_quoted(conversions.text(value))
        case float():
            if math.isfinite(value):
                return f"{value:.6f}"
            return f'"{conversions.text(value)}"'
        case Timestamp():
            return f'timestamp("{times.timestamp_text(value)}")'
        case Duration():
            return f'duration("{times.duration_text(value)}")'
        case _:
            return _format_string(value, Clause(0, "s"))


def _format_quoted(text: str) -> str:
    within = quoted(text)
    if within is None:
        raise Undecidable("quoting a character that Unicode may not have")
    return within


def _format_decimal(value: Value, _clause: Clause) -> str:
    _require(value, int, Uint)
    return str(value)


def _number(value: Value) -> float:
    if type(value) is str and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    _require(value, float)
    return float(value) + 0.0  # a zero has no sign here


def _format_fixed(value: Value, clause: Clause) -> str:
    number = _number(value)
    if not math.isfinite(number):
        return _not_finite(number)
    _require_few_digits(number, clause)
    return f"{number:,.{clause.precision}f}"


def _format_scientific(value: Value, clause: Clause) -> str:
    number = _number(value)
    mantissa, _, exponent = f"{number:.6e}".partition("e")
    raised = exponent.translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "+"))
    text = f"{mantissa}×10{raised}" if math.isfinite(number) else _not_finite(number)
    return text.rjust(clause.precision)  # Kubernetes takes the precision for a width


def _not_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "∞" if number > 0 else "-∞"


def _require_few_digits(number: float, clause: Clause) -> None:
    if clause.precision > _MOST_DIGITS or abs(number) >= 1e15:
        raise Undecidable("a double written with very many digits")


def _format_binary(value: Value, _clause: Clause) -> str:
    _require(value, int, Uint, bool)
    return f"{int(value):b}"


def _format_hex(value: Value, clause: Clause) -> str:
    _require(value, int, Uint, str, bytes)
    if isinstance(value, int):
        made = f"{int(value):x}"
    else:
        made = (value.encode() if isinstance(value, str) else value).hex()
    return made.upper() if clause.verb == "X" else made


def _format_octal(value: Value, _clause: Clause) -> str:
    _require(value, int, Uint)
    return f"{int(value):o}"


def _require(value: Value, *kinds: type) -> None:
    if type(value) not in kinds:
        raise CelError("error during formatting: a value of the wrong type")


_VERBS: dict[str, Callable[[Value, Clause], str]] = {
    "s": _format_string,
    "d": _format_decimal,
    "f": _format_fixed,
    "e": _format_scientific,
    "b": _format_binary,
    "x": _format_hex,
    "X": _format_hex,
    "o": _format_octal,
}


# The other functions

_TWO = (STRING, STRING)
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def _starts_with(frame: Frame, text: Value, part: Value) -> bool:
    _require_strings(text, part)
    frame.read(part)
    return bool(text.startswith(part))


def _ends_with(frame: Frame, text: Value, part: Value) -> bool:
    _require_strings(text, part)
    frame.read(part)
    return bool(text.endswith(part))


def _contains(frame: Frame, text: Value, part: Value) -> bool:
    _require_strings(text, part)
    frame.spend(1 + len(text) * len(part) // 40)
    return part in text


def _require_strings(*texts: Value) -> None:
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


def _replaced(frame: Frame, text: str, old: str, new: str, count: int = -1) -> str:
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
        method((STRING, STRING, STRING), STRING, _replaced),
        method((STRING, STRING, STRING, INT), STRING, _replaced),
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
