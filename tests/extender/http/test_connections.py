"""The extender's HTTP, byte by byte: what a client may do, and what becomes of the others."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.http.connections import (
    MOST_AHEAD,
    REFUSED_PAUSE_S,
    HTTPReply,
    SchedulerConnections,
    Times,
)


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        async with asyncio.timeout(20):
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            sizes = [int(x.split(b":")[1]) for x in lines if x.startswith(b"Content-Length:")]
            body = await self._reader.readexactly(sizes[0]) if sizes else b""
            return int(lines[0].split()[1]), body

    async def head(self) -> tuple[int, list[bytes]]:
        async with asyncio.timeout(20):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        return int(lines[0].split()[1]), lines[1:]

    async def body(self, size: int) -> bytes:
        async with asyncio.timeout(20):
            return await self._reader.readexactly(size)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def closed(self) -> bool:
        async with asyncio.timeout(20):
            return await self._reader.read() == b""


class Server:
    def __init__(self) -> None:
        self.asked, self.slow = asyncio.Event(), asyncio.Event()
        self.echoed: list[bytes] = []
        routes: Any = {"/echo": self._echo, "/slow": self._slow}
        self.connections = SchedulerConnections(routes, max_body_bytes=2**20)
        self.port = 0
        self._clients: list[Client] = []

    def _echo(self, body: bytes) -> HTTPReply:
        self.echoed.append(body)
        return HTTPReply(200, body)

    async def _slow(self, body: bytes) -> HTTPReply:
        self.asked.set()
        await self.slow.wait()
        return HTTPReply(200, b"slow:" + body)

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    made = Server()
    listener = await asyncio.get_running_loop().create_server(made.connections, "127.0.0.1", 0)
    made.port = listener.sockets[0].getsockname()[1]
    yield made
    listener.close()
    made.slow.set()
    await made.close()
    await made.connections.drain(1)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        made.connections.times = Times(discard_s=20.0)
        yield made


def post(path: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST %b HTTP/1.1" % path, b"Host: x", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


async def test_a_connection_is_kept_for_the_next_request(server: Server) -> None:
    client = await server.connect()
    for body in (b"one", b"two"):
        await client.send(post(b"/echo", body))
        assert await client.answer() == (200, body)


async def test_who_asks_for_what_is_not_served_waits_before_it_is_read_again(
    server: Server,
) -> None:
    client = await server.connect()
    began = time.monotonic()
    for body in (b"one", b"two", b"three"):
        await client.send(post(b"/no", body))
        assert (await client.answer())[0] == 404
    assert time.monotonic() - began >= 2 * REFUSED_PAUSE_S
    await client.send(post(b"/echo", b"four"))
    assert await client.answer() == (200, b"four")


async def test_requests_ahead_of_an_error_are_answered_after_the_pause(server: Server) -> None:
    client = await server.connect()
    await client.send(post(b"/no", b"one") + post(b"/echo", b"two") + post(b"/no", b"three"))
    answers = [await client.answer() for _ in range(3)]
    assert [status for status, _ in answers] == [404, 200, 404]


@pytest.mark.parametrize(
    "url", [b"http://host/echo", b"http://host:8088/echo?timeout=5s", b"/echo?timeout=5s"]
)
async def test_the_path_is_found_in_any_form_of_a_url(server: Server, url: bytes) -> None:
    client = await server.connect()
    await client.send(post(url, b"body"))
    assert await client.answer() == (200, b"body")


@pytest.mark.parametrize("path", [b"/echo", b"/nothing"])
async def test_head_is_refused_without_a_body(server: Server, path: bytes) -> None:
    client = await server.connect()
    await client.send(b"HEAD %b HTTP/1.1\r\nHost: x\r\n\r\n" % path + post(b"/echo", b"next"))
    status, headers = await client.head()
    assert status in (404, 405)
    assert (b"Allow: POST" in headers) == (status == 405)
    assert await client.answer() == (200, b"next")


async def test_a_path_that_is_not_served_is_not_echoed_at_length(server: Server) -> None:
    client = await server.connect()
    await client.send(post(b"/" + b"x" * 5_000, b""))
    status, body = await client.answer()
    assert status == 404
    assert len(body) < 300


async def test_a_request_may_come_in_any_pieces(server: Server) -> None:
    client = await server.connect()
    for byte in post(b"/echo", b"piecemeal"):
        await client.send(bytes([byte]))
    assert await client.answer() == (200, b"piecemeal")


async def test_a_chunked_body_is_read(server: Server) -> None:
    client = await server.connect()
    head = b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    await client.send(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert await client.answer() == (200, b"abcde")


async def test_requests_sent_ahead_are_answered_in_turn(server: Server) -> None:
    client = await server.connect()
    await client.send(post(b"/slow", b"1") + post(b"/echo", b"2") + post(b"/echo", b"3"))
    server.slow.set()
    assert [await client.answer() for _ in range(3)] == [
        (200, b"slow:1"),
        (200, b"2"),
        (200, b"3"),
    ]


async def test_a_request_that_waits_does_not_delay_other_connections(server: Server) -> None:
    waiting, other = await server.connect(), await server.connect()
    await waiting.send(post(b"/slow", b""))
    await other.send(post(b"/echo", b"quick"))
    assert await other.answer() == (200, b"quick")


async def test_requests_sent_ahead_take_turns_with_those_of_others(server: Server) -> None:
    greedy, other = await server.connect(), await server.connect()
    await greedy.send(post(b"/echo", b"first"))
    assert await greedy.answer() == (200, b"first")
    await asyncio.gather(
        greedy.send(b"".join(post(b"/echo", b"greedy") for _ in range(MOST_AHEAD))),
        other.send(post(b"/echo", b"other")),
    )
    assert await other.answer() == (200, b"other")
    assert server.echoed.index(b"other") <= 2
    for _ in range(MOST_AHEAD):
        assert await greedy.answer() == (200, b"greedy")


async def test_whoever_sends_too_many_requests_ahead_is_answered_the_first_and_told_why(
    server: Server,
) -> None:
    greedy = await server.connect()
    await greedy.send(post(b"/echo", b"x") * 3000)
    answers = [await greedy.answer() for _ in range(MOST_AHEAD + 2)]
    assert answers[:-1] == [(200, b"x")] * (MOST_AHEAD + 1)
    status, text = answers[-1]
    assert status == 400
    assert b"wait for replies" in text
    assert len(server.echoed) == MOST_AHEAD + 1


async def test_a_client_that_expects_continue_is_told_to(server: Server) -> None:
    client = await server.connect()
    request = post(b"/echo", b"body", b"Expect: 100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    await client.send(head + b"\r\n\r\n")
    assert (await client.answer())[0] == 100
    await client.send(body)
    assert await client.answer() == (200, b"body")


async def test_a_client_that_asks_to_close_is_closed_after_its_answer(server: Server) -> None:
    client = await server.connect()
    await client.send(post(b"/echo", b"last", b"Connection: close"))
    assert await client.answer() == (200, b"last")
    assert await client.closed()


@pytest.mark.parametrize(
    ("request_", "status", "says"),
    [
        (post(b"/nothing", b""), 404, b"/nothing"),
        (b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", 405, b"POST"),
        (b"nonsense\r\n\r\n", 400, b"not HTTP/1.1"),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400, b"not HTTP/1.1"),
        (post(b"/echo", b"", b"Content-Length: 7"), 400, b"not HTTP/1.1"),
        (b"POST /echo HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", 413, b"1 MiB"),
        (b"POST /echo HTTP/1.1\r\nX: " + b"x" * 70_000, 431, b"head"),
        (post(b"/echo", b"", b"X: " + b"x" * 70_000), 431, b"head"),
        (post(b"/" + b"x" * 100_000, b""), 414, b"path"),
        (post(b"/echo?" + b"x" * 100_000, b""), 414, b"path"),
        (post(b"http://[/echo", b""), 400, b"HTTP/1.1"),
        (
            b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"40000\r\n" + b"x" * 0x40000 + b"\r\n") * 5,
            413,
            b"1 MiB",
        ),
    ],
    ids=[
        *("path", "method", "nonsense", "TLS", "two lengths", "length", "head", "whole head"),
        *("long path", "long query", "host", "chunks"),
    ],
)
async def test_a_bad_request_gets_a_status_and_a_sentence_that_says_what_is_wrong(
    server: Server, request_: bytes, status: int, says: bytes
) -> None:
    client = await server.connect()
    await client.send(request_)
    answered, body = await client.answer()
    assert answered == status
    assert says in body


async def test_a_client_that_writes_on_after_an_error_can_still_read_it(
    server: Server,
) -> None:
    client = await server.connect()
    size = 32 * 2**20
    await client.send(b"POST /echo HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size)
    for _ in range(32):
        await client.send(bytes(2**20))
    status, body = await client.answer()
    assert (status, b"1 MiB" in body) == (413, True)
    assert await client.closed()


async def test_a_client_that_never_ends_a_refused_request_is_cut_off(
    server: Server,
) -> None:
    server.connections.times = Times(discard_s=0.05)
    client = await server.connect()
    await client.send(b"POST /echo HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n")
    assert (await client.answer())[0] == 413
    async with asyncio.timeout(20):
        await server.connections.emptied.wait()


@pytest.mark.parametrize(
    "request_",
    [
        post(b"/echo", b"body", b"Connection: Upgrade", b"Upgrade: h2c"),
        post(b"/slow", b"body", b"Connection: Upgrade", b"Upgrade: websocket"),
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["h2c", "websocket", "CONNECT"],
)
async def test_a_client_that_wants_another_protocol_gets_one_error_that_says_so(
    server: Server, request_: bytes
) -> None:
    client = await server.connect()
    await client.send(request_)
    status, body = await client.answer()
    assert status == 400
    assert b"HTTP/1.1 only" in body
    assert await client.closed()


async def test_an_error_about_a_request_does_not_answer_the_request_before_it(
    server: Server,
) -> None:
    client = await server.connect()
    await client.send(post(b"/slow", b"1") + b"nonsense\r\n\r\n")
    await server.asked.wait()
    server.slow.set()
    assert await client.answer() == (200, b"slow:1")
    assert (await client.answer())[0] == 400
    assert await client.closed()


async def test_a_request_that_never_ends_is_given_up(
    server: Server,
) -> None:
    server.connections.times = Times(receive_s=0.05)
    client = await server.connect()
    await client.send(b"POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")
    assert (await client.answer())[0] == 408
    assert await client.closed()


async def test_an_idle_connection_is_closed_after_its_time(
    server: Server,
) -> None:
    server.connections.times = Times(idle_s=0.05)
    client = await server.connect()
    assert await client.closed()


async def test_draining_sends_the_reply_under_way_and_closes_idle_connections(
    server: Server,
) -> None:
    busy, idle = await server.connect(), await server.connect()
    await busy.send(post(b"/slow", b"x"))
    await server.asked.wait()
    draining = asyncio.create_task(server.connections.drain(60))
    assert await idle.closed()
    server.slow.set()
    assert await busy.answer() == (200, b"slow:x")
    await draining


async def test_draining_answers_further_requests_with_connection_close(
    server: Server,
) -> None:
    server.connections.times = Times(linger_s=60.0)
    kept = await server.connect()
    await kept.send(post(b"/echo", b"before"))
    assert await kept.answer() == (200, b"before")
    draining = asyncio.create_task(server.connections.drain(60))
    while not server.connections.draining:
        await asyncio.sleep(0)
    await kept.send(post(b"/echo", b"meanwhile"))
    status, headers = await kept.head()
    assert status == 200
    assert b"Connection: close" in headers
    await draining


async def test_draining_ends_at_once_without_connections(
    server: Server,
) -> None:
    server.connections.times = Times(linger_s=60.0)
    client = await server.connect()
    await client.send(post(b"/echo", b""))
    await client.answer()
    await client.close()
    await server.connections.emptied.wait()
    async with asyncio.timeout(20):
        await server.connections.drain(60)


async def test_draining_loses_no_request_of_a_client_that_asks_all_the_time(
    server: Server,
) -> None:
    server.connections.times = Times(linger_s=60.0)

    asked: list[bytes] = []
    often = asyncio.Event()

    async def ask() -> None:
        client = await server.connect()
        while True:
            await client.send(post(b"/echo", b"next"))
            status, headers = await client.head()
            assert status == 200
            if b"Connection: close" in headers:
                return
            asked.append(await client.body(4))
            if len(asked) == 100:
                often.set()

    asking = [asyncio.create_task(ask()) for _ in range(4)]
    async with asyncio.timeout(20):
        await often.wait()
    await server.connections.drain(60)
    await asyncio.gather(*asking)


async def test_draining_ends_even_if_a_reply_is_never_ready(server: Server) -> None:
    busy = await server.connect()
    await busy.send(post(b"/slow", b"x"))
    await server.asked.wait()
    await server.connections.drain(0.05)
    assert not server.connections.open


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=40), max_size=4), st.booleans())
async def test_no_bytes_of_one_client_keep_the_next_one_from_being_served(
    server: Server, pieces: list[bytes], begin_well: bool
) -> None:
    client = await server.connect()
    start = [b"POST /echo HTTP/1.1\r\nContent-Length: 5\r\n"] if begin_well else []
    with contextlib.suppress(ConnectionError):
        for piece in start + pieces:
            await client.send(piece)
    other = await server.connect()
    await other.send(post(b"/echo", b"fine"))
    assert await other.answer() == (200, b"fine")
