"""What an object that cannot be read speaks of, as far as can be told from what is left of it: a
node, or pools of devices that may be taken, tainted or larger than they seem without it. Pure.
"""

from typing import Any

from fettle.api import kinds
from fettle.api.changes import Pools
from fettle.api.kinds import Kind

Loose = dict[str, Any]
"""JSON of which nothing is certain."""
ANY = Pools()


def concern(kind: Kind, whole: Loose) -> tuple[str, tuple[Pools, ...]]:
    """The node that it speaks for, "" if none, and the pools."""
    spec = part(whole, "spec")
    if kind is kinds.NODE:
        return text(part(whole, "metadata"), "name"), ()
    if kind is kinds.SLICE:
        return _of_slice(whole, spec)
    if kind is kinds.CLAIM:
        return "", _held(whole)
    if kind is kinds.TAINT_RULE:
        return "", _selected(whole)
    return text(spec, "nodeName"), ()


def part(whole: Loose, field: str) -> Loose:
    """The object under a field; {} if there is none."""
    found = whole.get(field)
    return found if isinstance(found, dict) else {}


def text(whole: Loose, field: str) -> str:
    found = whole.get(field)
    return found if isinstance(found, str) else ""


def _of_slice(whole: Loose, spec: Loose) -> tuple[str, tuple[Pools, ...]]:
    """Drivers on a node own their slices through it, and by custom name the pool after it; but by
    custom alone, so it may be any other node's, too."""
    pool = text(part(spec, "pool"), "name")
    published = Pools(text(spec, "driver") or None, pool or None)
    if node := text(spec, "nodeName") or _owner_node(whole):
        return node, (published,)
    return pool if spec.get("nodeName") is not None else "", (published._replace(anywhere=True),)


def _owner_node(whole: Loose) -> str:
    owners = part(whole, "metadata").get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("kind") == kinds.NODE.name:
            return text(owner, "name")
    return ""


def _held(whole: Loose) -> tuple[Pools, ...]:
    """Pools of which a claim may hold devices."""
    found: Any = whole
    for field in ("status", "allocation", "devices", "results"):
        if not isinstance(found, dict):
            return (ANY,)
        if (found := found.get(field)) is None:
            return ()
    if not isinstance(found, list):
        return (ANY,)
    results = (result if isinstance(result, dict) else {} for result in found)
    return tuple(dict.fromkeys(_pools(result) for result in results))


def _selected(whole: Loose) -> tuple[Pools, ...]:
    """Pools of which a DeviceTaintRule may select devices; without a selector it selects none."""
    spec = whole.get("spec")
    if not isinstance(spec, dict):
        return (ANY,)
    selector = spec.get("deviceSelector")
    if selector is None:
        return ()
    return (_pools(selector) if isinstance(selector, dict) else ANY,)


def _pools(named: Loose) -> Pools:
    return Pools(text(named, "driver") or None, text(named, "pool") or None)
