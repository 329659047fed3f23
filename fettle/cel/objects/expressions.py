"""Expressions of rules about objects: whether cel-python can read one, and which fields it reads.
Only the worker process loads this."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import celpy
from celpy.celparser import CELParseError
from celpy.evaluation import base_functions
from lark import Token, Tree

from fettle.cel.runtime.protocol import ExpressionRead

VARIABLES = ("resource", "now")
LONGEST = 10 * 1024
"""Characters. Kubernetes takes no longer selectors."""
MOST_NESTED = 30
"""Brackets within one another. cel-python recurses: it cannot evaluate 50."""
ENTRY = "*"
_MACROS = frozenset(("all", "exists", "exists_one", "filter", "map"))
_FUNCTIONS = frozenset((*base_functions, *_MACROS, "has", "dyn"))
_TYPES = frozenset(("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"))
_HOLE = re.compile(r"\{([^{}]+)\}")

Path = tuple[str, ...]
Bound = Mapping[str, Path | None]
"""What each name stands for: a path in `resource`; None if it is no part of it."""


def holes(message: str) -> list[str]:
    """Texts and expressions of a message in turn; it begins and ends with a text."""
    return _HOLE.split(message)


@lru_cache(maxsize=1024)
def program(expression: str) -> celpy.Runner:
    """Raises CELParseError."""
    environment = celpy.Environment()
    return environment.program(environment.compile(expression))


def read(expression: str) -> ExpressionRead:
    if len(expression) > LONGEST:
        return ExpressionRead(f"it is longer than {LONGEST // 1024} KiB")
    if _nested(expression) > MOST_NESTED:
        return ExpressionRead(f"its brackets are nested more than {MOST_NESTED} deep")
    reading = _Reading()
    try:
        tree = celpy.Environment().compile(expression)
        reading.path(tree, dict.fromkeys(_TYPES) | {"resource": ()})
    except CELParseError as error:
        return ExpressionRead(_complaint(expression, error))
    except RecursionError:
        return ExpressionRead("it has too many parts within one another")
    except ValueError as error:
        return ExpressionRead(f"it cannot be parsed: {error}"[:200])
    fields = tuple(dict.fromkeys(reading.fields))
    return ExpressionRead(reading.problem, fields, reading.reads_now)


def _nested(expression: str) -> int:
    """How deep its brackets are nested, as far as texts in it let one see."""
    deepest = depth = 0
    quote, characters = "", iter(expression)
    for one in characters:
        if quote:
            if one == "\\":
                next(characters, "")
            elif one == quote:
                quote = ""
        elif one in "'\"":
            quote = one
        elif one in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif one in ")]}":
            depth -= 1
    return deepest


def _complaint(expression: str, error: CELParseError) -> str:
    line, column = error.line, error.column
    if re.search(r"\.\?|\[\?", expression):
        return "it cannot be parsed: cel-python has no optionals (.? and [?]); use has(…)"
    where = f", line {line}, column {column}" if line is not None and column is not None else ""
    return f"it cannot be parsed{where}"


class _Reading:
    """Which fields a tree reads, and what is wrong with its names."""

    def __init__(self) -> None:
        self.fields: list[Path] = []
        self.problem = ""
        self.reads_now = False

    def path(self, node: Any, bound: Bound) -> Path | None:
        """The part of `resource` that a subtree is; None if it is none."""
        if not isinstance(node, Tree):
            return None
        match node.data:
            case "ident":
                return self._named(str(node.children[0]), bound)
            case "member_dot":
                return self._below(self.path(node.children[0], bound), str(node.children[1]))
            case "member_index":
                of = self.path(node.children[0], bound)
                self.path(node.children[1], bound)
                return self._below(of, _literal(node.children[1]) or ENTRY)
            case "member_dot_arg":
                return self._called(node, bound)
            case "ident_arg":
                self._known(str(node.children[0]))
        found = [self.path(child, bound) for child in node.children]
        return found[0] if len(found) == 1 and node.data not in ("ident_arg", "exprlist") else None

    def _named(self, name: str, bound: Bound) -> Path | None:
        if name == "now" and name not in bound:
            self.reads_now = True
        elif name not in bound:
            known = ", ".join(VARIABLES)
            self.problem = self.problem or f"nothing is called {name}; there are {known}"
        return bound.get(name)

    def _known(self, function: str) -> None:
        if function not in _FUNCTIONS:
            self.problem = self.problem or f"cel-python has no function {function}"

    def _below(self, of: Path | None, name: str) -> Path | None:
        if of is None:
            return None
        self.fields.append((*of, name))
        return (*of, name)

    def _called(self, node: Any, bound: Bound) -> Path | None:
        of = self.path(node.children[0], bound)
        method = str(node.children[1])
        self._known(method)
        given = list(node.children[2].children) if len(node.children) > 2 else []
        if method not in _MACROS or not given:
            for one in given:
                self.path(one, bound)
            return None
        entry = None if of is None else (*of, ENTRY)
        inner = {**bound, _name(given[0]): entry}
        results = [self.path(one, inner) for one in given[1:]]
        if method == "filter":
            return of
        return results[-1] if method == "map" and results else None


def _tokens(node: Any) -> Iterator[Token]:
    if isinstance(node, Token):
        yield node
    elif isinstance(node, Tree):
        for child in node.children:
            yield from _tokens(child)


def _name(node: Any) -> str:
    return "".join(map(str, _tokens(node)))


def _literal(node: Any) -> str:
    """The text that an index is; "" if it is another one."""
    found = list(_tokens(node))
    if len(found) != 1 or found[0].type != "STRING_LIT":
        return ""
    return str(found[0]).strip("\"'")
