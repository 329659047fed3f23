"""Regular expressions: RE2, in linear time, as Kubernetes' Go has them.

Runs in the worker. Where the two makers of RE2 may read a pattern differently, nothing is decided.
"""

import re
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from fettle.cel.library import nesting
from fettle.cel.library.signatures import Type
from fettle.cel.library.values import NO_OVERLOAD, CelError, Frame, Optional, Undecidable, Value

_CLASS = re.compile(r"\\[pP]")
_UNKNOWN_CLASS = re.compile(rb"invalid character class range: \\[pP](\{[^}]*\}|[^{])")
"""A class whose name the other maker may know; one that is not closed is known to neither."""
_SIZE = re.compile(r"too large|too long|too deep", re.IGNORECASE)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """A compiled pattern; raises CelError where it is none."""
    options = re2.Options()
    options.log_errors = False
    try:
        made = re2.compile(pattern, options)
    except re2.error as error:
        unknown = any(_UNKNOWN_CLASS.search(said) for said in error.args if type(said) is bytes)
        if _SIZE.search(str(error)) or len(pattern) > 1000 or unknown:
            raise Undecidable("a regular expression that may be read otherwise") from error
        raise CelError(f"the regular expression {pattern[:40]!r} cannot be read") from error
    _require_known_to_go(pattern)
    return made


def _require_known_to_go(pattern: str) -> None:
    """That Go takes a pattern too, which the other maker has taken."""
    for token in nesting.TOKEN.finditer(pattern):
        if token.lastgroup == "huge" or token.group() == r"\C":
            raise CelError(f"{token.group()[:40]} is not supported in regular expressions")
    least, most, *_ = nesting.height(pattern)
    if least > nesting.MAX_HEIGHT:
        raise CelError("the regular expression is nested too deeply")
    if most > nesting.MAX_HEIGHT:
        raise Undecidable("a regular expression that may be read otherwise")


def held(value: Value) -> Value:
    """What Go holds: an optional's content, a type's name; a constant pattern looks at that."""
    while type(value) is Optional and value.values:
        (value,) = value.values
    return value.name if type(value) is Type else value


def _require_texts(text: Value, pattern: Value) -> None:
    if type(text) is not str or type(pattern) is not str:
        raise CelError(NO_OVERLOAD)


def matches(frame: Frame, text: Value, pattern: Value) -> bool:
    _require_texts(text, pattern)
    return _search(frame, text, pattern, 0) is not None


def find(frame: Frame, text: Value, pattern: Value) -> str:
    _require_texts(text, pattern)
    match = _search(frame, text, pattern, 0)
    return "" if match is None else str(match.group(0))


def find_all(frame: Frame, text: Value, pattern: Value, count: Value = -1) -> list[str]:
    """Matches one after another; an empty one directly after another match does not count."""
    _require_texts(text, pattern)
    if type(count) is not int:
        raise CelError(NO_OVERLOAD)
    compiled(pattern)
    found: list[str] = []
    most = len(text) + 1 if count < 0 else count
    position, last_end = 0, -1
    while len(found) < most and position <= len(text):
        match = _search(frame, text, pattern, position)
        if match is None:
            break
        start, end = match.span()
        if end > position or start != last_end:
            found.append(text[start:end])
        position = end if end > position else position + 1
        last_end = end
    return found


def _search(frame: Frame, text: str, pattern: str, start: int) -> Any:
    frame.spend(1 + (len(text) + 1) * len(pattern) // 40)
    if not text.isascii() and ("(?" in pattern or _CLASS.search(pattern)):
        raise Undecidable("a pattern with flags or classes on text that is not ASCII")
    return compiled(pattern).search(text, start)
