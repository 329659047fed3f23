"""Regular expressions of rules, over text that others write: RE2's, whose time grows with the text
and no faster, whatever the expression is.

The standard library's can take a time that grows with the square of a text, or worse, on the loop
on which everybody waits.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol

import re2  # type: ignore[import-untyped]

LONGEST = 32 * 1024
"""Characters of a text that are looked at: no more than is kept of any."""


class Match(Protocol):
    """What was found, as of the standard library."""

    def __getitem__(self, group: int | str, /) -> str | Any: ...
    def groupdict(self) -> dict[str, str | Any]: ...
    def groups(self) -> tuple[str | Any, ...]: ...
    def start(self) -> int: ...


class _Compiled(Protocol):
    groups: int
    groupindex: Mapping[str, int]

    def search(self, text: str) -> Match | None: ...
    def fullmatch(self, text: str) -> Match | None: ...
    def finditer(self, text: str) -> Iterator[Match]: ...


@cache
def compiled(pattern: str) -> _Compiled:
    """Raises ValueError that says why it is no pattern. Rules are few, and all are kept."""
    options = re2.Options()
    options.log_errors = False
    try:
        made: _Compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(_explained(error)) from error
    return made


def search(pattern: str, text: str) -> Match | None:
    """The first place where it is found."""
    return compiled(pattern).search(_readable(text))


def fullmatch(pattern: str, text: str) -> Match | None:
    return compiled(pattern).fullmatch(_readable(text))


def find_each(pattern: str, text: str) -> Iterator[Match]:
    return compiled(pattern).finditer(_readable(text))


def any_of(several: Iterable[str]) -> str:
    """A pattern that matches what any of these does; of none nothing."""
    return "|".join(f"(?:{each})" for each in several) or r"[^\x00-\x{10FFFF}]"


def names(text: str, name: str, joined: str) -> bool:
    """Whether a text has a name by itself: no letter, digit, `_` or character of `joined` stands
    beside it. A dot may end a sentence.

    >>> names("GPU-1 is lost.", "GPU-1", joined="-"), names("GPU-10 is lost", "GPU-1", joined="-")
    (True, False)
    """
    text = text[:LONGEST]
    at = text.find(name) if name else -1
    while at >= 0:
        end = at + len(name)
        before, after, further = (
            text[max(0, at - 1) : at],
            text[end : end + 1],
            text[end + 1 : end + 2],
        )
        if after == "." and not _is_part(further, ""):
            after = ""
        if not (_is_part(before, joined) or _is_part(after, joined)):
            return True
        at = text.find(name, at + 1)
    return False


def _is_part(character: str, joined: str) -> bool:
    return character == "_" or character.isalnum() or bool(character and character in joined)


def _readable(text: str) -> str:
    """RE2 reads UTF-8, in which halves of surrogate pairs cannot be written."""
    text = text[:LONGEST]
    return text if text.isascii() else text.encode(errors="replace").decode()


def _explained(error: Exception) -> str:
    said = error.args[0] if error.args else str(error)
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    looks_around = any(sign in text for sign in ("(?=", "(?!", "(?<=", "(?<!"))
    return f"{text}: patterns of rules cannot look ahead or behind" if looks_around else text
