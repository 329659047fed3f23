"""What can be saved of an object that cannot be read: which node and pools it is about, and the
readable parts of a Node.

An unreadable slice, claim or taint rule may publish, hold or taint devices, so its pools count as
unclear. Of a Node, every field that can be read alone is kept, and of lists and maps every entry
that can.
"""

from typing import Any, NamedTuple

import msgspec

from fettle.api import core, kinds
from fettle.api.kinds import Kind
from fettle.api.meta import Condition


class Pools(NamedTuple):
    """Pools of this driver and name; None stands for any. `anywhere`: nodes that see no such pool
    may have one all the same."""

    driver: str | None = None
    pool: str | None = None
    anywhere: bool = False

    def include(self, driver: str, pool: str) -> bool:
        return self.driver in (None, driver) and self.pool in (None, pool)


class SalvagedNode(NamedTuple):
    """A Node without its unreadable parts.

    `broken` names those parts, such as `status.conditions`; or `status`, if the whole section is
    not an object.
    """

    node: core.Node
    broken: frozenset[str]


LooseObject = dict[str, Any]
"""A JSON object in which any value may have any type."""
ANY_POOLS = Pools()


def node_and_pools(kind: Kind, whole: LooseObject) -> tuple[str, tuple[Pools, ...]]:
    """The node that an unreadable object is about ("" if none), and the pools that it leaves
    unclear."""
    spec = loose_object(whole, "spec")
    if kind is kinds.NODE:
        return loose_text(loose_object(whole, "metadata"), "name"), ()
    if kind is kinds.SLICE:
        return _of_slice(whole, spec)
    if kind is kinds.CLAIM:
        return "", _pools_of_claim(whole)
    if kind is kinds.TAINT_RULE:
        return "", _pools_of_rule(whole)
    return loose_text(spec, "nodeName"), ()


def loose_object(whole: LooseObject, field: str) -> LooseObject:
    """The object in this field; {} if there is none."""
    found = whole.get(field)
    return found if isinstance(found, dict) else {}


def loose_text(whole: LooseObject, field: str) -> str:
    """The string in this field; "" if there is none."""
    found = whole.get(field)
    return found if isinstance(found, str) else ""


def _of_slice(whole: LooseObject, spec: LooseObject) -> tuple[str, tuple[Pools, ...]]:
    """Drivers on a node make the Node the owner of their slices, and usually name the pool after
    it. A pool's name is only a convention, so without the owner the slice may belong to any
    node."""
    pool = loose_text(loose_object(spec, "pool"), "name")
    published = Pools(loose_text(spec, "driver") or None, pool or None)
    if node := loose_text(spec, "nodeName") or _owner_node(whole):
        return node, (published,)
    return pool if spec.get("nodeName") is not None else "", (published._replace(anywhere=True),)


def _owner_node(whole: LooseObject) -> str:
    owners = loose_object(whole, "metadata").get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("kind") == kinds.NODE.name:
            return loose_text(owner, "name")
    return ""


def _pools_of_claim(whole: LooseObject) -> tuple[Pools, ...]:
    """The pools in which a claim may hold devices."""
    found: Any = whole
    for field in ("status", "allocation", "devices", "results"):
        if not isinstance(found, dict):
            return (ANY_POOLS,)
        if (found := found.get(field)) is None:
            return ()
    if not isinstance(found, list):
        return (ANY_POOLS,)
    results = (result if isinstance(result, dict) else {} for result in found)
    return tuple(dict.fromkeys(_pools(result) for result in results))


def _pools_of_rule(whole: LooseObject) -> tuple[Pools, ...]:
    """The pools in which a DeviceTaintRule may select devices. Without a selector it selects
    none."""
    spec = whole.get("spec")
    if not isinstance(spec, dict):
        return (ANY_POOLS,)
    selector = spec.get("deviceSelector")
    if selector is None:
        return ()
    return (_pools(selector) if isinstance(selector, dict) else ANY_POOLS,)


def _pools(named: LooseObject) -> Pools:
    return Pools(loose_text(named, "driver") or None, loose_text(named, "pool") or None)


SECTIONS = ("metadata", "spec", "status")
_AMOUNTS = ("capacity", "allocatable")


def salvage_node(whole: LooseObject) -> SalvagedNode | None:
    """None if not even the name can be read."""
    if not loose_text(loose_object(whole, "metadata"), "name"):
        return None
    kept: LooseObject = {}
    broken = set()
    for section in SECTIONS:
        given = loose_object(whole, section)
        if whole.get(section) is not None and not isinstance(whole[section], dict):
            broken.add(section)
        fields = {name: _readable_part(section, name, value) for name, value in given.items()}
        kept[section] = {n: v for n, v in fields.items() if _is_readable(section, n, v)}
        lost = {n for n in given if n not in kept[section] or kept[section][n] != given[n]}
        broken.update(f"{section}.{name}" for name in lost)
        if not lost.isdisjoint(_AMOUNTS):  # half of a pair would look like withdrawn devices
            for name in _AMOUNTS:
                kept[section].pop(name, None)
                broken.add(f"{section}.{name}")
    return SalvagedNode(_node(kept), frozenset(broken))


def complete_node(left: SalvagedNode, known: core.Node) -> core.Node:
    """The parts of the Node that can be read now, and the others as they were known before."""
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
    """A field that could be read in part: maps and conditions are merged by entry, all else stays
    as it was."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | new
    if all(isinstance(one, Condition) for one in (*_items(old), *_items(new))):
        by_type = {one.type: one for one in (*_items(old), *_items(new))}
        return tuple(by_type.values()) if by_type else old
    return old


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _readable_part(section: str, field: str, value: Any) -> Any:
    """The value if it can be read, else its readable entries."""
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


def _node(loose: LooseObject) -> core.Node:
    return msgspec.convert({"metadata": {}} | loose, core.Node, strict=False)
