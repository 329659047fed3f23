"""Listeners: addresses, and what happens to callers while they are drained."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
import uvloop
from aiohttp import ClientSession, web
from structlog.testing import capture_logs

from extender import SchedulerConnections
from extender.http.connections import HTTPReply, SchedulerConnection
from fettle.config import ListenAddress, SocketPath
from fettle.http import Accepted, Callers
from fettle.model import SettingsError
from fettle.serve import listening
from fettle.serve.listening import AppListener, ExtenderListener, Listener
from tests.controlplane.processes import free_port
from tests.fettle.others import time_taken


class _Kept(SchedulerConnections):
    """Shows the sockets of its connections."""

    def __init__(self) -> None:
        super().__init__({"/filter": lambda _body: HTTPReply(200, b"{}")}, max_body_bytes=1024)
        self.sockets: asyncio.Queue[socket.socket] = asyncio.Queue()

    def __call__(
        self, accepted: Accepted | None = None, callers: Callers | None = None
    ) -> SchedulerConnection:
        kept = self

        class Shown(SchedulerConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                kept.sockets.put_nowait(transport.get_extra_info("socket"))

        return Shown(self, accepted or Accepted(), callers)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a choice of it for each socket")
async def test_replies_on_loopback_are_not_spread_by_the_hosts_congestion_control() -> None:
    kept = _Kept()
    port = free_port()
    listener = ExtenderListener("extender", ListenAddress("127.0.0.1", port), None, kept)
    await listener.start()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        served = await kept.sockets.get()
        chosen = served.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert chosen.rstrip(b"\0") == b"reno"
        writer.close()
    finally:
        await listener.stop()


async def _echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


def _extender(address: ListenAddress) -> Listener:
    return ExtenderListener("extender", address, None, _Kept())


def _webhook(address: ListenAddress) -> Listener:
    app = web.Application()
    app.router.add_get("/", _remote)
    return AppListener("webhook", address, None, app)


async def _remote(request: web.Request) -> web.Response:
    return web.Response(text=request.remote)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")


async def _answers(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


@needs_ipv6
@pytest.mark.parametrize("make", [_extender, _webhook])
@pytest.mark.parametrize(
    ("host", "answering"),
    [
        ("", {"127.0.0.1", "::1"}),
        ("[::]", {"127.0.0.1", "::1"}),
        ("[0::0]", {"127.0.0.1", "::1"}),
        ("0.0.0.0", {"127.0.0.1"}),
        ("[::1]", {"::1"}),
    ],
)
@pytest.mark.parametrize("loop", [asyncio, uvloop])
def test_a_port_without_a_host_is_listened_on_by_ipv4_and_ipv6(
    make: Callable[[ListenAddress], Listener], host: str, answering: set[str], loop: ModuleType
) -> None:
    async def reached() -> set[str]:
        port = free_port()
        listener = make(ListenAddress.parse(f"{host}:{port}", "--flag"))
        await listener.start()
        try:
            return {host for host in ("127.0.0.1", "::1") if await _answers(host, port)}
        finally:
            await listener.stop()

    assert loop.run(reached()) == answering


@pytest.mark.parametrize("make", [_extender, _webhook])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
@pytest.mark.parametrize("loop", [asyncio, uvloop])
def test_with_port_zero_the_log_names_the_chosen_port(
    make: Callable[[ListenAddress], Listener], host: str, loop: ModuleType
) -> None:
    async def urls() -> list[str]:
        listener = make(ListenAddress.parse(f"{host}:0", "--flag"))
        with capture_logs() as logs:
            await listener.start()
        try:
            said: list[str] = [entry["url"] for entry in logs if entry["event"] == "listening"]
            for url in said:
                address = ListenAddress.parse(url.removeprefix("http://"), "--flag")
                assert await _answers(address.host, address.port), url
            return said
        finally:
            await listener.stop()

    assert loop.run(urls())


async def test_a_caller_over_ipv4_is_seen_by_its_ipv4_address() -> None:
    """By which the browse listener tells who is on this host."""
    address = ListenAddress.parse(f":{free_port()}", "--flag")
    listener = _webhook(address)
    await listener.start()
    try:
        async with (
            ClientSession() as client,
            client.get(f"http://127.0.0.1:{address.port}/") as reply,
        ):
            assert await reply.text() == "127.0.0.1"
    finally:
        await listener.stop()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "address already in use"),
        ("192.0.2.7", "cannot assign requested address"),
        ("nowhere.invalid", "name or service not known"),
    ],
)
@pytest.mark.parametrize("make", [_extender, _webhook])
def test_an_address_that_cannot_be_used_is_told_with_the_flag_that_changes_it(
    make: Callable[[ListenAddress], Listener], host: str, reason: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = ListenAddress(host, taken.getsockname()[1])
        listener = make(address)
        with pytest.raises(SettingsError) as caught:
            uvloop.run(listener.start())  # as Fettle runs: asyncio's reasons change with Python's
    assert str(caught.value) == (
        f"cannot listen on {address} for the {listener.name} listener: {reason}; "
        f"set another address with --{listener.name}-listen"
    )


async def test_of_several_that_wait_for_an_address_one_gets_it_and_the_others_wait_on(
    tmp_path: Path,
) -> None:
    addresses = ListenAddress("127.0.0.1", free_port()), SocketPath(tmp_path / "browse.sock")
    for address in addresses:
        predecessor, *waiting = (
            AppListener("browse", address, None, web.Application(), shares_port=False)
            for _ in range(4)
        )
        await predecessor.start()
        tasks = {asyncio.create_task(each.start_once_free()): each for each in waiting}
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in tasks)
        await predecessor.stop()
        while tasks:
            done, _ = await asyncio.wait(tasks, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0.1)
            (one,) = [task for task in tasks if task.done()]
            assert done == {one}
            await one
            await tasks.pop(one).stop()


async def _serving(app: web.Application) -> AppListener:
    listener = AppListener("webhook", ListenAddress("127.0.0.1", free_port()), None, app)
    await listener.start()
    return listener


async def test_a_review_that_comes_on_a_kept_connection_while_we_stop_is_answered_as_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "LINGER_S", 60.0)
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


@pytest.mark.long
async def test_a_request_that_is_never_answered_does_not_delay_the_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "LINGER_S", 0.1)
    monkeypatch.setattr(listening, "DRAIN_S", 2.0)
    asked, released = asyncio.Event(), asyncio.Event()

    async def stubborn(_request: web.Request) -> web.Response:
        asked.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        return web.Response()

    app = web.Application()
    app.router.add_get("/", stubborn)
    listener = await _serving(app)
    async with ClientSession() as client:
        asking = asyncio.create_task(client.get(f"http://{listener.address}/"))
        await asked.wait()
        _, seconds = await time_taken(listener.stop())
        assert seconds < 3.5
        released.set()
        await asyncio.gather(asking, return_exceptions=True)
