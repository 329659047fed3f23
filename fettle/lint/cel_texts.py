"""What the text of a CEL selector shows without its grammar, which only the worker knows: the texts
of which it makes quantities and versions, and whether it holds only if all of its parts do."""

from collections.abc import Iterator

from fettle.lint.structure import meant_quantity

_LONGEST = 10 * 1024
"""Characters that the API server accepts."""
_CALLS = ("quantity", "semver")
_QUOTES = "\"'"
_BRANCHES = (
    *("||", "?", "true", "false", ".all(", ".exists(", ".exists_one(", ".filter(", ".map("),
    *(".bind(", ".transform", "sortBy("),
)
"""What may leave a part of an expression out."""


def literals_of(text: str) -> Iterator[tuple[str, str]]:
    """Each call `quantity("…")` or `semver("…")`: the function, and the text with its quotes."""
    code, literals = _parts(text)
    for index, literal in enumerate(literals):
        before, after = code[index].rstrip(), code[index + 1].lstrip()
        if not before.endswith("(") or not after.startswith(")"):
            continue
        before = before[:-1].rstrip()
        for call in _CALLS:
            other = before.removesuffix(call)
            if other != before and not (other[-1:].isalnum() or other[-1:] in ("_", ".")):
                yield call, literal


def holds_only_with_all(text: str) -> bool:
    """Whether it is a chain of && on the outside, and nothing in it may be left out: so it never
    holds if one part always fails."""
    code, _ = _parts(text)
    without = '""'.join(code)
    if any(branch in without for branch in _BRANCHES) or "!" in without.replace("!=", ""):
        return False
    depth = 0
    for index, letter in enumerate(without):
        depth += (letter in "([{") - (letter in ")]}")
        if depth > 0 and without.startswith("&&", index):
            return False
    return bool(without)


def _parts(text: str) -> tuple[list[str], list[str]]:
    """The code before, between and after its texts, and these; nothing of what is hard to read."""
    unread: tuple[list[str], list[str]] = ([""], [])
    if len(text) > _LONGEST or "\\" in text or "//" in text:
        return unread
    code, literals, at = [], [], 0
    while (start := _first_quote(text, at)) >= 0:
        end = text.find(text[start], start + 1)
        if end < 0 or text.startswith(text[start] * 3, start) or text[:start].endswith(_PREFIXES):
            return unread
        code.append(text[at:start])
        literals.append(text[start : end + 1])
        at = end + 1
    return [*code, text[at:]], literals


_PREFIXES = ("r", "R", "b", "B")
"""Of raw texts and of bytes."""


def _first_quote(text: str, at: int) -> int:
    found = [where for quote in _QUOTES if (where := text.find(quote, at)) >= 0]
    return min(found, default=-1)


def meant_literal(call: str, literal: str) -> str:
    """What to write instead, if that is plain."""
    said = literal[1:-1]
    if call == "quantity":
        return meant_quantity(said)
    numbers = said.lstrip("vV").split(".")
    if len(numbers) > 3 or not all(part.isascii() and part.isdigit() for part in numbers):
        return "write three numbers, such as 570.0.0"
    return f"write {'.'.join(str(int(part)) for part in (*numbers, '0', '0')[:3])}"
