"""Semantic versions: `semver()`, and how attributes of devices are parsed and compared.

Strict semver 2.0, with numbers of 64 bits. Build metadata does not count in comparisons.
"""

import re
from functools import lru_cache

from fettle.cel.library.values import (
    BOOL,
    INT,
    SEMVER,
    STRING,
    Apply,
    CelError,
    Frame,
    Functions,
    Identifier,
    Version,
    comparisons,
    function,
    method,
)

_NUMBER = r"0|[1-9][0-9]*"
_PRE = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    rf"(?:-({_PRE}(?:\.{_PRE})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_MAX = 2**64 - 1
"""blang/semver, which Kubernetes uses, keeps the numbers as uint64."""
_MAX_DIGITS = 20


def compare(left: Version, right: Version) -> int:
    """-1, 0 or 1."""
    return (left > right) - (left < right)


@lru_cache(maxsize=4096)
def parse(text: str) -> Version:
    """A strict semantic version; raises ValueError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a semantic version")
    major, minor, patch = (_uint64(part, text) for part in match.group(1, 2, 3))
    pre = tuple(_identifier(part, text) for part in match[4].split(".")) if match[4] else ()
    return Version(major, minor, patch, not pre, pre)


def parse_normalized(text: str) -> Version:
    """As `parse`, but allows a leading `v`, leading zeros, and a missing minor or patch."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
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


def _without_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    rest = part.lstrip("0")
    return rest if rest and rest[0] in "0123456789" else "0" + rest


def _uint64(digits: str, text: str) -> int:
    if len(digits) > _MAX_DIGITS or int(digits) > _MAX:
        raise ValueError(f"{text!r}: {digits} does not fit 64 bits")
    return int(digits)


def _identifier(part: str, text: str) -> Identifier:
    if part.isdigit():
        return (0, _uint64(part, text), "")
    return (1, 0, part)


def _semver(frame: Frame, text: str, normalize: bool = False) -> Version:
    frame.read(text)
    try:
        return parse_normalized(text) if normalize else parse(text)
    except ValueError as error:
        raise CelError(str(error)) from error


def _is_semver(frame: Frame, text: str, normalize: bool = False) -> bool:
    try:
        _semver(frame, text, normalize)
    except CelError:
        return False
    return True


def _compare(_frame: Frame, left: Version, right: Version) -> int:
    return compare(left, right)


def _part(part: str) -> Apply:
    def number(_frame: Frame, version: Version) -> int:
        value: int = getattr(version, part)
        return value - 2**64 if value >= 2**63 else value  # as Go converts to a signed integer

    return number


FUNCTIONS: Functions = {
    "semver": (
        function((STRING,), SEMVER, _semver),
        function((STRING, BOOL), SEMVER, _semver),
    ),
    "isSemver": (
        function((STRING,), BOOL, _is_semver),
        function((STRING, BOOL), BOOL, _is_semver),
    ),
    **comparisons(SEMVER, _compare),
    **{part: (method((SEMVER,), INT, _part(part)),) for part in ("major", "minor", "patch")},
}
