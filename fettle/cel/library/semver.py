"""Semantic versions as DRA attributes and `semver()` know them: strict 2.0, numbers of 64 bits.

Pure; imports nothing of Fettle. Build metadata does not take part in comparison.
"""

import re
from functools import lru_cache
from typing import NamedTuple

_NUMBER = r"0|[1-9][0-9]*"
_PRE = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    rf"(?:-({_PRE}(?:\.{_PRE})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_MAX = 2**64 - 1
_MAX_DIGITS = 20

Identifier = tuple[int, int, str]  # (0, number, "") sorts before (1, 0, text), as semver 2.0 asks


class Version(NamedTuple):
    """Equal and ordered as semver 2.0 says, by its fields in turn; a `release` has no `pre`."""

    major: int
    minor: int
    patch: int
    release: bool = True
    pre: tuple[Identifier, ...] = ()


def compare(left: Version, right: Version) -> int:
    """-1, 0 or 1."""
    return (left > right) - (left < right)


@lru_cache(maxsize=4096)
def parse(text: str) -> Version:
    """A strict semantic version; raises ValueError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a semantic version")
    major, minor, patch = (_number(part, text) for part in match.group(1, 2, 3))
    pre = tuple(_identifier(part, text) for part in match[4].split(".")) if match[4] else ()
    return Version(major, minor, patch, not pre, pre)


def parse_normalized(text: str) -> Version:
    """As `parse`, but a leading `v`, leading zeros and missing minor or patch are mended first."""
    parts = [_stripped(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise ValueError(f"{text!r}: a short version cannot have prerelease or build metadata")
    return parse(".".join(parts + ["0"] * (3 - len(parts))))


def is_version(text: str) -> bool:
    return _attempt(text)


@lru_cache(maxsize=4096)
def _attempt(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _stripped(part: str) -> str:
    if len(part) < 2:
        return part
    rest = part.lstrip("0")
    return rest if rest and rest[0] in "0123456789" else "0" + rest


def _number(digits: str, text: str) -> int:
    if len(digits) > _MAX_DIGITS or int(digits) > _MAX:
        raise ValueError(f"{text!r}: {digits} does not fit 64 bits")
    return int(digits)


def _identifier(part: str, text: str) -> Identifier:
    if part.isdigit():
        return (0, _number(part, text), "")
    return (1, 0, part)
