"""What makes the scheduler itself obey a hold, with or without Fettle: a taint on a held node, a
DeviceTaintRule for a held device. Operators write it with `fettle hold`, and the steward keeps it:
a hold may be recorded by hand, and ends by itself at its time.

Ours is what has the value or the label that we give it; anything else is left alone. Units of
device plugins have no taints. The steward needs the rights in
`deploy/rbac/optional/hold-taints.yaml`. Without them, holds are obeyed only while the scheduler
asks Fettle.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from fettle.api import kinds, resource
from fettle.api.meta import ObjectMeta
from fettle.client import Session
from fettle.cluster import Publisher, View
from fettle.health import holds_on_node, in_force
from fettle.logs import Logger
from fettle.model import HOLD, Conflict, DeviceId, NodeId, TaintLike, is_tainted_as_held
from fettle.pacing import pause, run_within
from fettle.steward import taint_rules
from fettle.steward.paced_writes import LONGEST_PAUSE_S, PacedWrites

TAINT_VALUE = "annotated"
"""Marks a taint that comes and goes with the annotation. One of another value is an operator's."""
EFFECT = "NoSchedule"
_TAINT = resource.DeviceTaint(key=HOLD, value=TAINT_VALUE, effect=EFFECT)
_RULE_PREFIX = "fettle-hold-"
_ATTEMPTS = 10
"""How often a Node is read again because somebody else wrote first."""
_EVERY_S = 1.0
_WRITES_PER_S = 20.0
_RIGHTS = "deploy/rbac/optional/hold-taints.yaml grants the rights"

_LOG = Logger(__name__)

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


# What the steward keeps


class _Due(NamedTuple):
    """What has to change: nodes, devices that need a rule, and rules that nothing needs."""

    nodes: list[str]
    devices: list[DeviceId]
    rules: list[str]


class HoldTaints:
    """Keeps the taints that go with holds: each held node and DRA device has its taint, and so has
    each part of a held device; none has one for longer than it is held.

    `adds`: whether taints may be set now. If not, they are only taken away.
    """

    def __init__(
        self,
        session: Session,
        publisher: Publisher,
        *,
        adds: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        longest_pause_s: float = LONGEST_PAUSE_S,
        every_s: float = _EVERY_S,
    ) -> None:
        self._every_s = every_s
        self._session = session
        self._publisher = publisher
        self._adds = adds
        self._clock = clock
        self._writes = PacedWrites(
            "holds are not kept as taints",
            _RIGHTS,
            per_s=_WRITES_PER_S,
            longest_pause_s=longest_pause_s,
        )
        self.notes = self._writes.notes

    async def keep(self) -> None:
        """Never returns. Looks at each view, at most once a second."""
        look = self._publisher.keep_looking
        await look("taints of holds", self._reconcile, every_s=self._every_s)

    async def _reconcile(self, view: View) -> float | None:
        """In how many seconds to write what is left; None if nothing is."""
        due = await run_within(lambda: due_writes(view))
        done = await self._writes.do(
            (partial(self._renew_taint, name) for name in due.nodes),
            (partial(self._taint_device, one) for one in due.devices if self._adds()),
            (partial(self._remove_rule, name) for name in due.rules),
        )
        return None if done else self._writes.pause_s()

    async def _renew_taint(self, name: str) -> None:
        # The view may be older than what an operator has just written.
        def change(node: RawNode) -> dict[str, Any] | None:
            held = is_node_held(node, self._clock())
            taints = taints_changed(node, held=held)
            if taints is None or (held and not self._adds()):
                return None
            return {"spec": {"taints": taints}}

        node, changed = await change_node(self._session, name, change)
        if changed:
            _LOG.info("taint of a hold", node=name, held=is_node_held(node, self._clock()))

    async def _taint_device(self, device: DeviceId) -> None:
        if await create_rule(self._session, device):
            _LOG.info("taint of a hold", device=str(device), held=True)

    async def _remove_rule(self, name: str) -> None:
        await taint_rules.delete_rule(self._session, name)
        _LOG.info("taint of a hold", rule=name, held=False)


def due_writes(view: View) -> _Due:
    nodes = []
    for name, node in view.nodes.items():
        pause()
        # Of a node that cannot be read, the hold may be what is not read.
        if not node.unread and needs_taint_change(node.taints, held=NodeId(name) in view.holds):
            nodes.append(name)
    # A rule cannot say which of several nodes' devices of the same names it is about.
    held = {s: None for s in view.holds if isinstance(s, DeviceId) and not s.node}
    for ambiguous in _ambiguous(view) if held else ():
        held.pop(ambiguous, None)
    held_devices = [*dict.fromkeys((*held, *(_parts_of(held, view) if held else ())))]
    names = {rule_name(device) for device in held_devices}
    served = view.served.get("DeviceTaintRule", False)
    return _Due(
        nodes,
        [d for d in held_devices if served and rule_name(d) not in view.taint_rules],
        [n for n, rule in view.taint_rules.items() if is_our_rule(rule) and n not in names],
    )


def _ambiguous(view: View) -> Iterator[DeviceId]:
    """Names that devices of several nodes have."""
    for node in view.nodes.values():
        pause()
        for pool in node.pools:
            if pool.rivals:
                yield from (one.subject for one in (*pool.devices, *pool.withheld) if one.ambiguous)


def _parts_of(held: Container[DeviceId], view: View) -> Iterator[DeviceId]:
    """Devices that are held because they are parts of held ones: the scheduler does not give a part
    its whole's taints."""
    for node in view.nodes.values():
        pause()
        for device in (device for pool in node.pools for device in pool.devices):
            if not device.ambiguous and any(whole in held for whole in device.part_of):
                yield device.id
