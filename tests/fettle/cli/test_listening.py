"""What sockets are told before anything is served on them, and what callers are at the end."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from contextlib import suppress

import pytest
from aiohttp import ClientSession, web

from extender.connections import Answer, Connection, Connections
from fettle.cli import listening
from fettle.cli.listening import Address, AppListener, ExtenderListener
from tests.controlplane.processes import free_port


class _Kept(Connections):
    """Shows the sockets of its connections."""

    def __init__(self) -> None:
        super().__init__({"/filter": lambda _body: Answer(200, b"{}")}, max_body_bytes=1024)
        self.sockets: asyncio.Queue[socket.socket] = asyncio.Queue()

    def __call__(self) -> Connection:
        kept = self

        class Shown(Connection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                kept.sockets.put_nowait(transport.get_extra_info("socket"))

        return Shown(self)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a choice of it for each socket")
async def test_replies_on_loopback_are_not_spread_by_the_hosts_congestion_control() -> None:
    kept = _Kept()
    listener = ExtenderListener("extender", Address("127.0.0.1", free_port()), None, kept)
    await listener.start()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
        served = await kept.sockets.get()
        chosen = served.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert chosen.rstrip(b"\0") == b"reno"
        writer.close()
    finally:
        await listener.stop()


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


async def _serving(app: web.Application) -> AppListener:
    listener = AppListener("webhook", Address("127.0.0.1", free_port()), None, app)
    await listener.start()
    return listener


async def test_a_review_that_comes_on_a_kept_connection_while_we_stop_is_answered_as_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "LINGER_S", 5.0)
    app = web.Application()
    app.router.add_post("/mutate", _echo)
    listener = await _serving(app)
    url = f"http://{listener.address}/mutate"
    async with ClientSession() as client:
        async with client.post(url, data=b"before") as reply:
            assert "Connection" not in reply.headers
            assert await reply.read() == b"before"
        stopping = asyncio.create_task(listener.stop())
        await asyncio.sleep(0.05)
        async with client.post(url, data=b"meanwhile") as reply:
            assert await reply.read() == b"meanwhile"
            assert reply.headers["Connection"] == "close"
        await stopping


async def test_an_answer_that_never_comes_does_not_hold_the_end_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "LINGER_S", 0.1)
    monkeypatch.setattr(listening, "DRAIN_S", 2.0)
    released = asyncio.Event()

    async def stubborn(_request: web.Request) -> web.Response:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        return web.Response()

    app = web.Application()
    app.router.add_get("/", stubborn)
    listener = await _serving(app)
    async with ClientSession() as client:
        asking = asyncio.create_task(client.get(f"http://{listener.address}/"))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await listener.stop()
        assert time.monotonic() - began < 3.5
        released.set()
        await asyncio.gather(asking, return_exceptions=True)
