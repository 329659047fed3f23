"""The functions on strings, which count characters, not bytes.

Runs in the worker. Out of range, and in other corners where versions of Kubernetes differ,
nothing is decided.
"""

import re
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from fettle.selectors.values import MAX_SIZE, Frame, Undecidable, Value


def starts_with(frame: Frame, text: str, part: str) -> bool:
    frame.read(part)
    return text.startswith(part)


def ends_with(frame: Frame, text: str, part: str) -> bool:
    frame.read(part)
    return text.endswith(part)


def has_part(frame: Frame, text: str, part: str) -> bool:
    frame.spend(1 + len(text) * len(part) // 40)
    return part in text


_FAITHFUL_PATTERN = re.compile(r"[ -~]*")
_UNFAITHFUL_PART = re.compile(r"\\[CpPN]|\(\?P?<|\[:")


@lru_cache(maxsize=256)
def compiled(regex: str) -> Any:
    """A compiled pattern; undecidable where two makers of RE2 may read it differently."""
    if _FAITHFUL_PATTERN.fullmatch(regex) is None or _UNFAITHFUL_PART.search(regex):
        raise Undecidable(f"the regular expression {regex!r} is not surely read alike")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        raise Undecidable(f"the regular expression {regex!r} cannot be read") from error


def matches(frame: Frame, text: str, regex: str) -> bool:
    frame.spend(1 + len(text) * len(regex) // 40)
    if not text.isascii() and "(?i" in regex:
        raise Undecidable("a case-insensitive pattern on text that is not ASCII")
    return compiled(regex).search(text) is not None


def lower(frame: Frame, text: str) -> str:
    frame.read(text)
    return "".join(c.lower() if c.isascii() else c for c in text)


def upper(frame: Frame, text: str) -> str:
    frame.read(text)
    return "".join(c.upper() if c.isascii() else c for c in text)


def trim(frame: Frame, text: str) -> str:
    frame.read(text)
    if not text.isascii() or any("\x1c" <= c <= "\x1f" for c in text):
        raise Undecidable("trim of text that is not plain ASCII")
    return text.strip()


def index_of(frame: Frame, text: str, part: str) -> int:
    return text.find(_searched(frame, text, part))


def last_index_of(frame: Frame, text: str, part: str) -> int:
    return text.rfind(_searched(frame, text, part))


def _searched(frame: Frame, text: str, part: str) -> str:
    frame.spend(1 + len(text) * len(part) // 40)
    if not part:
        raise Undecidable("the index of an empty string")
    return part


def substring_from(frame: Frame, text: str, start: int) -> str:
    return substring(frame, text, start, len(text))


def substring(frame: Frame, text: str, start: int, end: int) -> str:
    frame.read(text)
    if not 0 <= start <= end <= len(text):
        raise Undecidable("a substring out of range")
    return text[start:end]


def char_at(frame: Frame, text: str, at: int) -> str:
    if not 0 <= at < len(text):
        raise Undecidable("charAt out of range")
    return text[at]


def replace(frame: Frame, text: str, old: str, new: str) -> str:
    frame.spend(1 + len(text) * len(old) // 40)
    if not old:
        raise Undecidable("replacing an empty string")
    if text.count(old) * len(new) + len(text) > MAX_SIZE:
        raise Undecidable("it makes too large a value")
    frame.spend(text.count(old) * len(new) // 10)
    return text.replace(old, new)


def split(frame: Frame, text: str, separator: str) -> list[str]:
    frame.spend(1 + len(text))
    if not separator:
        raise Undecidable("splitting at an empty string")
    return text.split(separator)


def join(frame: Frame, parts: list[Value]) -> str:
    return join_with(frame, parts, "")


def join_with(frame: Frame, parts: list[Value], separator: str) -> str:
    if not all(type(part) is str for part in parts):
        raise Undecidable("join of something that is no string")
    length = sum(map(len, parts)) + len(parts) * len(separator)
    frame.spend(1 + length)
    return separator.join(parts)
