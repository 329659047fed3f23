"""Keeps refusals from emptying a cluster: beyond a set share of a pool, a policy may only score.

A pool is all devices of one DRA driver, or all units of one extended resource. Counts are kept
per node and updated for the nodes that changed, so a turn of the view costs what changed. Pure.
"""

from collections.abc import Iterable, Mapping

from fettle.model import SOUND, Health
from fettle.policy import Placement
from fettle.settings import BreakerSettings
from fettle.verdicts.acceptance import refusal
from fettle.view import NodeView

Counts = dict[str, tuple[int, int]]
"""Pool → (devices, devices that the policy refuses)."""


class Breaker:
    """Counts for one placement over all nodes; `open` names the pools where it may not refuse."""

    def __init__(self, placement: Placement, settings: BreakerSettings) -> None:
        self._placement = placement
        self._settings = settings
        self._by_node: dict[str, Counts] = {}
        self._totals: dict[str, list[int]] = {}
        self.open: frozenset[str] = frozenset()

    def update(self, names: Iterable[str], nodes: Mapping[str, NodeView]) -> bool:
        """Count these nodes again; true if the set of open pools changed by it."""
        for name in names:
            self._add(self._by_node.pop(name, {}), -1)
            if (node := nodes.get(name)) is not None:
                counts = self._by_node[name] = self._count(node)
                self._add(counts, 1)
        before, self.open = self.open, frozenset(k for k in self._totals if self._tripped(k))
        return before != self.open

    def share(self, pool: str) -> float:
        """The share (0..1) of a pool's devices that this placement refuses."""
        devices, refused, _ = self._totals.get(pool, (0, 0, 0))
        return refused / devices if devices else 0.0

    def _tripped(self, pool: str) -> bool:
        enough_nodes = self._totals[pool][2] >= self._settings.min_nodes
        return enough_nodes and self.share(pool) > self._settings.max_excluded_share

    def _add(self, counts: Counts, sign: int) -> None:
        for pool, (devices, refused) in counts.items():
            total = self._totals.setdefault(pool, [0, 0, 0])
            total[0] += sign * devices
            total[1] += sign * refused
            total[2] += sign

    def _count(self, node: NodeView) -> Counts:
        counts: Counts = {}
        for resource, plugin in node.plugins.items():
            if plugin.allocatable > 0:
                named = [u.health for u in plugin.units[: plugin.allocatable]]
                refused = sum(1 for h in named if self._refused(h))
                if self._refused(node.health):
                    refused += plugin.allocatable - len(named)
                counts[resource] = (plugin.allocatable, refused)
        for pool in node.pools:
            devices, refused = counts.get(pool.driver, (0, 0))
            refused += sum(1 for d in pool.devices if self._refused(d.health))
            counts[pool.driver] = (devices + len(pool.devices), refused)
        return counts

    def _refused(self, health: Health) -> bool:
        """An operator's hold is meant: it neither counts here nor is overruled."""
        return health is not SOUND and not health.held and bool(refusal(health, self._placement))
