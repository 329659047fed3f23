"""A breaker for each placement that pods ask with, all counted on the newest view.

Between `breaker`, which counts, and `answering`, which asks for them. Nodes are counted in slices
as views turn, while requests are answered by what was counted before: for so long, usually some
milliseconds, a breaker may open or close late. If one does, the view turns once more, so that
whatever was answered meanwhile is answered anew. What operators are told of it is in `alarms`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NoReturn

import structlog

from fettle.cluster import Publisher
from fettle.config import BreakerSettings
from fettle.model import Placement, Policies
from fettle.pacing import pause, run_within
from fettle.scheduling.breaker.alarms import Alarm, Alarms
from fettle.scheduling.breaker.breaker import Breaker, Census

_LOG = structlog.get_logger(__name__)

MAX_BREAKERS = 64
"""One for each placement, and minimum scores in annotations are any number."""
PAUSE_S = 1.0
"""After nodes could not be counted."""
LOOK_S = 60.0
"""So often alarms are looked at where no view turns."""


class Breakers:
    """Those asked for lately. `turned` and `clock` are as for `Alarms`."""

    def __init__(
        self,
        publisher: Publisher,
        settings: BreakerSettings,
        policies: Policies,
        turned: Callable[[Alarm, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._publisher = publisher
        self._settings = settings
        self._census = Census()
        self.alarms = Alarms(publisher, settings, self._census, policies, turned, clock)
        self._basis = -1
        """Of the view that the census is of, -1 for none."""
        self._keeping = False
        self._kept: OrderedDict[Placement, Breaker] = OrderedDict()
        """The latest asked for last."""
        self._late = False
        """Whether one opened, closed or was forgotten since the view turned because of that."""

    def of(self, placement: Placement) -> Breaker:
        """The breaker of a placement: on the newest view, or as it was last counted, if `keep`
        does."""
        if not self._keeping and self._basis != self._publisher.view.basis:
            self._count()
        if placement not in self._kept:
            if len(self._kept) >= MAX_BREAKERS:
                self._forget_oldest()
            self._kept[placement] = Breaker(placement, self._settings, self._census)
        self._kept.move_to_end(placement)
        breaker = self._kept[placement]
        self._late |= breaker.judge()
        return breaker

    async def keep(self) -> NoReturn:
        """Count as views turn, until cancelled: neither those who ask nor those who watch are to
        depend on whether a pod asks."""
        generation = 0
        self._keeping = True
        try:
            while True:
                until = asyncio.get_running_loop().time() + LOOK_S
                generation = (await self._publisher.newer_than(generation, until)).generation
                try:
                    await self._follow()
                    await run_within(None, self.alarms.look)
                except Exception:
                    _LOG.exception("breakers cannot be counted")
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._keeping = False

    async def _follow(self) -> None:
        if self._basis == self._publisher.view.basis:
            return
        await run_within(None, self._count_and_judge)
        if self._late:
            self._late = False
            self._publisher.republish()

    def _count_and_judge(self) -> None:
        self._count()
        for breaker in list(self._kept.values()):
            self._late |= breaker.judge()
            pause()

    def _count(self) -> None:
        """Bring the census up to the newest view there is now."""
        view, changed = self._publisher.view, self._changed()
        self._basis = -1  # in case that this ends in the middle
        self._census.update(changed, view.nodes)
        self._basis = view.basis

    def _changed(self) -> Collection[str]:
        """Nodes that are to be counted for the newest view."""
        changed = self._publisher.changed_since(self._basis)
        return {*self._publisher.view.nodes, *self._census.nodes} if changed is None else changed

    def _forget_oldest(self) -> None:
        self._kept.popitem(last=False)
        self._late = True
