"""The parser of Kubernetes' CEL: text to tokens in linear time, tokens to a tree.

It refuses what Kubernetes' lexer and parser refuse. It counts recursion as they do, where each
kind of rule may be nested 250 deep.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from fettle.cel.language import syntax
from fettle.cel.language.macros import expand
from fettle.cel.language.syntax import (
    Call,
    Construct,
    Expr,
    Ident,
    ListOf,
    Literal,
    MapEntry,
    MapOf,
    Refused,
    Select,
    Unsupported,
)
from fettle.cel.library.values import Uint, number_of

MAX_BYTES = 10 * 1024
"""The API server refuses longer expressions."""

# Tokens

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
    """`kind`: a kind of literal (`int`, `string`, …), `word`, `quoted`, or the mark or keyword."""

    kind: str
    text: str
    at: int


def tokens(source: str) -> list[Token]:
    """The tokens; the last has the kind "". Raises Refused or Unsupported."""
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


# The values of literals

_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANY_ESCAPE = re.compile(_ESCAPE)


def string_value(literal: str) -> str:
    """The string that a literal stands for; raises Refused."""
    text, raw = _unquoted(literal)
    return text if raw else _ANY_ESCAPE.sub(_escaped_character, text)


def bytes_value(literal: str) -> bytes:
    """The bytes that a literal, without its `b`, stands for; raises Refused."""
    text, raw = _unquoted(literal)
    if raw:
        return text.encode()
    parts, position = [], 0
    for match in _ANY_ESCAPE.finditer(text):
        parts += [text[position : match.start()].encode(), _escaped_byte(match)]
        position = match.end()
    return b"".join([*parts, text[position:].encode()])


def _unquoted(literal: str) -> tuple[str, bool]:
    raw = literal[0] in "rR"
    text = literal[1:] if raw else literal
    quotes = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return text[quotes:-quotes].replace("\r\n", "\n").replace("\r", "\n"), raw


def _escaped_character(match: re.Match[str]) -> str:
    point = _code_point(match)
    if point is None:
        code = match.group()[1:]
        return _CONTROL.get(code, code)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise Refused(f"invalid unicode code point {point:#x}")
    return chr(point)


def _escaped_byte(match: re.Match[str]) -> bytes:
    point = _code_point(match)
    if point is None:
        code = match.group()[1:]
        return _CONTROL.get(code, code).encode()
    if match.group()[1] in "uU":
        raise Refused("unicode escapes are not allowed in bytes")
    return bytes([point])


def _code_point(match: re.Match[str]) -> int | None:
    """The number in an escape; None for the escape of a single letter or mark."""
    code = match.group()[1:]
    if code[0] in "xXuU":
        return int(code[1:], 16)
    return int(code, 8) if len(code) == 3 else None


# The grammar

MAX_NESTING = 250
"""cel-go's own limit (`maxRecursionDepth`): what is deeper is no CEL for the API server either."""
_RESERVED = frozenset(
    ("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in")
) | frozenset(
    ("let", "loop", "package", "namespace", "null", "return", "true", "var", "void", "while")
)
_RELATIONS = {
    "<": "_<_",
    "<=": "_<=_",
    ">": "_>_",
    ">=": "_>=_",
    "==": syntax.EQUALS,
    "!=": syntax.DIFFERS,
    "in": syntax.IN,
}
_SUMS = {"*": ("_*_", 2), "/": ("_/_", 2), "%": ("_%_", 2), "+": ("_+_", 1), "-": ("_-_", 1)}


