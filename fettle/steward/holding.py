"""What makes the scheduler itself obey a hold, with or without Fettle: a taint on a held node, a
DeviceTaintRule for a held device. Operators write it with `fettle hold`, and the steward keeps it.

Ours is what has the value or the label that we give it; anything else is left alone. Units of
device plugins have no taints.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from fettle.api import kinds, resource
from fettle.api.meta import ObjectMeta
from fettle.client import Session
from fettle.health import holds_on_node, in_force
from fettle.model import HOLD, Conflict, DeviceId, NodeId, TaintLike, is_tainted_as_held
from fettle.steward import taint_rules

TAINT_VALUE = "annotated"
"""Marks a taint that comes and goes with the annotation. One of another value is an operator's."""
EFFECT = "NoSchedule"
_TAINT = resource.DeviceTaint(key=HOLD, value=TAINT_VALUE, effect=EFFECT)
_RULE_PREFIX = "fettle-hold-"
_ATTEMPTS = 10
"""How often a Node is read again because somebody else wrote first."""

RawNode = dict[str, Any]
"""A Node as JSON, with all its fields."""


def is_ours(taint: TaintLike) -> bool:
    return (taint.key, taint.value, taint.effect) == (HOLD, TAINT_VALUE, EFFECT)


def is_our_rule(rule: resource.DeviceTaintRule) -> bool:
    return is_ours(rule.spec.taint) and taint_rules.has_our_labels(rule)


def needs_taint_change(taints: Iterable[TaintLike], *, held: bool) -> bool:
    """Whether a node's taints do not go with whether it is held."""
    taints = tuple(taints)
    return not is_tainted_as_held(taints) if held else any(map(is_ours, taints))


# A node


def is_node_held(node: RawNode, now: float) -> bool:
    holds = in_force(holds_on_node(metadata_of(node)), now)
    return any(isinstance(hold.subject, NodeId) for hold in holds)


def metadata_of(node: RawNode) -> ObjectMeta:
    metadata = node["metadata"]
    return ObjectMeta(name=metadata["name"], annotations=metadata.get("annotations"))


def taints_changed(node: RawNode, *, held: bool) -> list[dict[str, str]] | None:
    """The taints that a node should have; None if it has them."""
    taints: list[dict[str, str]] = node.get("spec", {}).get("taints") or []
    read = {id(taint): msgspec.convert(taint, resource.DeviceTaint) for taint in taints}
    if not needs_taint_change(read.values(), held=held):
        return None
    others = [taint for taint in taints if not is_ours(read[id(taint)])]
    ours = {"key": HOLD, "value": TAINT_VALUE, "effect": EFFECT}
    return [*others, ours] if held else others


async def change_node(
    session: Session, name: str, change: Callable[[RawNode], dict[str, Any] | None]
) -> tuple[RawNode, bool]:
    """Read a Node and patch it by what `change` makes of it; None leaves it as it is. Nothing that
    somebody else writes meanwhile is lost. Raises ClusterError. Returns the Node as it is then, and
    whether it was patched."""
    path = kinds.NODE.path_of(name)
    for left in reversed(range(_ATTEMPTS)):
        node: RawNode = msgspec.json.decode(await session.get(path))
        patch = change(node)
        if patch is None:
            return node, False
        metadata = {
            **patch.get("metadata", {}),
            "resourceVersion": node["metadata"]["resourceVersion"],
        }
        with suppress(*([Conflict] if left else [])):
            patched: RawNode = msgspec.json.decode(
                await session.patch(path, {**patch, "metadata": metadata})
            )
            return patched, True
    raise AssertionError("the last attempt returns or raises")


# A DRA device


def rule_name(device: DeviceId) -> str:
    return taint_rules.rule_name(_RULE_PREFIX, device)


async def create_rule(session: Session, device: DeviceId) -> bool:
    """Have the scheduler obey the hold on a device. False if no DeviceTaintRules are served."""
    return await taint_rules.create_rule(session, rule_name(device), device, _TAINT)
