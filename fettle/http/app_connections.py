"""The connections of an aiohttp application, bounded in time and bytes.

aiohttp reads no more than a handler takes, but waits for ever: for the rest of a head, and for the
rest of a body. Its server must not inflate bodies (`auto_decompress`): bytes are bounded as they
come, and a thousandth of them is enough for zeros.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from traceback import clear_frames
from typing import Protocol, cast

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fettle.http.accepting import MAX_HEAD_BYTES, RECEIVE_S, Accepted, Caller, Callers

AHEAD_BYTES = 64 * 1024
"""How much of later requests is read of a connection while one is answered."""
_HEAD_ENDS = b"\r\n\r\n"
_LATE = f"the request did not arrive within {RECEIVE_S:g} s"


class Turns:
    """Who is read next, of those who have sent something to an application. Each address has its
    turn in a circle, however many connections it has.

    To read a request and begin to answer it takes a fraction of a millisecond, and an event loop
    does it for all who have sent one before anybody else has a turn: of a thousand connections, or
    for a scheduler in the same process. So one is read in each turn of the loop.
    """

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def take(self, source: str, read: Callable[[], None]) -> None:
        """Call `read` now, or once the turn of this address has come."""
        if self._is_taken:
            self._waiting.setdefault(source, deque()).append(read)
        else:
            self._is_taken = True
            asyncio.get_running_loop().call_soon(self._next)
            read()

    def _next(self) -> None:
        self._is_taken = False
        if self._waiting:
            source = next(iter(self._waiting))
            reads = self._waiting.pop(source)
            if len(reads) > 1:
                self._waiting[source] = reads
            self.take(source, reads.popleft())


class _Server(Protocol):
    def __call__(self) -> asyncio.BaseProtocol: ...


class AppConnections:
    """Makes a protocol for each connection of an application's server. `middleware` belongs to the
    application: it hands a request on once it has arrived whole. Without `callers`, everybody is
    answered."""

    def __init__(self, callers: Callers | None = None) -> None:
        self.server: _Server | None = None
        self.turns = Turns()
        self._callers = callers
        self._by_protocol: dict[object, _AppConnection] = {}

    def __call__(self, accepted: Accepted) -> asyncio.Protocol:
        assert self.server is not None
        inner = cast("asyncio.Protocol", self.server())
        return _AppConnection(inner, accepted, self._by_protocol, self.turns, self._callers)

    @property
    def middleware(self) -> Middleware:
        @web.middleware
        async def whole(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._by_protocol.get(request.protocol)
            if connection is None:  # it is gone
                raise web.HTTPBadRequest
            connection.has_head(request)
            is_served = False
            try:
                if (refusal := await _read(request)) is not None:
                    return refusal
                why = connection.refusal_of_caller()
                if why:
                    return _problem(403, why)
                connection.is_whole()
                is_found = request.match_info.http_exception is None
                response = await (handler if is_found else unserved)(request)
                is_served = response.status < HTTPStatus.BAD_REQUEST
                if why is not None:
                    response.force_close()
                return response
            finally:
                connection.response_sent(is_served=is_served)

        return whole


async def _read(request: web.Request) -> web.Response | None:
    """Read the body, which the request keeps. Why it cannot be read, as a reply; None if it was."""
    most = request.client_max_size
    if request.body_exists and request.content_length is None:
        return _problem(411, "the body has no Content-Length")
    if "Content-Encoding" in request.headers:
        return _problem(415, "the body is encoded: send it as it is, without Content-Encoding")
    if (request.content_length or 0) > most > 0:
        return _problem(413, f"the body is larger than {most // 2**20} MiB")
    try:
        async with asyncio.timeout(RECEIVE_S):
            await request.read()
    except TimeoutError as error:
        _forget(error)
        return _problem(408, _LATE)
    except web.HTTPRequestEntityTooLarge as error:
        _forget(error)
        return _problem(413, f"the body is larger than {most // 2**20} MiB")
    except (web.RequestPayloadError, OSError) as error:
        _forget(error)
        return _problem(400, f"the body cannot be read: {error}")
    return None


async def unserved(request: web.Request) -> web.Response:
    """The reply to a request for what is not served, as the handler of all other paths. Where
    aiohttp finds no handler, it leaves a ring of objects, and the garbage collector stops the loop
    to find them: for 40 ms if somebody asks without a pause."""
    routes = [one for one in request.app.router.routes() if one.handler is not unserved]
    served = {(one.method, one.resource.canonical) for one in routes if one.resource is not None}
    methods = sorted(method for method, path in served if path == request.path)
    listed = ", ".join(sorted(f"{method} {path}" for method, path in served))
    response = _problem(
        405 if methods else 404, f"only these are served here: {listed}", ends=False
    )
    if methods:
        response.headers["Allow"] = ",".join(methods)
    return response


def _forget(error: BaseException | None) -> None:
    """Let go of what the frames of an error hold: most of a body. They refer to each other, so they
    would stay until the garbage collector comes by."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


