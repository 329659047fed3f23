"""Whoever keeps looking sees each view, and what a view shows again if that failed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from fettle.cluster import Publisher, View

Look = Callable[[View], Awaitable[float | None]]


class Watched:
    """A publisher, and the generations that were looked at."""

    def __init__(self) -> None:
        self.publisher = Publisher()
        self.seen: list[int] = []

    def publish(self, *, synced: bool = True) -> None:
        before = self.publisher.view
        view = msgspec.structs.replace(before, generation=before.generation + 1, synced=synced)
        self.publisher.publish(view, frozenset())

    async def look(self, view: View) -> float | None:
        self.seen.append(view.generation)
        return None

    @asynccontextmanager
    async def looking(self, look: Look | None = None, every_s: float = 0.0) -> AsyncIterator[None]:
        work = self.publisher.keep_looking("marks", look or self.look, every_s=every_s)
        task = asyncio.create_task(work)
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def until_seen(self, *generations: int) -> None:
        async with asyncio.timeout(20):
            while self.seen != [*generations]:
                await asyncio.sleep(0.001)


async def test_each_complete_view_is_looked_at_once() -> None:
    watched = Watched()
    async with watched.looking():
        watched.publish(synced=False)
        await asyncio.sleep(0.02)
        for generations in ((2,), (2, 3)):
            watched.publish()
            await watched.until_seen(*generations)
        await asyncio.sleep(0.02)
    assert watched.seen == [2, 3]


async def test_views_that_are_over_meanwhile_are_left_out() -> None:
    watched = Watched()
    async with watched.looking(every_s=0.1):
        watched.publish()
        await watched.until_seen(1)
        for _ in range(5):
            watched.publish()
        await watched.until_seen(1, 6)


async def test_it_looks_again_after_so_long_as_the_look_said() -> None:
    watched = Watched()

    async def look(view: View) -> float | None:
        await watched.look(view)
        return 0.01 if len(watched.seen) < 3 else None

    async with watched.looking(look):
        watched.publish()
        await watched.until_seen(1, 1, 1)
        await asyncio.sleep(0.05)
    assert watched.seen == [1, 1, 1]


@pytest.mark.usefixtures("parts")
async def test_a_view_on_which_it_failed_is_looked_at_again_and_the_next_ones_too() -> None:
    watched = Watched()

    async def look(view: View) -> float | None:
        await watched.look(view)
        if len(watched.seen) < 3:
            raise KeyError("gpu-7")
        return None

    async with watched.looking(look):
        watched.publish()
        await watched.until_seen(1, 1, 1)
        watched.publish()
        await watched.until_seen(1, 1, 1, 2)
