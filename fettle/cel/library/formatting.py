"""`"…".format([…])`: the clauses of a format string, and how values are written.

Runs in the worker.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fettle.cel.library import conversions, quoting, times
from fettle.cel.library.containers import MAPS, ordered
from fettle.cel.library.signatures import Type
from fettle.cel.library.values import (
    MAX_SIZE,
    CelError,
    Duration,
    Frame,
    Timestamp,
    Uint,
    Undecidable,
    Value,
)

_CLAUSE = re.compile(r"%(?:\.([0-9]*))?(.?)", re.DOTALL)
_MOST_DIGITS = 30


class Clause(NamedTuple):
    precision: int
    verb: str


def clauses(text: str) -> Iterator[str | Clause]:
    """The literal parts and the clauses in turn; raises CelError."""
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


def _string(value: Value, _clause: Clause) -> str:
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, MAPS):
        return _map(value)
    if value is None:
        return "null"
    if type(value) is Type:
        return value.name
    return conversions.text(value)


def _list(items: list[Value]) -> str:
    return f"[{', '.join(_literal(item) for item in ordered(items))}]"


def _map(value: Value) -> str:
    entries = []
    for key in value:
        if type(key) not in (str, bool, int, Uint):
            raise CelError("no formatting function for map key")
        entries.append((_literal(key), _literal(value.get(key))))
    return f"{{{', '.join(f'{key}:{item}' for key, item in sorted(entries, key=_key))}}}"


def _key(entry: tuple[str, str]) -> str:
    return entry[0]


def _literal(value: Value) -> str:
    """A value inside a list or map."""
    match value:
        case str():
            return _quoted(value)
        case bytes():
            return "b" + _quoted(conversions.text(value))
        case float():
            if math.isfinite(value):
                return f"{value:.6f}"
            return f'"{conversions.text(value)}"'
        case Timestamp():
            return f'timestamp("{times.timestamp_text(value)}")'
        case Duration():
            return f'duration("{times.duration_text(value)}")'
        case _:
            return _string(value, Clause(0, "s"))


def _quoted(text: str) -> str:
    quoted = quoting.quoted(text)
    if quoted is None:
        raise Undecidable("quoting a character that Unicode may not have")
    return quoted


def _decimal(value: Value, _clause: Clause) -> str:
    _require(value, int, Uint)
    return str(value)


def _number(value: Value) -> float:
    if type(value) is str and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    _require(value, float)
    return float(value) + 0.0  # a zero has no sign here


def _fixed(value: Value, clause: Clause) -> str:
    number = _number(value)
    if not math.isfinite(number):
        return _not_finite(number)
    _modest(number, clause)
    return f"{number:,.{clause.precision}f}"


def _scientific(value: Value, clause: Clause) -> str:
    number = _number(value)
    mantissa, _, exponent = f"{number:.6e}".partition("e")
    raised = exponent.translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "+"))
    text = f"{mantissa}×10{raised}" if math.isfinite(number) else _not_finite(number)
    return text.rjust(clause.precision)  # Kubernetes takes the precision for a width


def _not_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "∞" if number > 0 else "-∞"


def _modest(number: float, clause: Clause) -> None:
    if clause.precision > _MOST_DIGITS or abs(number) >= 1e15:
        raise Undecidable("a double written with very many digits")


def _binary(value: Value, _clause: Clause) -> str:
    _require(value, int, Uint, bool)
    return f"{int(value):b}"


def _hex(value: Value, clause: Clause) -> str:
    _require(value, int, Uint, str, bytes)
    if isinstance(value, int):
        made = f"{int(value):x}"
    else:
        made = (value.encode() if isinstance(value, str) else value).hex()
    return made.upper() if clause.verb == "X" else made


def _octal(value: Value, _clause: Clause) -> str:
    _require(value, int, Uint)
    return f"{int(value):o}"


def _require(value: Value, *kinds: type) -> None:
    if type(value) not in kinds:
        raise CelError("error during formatting: a value of the wrong type")


_VERBS: dict[str, Callable[[Value, Clause], str]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "x": _hex,
    "X": _hex,
    "o": _octal,
}
