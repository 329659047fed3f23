"""A breaker for each placement that pods ask with, counted on the newest view.

Between `breaker`, which counts for one placement, and `answering`, which asks for them. Says where
breakers open and close, also where nobody asks with their placement any more.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import structlog

from fettle.policy import Placement
from fettle.settings import BreakerSettings
from fettle.slicing import Slices
from fettle.verdicts.breaker import Breaker
from fettle.view import Publisher

_LOG = structlog.get_logger(__name__)

MAX_BREAKERS = 64
"""One for each placement, and minimum scores in annotations are any number."""
PAUSE_S = 1.0
"""Breakers that nobody asks for are counted this often at most."""


class _Kept(NamedTuple):
    """A breaker, counted on the view of `basis` at least; `told` are the pools where it was told
    open."""

    basis: int
    breaker: Breaker
    told: frozenset[str] = frozenset()


class Breakers:
    """Those asked for lately. `turned` is told of each pool whose breaker opens or closes: the
    pool, the placement, whether it is open, and the share (0..1) of the pool's devices that the
    placement would refuse."""

    def __init__(
        self,
        publisher: Publisher,
        settings: BreakerSettings,
        turned: Callable[[str, Placement, bool, float], None],
    ) -> None:
        self._publisher = publisher
        self._settings = settings
        self._turned = turned
        self._kept: OrderedDict[Placement, _Kept] = OrderedDict()
        """The latest asked for last."""

    def of(self, placement: Placement) -> Breaker:
        """The breaker of a placement, counted on the newest view."""
        if placement not in self._kept:
            return self._new(placement)
        self._kept.move_to_end(placement)
        return self._counted(placement)

    async def keep(self) -> NoReturn:
        """Count those that are open as views turn, until cancelled: who watches them is to know
        that they closed, even if no pod asks with their placement."""
        generation = 0
        while True:
            generation = (await self._publisher.newer_than(generation)).generation
            try:
                for placement, kept in list(self._kept.items()):
                    if kept.told:
                        await self._count_in_slices(placement, kept)
            except Exception:  # requests that ask for one are told of it themselves
                _LOG.exception("breakers cannot be counted")
            await asyncio.sleep(PAUSE_S)

    async def _count_in_slices(self, placement: Placement, kept: _Kept) -> None:
        """As far as no request counts it meanwhile, or displaces it."""
        view, slices = self._publisher.view, Slices()
        breaker, names = self._to_count(placement, kept)
        for name in names:
            if self._kept.get(placement) is not kept:
                return
            breaker.update((name,), view.nodes)
            await slices.pause()
        if self._kept.get(placement) is kept:
            self._keep(placement, _Kept(view.basis, breaker, kept.told))

    def _counted(self, placement: Placement) -> Breaker:
        kept, view = self._kept[placement], self._publisher.view
        if kept.basis != view.basis:
            breaker, names = self._to_count(placement, kept)
            breaker.update(names, view.nodes)
            self._keep(placement, _Kept(view.basis, breaker, kept.told))
        return self._kept[placement].breaker

    def _to_count(self, placement: Placement, kept: _Kept) -> tuple[Breaker, frozenset[str]]:
        """A breaker, and the nodes to count for it to know the newest view."""
        changed = self._publisher.changed_since(kept.basis)
        if changed is None:
            return Breaker(placement, self._settings), frozenset(self._publisher.view.nodes)
        return kept.breaker, changed

    def _new(self, placement: Placement) -> Breaker:
        view = self._publisher.view
        if self._kept:
            latest = self._counted(next(reversed(self._kept)))
            breaker = latest.for_placement(placement, view.nodes)
        else:
            breaker = Breaker(placement, self._settings)
            breaker.update(view.nodes, view.nodes)
        if len(self._kept) >= MAX_BREAKERS:
            displaced, forgotten = self._kept.popitem(last=False)
            for pool in forgotten.told:
                self._turned(pool, displaced, False, forgotten.breaker.share(pool))
        self._keep(placement, _Kept(view.basis, breaker))
        return breaker

    def _keep(self, placement: Placement, counted: _Kept) -> None:
        """Say where it opened or closed since that was told."""
        breaker = counted.breaker
        for pool in counted.told ^ breaker.open:
            self._turned(pool, placement, pool in breaker.open, breaker.share(pool))
        self._kept[placement] = counted._replace(told=breaker.open)