def _problem(status: int, sentence: str, *, ends: bool = True) -> web.Response:
    body = msgspec.json.encode({"error": f"fettle: {sentence}"})
    response = web.Response(status=status, body=body, content_type="application/json")
    if ends:
        response.force_close()  # nobody can tell where the next request begins
    return response


class _AppConnection(asyncio.Protocol):
    """Between a transport and aiohttp's protocol, which parses all that it is given. So it is given
    one request at a time, and only so much of its body as the head says."""

    def __init__(
        self,
        inner: asyncio.Protocol,
        accepted: Accepted,
        by_protocol: dict[object, "_AppConnection"],
        turns: Turns,
        callers: Callers | None,
    ) -> None:
        self._inner = inner
        self._accepted = accepted
        self._by_protocol = by_protocol
        self._turns = turns
        self._callers = callers
        self._caller: Caller | None = None
        self._unread = bytearray()
        """What has come, and waits for its turn."""
        self._has_turn = False
        """Whether it waits for one."""
        self._transport: asyncio.Transport
        self._has_head = False
        self._body_left = 0
        """Bytes of the request's body that have not come."""
        self._head_bytes = 0
        self._head_end = b""
        """The last bytes of it that have come."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._callers is not None:
            self._caller = self._callers(transport.get_extra_info("ssl_object"))
        self._by_protocol[self._inner] = self
        self._inner.connection_made(transport)
        self._expect_head()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        self._by_protocol.pop(self._inner, None)
        self._accepted.left()
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._accepted.took(len(data))
        self._unread += data
        if self._has_head and not self._body_left:
            if len(self._unread) > AHEAD_BYTES:
                self._transport.pause_reading()
        else:
            self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if self._unread and not self._has_turn:
            self._has_turn = True
            self._turns.take(self._accepted.source, self._read)

    def _read(self) -> None:
        self._has_turn = False
        if self._transport.is_closing():
            return
        if self._body_left:
            self._read_body()
        elif not self._has_head:
            self._read_head()

    def _read_head(self) -> None:
        """Hand on what has come of a head, and nothing that comes after it."""
        if self._timer is None:
            self._expect_head()
        seen = self._head_end + self._unread
        end = seen.find(_HEAD_ENDS)
        self._has_head = end >= 0
        size = end + len(_HEAD_ENDS) - len(self._head_end) if self._has_head else len(self._unread)
        self._head_bytes += size
        self._head_end = b"" if self._has_head else bytes(seen[-len(_HEAD_ENDS) + 1 :])
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, "the request headers are too large")
        else:
            self._hand_on(size)

    def _read_body(self) -> None:
        size = min(self._body_left, len(self._unread))
        self._body_left -= size
        self._hand_on(size)

    def _hand_on(self, size: int) -> None:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def has_head(self, request: web.Request) -> None:
        """The head of this has arrived, and somebody reads the body."""
        self._stop_timer()
        self._has_head = True
        self._body_left = (request.content_length or 0) if request.body_exists else 0
        if self._body_left:
            self._read_body()

    def refusal_of_caller(self) -> str | None:
        """Why the caller is not answered, "" if for the last time, None if as always."""
        if self._caller is None or self._caller.in_force:
            return None
        return self._caller.refusal()

    def is_whole(self) -> None:
        """Somebody answers."""
        self._accepted.answering = True

    def response_sent(self, *, is_served: bool) -> None:
        self._has_head, self._head_bytes, self._head_end = False, 0, b""
        self._accepted.answering = False
        self._accepted.is_served |= is_served
        self._accepted.finished()
        if self._unread:
            self._accepted.took(len(self._unread))
            self._ask_for_turn()
        self._transport.resume_reading()

    def _expect_head(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(RECEIVE_S, self._is_late)

    def _is_late(self) -> None:
        self._timer = None
        if self._head_bytes:
            self._refuse(408, _LATE)
        else:
            self._transport.close()

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer what aiohttp has not begun to answer, and close."""
        if not self._transport.is_closing():
            body = msgspec.json.encode({"error": f"fettle: {sentence}"})
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
                "Content-Type: application/json\r\nConnection: close\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            self._transport.write(head.encode() + body)
        self._transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
