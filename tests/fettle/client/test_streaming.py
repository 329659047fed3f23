"""Watches are left unread for a moment, unless somebody needs to know what has come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from fettle.client.session import Session
from tests.fettle.client.fake_api import FakeApi

NODES = "/api/v1/nodes"
LONG_S = 600.0


class Watch:
    """Follows the nodes' watch; `seen` are the names that were taken, in order."""

    def __init__(self, session: Session) -> None:
        self.seen: list[str] = []
        self.hold = asyncio.Event()
        """What is taken is dealt with while this is set."""
        self.hold.set()
        self._session = session

    async def follow(self) -> None:
        stream = self._session.stream(NODES, {"watch": True}, gather_s=lambda: LONG_S)
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                await self.hold.wait()
                for line in filter(None, chunk.split(b"\n")):
                    self.seen.append(json.loads(line)["object"]["metadata"]["name"])

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.005)


@pytest.fixture
async def watch(api: FakeApi, session: Session) -> AsyncIterator[Watch]:
    """One that has just been read, and is left unread now."""
    made = Watch(session)
    api.put("nodes", node("first"))
    task = asyncio.create_task(made.follow())
    await made.until(lambda: made.seen == ["first"])
    yield made
    task.cancel()
    await asyncio.wait([task])


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


async def test_what_comes_waits_until_somebody_asks(
    api: FakeApi, session: Session, watch: Watch
) -> None:
    await asyncio.sleep(0.05)
    assert not session.streams.behind
    for name in ("second", "third"):
        api.put("nodes", node(name))
    await watch.until(lambda: session.streams.behind)
    await asyncio.sleep(0.05)
    assert watch.seen == ["first"]
    async with asyncio.timeout(20):
        await session.streams.take()
    assert watch.seen == ["first", "second", "third"]
    assert not session.streams.behind


async def test_who_asks_again_gets_what_came_since(
    api: FakeApi, session: Session, watch: Watch
) -> None:
    for number in range(5):
        api.put("nodes", node(f"n{number}"))
        await watch.until(lambda: session.streams.behind)
        async with asyncio.timeout(20):
            await session.streams.take()
        assert watch.seen[-1] == f"n{number}"


async def test_what_is_still_being_dealt_with_is_not_taken_yet(
    api: FakeApi, session: Session, watch: Watch
) -> None:
    watch.hold.clear()
    api.put("nodes", node("second"))
    await watch.until(lambda: session.streams.behind)
    taking = asyncio.create_task(session.streams.take())
    await asyncio.sleep(0.05)
    assert not taking.done()
    assert session.streams.behind
    watch.hold.set()
    async with asyncio.timeout(20):
        await taking
    assert watch.seen == ["first", "second"]


async def test_where_nothing_came_nobody_waits(session: Session, watch: Watch) -> None:
    async with asyncio.timeout(20):
        await session.streams.take()
    assert watch.seen == ["first"]


async def test_a_stream_that_has_ended_is_not_waited_for(
    api: FakeApi, session: Session, watch: Watch
) -> None:
    api.put("nodes", node("second"))
    await watch.until(lambda: session.streams.behind)
    api.drop_watches()
    async with asyncio.timeout(20):
        await session.streams.take()
    assert not session.streams.behind
