"""cel-python's parser, and its trees without the rungs that only tell precedence.

Runs in the worker.
"""

from typing import Any

from celpy.celparser import CELParseError, CELParser
from lark import Tree

from fettle.selectors.sources import Unsupported, prepare

_CHAIN = frozenset(
    {
        "expr",
        "conditionalor",
        "conditionaland",
        "relation",
        "addition",
        "multiplication",
        "unary",
        "member",
        "primary",
        "paren_expr",
    }
)


def parse(source: str) -> Any:
    """The parse tree; raises Unsupported for what cel-python's grammar does not know."""
    try:
        return CELParser().parse(prepare(source))
    except CELParseError as error:
        raise Unsupported("its syntax is not understood here") from error


def unwrapped(tree: Any) -> Any:
    """The first tree below that does something."""
    while tree.data in _CHAIN and len(tree.children) == 1:
        tree = tree.children[0]
    return tree


def arguments_of(tree: Any, at: int) -> list[Any]:
    if len(tree.children) <= at:
        return []
    exprlist = tree.children[at]
    assert isinstance(exprlist, Tree)
    return list(exprlist.children)
