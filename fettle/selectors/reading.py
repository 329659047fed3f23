"""Which values of a device an expression refers to, found in its parse tree.

Runs in the worker. Conservative: where the device is used in any way but by constant names, the
answer is the whole device.
"""

from typing import Any

from lark import Tree

from fettle.selectors.parsing import unwrapped
from fettle.selectors.rows import Field, Read, Reads
from fettle.selectors.sources import string_value

_SCALARS = ("driver", "allowMultipleAllocations")


class _Whole(Exception):
    """The expression may look at anything."""


def reads(tree: Any) -> Reads:
    """What the expression reads, in a fixed order; None for the whole device."""
    found: set[Read] = set()
    try:
        _collect(tree, found)
    except _Whole:
        return None
    return tuple(sorted(found))


def _collect(tree: Any, found: set[Read]) -> None:
    left = [tree]
    while left:
        node = left.pop()
        if not isinstance(node, Tree):
            continue
        node = unwrapped(node)
        path = _path(node)
        if path is not None:
            found.update(_read_of(path))
        elif node.data != "relation" or not _membership(node, found):
            left.extend(node.children)


def _read_of(path: tuple[str, ...]) -> list[Read]:
    """The read that a path from `device` on stands for."""
    match path:
        case ("device", scalar) if scalar in _SCALARS:
            return []
        case ("device", "attributes" | "capacity" as field, domain, name):
            return [Read(_field(field), domain, name)]
        case _:
            raise _Whole


def _membership(tree: Any, found: set[Read]) -> bool:
    """Handles `"domain" in device.attributes` and `"name" in device.attributes["domain"]`."""
    if len(tree.children) != 2 or tree.children[0].data != "relation_in":
        return False
    key, path = _string(tree.children[0].children[0]), _path(unwrapped(tree.children[1]))
    if key is None or path is None:
        return False
    match path:
        case ("device", "attributes" | "capacity" as field):
            found.add(Read(_field(field), key, ""))
        case ("device", "attributes" | "capacity" as field, domain):
            found.add(Read(_field(field), domain, key))
        case _:
            return False
    return True


def _field(name: str) -> Field:
    return "attributes" if name == "attributes" else "capacity"


def _path(tree: Any) -> tuple[str, ...] | None:
    """`device.attributes["a"].b` as ("device", "attributes", "a", "b"), at most four long."""
    if tree.data == "ident":
        return ("device",) if tree.children[0] == "device" else None
    if tree.data not in ("member_dot", "member_index"):
        return None
    owner = _path(unwrapped(tree.children[0]))
    if owner is None or len(owner) >= 4 or owner[1:2] in (("driver",), _SCALARS[1:]):
        return None
    name = str(tree.children[1]) if tree.data == "member_dot" else _string(tree.children[1])
    return None if not name else (*owner, name)


def _string(tree: Any) -> str | None:
    tree = unwrapped(tree)
    if tree.data != "literal" or tree.children[0].type not in ("STRING_LIT", "MLSTRING_LIT"):
        return None
    return string_value(tree.children[0])
