"""The tokens of a regular expression, and how deep Go's tree of it is, within bounds.

Pure. For patterns that RE2 has accepted: Go, as in `regexp/syntax`, refuses some of them.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_HEIGHT = 1000
"""Go's `maxHeight`: the most levels that it takes."""
_SHORTEST = 500
"""No shorter pattern can be deeper than that."""
TOKEN = re.compile(
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
"""`huge` is a count of repetitions that RE2 takes for letters, and Go refuses."""


class Height(NamedTuple):
    """Of a part, and of a concatenation that it is within."""

    least: int = 1
    most: int = 1
    least_within: int = 1
    most_within: int = 2


_LEAF = Height()


def height(pattern: str) -> Height:
    """The bounds of a whole pattern; those of short ones are not looked at."""
    if len(pattern) < _SHORTEST:
        return _LEAF
    groups = [_Group(captures=False, start=0)]
    for match in TOKEN.finditer(pattern):
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
    parts: list[Height] = field(default_factory=list)
    alternatives: list[Height] = field(default_factory=list)
    longest: int = 0

    def repeat(self) -> None:
        if self.parts:
            self.parts[-1] = _above(self.parts[-1])

    def alternative(self, end: int) -> None:
        """Put what stands since the last bar together."""
        self.alternatives.append(_sequence(self.parts))
        self.longest = max(self.longest, end - self.start)
        self.start, self.parts = end + 1, []

    def close(self, end: int) -> Height:
        self.alternative(end)
        whole = self.alternatives[0]
        if len(self.alternatives) > 1:
            # Go moves common beginnings out of alternatives, again and again.
            moved = 2 * min(len(self.alternatives) - 1, self.longest)
            least = max(part.least for part in self.alternatives)
            most = max(part.most for part in self.alternatives)
            most += 1 + moved
            whole = Height(least, most, least, most + 1)
        return _above(whole) if self.captures else whole


def _above(part: Height) -> Height:
    return Height(part.least + 1, part.most + 1, part.least + 2, part.most + 2)


def _sequence(parts: list[Height]) -> Height:
    """A concatenation, which one around it would take for its own; letters may make one leaf."""
    if len(parts) < 2:
        return parts[0] if parts else _LEAF
    least, most = max(p.least_within for p in parts), max(p.most_within for p in parts)
    return Height(least, most, least, most)
