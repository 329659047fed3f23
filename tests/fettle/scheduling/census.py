"""A breaker with a census of its own, for tests of counting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from fettle.cluster import NodeView
from fettle.config import BreakerSettings, HealthSettings
from fettle.model import Placement
from fettle.scheduling.breaker import Breaker
from fettle.scheduling.census import Census


class BreakerWithCensus(Breaker):
    def __init__(self, placement: Placement, settings: BreakerSettings | None = None) -> None:
        self.census = Census(HealthSettings())
        super().__init__(placement, settings or BreakerSettings(), self.census)

    @property
    def open(self) -> Set[str]:
        """The pools in which something is set aside."""
        return self.set_aside.keys()

    def update(self, names: Iterable[str], nodes: Mapping[str, NodeView]) -> bool:
        """Count these nodes again; true if that set other causes aside."""
        self.census.update(names, nodes)
        return self.judge()


def share(breaker: Breaker, pool: str) -> float:
    """The largest share of a pool that one cause alone condemns."""
    return max(breaker.shares(pool).values(), default=0.0)
