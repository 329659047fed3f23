"""The text of an expression before it is parsed: bounds, string literals, and two repairs.

Runs in the worker. cel-python's grammar tells strings from other text by patterns that can take
exponential time on a string that never ends, so strings are found here first, in linear time; it
also reads `a -1` as two operands, so a minus after an operand is set apart.
"""

import re

MAX_BYTES = 10 * 1024
"""The API server refuses longer expressions."""

MAX_NESTING = 249
"""Deepest nesting of brackets, and of the parse tree; Kubernetes' own parser refuses 250."""


class Unsupported(Exception):
    """An expression, or a part of one, that is not decided here; `str()` says which."""


_ESCAPE = r"\\(?:[abfnrtv\"'`?\\]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_TOKEN = re.compile(
    rf'''
      (?P<comment>//[^\n]*+)
    | (?P<raw>[rR](?:"""(?:[^"\\]|\\(?!["'])|"(?!""))*+"""
              |\'\'\'(?:[^'\\]|\\(?!["'])|'(?!\'\'))*+\'\'\'
              |"(?:[^"\\\n]|\\(?!["']))*+"|'(?:[^'\\\n]|\\(?!["']))*+'))
    | (?P<cooked>"""(?:[^"\\]|{_ESCAPE}|"(?!""))*+"""|\'\'\'(?:[^'\\]|{_ESCAPE}|'(?!\'\'))*+\'\'\'
              |"(?:[^"\\\n]|{_ESCAPE})*+"|'(?:[^'\\\n]|{_ESCAPE})*+')
    | (?P<word>[_a-zA-Z][_a-zA-Z0-9]*+)(?!["'])
    | (?P<number>0[xX][0-9a-fA-F]++[uU]?|\.?[0-9][0-9.]*+(?:[eE][+-]?[0-9]++|[uU])?)
    | (?P<dot>\.)
    | (?P<open>[(\[{{])
    | (?P<close>[)\]}}])
    | (?P<minus>-)
    | (?P<space>[\t\n\f ]++)
    | (?P<operator>[!%&*+,/:<=>?|]++)
    ''',
    re.VERBOSE,
)
_OPERAND_ENDS = frozenset({"raw", "cooked", "word", "number", "close"})
_NUMBER = re.compile(
    r"[0-9]+|0x[0-9a-fA-F]+|[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+"
)


def prepare(source: str) -> str:
    """The text to parse; raises Unsupported where it is out of bounds or unlike what we parse."""
    if len(source.encode()) > MAX_BYTES:
        raise Unsupported(f"it is longer than {MAX_BYTES // 1024} KiB")
    if "\r" in source:
        raise Unsupported("it has a carriage return")
    pieces: list[str] = []
    position, depth, previous = 0, 0, ""
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise Unsupported(f"the character or string at {position} is not understood")
        kind, text = str(match.lastgroup), match.group()
        position = match.end()
        if kind == "comment":
            pieces.append(" ")
            continue
        depth += (kind == "open") - (kind == "close")
        if depth > MAX_NESTING:
            raise Unsupported(f"it is nested deeper than {MAX_NESTING}")
        if kind == "word" and previous != "dot":
            _check_word(text, previous)
        if kind == "number" and _NUMBER.fullmatch(text) is None:
            raise Unsupported(f"the number {text!r}")
        pieces.append("- " if kind == "minus" and previous in _OPERAND_ENDS else text)
        if kind != "space":
            previous = "operator" if text == "in" else kind
    return "".join(pieces)


def _check_word(word: str, previous: str) -> None:
    """cel-python's grammar would find `in` or `true` at the start of a longer word."""
    if word != "in" and previous in _OPERAND_ENDS:
        raise Unsupported(f"{word[:20]!r} directly after a value")
    if word not in ("true", "false") and word.startswith(("true", "false")):
        raise Unsupported(f"the name {word[:20]!r}")


_ESCAPED = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_ANY_ESCAPE = re.compile(_ESCAPE)


def string_value(literal: str) -> str:
    """The string that a literal stands for; `prepare` has seen it."""
    raw = literal[0] in "rR"
    text = literal[1:] if raw else literal
    quotes = 3 if text[:3] in ('"""', "'''") and len(text) >= 6 else 1
    text = text[quotes:-quotes]
    return text if raw else _ANY_ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    code = match.group()[1:]
    if code[0] in "xuU":
        return _character(int(code[1:], 16))
    if len(code) == 3:
        return _character(int(code, 8))
    return _ESCAPED.get(code, code)


def _character(point: int) -> str:
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise Unsupported(f"the escaped character {point:#x}")
    return chr(point)
