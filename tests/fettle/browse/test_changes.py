"""`/changes`: pages are told at once that there is a newer view."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
from aiohttp import web

from fettle.browse import by_token
from fettle.browse.page_serving import ChangeHandlers
from fettle.cel import SelectorEngine
from fettle.cluster import Publisher
from fettle.config import ListenAddress, Settings
from fettle.scheduling import Answers
from fettle.serve.listening import AppListener
from tests.controlplane.processes import free_port
from tests.fettle import building as b
from tests.fettle.browse.showing import known

TOKEN = "a-token"
WAIT_S = 20.0


class Shown:
    def __init__(self, most: int) -> None:
        self.publisher = Publisher()
        self.publisher.publish(b.view(b.node("n", gpus=8)), frozenset())
        shown = known(Answers(self.publisher, SelectorEngine(), Settings()))
        handlers = ChangeHandlers(shown, by_token(TOKEN), most)
        app = web.Application()
        app.router.add_get("/changes", handlers.changes)
        app.on_shutdown.append(handlers.stop)
        port = free_port()
        self.listener = AppListener("browse", ListenAddress("127.0.0.1", port), None, app)
        self.url = f"http://127.0.0.1:{port}/changes"

    def change(self) -> int:
        view = self.publisher.view
        again = msgspec.structs.replace(view, generation=view.generation + 1)
        self.publisher.publish(again, frozenset())
        return again.generation


@asynccontextmanager
async def listening(shown: Shown, token: str = TOKEN) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as client,
        asyncio.timeout(WAIT_S),
        client.get(shown.url, headers=headers) as reply,
    ):
        yield reply


@pytest.fixture
async def shown() -> AsyncIterator[Shown]:
    found = Shown(most=2)
    await found.listener.start()
    yield found
    await found.listener.stop()


async def event(reply: aiohttp.ClientResponse) -> int:
    line = await reply.content.readuntil(b"\n\n")
    return int(line.removeprefix(b"data: "))


async def test_a_newer_view_is_told_at_once(shown: Shown) -> None:
    async with listening(shown) as reply:
        assert reply.content_type == "text/event-stream"
        began = time.monotonic()
        generation = shown.change()
        assert await event(reply) == generation
        assert time.monotonic() - began < 5  # a few milliseconds alone on the machine


async def test_views_that_follow_each_other_closely_are_one_event(shown: Shown) -> None:
    async with listening(shown) as reply:
        first = shown.change()
        assert await event(reply) == first
        for _ in range(100):
            last = shown.change()
        assert await event(reply) == last


@pytest.mark.parametrize("token", ["", "another"])
async def test_strangers_are_told_nothing(shown: Shown, token: str) -> None:
    async with listening(shown, token) as reply:
        assert reply.status == 401


async def test_so_many_listen_at_once_and_whoever_leaves_makes_room(shown: Shown) -> None:
    async with listening(shown) as first, listening(shown):
        assert first.status == 200
        async with listening(shown) as third:
            assert third.status == 503
            assert "ask again" in (await third.json())["error"]
    async with asyncio.timeout(WAIT_S):
        while True:
            shown.change()  # who has left is noticed at once, or when it is told of this
            async with listening(shown) as later:
                if later.status == 200:
                    return
            await asyncio.sleep(0.05)


async def test_a_process_that_stops_waits_for_no_listener() -> None:
    shown = Shown(most=2)
    await shown.listener.start()
    async with listening(shown) as reply:
        await shown.listener.stop()
        assert await reply.content.read() == b""  # whole: of one that was cut off, this raises
