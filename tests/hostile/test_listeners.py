"""What whoever reaches a port can do to a listener: no more than take one's own turn."""

from __future__ import annotations

import asyncio
import gc
import gzip
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import pytest
import uvloop
from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from structlog.testing import capture_logs

from certs.serving import ServingCertificate
from extender import SchedulerConnections
from extender.http.connections import HTTPReply, Times
from fettle.config import ListenAddress
from fettle.http import RECEIVE_S, Acceptor, Limits, app_connections, listening_on
from fettle.http.accepting import Accepted
from fettle.serve.listening import AppListener, ExtenderListener, Listener
from tests.certs.test_serving import make_leaf, make_root

FEW = Limits(connections=8, of_source=8, unfinished_bytes=2**20)
WITHIN_S = 10.0


def app_listener(context: ssl.SSLContext | None = None) -> Listener:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application(client_max_size=2**20)
    app.router.add_post("/call", echo)
    return AppListener("webhook", ListenAddress("127.0.0.1", 0), context, app)


def slow_listener() -> Listener:
    async def slowly(_request: web.Request) -> web.Response:
        await asyncio.sleep(0.5)
        return web.Response(body=b"{}")

    app = web.Application(client_max_size=2**20)
    app.router.add_post("/call", slowly)
    return AppListener("webhook", ListenAddress("127.0.0.1", 0), None, app)


def extender_listener(
    context: ssl.SSLContext | None = None, receive_s: float = RECEIVE_S
) -> Listener:
    kept = SchedulerConnections({"/call": lambda body: HTTPReply(200, body)}, 2**20)
    kept.times = Times(receive_s=receive_s)
    return ExtenderListener("extender", ListenAddress("127.0.0.1", 0), context, kept)


Make = Callable[..., Listener]
both = pytest.mark.parametrize("make", [app_listener, extender_listener])


class Streams(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Callers:
    """Those who call a listener at its port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.all: list[Streams] = []

    async def connect(self, text: bytes = b"", **more: Any) -> Streams:
        """A connection on which this was said."""
        streams = Streams(*await asyncio.open_connection("127.0.0.1", self.port, **more))
        self.all.append(streams)
        streams.writer.write(text)
        return streams

    async def are_answered(self, **more: Any) -> bool:
        reader, _ = await self.connect(post(2, b"{}"), **more)
        answer = await asyncio.wait_for(reader.readuntil(b"{}"), WITHIN_S)
        return answer.startswith(b"HTTP/1.1 200")


@asynccontextmanager
async def open_with(listener: Listener, limits: Limits = FEW) -> AsyncIterator[Callers]:
    listener.limits = limits
    await listener.start()
    callers = Callers(listener.sockets[0].getsockname()[1])
    try:
        yield callers
    finally:
        for _, writer in callers.all:
            writer.transport.abort()
        await listener.stop()


async def first_line(caller: Streams) -> bytes:
    """What is answered first; "" if the connection ends without a word."""
    try:
        return await asyncio.wait_for(caller.reader.readline(), WITHIN_S)
    except ConnectionError:
        return b""


async def ends_soon(caller: Streams) -> bool:
    try:
        return await asyncio.wait_for(caller.reader.read(1), 0.05) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def post(length: int, body: bytes = b"") -> bytes:
    return b"POST /call HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (length, body)


@pytest.fixture
def tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context, and that of a client that trusts it."""
    root = make_root()
    theirs = ssl.create_default_context(cadata=root.certificate.decode())
    return ServingCertificate(make_leaf(root)).context, theirs


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_connections, "RECEIVE_S", 0.3)