def parse(source: str) -> Expr:
    """The tree; raises Refused, or Unsupported if it is not known what Kubernetes does."""
    return _Parser(tokens(source)).parse()


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._at = 0
        self._depth = dict.fromkeys(("expr", "relation", "calc"), 0)

    def parse(self) -> Expr:
        node = self._expr()
        if self._kind:
            raise self._unexpected()
        return node

    # Tokens

    @property
    def _kind(self) -> str:
        return self._tokens[self._at].kind

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _take(self, kind: str) -> bool:
        if self._kind != kind:
            return False
        self._at += 1
        return True

    def _expect(self, kind: str) -> Token:
        if self._kind != kind:
            raise self._unexpected()
        return self._next()

    def _unexpected(self) -> Refused:
        token = self._tokens[self._at]
        found = repr(token.text[:20]) if token.kind else "end of text"
        return Refused(f"syntax error at {token.at}: unexpected {found}")

    def _enter(self, rule: str) -> None:
        self._depth[rule] += 1
        if self._depth[rule] > MAX_NESTING:
            raise Refused(f"it is nested deeper than {MAX_NESTING}")

    # Operators

    def _expr(self) -> Expr:
        self._enter("expr")
        node = self._or()
        if self._take("?"):
            yes = self._or()
            self._expect(":")
            node = _call(syntax.EITHER, node, yes, self._expr(), deeper=1)
        self._depth["expr"] -= 1
        return node

    def _or(self) -> Expr:
        terms = [self._and()]
        while self._take("||"):
            terms.append(self._and())
        return terms[0] if len(terms) == 1 else _call(syntax.OR, *terms)

    def _and(self) -> Expr:
        terms = [self._relation()]
        while self._take("&&"):
            terms.append(self._relation())
        return terms[0] if len(terms) == 1 else _call(syntax.AND, *terms)

    def _relation(self) -> Expr:
        self._enter("relation")
        node = self._calc(0)
        while self._kind in _RELATIONS:
            function = _RELATIONS[self._next().kind]
            self._enter("relation")  # in the grammar, the right side is a relation too
            node = _call(function, node, self._calc(0), deeper=1)
            self._depth["relation"] -= 1
        self._depth["relation"] -= 1
        return node

    def _calc(self, least: int) -> Expr:
        self._enter("calc")
        node = self._unary()
        while self._kind in _SUMS and _SUMS[self._kind][1] >= least:
            function, precedence = _SUMS[self._next().kind]
            node = _call(function, node, self._calc(precedence + 1), deeper=1)
        self._depth["calc"] -= 1
        return node

    def _unary(self) -> Expr:
        sign = self._kind
        if sign not in ("!", "-") or self._is_negative_number():
            return self._member()
        count = 0
        while self._take(sign):
            count += 1
        node = self._member()
        if count % 2 == 0:  # Kubernetes drops pairs of signs, whatever the type of the operand
            return node
        return _call(syntax.NOT if sign == "!" else syntax.NEGATE, node)

    def _is_negative_number(self) -> bool:
        return self._kind == "-" and self._tokens[self._at + 1].kind in ("int", "float")

    # Fields, indices and calls

    def _member(self) -> Expr:
        node = self._primary()
        while self._kind in (".", "["):
            node = self._dot(node) if self._next().kind == "." else self._index(node)
            if node.height > MAX_NESTING:
                raise Refused(f"it is nested deeper than {MAX_NESTING}")
        return node

    def _dot(self, operand: Expr) -> Expr:
        optional = self._take("?")
        token = self._next()
        if token.kind == "word" and not optional and self._take("("):
            args = self._arguments()
            height = 1 + max([operand.height, *(arg.height for arg in args)])
            node = _expanded(Call(token.text, operand, args))
            node.height = height
            return node
        if token.kind not in ("word", "quoted"):
            self._at -= 1
            raise self._unexpected()
        name = token.text.strip("`")
        if optional:
            return _call(syntax.OPTIONAL_SELECT, operand, Literal(name), deeper=1)
        return Select(operand, name, height=1 + operand.height)

    def _index(self, operand: Expr) -> Expr:
        function = syntax.OPTIONAL_INDEX if self._take("?") else syntax.INDEX
        key = self._expr()
        self._expect("]")
        return _call(function, operand, key, deeper=1)

    def _arguments(self) -> list[Expr]:
        """The arguments of a call, read up to the closing bracket."""
        args: list[Expr] = []
        if self._take(")"):
            return args
        args.append(self._expr())
        while self._take(","):
            args.append(self._expr())
        self._expect(")")
        return args

    # Primaries

    def _primary(self) -> Expr:
        match self._kind:
            case "word" | ".":
                return self._named()
            case "(":
                self._next()
                node = self._expr()
                self._expect(")")
                return node
            case "[":
                return self._list()
            case "{":
                return self._map()
            case _:
                return self._literal()

    def _named(self) -> Expr:
        dot = "." if self._take(".") else ""
        token = self._expect("word")
        if self._is_message():
            return self._message(dot + token.text)
        if token.text in _RESERVED:
            raise Refused(f"reserved identifier: {token.text}")
        name = dot + token.text
        if not self._take("("):
            return Ident(name)
        args = self._arguments()
        height = max((arg.height for arg in args), default=0)
        node = _expanded(Call(name, None, args))
        node.height = height
        return node

    def _is_message(self) -> bool:
        """Whether `a.b.c{` stands here; its first name has been read."""
        at = self._at
        while self._tokens[at].kind == "." and self._tokens[at + 1].kind == "word":
            at += 2
        return self._tokens[at].kind == "{"

    def _message(self, name: str) -> Expr:
        while self._take("."):
            name += "." + self._expect("word").text
        self._next()
        entries = self._entries(self._field)
        return Construct(name, entries, height=_highest(entries))

    def _field(self) -> Literal:
        token = self._next()
        if token.kind not in ("word", "quoted"):
            self._at -= 1
            raise self._unexpected()
        return Literal(token.text.strip("`"))

    def _list(self) -> Expr:
        self._next()
        items: list[Expr] = []
        optional: set[int] = set()
        while self._kind not in ("]", ","):
            if self._take("?"):
                optional.add(len(items))
            items.append(self._expr())
            if self._kind != "," or self._tokens[self._at + 1].kind == "]":
                break
            self._next()
            if self._kind == ",":
                raise self._unexpected()
        self._take(",")
        self._expect("]")
        height = max((item.height for item in items), default=0)
        return ListOf(items, frozenset(optional), height=height)

    def _map(self) -> Expr:
        self._next()
        entries = self._entries(self._expr)
        return MapOf(entries, height=_highest(entries))

    def _entries(self, key: Callable[[], Expr]) -> list[MapEntry]:
        """The entries of a map or message, read up to the closing brace."""
        entries: list[MapEntry] = []
        while self._kind not in ("}", ","):
            optional = self._take("?")
            name = key()
            self._expect(":")
            entries.append(MapEntry(name, self._expr(), optional))
            if self._kind != "," or self._tokens[self._at + 1].kind == "}":
                break
            self._next()
            if self._kind == ",":
                raise self._unexpected()
        self._take(",")
        self._expect("}")
        return entries

    def _literal(self) -> Expr:
        sign = "-" if self._is_negative_number() and self._take("-") else ""
        token = self._next()
        read = _LITERALS.get(token.kind)
        if read is None:
            self._at -= 1
            raise self._unexpected()
        return Literal(read(sign + token.text))


