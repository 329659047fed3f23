"""The words of an expression, found in linear time.

Runs in the worker. A string that never ends, or a character that means nothing, is refused as
Kubernetes' own lexer refuses it.
"""

import re
from typing import NamedTuple

from fettle.cel.language.syntax import Refused, Unsupported

MAX_BYTES = 10 * 1024
"""The API server refuses longer expressions."""

_ESCAPE = r"\\(?:[abfnrtv\"'`?\\]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_STRING = rf'''
        [rR](?:"""(?:[^"]|"(?!""))*+"""|\'\'\'(?:[^']|'(?!\'\'))*+\'\'\'
              |"[^"\n\r]*+"|'[^'\n\r]*+')
      | """(?:{_ESCAPE}|[^\\"]|"(?!""))*+"""
      | \'\'\'(?:{_ESCAPE}|[^\\']|'(?!\'\'))*+\'\'\'
      | "(?:{_ESCAPE}|[^\\"\n\r])*+"
      | '(?:{_ESCAPE}|[^\\'\n\r])*+'
'''
_TOKEN = re.compile(
    rf"""
      (?P<blank>(?:[\t\n\r\f ]++|//[^\n]*+)++)
    | (?P<bytes>[bB](?:{_STRING}))
    | (?P<string>{_STRING})
    | (?P<float>[0-9]++\.[0-9]++(?:[eE][+-]?[0-9]++)?|[0-9]++[eE][+-]?[0-9]++
               |\.[0-9]++(?:[eE][+-]?[0-9]++)?)
    | (?P<uint>(?:0x[0-9a-fA-F]++|[0-9]++)[uU])
    | (?P<int>0x[0-9a-fA-F]++|[0-9]++)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*+)
    | (?P<quoted>`[A-Za-z0-9_./\- ]++`)
    | (?P<mark>==|!=|<=|>=|&&|\|\||[\[\](){{}}<>.,\-+*/%!?:])
    """,
    re.VERBOSE,
)
_KEYWORDS = frozenset({"true", "false", "null", "in"})


class Token(NamedTuple):
    """`kind` is a literal's (`int`, `string`, …), `word`, `quoted`, or the mark or keyword."""

    kind: str
    text: str
    at: int


def tokens(source: str) -> list[Token]:
    """The tokens, with one of kind "" at the end; raises Refused or Unsupported."""
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        raise Refused(f"syntax error at {error.start}: half a surrogate pair") from None
    if size > MAX_BYTES:
        raise Unsupported(f"it is longer than {MAX_BYTES // 1024} KiB")
    found: list[Token] = []
    position = 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise Refused(f"syntax error at {position}: {source[position : position + 10]!r}")
        kind, text = str(match.lastgroup), match.group()
        if kind == "mark" or text in _KEYWORDS:
            kind = text
        if kind != "blank":
            found.append(Token(kind, text, position))
        position = match.end()
    found.append(Token("", "", position))
    return found


_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANY_ESCAPE = re.compile(_ESCAPE)


def string_value(literal: str) -> str:
    """The string that a literal stands for; raises Refused."""
    text, raw = _content(literal)
    return text if raw else _ANY_ESCAPE.sub(_character, text)


def bytes_value(literal: str) -> bytes:
    """The bytes that a literal, without its `b`, stands for; raises Refused."""
    text, raw = _content(literal)
    if raw:
        return text.encode()
    parts, position = [], 0
    for match in _ANY_ESCAPE.finditer(text):
        parts += [text[position : match.start()].encode(), _octet(match)]
        position = match.end()
    return b"".join([*parts, text[position:].encode()])


def _content(literal: str) -> tuple[str, bool]:
    raw = literal[0] in "rR"
    text = literal[1:] if raw else literal
    quotes = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[quotes:-quotes].replace("\r\n", "\n").replace("\r", "\n"), raw


def _character(match: re.Match[str]) -> str:
    point = _point(match)
    if point is None:
        code = match.group()[1:]
        return _ESCAPED.get(code, code)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise Refused(f"invalid unicode code point {point:#x}")
    return chr(point)


def _octet(match: re.Match[str]) -> bytes:
    point = _point(match)
    if point is None:
        code = match.group()[1:]
        return _ESCAPED.get(code, code).encode()
    if match.group()[1] in "uU":
        raise Refused("unicode escapes are not allowed in bytes")
    return bytes([point])


def _point(match: re.Match[str]) -> int | None:
    """The number in an escape; None for one of a single letter or mark."""
    code = match.group()[1:]
    if code[0] in "xXuU":
        return int(code[1:], 16)
    return int(code, 8) if len(code) == 3 else None
