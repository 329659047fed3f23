"""Regular expressions: RE2, in linear time, as Kubernetes' Go has them.

Python's RE2 and Go's differ in a few patterns. Where they may, the outcome is undecided. Go also
refuses patterns whose tree is too deep, so bounds on that depth are computed here.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]

from fettle.cel.library.values import (
    NO_OVERLOAD,
    CelError,
    Frame,
    Optional,
    Type,
    Undecidable,
    Value,
)

_CLASS = re.compile(r"\\[pP]")
_UNKNOWN_CLASS = re.compile(rb"invalid character class range: \\[pP](\{[^}]*\}|[^{])")
"""A Unicode class that Go's RE2 may know. A class that is not closed is known to neither."""
_SIZE = re.compile(r"too large|too long|too deep", re.IGNORECASE)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """The compiled pattern; raises CelError if it is none."""
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
    """Check a pattern that RE2 has accepted for what Go refuses; raises CelError or Undecidable."""
    for token in _TOKEN.finditer(pattern):
        if token.lastgroup == "huge" or token.group() == r"\C":
            raise CelError(f"{token.group()[:40]} is not supported in regular expressions")
    least, most, *_ = _height(pattern)
    if least > _MAX_HEIGHT:
        raise CelError("the regular expression is nested too deeply")
    if most > _MAX_HEIGHT:
        raise Undecidable("a regular expression that may be read otherwise")


def held(value: Value) -> Value:
    """What Go holds: an optional's content, a type's name. A constant pattern searches that."""
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
    """Matches one after another; an empty match directly behind another one does not count."""
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


# How deep Go's tree of a pattern is

_MAX_HEIGHT = 1000
"""Go's `maxHeight`: the deepest tree that it accepts."""
_SHORTEST = 500
"""No shorter pattern can have a deeper tree."""
_TOKEN = re.compile(
    r"(?P<quoted>\\Q.*?(?:\\E|\Z))"
    r"|(?P<escape>\\(?:[pPx]\{[^}]*\}|[pP].|x..|[0-7]{1,3}|.))"
    r"|(?P<set>\[\^?(?:\[:\^?\w+:\]|\\[pPx]\{[^}]*\}|\\.|[^\\])(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])"
    r"|(?P<flags>\(\?[A-Za-z-]*\))"
    r"|(?P<group>\(\?[A-Za-z-]*:)"
    r"|(?P<capture>\((?:\?P?<\w+>)?)"
    r"|(?P<bar>\|)"
    r"|(?P<end>\))"
    r"|(?P<huge>\{[1-9][0-9]{8,}(?:,(?:0|[1-9][0-9]*)?)?\}|\{(?:0|[1-9][0-9]*),[1-9][0-9]{8,}\})"
    r"|(?P<repeat>[*+?]\??|\{(?:0|[1-9][0-9]*)(?:,(?:0|[1-9][0-9]*)?)?\}\??)"
    r"|(?P<point>[.^$])"
    r"|(?P<literal>.)",
    re.DOTALL,
)
"""`huge` is a number of repeats that RE2 takes for letters, and Go refuses."""


class _Height(NamedTuple):
    """Bounds on the height of a part, by itself and within a concatenation."""

    least: int = 1
    most: int = 1
    least_within: int = 1
    most_within: int = 2


_LEAF = _Height()


def _height(pattern: str) -> _Height:
    """Bounds on the height of a pattern that RE2 has accepted; short ones count as leaves."""
    if len(pattern) < _SHORTEST:
        return _LEAF
    groups = [_Group(captures=False, start=0)]
    for match in _TOKEN.finditer(pattern):
        group, text = groups[-1], match.group()
        match match.lastgroup:
            case "capture" | "group" as kind:
                groups.append(_Group(captures=kind == "capture", start=match.end()))
            case "end":
                groups.pop()
                groups[-1].parts.append(group.close(match.start()))
            case "bar":
                group.alternative(match.start())
            case "repeat":
                group.repeat()
            case "quoted":
                group.parts += [_LEAF] * len(text[2:].removesuffix(r"\E"))
            case "flags":
                pass
            case _:
                group.parts.append(_LEAF)
    return groups[0].close(len(pattern))


@dataclass
class _Group:
    captures: bool
    start: int
    parts: list[_Height] = field(default_factory=list)
    alternatives: list[_Height] = field(default_factory=list)
    longest: int = 0

    def repeat(self) -> None:
        if self.parts:
            self.parts[-1] = _above(self.parts[-1])

    def alternative(self, end: int) -> None:
        """Join what stands since the last bar into one alternative."""
        self.alternatives.append(_sequence(self.parts))
        self.longest = max(self.longest, end - self.start)
        self.start, self.parts = end + 1, []

    def close(self, end: int) -> _Height:
        self.alternative(end)
        whole = self.alternatives[0]
        if len(self.alternatives) > 1:
            # Go moves common beginnings out of alternatives, again and again.
            moved = 2 * min(len(self.alternatives) - 1, self.longest)
            least = max(part.least for part in self.alternatives)
            most = max(part.most for part in self.alternatives)
            most += 1 + moved
            whole = _Height(least, most, least, most + 1)
        return _above(whole) if self.captures else whole


def _above(part: _Height) -> _Height:
    return _Height(part.least + 1, part.most + 1, part.least + 2, part.most + 2)


def _sequence(parts: list[_Height]) -> _Height:
    """A concatenation: Go merges it into one around it, and may merge letters into one leaf."""
    if len(parts) < 2:
        return parts[0] if parts else _LEAF
    least, most = max(p.least_within for p in parts), max(p.most_within for p in parts)
    return _Height(least, most, least, most)