def _highest(entries: list[MapEntry]) -> int:
    heights = (part.height for entry in entries for part in (entry.key, entry.value))
    return max(heights, default=0)


def _call(function: str, *args: Expr, deeper: int = 0) -> Call:
    height = deeper + max(arg.height for arg in args)
    if height > MAX_NESTING:
        raise Refused(f"it is nested deeper than {MAX_NESTING}")
    return Call(function, None, list(args), height=height)


def _expanded(call: Call) -> Expr:
    """The expansion of a macro's call; any other call itself."""
    node = expand(call.function, call.target, call.args)
    if node is None:
        return call
    node.origin = call
    return node


def _number(digits: str) -> int:
    return number_of(digits.removeprefix("0x"), 16 if digits.startswith("0x") else 10)


def _int(text: str) -> int:
    number = _number(text.removeprefix("-"))
    if text.startswith("-"):
        number = -number
    if not -(2**63) <= number < 2**63:
        raise Refused(f"invalid int literal {text[:40]}")
    return number


def _uint(text: str) -> Uint:
    number = _number(text[:-1])
    if number >= 2**64:
        raise Refused(f"invalid uint literal {text[:40]}")
    return Uint(number)


def _double(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise Refused(f"invalid double literal {text[:40]}")
    return number


_LITERALS: dict[str, Callable[[str], object]] = {
    "int": _int,
    "uint": _uint,
    "float": _double,
    "string": string_value,
    "bytes": lambda text: bytes_value(text[1:]),
    "true": lambda _text: True,
    "false": lambda _text: False,
    "null": lambda _text: None,
}
