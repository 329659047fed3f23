"""HTTP/1.1 for the extender's three calls: httptools parses, this keeps the connection,
and closes one that is idle for long.

kube-scheduler waits for a reply in every scheduling cycle, one request at a time over a kept
connection. So whatever a request costs beyond its verdicts, each pod pays (decision 0007). This
module knows methods, paths, bodies and their limits, and nothing of what the bodies say.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple, cast

import httptools
import msgspec

from fettle.http import MAX_HEAD_BYTES, RECEIVE_S, Accepted, Caller, Callers, Limits

MAX_URL_BYTES = 8 * 1024
_ONLY = "this server speaks HTTP/1.1 only: it supports neither upgrades nor CONNECT"
_SHOWN = 100
"""How many bytes of a path that is not served an error shows."""
IDLE_S = 120.0
"""Go drops idle connections after 90 s. Ours must not be the side that closes them."""
LINGER_S = 0.5
"""How long idle connections are kept when we stop. A request may be on its way on each of them, and
a POST that meets a closed connection is lost. So requests that come meanwhile are still answered,
with `Connection: close`; after that, connections that stayed idle are closed."""
REFUSED_PAUSE_S = 0.1
"""How long nothing is read of a connection after a reply that is an error: kube-scheduler gives up
the pod, and who asks for what is not served asks a thousand times a second."""
MOST_AHEAD = 16
"""How many requests of one connection may wait for earlier ones. Each waits until others had their
turn, and kube-scheduler sends none ahead."""
DISCARD_S = 2.0
"""How long the rest of a refused request is still read, and thrown away. To close while the client
writes would reset the connection, and the client would not see the error."""


class Times(NamedTuple):
    """Of each connection, in seconds."""

    receive_s: float = RECEIVE_S
    idle_s: float = IDLE_S
    linger_s: float = LINGER_S
    discard_s: float = DISCARD_S


class _TooManyAhead(Exception):
    """Ends the parsing of what has come."""


class HTTPReply(NamedTuple):
    """`body` is JSON."""

    status: int
    body: bytes


Handler = Callable[[bytes], HTTPReply | Awaitable[HTTPReply]]
"""Answers at once where it can: a task costs more than most answers do."""


class _Request(NamedTuple):
    method: bytes
    url: bytes
    body: bytes
    keep: bool

    @property
    def path(self) -> bytes:
        """Also of a URL in absolute form, which servers must accept. Raises HttpParserError."""
        if self.url.startswith(b"/"):
            return self.url.partition(b"?")[0]
        return httptools.parse_url(self.url).path or b"/"


def problem(status: int, message: str) -> HTTPReply:
    """An error, as one sentence for the client."""
    return HTTPReply(status, msgspec.json.encode({"error": message}))


def _not_found(_method: str, path: str) -> HTTPReply:
    return problem(404, f"path {path} not found")


class SchedulerConnections:
    """Makes a protocol for each connection, and drains them all. `routes` are POST handlers by
    path; `elsewhere` answers any other path, given the method."""

    def __init__(
        self,
        routes: dict[str, Handler],
        max_body_bytes: int,
        elsewhere: Callable[[str, str], HTTPReply] = _not_found,
    ) -> None:
        self.routes = {path.encode(): handler for path, handler in routes.items()}
        self.elsewhere = elsewhere
        self.max_body_bytes = max_body_bytes
        self.limits = Limits(unfinished_bytes=max(Limits().unfinished_bytes, 2 * max_body_bytes))
        self.open: set[SchedulerConnection] = set()
        self.emptied = asyncio.Event()
        self.emptied.set()
        self.draining = False
        self.times = Times()

    def __call__(
        self, accepted: Accepted | None = None, callers: Callers | None = None
    ) -> "SchedulerConnection":
        """Without `callers`, everybody is answered."""
        return SchedulerConnection(self, accepted or Accepted(), callers)

    async def drain(self, seconds: float) -> None:
        """Answer requests that have come or still come, each as the last on its connection. Close
        connections that stay idle after `linger_s`, and the rest when time is up."""
        self.draining = True
        linger_s = min(self.times.linger_s, seconds)
        if not await self._emptied_within(linger_s):
            for connection in list(self.open):
                connection.close_if_idle()
        if not await self._emptied_within(seconds - linger_s):
            for connection in list(self.open):
                connection.abort()
            await self.emptied.wait()

    async def _emptied_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.emptied.wait()
        return not self.open


class SchedulerConnection(asyncio.Protocol):
    """One client's connection. Each request is answered before the next is read."""

    def __init__(
        self,
        connections: SchedulerConnections,
        accepted: Accepted,
        callers: Callers | None = None,
    ) -> None:
        self._all = connections
        self._accepted = accepted
        self._callers = callers
        self._caller: Caller | None = None
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._size = 0
        self._received = 0
        self._fields_size = 0
        self._url = b""
        self._expects = False
        self._begun = False
        self._requests: deque[_Request] = deque()
        self._had_turn = False
        """Whether it was answered since other connections could be."""
        self._writable = True
        self._rests = False
        """Whether nothing is read of it after an error."""
        self._answering: asyncio.Task[None] | None = None
        self._refusal: HTTPReply | None = None
        self._discarding = False
        self._timer: asyncio.TimerHandle | None = None
        self._due_at: float | None = None

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another type
        if self._callers is not None:
            self._caller = self._callers(transport.get_extra_info("ssl_object"))
        self._all.open.add(self)
        self._all.emptied.clear()
        self._expect_within(self._all.times.idle_s)

    def connection_lost(self, error: Exception | None) -> None:
        self._all.open.discard(self)
        self._accepted.left()
        self._body.clear()  # what refers to itself may stay for long
        self._requests.clear()
        if not self._all.open:
            self._all.emptied.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def pause_writing(self) -> None:
        """The client does not read its replies, so read no more of its requests."""
        self._writable = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self._go_on()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        if not self._begun:
            self._begun = True
            self._expect_within(self._all.times.receive_s)
        self._received += len(data)
        self._accepted.took(len(data))
        self._had_turn = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(problem(400, _ONLY))
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _TooManyAhead):
                raise
            why = f"more than {MOST_AHEAD} requests were sent ahead: wait for replies"
            self._refuse(problem(400, why))
        except httptools.HttpParserError as error:
            self._refuse(problem(400, f"not HTTP/1.1: {error}"))
        # Whatever is not the body: the head, trailers, and what frames chunks.
        if self._begun and self._received - self._size > MAX_HEAD_BYTES:
            self._too_large_head()

    # -- httptools' callbacks

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > MAX_URL_BYTES:
            self._refuse(problem(414, f"the path is longer than {MAX_URL_BYTES} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields_size += len(name) + len(value)
        if self._fields_size > MAX_HEAD_BYTES:
            self._too_large_head()
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self._expects = True
        elif name.lower() == b"content-length" and int(value) > self._all.max_body_bytes:
            self._too_large()

    def on_headers_complete(self) -> None:
        if not self._ended and (why := self._refusal_of_caller()):
            self._refuse(problem(403, why))
        if self._expects and not self._closing:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self._all.max_body_bytes:
            self._body.clear()
            self._too_large()
        elif not self._ended:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._ended or self._parser.should_upgrade():  # the parser raises after this
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        keep = self._parser.should_keep_alive()
        self._requests.append(_Request(self._parser.get_method(), self._url, body, keep))
        self._body, self._size, self._received, self._fields_size = [], 0, 0, 0
        self._url, self._expects = b"", False
        self._begun = False
        if not self._had_turn and self._answering is None:
            self._had_turn = True
            self._next()
        elif len(self._requests) > MOST_AHEAD:
            self._requests.pop()
            raise _TooManyAhead
        elif self._answering is None and len(self._requests) == 1:
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)

    # -- answering

    def _has_rested(self) -> None:
        self._rests = False
        self._go_on()

    def _go_on(self) -> None:
        """After others had their turn: answer the next request, or read on."""
        if self._closing or self._rests or self._answering is not None or not self._writable:
            return
        if self._requests:
            self._next()
            self._loop.call_soon(self._go_on)
            return
        self._transport.resume_reading()
        if self._refusal:
            self._write_refusal(self._refusal)

    def _next(self) -> None:
        """Answer a request that has arrived whole."""
        request = self._requests.popleft()
        keep = request.keep
        if (why := self._refusal_of_caller()) is not None:
            if why:
                self._write_refusal(problem(403, why))
                return
            keep = False
        self._accepted.answering = True
        reply = self._dispatch(request)
        if isinstance(reply, HTTPReply):
            self._write(reply, keep=keep, head_only=request.method == b"HEAD")
        else:
            self._expect_within(None)
            self._transport.pause_reading()
            later = self._write_later(reply, keep=keep)
            self._answering = self._loop.create_task(later)

    def _refusal_of_caller(self) -> str | None:
        """Why the caller is not answered, "" if for the last time, None if as always."""
        if self._caller is None or self._caller.in_force:
            return None
        return self._caller.refusal()

    async def _write_later(self, reply: Awaitable[HTTPReply], *, keep: bool) -> None:
        made = await reply
        self._answering = None
        self._write(made, keep=keep)
        self._go_on()

    def _dispatch(self, request: _Request) -> HTTPReply | Awaitable[HTTPReply]:
        try:
            path = request.path
        except httptools.HttpParserError as error:
            return problem(400, f"not HTTP/1.1: {error}")
        handler = self._all.routes.get(path)
        if handler is None:
            shown = path[:_SHOWN].decode(errors="replace")
            return self._all.elsewhere(request.method.decode(), shown)
        if request.method != b"POST":
            return problem(405, f"{request.method.decode()} is not allowed here; use POST")
        return handler(request.body)

    def _write(self, reply: HTTPReply, *, keep: bool, head_only: bool = False) -> None:
        """`head_only` is for HEAD, where a client would read a body as the next response."""
        self._accepted.answering = False
        self._accepted.is_served |= reply.status < HTTPStatus.BAD_REQUEST
        self._accepted.finished()
        keep = keep and not self._all.draining
        head, body = _head(reply, keep=keep), b"" if head_only else reply.body
        # From Python 3.12 on, asyncio never stops trying to send an empty part.
        self._transport.writelines((head, body) if body else (head,))
        if not keep:
            self._transport.close()
            return
        self._expect_within(self._all.times.idle_s)
        if reply.status >= HTTPStatus.BAD_REQUEST:
            self._rests = True
            self._transport.pause_reading()
            self._loop.call_later(REFUSED_PAUSE_S, self._has_rested)

    def _write_refusal(self, reply: HTTPReply) -> None:
        """Close once the client has seen it, or has had the time to."""
        self._transport.writelines((_head(reply, keep=False), reply.body))
        self._discarding = True
        self._body.clear()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._loop.call_later(self._all.times.discard_s, self._transport.close)

    def _refuse(self, reply: HTTPReply) -> None:
        """Answer before the request was read whole, and close, since nobody can tell where the next
        request begins. Earlier requests are answered first."""
        if self._ended:
            return
        if self._answering is not None or self._requests:
            self._refusal = reply
        else:
            self._write_refusal(reply)

    @property
    def _closing(self) -> bool:
        """Whether no more replies can be sent."""
        return self._discarding or self._transport.is_closing()

    @property
    def _ended(self) -> bool:
        """Whether no more requests are read."""
        return self._refusal is not None or self._closing

    def _too_large_head(self) -> None:
        self._refuse(problem(431, "the request headers are too large"))

    def _too_large(self) -> None:
        limit = self._all.max_body_bytes // 2**20
        self._refuse(problem(413, f"the request body is larger than {limit} MiB"))

    # -- closing

    def close_if_idle(self) -> None:
        if self._answering is None and not self._begun and not self._requests:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _expect_within(self, seconds: float | None) -> None:
        """Set the deadline for receiving something; None: nothing is due. One timer checks it and
        starts again if it was put off, which is cheaper than a new timer for each deadline."""
        self._due_at = self._loop.time() + seconds if seconds is not None else None
        if self._timer is None and seconds is not None:
            self._timer = self._loop.call_later(
                min(seconds, self._all.times.receive_s), self._check_deadline
            )

    def _check_deadline(self) -> None:
        self._timer = None
        if self._due_at is None:
            return
        if (left_s := self._due_at - self._loop.time()) > 0:
            self._timer = self._loop.call_later(
                min(left_s, self._all.times.receive_s), self._check_deadline
            )
        elif self._begun:
            within_s = self._all.times.receive_s
            self._refuse(problem(408, f"the request did not arrive within {within_s:g} s"))
        else:
            self._transport.close()


_REASONS = {status.value: status.phrase for status in HTTPStatus}


def _head(reply: HTTPReply, *, keep: bool) -> bytes:
    more = b"" if keep else b"Connection: close\r\n"
    if reply.status == HTTPStatus.METHOD_NOT_ALLOWED:
        more += b"Allow: POST\r\n"
    return b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n" % (
        reply.status,
        _REASONS[reply.status].encode(),
        len(reply.body),
        more,
    )
