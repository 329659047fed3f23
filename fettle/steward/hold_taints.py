"""Keeps the taints that go with holds: each held node and DRA device has its taint, and so has each
part of a held device; none has one for longer than it is held.

A hold may be recorded by hand, and ends by itself at its time, so `fettle hold` alone cannot do
this. It needs the rights in `deploy/rbac/optional/hold-taints.yaml`. Without them, holds are obeyed
only while the scheduler asks Fettle.
"""

import asyncio
import time
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import structlog

from fettle.client import Session
from fettle.cluster import Publisher, View
from fettle.model import ClusterError, DeviceId, Forbidden, NodeId, Unreachable
from fettle.pacing import pause, run_within
from fettle.steward.holding import (
    RawNode,
    change_node,
    create_rule,
    is_node_held,
    is_our_rule,
    needs_taint_change,
    rule_name,
    taints_changed,
)
from fettle.steward.taint_rules import delete_rule

_EVERY_S = 1.0
_RETRY_S = 30.0
RIGHTS = "deploy/rbac/optional/hold-taints.yaml grants the rights"

_T = TypeVar("_T")
_LOG = structlog.get_logger(__name__)


class _Due(NamedTuple):
    """What has to change: nodes, devices that need a rule, and rules that nothing needs."""

    nodes: list[str]
    devices: list[DeviceId]
    rules: list[str]


class HoldTaints:
    """`adds`: whether taints may be set now. If not, they are only taken away."""

    def __init__(
        self,
        session: Session,
        publisher: Publisher,
        *,
        adds: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._session = session
        self._publisher = publisher
        self._adds = adds
        self._clock = clock
        self._retry_s = retry_s
        self._warned = ""

    async def keep(self) -> None:
        """Never returns. Looks at each view, at most once a second."""
        view = self._publisher.view
        while True:
            done = not view.synced or await self._reconcile(view)
            await asyncio.sleep(_EVERY_S)
            retry_at = None if done else asyncio.get_running_loop().time() + self._retry_s
            view = await self._publisher.newer_than(view.generation, retry_at)

    async def _reconcile(self, view: View) -> bool:
        """False if something could not be written."""
        due = await run_within(None, lambda: _due(view))
        if not self._adds():
            due = due._replace(devices=[])
        written = [
            await self._each(due.nodes, self._renew_taint),
            await self._each(due.devices, self._taint_device),
            await self._each(due.rules, self._remove_rule),
        ]
        if all(written):
            self._warned = ""
        return all(written)

    async def _each(
        self, found: Iterable[_T], write: Callable[[_T], Coroutine[Any, Any, None]]
    ) -> bool:
        """False if something could not be written. Without the right or the API server, the rest is
        not tried."""
        well = True
        for one in found:
            try:
                await write(one)
            except ClusterError as error:
                well = False
                self._warn(error)
                if isinstance(error, Forbidden | Unreachable):
                    break
        return well

    def _warn(self, error: ClusterError) -> None:
        if str(error) != self._warned:
            self._warned = str(error)
            _LOG.warning("holds are not kept as taints", reason=self._warned, remedy=RIGHTS)

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
        await delete_rule(self._session, name)
        _LOG.info("taint of a hold", rule=name, held=False)


def _due(view: View) -> _Due:
    nodes = []
    for name, node in view.nodes.items():
        pause()
        # Of a node that cannot be read, the hold may be what is not read.
        if not node.unread and needs_taint_change(node.taints, held=NodeId(name) in view.holds):
            nodes.append(name)
    held = {subject: None for subject in view.holds if isinstance(subject, DeviceId)}
    held_devices = [*dict.fromkeys((*held, *(_parts_of(held, view) if held else ())))]
    names = {rule_name(device) for device in held_devices}
    served = view.served.get("DeviceTaintRule", False)
    return _Due(
        nodes,
        [d for d in held_devices if served and rule_name(d) not in view.taint_rules],
        [n for n, rule in view.taint_rules.items() if is_our_rule(rule) and n not in names],
    )


def _parts_of(held: Container[DeviceId], view: View) -> Iterator[DeviceId]:
    """Devices that are held because they are parts of held ones: the scheduler does not give a part
    its whole's taints."""
    for node in view.nodes.values():
        pause()
        for device in (device for pool in node.pools for device in pool.devices):
            if any(whole in held for whole in device.part_of):
                yield device.id
