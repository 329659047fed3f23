"""A breaker with a census of its own, for tests of counting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fettle.cluster import NodeView
from fettle.config import BreakerSettings
from fettle.model import Placement
from fettle.scheduling.breaker import Breaker, Census


class BreakerWithCensus(Breaker):
    def __init__(self, placement: Placement, settings: BreakerSettings | None = None) -> None:
        self.census = Census()
        super().__init__(placement, settings or BreakerSettings(), self.census)

    def update(self, names: Iterable[str], nodes: Mapping[str, NodeView]) -> bool:
        """Count these nodes again; true if the set of open pools changed."""
        self.census.update(names, nodes)
        return self.judge()
