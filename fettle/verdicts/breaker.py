"""Keeps refusals from emptying a cluster: beyond a set share of a pool, a policy may only score.

A pool is all devices of one DRA driver, or all allocatable units of one extended resource. Counts
are kept per node and updated for the nodes that changed, so a turn of the view costs what changed.
A device of the network counts once, however many nodes see it. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from fettle.model import SOUND, DeviceId, Health
from fettle.policy import Placement
from fettle.settings import BreakerSettings
from fettle.verdicts import draws
from fettle.verdicts.acceptance import refusal
from fettle.view import NodeView

Counts = dict[str, tuple[int, int]]
"""Pool → (devices of the node, those of them that the policy refuses)."""
Networked = frozenset[tuple[DeviceId, bool]]
"""Devices of the network that a node sees, each with whether the policy refuses it."""


class Breaker:
    """Counts for one placement over all nodes; `open` names the pools where it may not refuse."""

    def __init__(self, placement: Placement, settings: BreakerSettings) -> None:
        self._placement = placement
        self._settings = settings
        self._by_node: dict[str, tuple[Counts, Networked]] = {}
        self._seen_by: Counter[tuple[DeviceId, bool]] = Counter()
        self._totals: dict[str, list[int]] = {}
        self._spoken_of: set[str] = set()
        """Nodes of which something is said, or of devices on them: what a placement may refuse."""
        self.open: frozenset[str] = frozenset()

    def for_placement(self, placement: Placement, nodes: Mapping[str, NodeView]) -> "Breaker":
        """The same for another placement, on the nodes that were counted last. Anybody may ask for
        another minimum score, so that costs no more than the nodes of which something is said."""
        other = Breaker(placement, self._settings)
        other._by_node = dict(self._by_node)
        other._seen_by = self._seen_by.copy()
        other._totals = {pool: [*total] for pool, total in self._totals.items()}
        other.update(self._spoken_of, nodes)
        return other

    def update(self, names: Iterable[str], nodes: Mapping[str, NodeView]) -> bool:
        """Count these nodes again; true if the set of open pools changed by it."""
        for name in names:
            if (before := self._by_node.pop(name, None)) is not None:
                self._add(*before, -1)
                self._spoken_of.discard(name)
            if (node := nodes.get(name)) is not None:
                counted = self._by_node[name] = self._count(node)
                self._add(*counted, 1)
                if _is_spoken_of(node):
                    self._spoken_of.add(name)
        was_open, self.open = self.open, frozenset(k for k in self._totals if self._tripped(k))
        return was_open != self.open

    def share(self, pool: str) -> float:
        """The share (0..1) of a pool's devices that this placement refuses."""
        devices, refused, _ = self._totals.get(pool, (0, 0, 0))
        return refused / devices if devices else 0.0

    def _tripped(self, pool: str) -> bool:
        enough_nodes = self._totals[pool][2] >= self._settings.min_nodes
        return enough_nodes and self.share(pool) > self._settings.max_excluded_share

    def _add(self, counts: Counts, networked: Networked, sign: int) -> None:
        """Add what a node counts (1), or take it away (-1)."""
        for pool, (devices, refused) in counts.items():
            total = self._totals.setdefault(pool, [0, 0, 0])
            total[0] += sign * devices
            total[1] += sign * refused
            total[2] += sign
        for entry in networked:
            before = self._seen_by[entry]
            self._seen_by[entry] = now = before + sign
            if not now:
                del self._seen_by[entry]
            if 0 in (before, now):  # the first node that sees it, or the last one that did
                total = self._totals[entry[0].driver]
                total[0] += sign
                total[1] += sign * entry[1]

    def _count(self, node: NodeView) -> tuple[Counts, Networked]:
        counts: Counts = {}
        networked: set[tuple[DeviceId, bool]] = set()
        for resource, plugin in node.plugins.items():
            if plugin.allocatable > 0:
                drawn = draws.allocatable(plugin)
                refused = sum(number for health, number in drawn.named if self._refused(health))
                if self._refused(node.health):
                    refused += drawn.rest
                counts[resource] = (plugin.allocatable, refused)
        for pool in node.pools:
            devices, refused = counts.get(pool.driver, (0, 0))
            for device in pool.devices:
                is_refused = self._refused(device.health)
                if not device.published.local:
                    networked.add((device.id, is_refused))
                    continue
                devices += 1
                refused += is_refused
            counts[pool.driver] = (devices, refused)
        return counts, frozenset(networked)

    def _refused(self, health: Health) -> bool:
        """An operator's hold is meant: it neither counts here nor is overruled."""
        return health is not SOUND and not health.held and bool(refusal(health, self._placement))


def _is_spoken_of(node: NodeView) -> bool:
    units = (unit.health for plugin in node.plugins.values() for unit in plugin.units)
    devices = (device.health for pool in node.pools for device in pool.devices)
    return any(health is not SOUND for health in (node.health, *units, *devices))
