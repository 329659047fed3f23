"""Accepts connections, and bounds how many there are and how much of unfinished requests they hold.

Whoever reaches a port can open connections without end, say nothing on them, and send requests
whose ends never come. Where there is room for no more, the ones that nobody is answering make room:
of the address that has the most, and first those that asked for nothing that is served.
"""

import asyncio
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import NamedTuple, Protocol

from fettle.logs import Logger

RECEIVE_S = 30.0
"""Within this time from its first byte, a request must have arrived whole, on any listener."""
MAX_HEAD_BYTES = 64 * 1024
"""Of its request line and headers, and of whatever else is not its body."""
BACKLOG = 1024
HANDSHAKE_S = 10.0
BEGIN_S = 0.5
"""How long a connection that was accepted may take to begin, once no more are accepted."""
AT_ONCE = 100
"""Connections that are accepted before others have a turn."""
_NO_FILES_S = 0.1
"""How long nothing is accepted once the process has no file left for it."""
_WARN_EVERY_S = 60.0

_LOG = Logger(__name__)


class Limits(NamedTuple):
    """Of one listener: how many connections, how many of them from one address, and how many bytes
    of requests that have not arrived whole."""

    connections: int = 1024
    of_source: int = 256
    unfinished_bytes: int = 64 * 2**20


class Accepted:
    """A connection since it was accepted. Its protocol says when somebody is `answering` it, when
    it `took` bytes of a request, when nothing of that is held any more (`finished`), and when the
    connection `left`."""

    def __init__(self, source: str = "", acceptor: "Acceptor | None" = None) -> None:
        self.source = source
        self.answering = False
        self.is_served = False
        """Whether a request on it was answered, and not with an error."""
        self.unfinished = 0
        self.began_at = 0.0
        self.ended = False
        """Whether it made room for others."""
        self.end: Callable[[], object] = lambda: None
        """Closes the connection at once."""
        self._acceptor = acceptor

    def took(self, number: int) -> None:
        if not self.unfinished:
            self.began_at = monotonic()
        self.unfinished += number
        if self._acceptor is not None:
            self._acceptor.bound_bytes(number)

    def finished(self) -> None:
        if self._acceptor is not None:
            self._acceptor.bound_bytes(-self.unfinished)
        self.unfinished = 0

    def left(self) -> None:
        self.finished()
        if self._acceptor is not None:
            self._acceptor.forget(self)
            self._acceptor = None


class Caller(Protocol):
    """Who is at the other end of a connection, as a client certificate proved."""

    @property
    def in_force(self) -> bool:
        """Whether each request may be answered. It is asked for each, so it must be cheap."""
        ...

    def refusal(self) -> str:
        """Of a caller that is not in force: why the request is not answered; "" if it is, as the
        last one."""
        ...


Callers = Callable[[ssl.SSLObject], Caller]
"""Makes the caller of a connection, of which the handshake is complete."""
MakeProtocol = Callable[[Accepted], asyncio.BaseProtocol]


async def listening_on(
    host: str | None, port: int, *, shares_port: bool
) -> Sequence[socket.socket]:
    """Sockets that listen there; raises OSError if the address cannot be used."""
    server = await asyncio.get_running_loop().create_server(
        asyncio.Protocol, host, port, reuse_port=shares_port, start_serving=False
    )
    found = [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]
    server.close()
    try:
        for each in found:
            each.listen(BACKLOG)
    except OSError:
        for each in found:
            each.close()
        raise
    return found


class Acceptor:
    """`make` makes a connection's protocol. `refused` counts connections that were not accepted, or
    closed to make room."""

    def __init__(self, make: MakeProtocol, context: ssl.SSLContext | None, limits: Limits) -> None:
        self.sockets: list[socket.socket] = []
        self.refused = 0
        self._make = make
        self._context = context
        self._limits = limits
        self._by_source: dict[str, dict[Accepted, None]] = defaultdict(dict)
        self._number = 0
        self._unfinished = 0
        self._next_warning_at = 0.0
        self._tasks: set[asyncio.Task[bool]] = set()

    def open(self, listening: Iterable[socket.socket]) -> None:
        """Accept on sockets that listen. They are closed with this."""
        for each in listening:
            self.sockets.append(each)
            each.setblocking(False)
            asyncio.get_running_loop().add_reader(each, self._accept, each)

    async def close(self) -> None:
        """Accept no more. What is open stays open."""
        for each in self.sockets:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=BEGIN_S)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(AT_ONCE):
            try:
                connection, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no file is left for it, or it is gone already
                if monotonic() >= self._next_warning_at:
                    self._next_warning_at = monotonic() + _WARN_EVERY_S
                    _LOG.warning("a connection cannot be accepted", reason=str(error))
                loop.remove_reader(listening)
                loop.call_later(_NO_FILES_S, self._accept_again, listening)
                return
            connection.setblocking(False)
            if (accepted := self._admit(connection)) is None:
                self.refused += 1
                connection.close()
                continue
            task = loop.create_task(self._begin(connection, accepted))
            # A handshake takes time. Without one, a connection begins at once, and to cancel that
            # leaves uvloop with a protocol whose connection is never lost.
            if self._context is not None:
                accepted.end = task.cancel
            self._tasks.add(task)
            task.add_done_callback(partial(self._begun, connection))

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    async def _begin(self, connection: socket.socket, accepted: Accepted) -> bool:
        """Returns whether it can be used."""
        try:
            protocol = self._make(accepted)
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=None if self._context is None else HANDSHAKE_S,
            )
        except Exception as error:
            accepted.left()
            if not isinstance(error, OSError):  # which includes errors of TLS
                _LOG.exception("a connection cannot begin")
            return False
        accepted.end = transport.abort
        if accepted.ended:
            transport.abort()
        return True

    def _begun(self, connection: socket.socket, task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or not task.result():
            connection.close()

    def _admit(self, connection: socket.socket) -> Accepted | None:
        try:
            peer = connection.getpeername()
        except OSError:
            return None  # it has gone already
        source = str(peer[0]) if peer else ""  # "": at the other end of a Unix socket
        if len(self._by_source.get(source, ())) >= self._limits.of_source:
            if not self._make_room(source):
                return None
        elif self._number >= self._limits.connections:
            most = max(self._by_source, key=lambda one: len(self._by_source[one]))
            if not self._make_room(most):
                return None
        accepted = Accepted(source, self)
        self._by_source[source][accepted] = None
        self._number += 1
        return accepted

    def _make_room(self, source: str) -> bool:
        idle = [one for one in self._by_source[source] if not one.answering]
        if not idle:
            return False
        self._end(next((one for one in idle if not one.is_served), idle[0]))
        return True

    def _end(self, one: Accepted) -> None:
        self.refused += 1
        one.left()
        one.ended = True
        one.end()

    def bound_bytes(self, number: int) -> None:
        """So many bytes more are held. If that is too many, the request ends that has come for the
        longest: those of the API server and of a scheduler take no time. Who sends on while it is
        answered goes last."""
        self._unfinished += number
        if number > 0 and self._unfinished > self._limits.unfinished_bytes:
            everyone = (one for each in self._by_source.values() for one in each)
            holding = (one for one in everyone if one.unfinished)
            self._end(min(holding, key=attrgetter("answering", "began_at")))

    def forget(self, one: Accepted) -> None:
        of_source = self._by_source[one.source]
        if one in of_source:
            del of_source[one]
            self._number -= 1
            if not of_source:
                del self._by_source[one.source]
