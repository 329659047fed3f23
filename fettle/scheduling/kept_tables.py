"""Verdicts kept ready: one table per demand, updated by what changed between views.

Equal demands share a table, and a new view costs it only the nodes that it changed. Those whose
demand several pods share are completed before somebody asks again. Pure, except for the task that
has this done.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf

import msgspec

from fettle.cluster import Publisher
from fettle.model import Placement
from fettle.pacing import keep
from fettle.scheduling.breaker import Breaker
from fettle.scheduling.demand import Demand
from fettle.scheduling.in_flight import STEPS
from fettle.scheduling.tables import FEW, Table

MAX_TABLES = 512
"""Tenants make demands as they like, by annotations and claims. The oldest table goes first."""
MAX_VERDICTS = 500_000
"""In all tables together, at about 350 bytes each."""
SHARED = 2
"""Once this many pods share a demand, judge it for all nodes in the background."""


class KeptTables:
    """`new` makes the table of a demand, `breaker_of` is that of a placement in the newest view.
    `clock` is in seconds, and `selectors_now` the clock of `Table.given_up_until`."""

    def __init__(
        self,
        publisher: Publisher,
        new: Callable[[Demand], Table],
        breaker_of: Callable[[Placement], Breaker],
        selectors_now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._publisher = publisher
        self._new = new
        self._breaker_of = breaker_of
        self._selectors_now = selectors_now
        self._clock = clock
        self._tables: OrderedDict[Demand, Table] = OrderedDict()
        """The one asked for last comes last."""
        self._incomplete: set[Demand] = set()
        self._has_incomplete = asyncio.Event()

    def of(self, demand: Demand) -> Table:
        """The demand's table, without verdicts that are stale in the newest view."""
        table = self._tables.get(demand)
        if table is None:
            table = self._tables[demand] = self._new(demand)
            self._forget_oldest()
        self._tables.move_to_end(demand)
        self._bring_up_to_date(table)
        return table

    def _bring_up_to_date(self, table: Table) -> None:
        demand, view = table.demand, self._publisher.view
        table.rest(self._clock())
        if table.may_try_again:
            self._complete_later(demand)
        if table.given_up_until < inf and table.given_up_until <= self._selectors_now():
            table.make_provisional()
            self._complete_later(demand)
        if table.basis != view.basis:
            changed = self._publisher.changed_since(table.basis) if table.basis >= 0 else None
            set_aside = self._breaker_of(demand.policy.placement).set_aside_from(demand)
            table.update(view, changed, set_aside)
            if table.pods >= SHARED and table.needs_completion(view):
                self._complete_later(demand)

    def count_pod(self, demand: Demand) -> None:
        """Note that one more pod was given nodes by this demand's table."""
        if (table := self._tables.get(demand)) is not None:
            table.pods += 1
            if table.pods == SHARED and table.needs_completion(self._publisher.view):
                self._complete_later(demand)

    def sibling(self, table: Table, names: Sequence[str]) -> Table | None:
        """A table for the same needs with another number of pods in flight, as new as this one.

        Its nodes have the same fingerprints. None if there is none, or if it is not worth looking
        for: the names are few, or some have verdicts already.
        """
        if len(names) <= FEW or not table.verdicts.keys().isdisjoint(names):
            return None
        for in_flight in STEPS:
            other = self._tables.get(msgspec.structs.replace(table.demand, in_flight=in_flight))
            if (
                other is not None
                and other is not table
                and other.basis == table.basis
                and other.acceptance.set_aside == table.acceptance.set_aside
            ):
                return other
        return None

    def clear(self) -> None:
        self._tables.clear()

    def _forget_oldest(self) -> None:
        """Forget tables beyond the limits, the oldest first, but never the one asked for last."""
        kept = sum(table.size for table in self._tables.values())
        while len(self._tables) > 1 and (len(self._tables) > MAX_TABLES or kept > MAX_VERDICTS):
            _, oldest = self._tables.popitem(last=False)
            kept -= oldest.size

    # Completed in the background

    def _complete_later(self, demand: Demand) -> None:
        self._incomplete.add(demand)
        self._has_incomplete.set()

    async def keep(self, complete: Callable[[Demand], Awaitable[None]]) -> None:
        """Have what is open in the tables of shared demands judged by `complete`, until
        cancelled."""
        # A scheduler samples other nodes each time, and a complete table need not look up each name
        # to know that it is settled. For the demand of a single pod, as when its claim is allocated
        # already, this would be the work of a whole fleet for one reply.
        work = partial(self._complete_all, complete)
        await keep("tables of verdicts", work, when=self._has_incomplete.wait)

    async def _complete_all(self, complete: Callable[[Demand], Awaitable[None]]) -> None:
        self._has_incomplete.clear()
        failed: Exception | None = None
        while self._incomplete:
            demand, basis = self._incomplete.pop(), self._publisher.view.basis
            table = self._tables.get(demand)
            if table is not None and table.failed_on != basis:
                try:
                    await complete(demand)
                    self._forget_oldest()
                except Exception as error:  # told once the others have had their turn
                    failed = failed or error
                    if (table := self._tables.get(demand)) is not None:
                        table.failed_on = basis
            await asyncio.sleep(0)
        if failed is not None:
            raise failed
