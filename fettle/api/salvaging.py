"""What is left of a Node that cannot be read as a whole: all fields that can be on their own.

Of a list or a map the entries that can be. Only what Fettle knows of a Node counts. Pure.
"""

from typing import Any

import msgspec

from fettle.api import core
from fettle.api.changes import SalvagedNode
from fettle.api.concerning import Loose, part, text
from fettle.api.meta import Condition

SECTIONS = ("metadata", "spec", "status")
_AMOUNTS = ("capacity", "allocatable")


def salvage(whole: Loose) -> SalvagedNode | None:
    """None where not even its name is left."""
    if not text(part(whole, "metadata"), "name"):
        return None
    kept: Loose = {}
    broken = set()
    for section in SECTIONS:
        given = part(whole, section)
        if whole.get(section) is not None and not isinstance(whole[section], dict):
            broken.add(section)
        fields = {name: _left(section, name, value) for name, value in given.items()}
        kept[section] = {n: v for n, v in fields.items() if _is_readable(section, n, v)}
        lost = {n for n in given if n not in kept[section] or kept[section][n] != given[n]}
        broken.update(f"{section}.{name}" for name in lost)
        if not lost.isdisjoint(_AMOUNTS):  # else it would look like devices that were withdrawn
            for name in _AMOUNTS:
                kept[section].pop(name, None)
                broken.add(f"{section}.{name}")
    return SalvagedNode(_node(kept), frozenset(broken))


def completed(left: SalvagedNode, known: core.Node) -> core.Node:
    """The Node as far as it can be read now, and otherwise as it was known."""
    sections = {
        section: _overlaid(section, getattr(known, section), getattr(left.node, section), left)
        for section in SECTIONS
    }
    return msgspec.structs.replace(left.node, **sections)


def _overlaid(section: str, old: Any, new: Any, left: SalvagedNode) -> Any:
    if section in left.broken or old is None or new is None:
        return old if section in left.broken else new
    kept = {
        field.name: _entries(getattr(old, field.name), getattr(new, field.name))
        for field in msgspec.structs.fields(new)
        if f"{section}.{field.encode_name}" in left.broken
    }
    return msgspec.structs.replace(new, **kept)


def _entries(old: Any, new: Any) -> Any:
    """A field that could be read in part: maps and conditions by entry, all else as it was."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | new
    if all(isinstance(one, Condition) for one in (*_items(old), *_items(new))):
        by_type = {one.type: one for one in (*_items(old), *_items(new))}
        return tuple(by_type.values()) if by_type else old
    return old


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _left(section: str, field: str, value: Any) -> Any:
    """The value, or its entries that can be read."""
    if _is_readable(section, field, value):
        return value
    if isinstance(value, list):
        return [entry for entry in value if _is_readable(section, field, [entry])]
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if _is_readable(section, field, {k: v})}
    return value


def _is_readable(section: str, field: str, value: Any) -> bool:
    try:
        _node({section: {field: value}})
    except msgspec.ValidationError:
        return False
    return True


def _node(loose: Loose) -> core.Node:
    return msgspec.convert({"metadata": {}} | loose, core.Node, strict=False)
