"""What others on the loop get to do while something works, and how long it takes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from fettle.cluster import Publisher, View

T = TypeVar("T")

_TICK_S = 0.01
_LONGEST_TICK_S = 0.05


async def turns_during(work: Awaitable[T]) -> tuple[T, int]:
    """What the work comes to, and how often another task had a turn meanwhile."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    try:
        return await work, turns
    finally:
        task.cancel()


class WatchedPublisher(Publisher):
    """Says when somebody waits for a newer view than it holds."""

    def __init__(self) -> None:
        super().__init__()
        self._waited = asyncio.Event()

    async def newer_than(self, generation: int, until: float | None = None) -> View:
        if self.view.generation <= generation:
            self._waited.set()
        return await super().newer_than(generation, until)

    async def is_waited_for(self) -> None:
        """Until somebody begins to wait."""
        self._waited.clear()
        async with asyncio.timeout(20):
            await self._waited.wait()


@asynccontextmanager
async def own_time() -> AsyncIterator[Callable[[], float]]:
    """A clock, in seconds, that stands still while this process is not run: upper bounds on what it
    shows hold on a machine that others use too."""
    seconds = 0.0
    clock = asyncio.get_running_loop().time

    async def ticking() -> None:
        nonlocal seconds
        while True:
            began = clock()
            await asyncio.sleep(_TICK_S)
            seconds += min(clock() - began, _LONGEST_TICK_S)

    task = asyncio.create_task(ticking())
    try:
        yield lambda: seconds
    finally:
        task.cancel()


async def time_taken(work: Awaitable[T]) -> tuple[T, float]:
    """What the work comes to, and how much of our own time it took."""
    async with own_time() as clock:
        return await work, clock()


async def settled() -> None:
    """Let others finish what they can without waiting for anybody: it is turns that they need, and
    on a busy machine a moment may bring none."""
    await asyncio.sleep(_TICK_S)
    for _ in range(200):
        await asyncio.sleep(0)
