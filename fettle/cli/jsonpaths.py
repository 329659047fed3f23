"""`-o jsonpath=TEMPLATE`, the part of kubectl's syntax that lists need: text as it stands, and in
braces a path (`.pods[*].node`, `[0]`, `['a.b']`), a quoted text, or `range PATH` up to `end`.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from fettle.model import BadInput

PREFIX = "jsonpath="
_DEEPEST = 20
_LONGEST_NUMBER = 9
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_EVERY = "*"
"""The step to all elements; a field that is called so is quoted."""


class _Path(NamedTuple):
    """`steps`: names of fields, numbers of elements, or None for all elements."""

    steps: tuple[str | int | None, ...]
    of_all: bool

    def values(self, here: Any, everything: Any) -> list[Any]:
        found = [everything if self.of_all else here]
        for step in self.steps:
            found = [inner for one in found for inner in _inner(one, step)]
        return found


class _Range(NamedTuple):
    path: _Path
    parts: "list[_Part]"


_Part = str | _Path | _Range


def _inner(value: Any, step: str | int | None) -> list[Any]:
    """What a step leads to; nothing, as with kubectl, where there is no such field or element."""
    match value, step:
        case dict(), None:
            return [*value.values()]
        case list(), None:
            return value
        case dict(), str() if step in value:
            return [value[step]]
        case list(), int() if -len(value) <= step < len(value):
            return [value[step]]
    return []


class Template:
    """A template that is read once. Raises BadInput."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        if text[:1] in (".", "$", "["):
            raise BadInput(f"put the path into braces: {{{text[:60]}}}")
        self._parts = [*self._read(0)]

    def of(self, data: Any) -> str:
        """The text that it makes of the data."""
        return "".join(_told(self._parts, data, data))

    def _read(self, depth: int) -> Iterator[_Part]:
        """The parts up to the `end` of this range, or of all."""
        while self._at < len(self._text):
            brace = self._text.find("{", self._at)
            brace = len(self._text) if brace < 0 else brace
            if brace > self._at:
                yield self._text[self._at : brace]
            self._at = brace + 1
            if brace >= len(self._text):
                break
            inside = self._inside().strip()
            if inside == "end":
                if not depth:
                    raise BadInput("{end} without a {range …} before it")
                return
            if inside.startswith("range ") or inside == "range":
                if depth == _DEEPEST:
                    raise BadInput(f"more than {_DEEPEST} {{range …}} in each other")
                path = _path(inside.removeprefix("range").strip())
                yield _Range(path, [*self._read(depth + 1)])
            else:
                yield _unquoted(inside) if inside[:1] in ("'", '"') else _path(inside)
        if depth:
            raise BadInput("{range …} without {end}")

    def _inside(self) -> str:
        """What stands up to the closing brace, which is passed."""
        begun, quote = self._at, ""
        while self._at < len(self._text):
            letter = self._text[self._at]
            self._at += 2 if quote and letter == "\\" else 1
            if letter == quote:
                quote = ""
            elif not quote and letter in "'\"":
                quote = letter
            elif not quote and letter == "}":
                return self._text[begun : self._at - 1]
        raise BadInput(f"no }} ends {{{self._text[begun:][:40]}")


def _unquoted(text: str) -> str:
    """A quoted text, alone in its braces."""
    quote, letters = text[0], iter(text[1:])
    found = ""
    for letter in letters:
        if letter == quote:
            break
        escaped = next(letters, "") if letter == "\\" else ""
        found += _ESCAPED.get(escaped, escaped) if escaped else letter
    else:
        raise BadInput(f"no {quote} ends {text[:40]}")
    if rest := "".join(letters):
        raise BadInput(f"{rest[:40]} stands after a quoted text: give it braces of its own")
    return found


def _path(text: str) -> _Path:
    of_all, left = text.startswith("$"), text.removeprefix("$").removeprefix("@")
    if not text:
        raise BadInput("a path is missing, such as {.pods[*].pod}")
    steps: list[str | int | None] = []
    step: str | int | None
    while left and left != ".":
        if left.startswith(".") and left[1:2] != "[":
            step, left = _field(left[1:], text)
        elif left.startswith((".[", "[")):
            step, left = _bracket(left.removeprefix("."), text)
        else:
            raise _unread(text, left)
        steps.append(step)
    return _Path(tuple(steps), of_all)


def _field(left: str, whole: str) -> tuple[str | None, str]:
    """A name up to the next step; a dot of the name is written as `\\.`."""
    name, at = "", 0
    while at < len(left) and left[at] not in ".[":
        at += left[at] == "\\"
        name += left[at : at + 1]
        at += 1
    if not name or any(letter.isspace() or letter in "()?=|{}]," for letter in name):
        raise _unread(whole, left)
    return (None if name == _EVERY else name), left[at:]


def _bracket(left: str, whole: str) -> tuple[str | int | None, str]:
    quoted = left[1:2] in ("'", '"')
    end = left.find(f"{left[1]}]" if quoted else "]", 2)
    if end < 0:
        raise _unread(whole, left)
    inside, rest = left[1:end].strip(), left[end + 1 + quoted :]
    if quoted:
        return left[2:end], rest
    if inside == _EVERY:
        return None, rest
    if len(inside) > _LONGEST_NUMBER or not inside.removeprefix("-").isdecimal():
        raise _unread(whole, left)
    return int(inside), rest


def _unread(whole: str, left: str) -> BadInput:
    return BadInput(
        f"{whole[:60]!r} cannot be read from {left[:30]!r} on: a path has .FIELD, [0], [-1], [*] "
        "and ['FIELD'] (filters, slices and .. of kubectl are left out: --state, --node and other "
        "flags narrow a list)"
    )


def _told(parts: list[_Part], here: Any, everything: Any) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case _Path():
                yield " ".join(map(_text, part.values(here, everything)))
            case _Range():
                for one in part.path.values(here, everything):
                    yield from _told(part.parts, one, everything)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
