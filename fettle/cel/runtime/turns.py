"""Whose question the worker hears next: of all that wait, the one of the least order.

One question at a time; the engine says what orders mean. Imports nothing of Fettle.
"""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

Order = tuple[int, float]


class WorkerQueue:
    """A lock that is handed to the least order; among equals, to who waits the longest."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: list[tuple[Order, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    @asynccontextmanager
    async def turn(self, order: Order) -> AsyncIterator[None]:
        await self._wait(order)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, order: Order) -> None:
        if not self._taken:
            self._taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, next(self._arrivals), mine))
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # it was handed over just then
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            *_, next_one = heapq.heappop(self._waiting)
            if not next_one.done():
                next_one.set_result(None)
                return
        self._taken = False
