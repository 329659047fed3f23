"""Which attributes an expression compares for equality, and with what: as far as its text tells.

Runs in the worker. Conservative: where the expression asks for types itself, nothing is said of it.
"""

from collections.abc import Iterator

from fettle.cel.language import syntax
from fettle.cel.language.reading import path
from fettle.cel.language.syntax import Call, Expr, Ident, ListOf, Literal, Select
from fettle.cel.runtime.rows import AttributeRead, Equation


def equations(tree: Expr) -> tuple[Equation, ...]:
    """All comparisons of one attribute, in the order of the text."""
    found: list[Equation] = []
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, Call):
            if node.function == "type":
                return ()
            found.extend(_of_call(node))
        left += reversed(syntax.children(node))
    return tuple(dict.fromkeys(found))


def _of_call(call: Call) -> Iterator[Equation]:
    if call.function not in (syntax.EQUALS, syntax.DIFFERS, syntax.IN):
        return
    one, other = call.args
    if call.function == syntax.IN:
        items = other.items if isinstance(other, ListOf) else []
        pairs = [(one, item) for item in items]
    else:
        pairs = [(one, other), (other, one)]
    for side, value in pairs:
        if (attribute := _attribute(side)) is not None:
            text = str(value.value) if isinstance(value, Literal) else ""
            yield Equation(attribute, value.type.name, text)


def _attribute(node: Expr) -> AttributeRead | None:
    """The attribute that a part stands for, where it is an error that a device has none."""
    place = path(node, {})
    if place is None or not _is_plain(node):
        return None
    match place:
        case ("device", "attributes", domain, name):
            return AttributeRead("attributes", domain, name)
    return None


def _is_plain(node: Expr) -> bool:
    """Whether nothing on the path makes it an optional, or a test."""
    while not isinstance(node, Ident):
        if isinstance(node, Select) and not node.test:
            node = node.operand
        elif isinstance(node, Call) and node.function == syntax.INDEX:
            node = node.args[0]
        else:
            return False
    return True