@pytest.mark.parametrize(
    "make", [app_listener, partial(extender_listener, receive_s=0.3)], ids=["app", "extender"]
)
@pytest.mark.parametrize(
    "begun",
    [post(1000, b"abc"), b"POST /call HTTP/1.1\r\nHost: x\r\nX-Slow: "],
    ids=["half a body", "half a head"],
)
@pytest.mark.usefixtures("hasty")
async def test_a_request_that_does_not_arrive_is_given_up(make: Make, begun: bytes) -> None:
    async with open_with(make()) as callers:
        caller = await callers.connect(begun)
        assert (await first_line(caller)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("hasty")
async def test_a_silent_connection_is_closed() -> None:
    async with open_with(app_listener()) as callers:
        assert await first_line(await callers.connect()) == b""


@both
async def test_silent_connections_make_room_for_others(make: Make) -> None:
    async with open_with(listener := make()) as callers:
        silent = [await callers.connect() for _ in range(40)]
        assert await callers.are_answered()
        (note,) = listener.notes()
        assert "33 connections had to make room: it keeps 8, and 8 of one address" in note
        assert sum([await ends_soon(one) for one in silent]) >= 32


@both
async def test_whoever_was_answered_before_keeps_the_connection(make: Make) -> None:
    async with open_with(make()) as callers:
        kept = await callers.connect(post(2, b"{}"))
        await asyncio.wait_for(kept.reader.readuntil(b"{}"), WITHIN_S)
        for _ in range(40):
            await callers.connect()
        assert not await ends_soon(kept)


@both
async def test_whoever_asks_for_what_is_not_served_makes_room_before_whoever_is_served(
    make: Make,
) -> None:
    async with open_with(make()) as callers:
        kept = await callers.connect(post(2, b"{}"))
        await asyncio.wait_for(kept.reader.readuntil(b"{}"), WITHIN_S)
        for _ in range(40):
            other = await callers.connect(
                b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
            )
            assert (await first_line(other)).startswith(b"HTTP/1.1 404 ")
        assert not await ends_soon(kept)


@both
async def test_silent_connections_in_the_middle_of_tls_make_room_too(
    make: Make, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    ours, theirs = tls
    async with open_with(make(ours)) as callers:
        silent = [await callers.connect() for _ in range(40)]
        assert await callers.are_answered(ssl=theirs, server_hostname="localhost")
        assert sum([await ends_soon(one) for one in silent]) >= 32


@both
async def test_unfinished_bodies_hold_no_more_than_their_bound(make: Make) -> None:
    half = post(2**19, b"[" * 2**18)
    async with open_with(make(), FEW._replace(connections=64, of_source=64)) as callers:
        for _ in range(20):
            await callers.connect(half)
            await asyncio.sleep(0.02)
        ended = sum([await ends_soon(one) for one in callers.all])
        assert 16 <= ended < 20
        assert await callers.are_answered()


@both
async def test_a_body_that_is_too_large_is_refused_before_it_comes(make: Make) -> None:
    async with open_with(make()) as callers:
        caller = await callers.connect(post(2**24))
        assert (await first_line(caller)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "begun",
    [b"2\r\n{}\r\n0\r\nX-T: ", b"1;x=", b"0\r\n" + b"X-A: b\r\n" * 20_000],
    ids=["a trailer", "an extension of a chunk", "many trailers"],
)
@both
async def test_what_is_neither_head_nor_body_is_bounded_too(make: Make, begun: bytes) -> None:
    chunked = b"POST /call HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with open_with(make()) as callers:
        caller = await callers.connect(chunked + begun)
        refused, sent = asyncio.create_task(first_line(caller)), 0
        with suppress(ConnectionError):
            while not refused.done() and sent < 2**26:
                caller.writer.write(b"a" * 65536)
                await caller.writer.drain()
                sent += 65536
        assert (await refused)[9:12] in (b"400", b"413", b"431", b"")
        assert sent < 2**23


async def test_whoever_sends_on_without_end_while_being_answered_makes_room_too() -> None:
    async with open_with(slow_listener(), FEW._replace(connections=64, of_source=64)) as callers:
        with capture_logs() as logs:
            greedy = [await callers.connect(post(2, b"{}")) for _ in range(40)]
            await asyncio.sleep(0.05)
            for one in greedy:
                one.writer.write(post(2**20) + b"[" * 2**19)
            lines = [await first_line(one) for one in greedy]
            assert await callers.are_answered()
        assert logs == []
    assert lines.count(b"") >= 20
    assert lines[-1].startswith(b"HTTP/1.1 200 ")


async def test_a_connection_that_cannot_begin_is_told_and_does_not_count() -> None:
    def make(_accepted: Accepted) -> asyncio.Protocol:
        raise ValueError("no protocol today")

    acceptor = Acceptor(make, None, FEW)
    acceptor.open(await listening_on("127.0.0.1", 0, shares_port=False))
    with capture_logs() as logs:
        for _ in range(20):
            caller = Streams(*await asyncio.open_connection(*acceptor.sockets[0].getsockname()))
            assert await first_line(caller) == b""
            caller.writer.close()
    await acceptor.close()
    assert [log["event"] for log in logs] == ["a connection cannot begin"] * 20
    assert acceptor.refused == 0


@both
def test_whoever_makes_room_while_it_begins_keeps_no_listener_from_stopping(make: Make) -> None:
    async def crowded() -> None:
        listener = make()
        async with open_with(listener) as callers:
            for _ in range(20):
                with ExitStack() as crowd:
                    for number in range(8 * FEW.connections):
                        silent = crowd.enter_context(socket.socket())
                        silent.setblocking(False)
                        silent.connect_ex(("127.0.0.1", callers.port))
                        if number % 4 == 0:  # some come while others begin
                            await asyncio.sleep(0)
            assert await callers.are_answered()

    async def within() -> None:
        await asyncio.wait_for(crowded(), WITHIN_S)

    uvloop.run(within())


async def test_a_process_without_files_says_so_once_a_minute() -> None:
    async with open_with(app_listener()) as callers:
        most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with capture_logs() as logs, socket.socket() as caller:
            caller.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
            try:
                await asyncio.get_running_loop().sock_connect(caller, ("127.0.0.1", callers.port))
                await asyncio.sleep(0.5)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        assert await callers.are_answered()
        assert [log["event"] for log in logs] == ["a connection cannot be accepted"]


async def test_a_broken_upload_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with open_with(app_listener()) as callers:
        with capture_logs() as logs:
            for begun in (post(1000, b"abc"), b"POST /call HTTP/1.1\r\nHost: x\r\nX-Slow: "):
                _, writer = await callers.connect(begun)
                await asyncio.sleep(0.05)
                writer.transport.abort()
                await asyncio.sleep(0.05)
        assert logs == []
        assert caplog.records == []


async def test_a_body_is_never_inflated() -> None:
    packed = gzip.compress(b"[" * 2**20)
    head = b"POST /call HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    async with open_with(app_listener()) as callers:
        caller = await callers.connect(head % len(packed) + packed)
        assert (await first_line(caller)).startswith(b"HTTP/1.1 415 ")
        assert await callers.are_answered()


def counting_listener(asked: list[str]) -> Listener:
    async def count(request: web.Request) -> web.Response:
        asked.append(request.remote or "")
        return web.Response(body=b"{}")

    app = web.Application(client_max_size=2**20)
    app.router.add_post("/call", count)
    return AppListener("browse", ListenAddress("127.0.0.1", 0), None, app)


async def test_of_many_who_ask_at_once_one_is_read_before_others_have_a_turn() -> None:
    asked: list[str] = []
    limits = FEW._replace(connections=64, of_source=64)
    async with open_with(counting_listener(asked), limits) as callers:
        for _ in range(60):
            await callers.connect()
        await asyncio.sleep(0.1)
        for one in callers.all:
            one.writer.write(post(2, b"{}"))
        most = 0
        async with asyncio.timeout(WITHIN_S):
            while len(asked) < 60:
                before = len(asked)
                await asyncio.sleep(0)
                most = max(most, len(asked) - before)
        assert most <= 2


async def test_of_those_who_ask_two_listeners_at_once_one_is_read_in_each_turn() -> None:
    asked: list[str] = []
    first, second = counting_listener(asked), counting_listener(asked)
    second.turns = first.turns
    limits = FEW._replace(connections=64, of_source=64)
    async with open_with(first, limits) as these, open_with(second, limits) as those:
        for _ in range(30):
            await these.connect()
            await those.connect()
        await asyncio.sleep(0.1)
        for one in (*these.all, *those.all):
            one.writer.write(post(2, b"{}"))
        most = before = 0
        async with asyncio.timeout(WITHIN_S):
            while before < 60:
                await asyncio.sleep(0)
                most, before = max(most, len(asked) - before), len(asked)
        assert most <= 2


async def test_an_address_with_many_connections_has_no_more_turns_than_others() -> None:
    asked: list[str] = []
    limits = FEW._replace(connections=64, of_source=64)
    async with open_with(counting_listener(asked), limits) as callers:
        for _ in range(50):
            await callers.connect()
        await callers.connect(local_addr=("127.0.0.2", 0))
        await asyncio.sleep(0.1)
        for one in callers.all:
            one.writer.write(post(2, b"{}"))
        async with asyncio.timeout(WITHIN_S):
            while len(asked) < 51:
                await asyncio.sleep(0)
        assert asked.index("127.0.0.2") < 4


@pytest.mark.parametrize("request_", [post(2, b"{}"), b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_requests_that_are_sent_ahead_are_parsed_one_after_the_other(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To parse thousands that came at once would keep others waiting for 100 ms."""
    given: list[int] = []
    parse = RequestHandler.data_received

    def note(self: RequestHandler, data: bytes) -> None:
        given.append(len(data))
        parse(self, data)

    monkeypatch.setattr(RequestHandler, "data_received", note)
    async with open_with(app_listener()) as callers:
        caller = await callers.connect(request_ * 300)
        for _ in range(300):
            assert (await first_line(caller)).startswith(b"HTTP/1.1 ")
            head = await caller.reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await caller.reader.readexactly(size)
    assert max(given) <= len(request_)


async def test_what_is_not_served_is_said_and_leaves_little_garbage() -> None:
    asked = b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n"
    async with open_with(app_listener()) as callers:
        caller = await callers.connect()
        await callers.are_answered()
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                caller.writer.write(asked)
                assert (await first_line(caller)).startswith(b"HTTP/1.1 404 ")
                answer = await caller.reader.readuntil(b"}")
                assert b"only these are served here: POST /call" in answer
            assert gc.collect() < 50
        finally:
            gc.enable()


async def test_a_method_that_is_not_served_is_told_which_is() -> None:
    async with open_with(app_listener()) as callers:
        caller = await callers.connect(b"GET /call HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await first_line(caller)).startswith(b"HTTP/1.1 405 ")
        assert b"\r\nAllow: POST\r\n" in await caller.reader.readuntil(b"\r\n\r\n")


async def test_a_body_without_a_length_is_refused_with_a_sentence() -> None:
    head = b"POST /call HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with open_with(app_listener()) as callers:
        caller = await callers.connect(head + b"2\r\n{}\r\n0\r\n\r\n")
        assert (await first_line(caller)).startswith(b"HTTP/1.1 411 ")
        assert b"no Content-Length" in await caller.reader.readuntil(b"}")


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_a_request_may_come_in_pieces_of_any_size(size: int) -> None:
    text = post(300, b"[" * 300) * 2
    async with open_with(app_listener()) as callers:
        caller = await callers.connect()
        for begin in range(0, len(text), size):
            caller.writer.write(text[begin : begin + size])
            await asyncio.sleep(0)
        for _ in range(2):
            answer = await asyncio.wait_for(caller.reader.readuntil(b"[" * 300), WITHIN_S)
            assert answer.startswith(b"HTTP/1.1 200 ")
