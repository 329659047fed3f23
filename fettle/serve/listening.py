"""The listeners of the process: each opens once it has a certificate, and is drained at the end."""

import asyncio
import errno
import logging
import os
import socket
import ssl
import stat
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from certs import CertificateWarnings, ListenerTLS
from extender import LINGER_S, SchedulerConnections
from fettle.config import ListenAddress, SocketPath
from fettle.http import (
    BACKLOG,
    Acceptor,
    AppConnections,
    Callers,
    Limits,
    MakeProtocol,
    Turns,
    listening_on,
    unserved,
)
from fettle.logs import Logger
from fettle.model import AuthorityError, ClusterError, SettingsError
from fettle.observing import CertificateMetrics
from fettle.serve.readiness import Readiness
from fettle.serve.succession import Succession
from fettle.serve.tasks import Tasks

_LOG = Logger(__name__)

KEEPALIVE_S = 120.0
"""Above the 90 s after which Go closes idle connections: if Fettle closed first, a request could
meet a connection that was just closed."""
LINGER_AFTER_S = 2.0
"""How long the rest of a refused body is read and thrown away, so that the client sees why."""
DRAIN_S = 3.0
RETRY_S = 2.0
"""How soon a certificate that could not be obtained is tried again."""
_DRAIN_POLL_S = 0.02
FREE_POLL_S = 0.02
Address = ListenAddress | SocketPath
UNPACED = b"reno"
"""A congestion control that every Linux has and every process may choose."""


class Listener(ABC):
    """Serves on one address until it is stopped; a `context` of None means plain HTTP."""

    shares_port = True
    """Whether another process of the same user may listen there, too, as a successor does."""

    @property
    def set_by(self) -> str:
        """What sets its address."""
        return "alertmanager.listen" if self.name == "alerts" else f"--{self.name}-listen"

    def __init__(self, name: str, address: Address, context: ssl.SSLContext | None) -> None:
        self.name = name
        self.address = address
        self.context = context
        self.url_ends = ""
        """What its URL ends with, where it is told."""
        self.limits = Limits()
        self.turns = Turns()
        """All listeners of a process have the same."""
        self._acceptor: Acceptor | None = None

    async def start(self, given: Sequence[socket.socket] = ()) -> None:
        """Listen, on the sockets that a predecessor listens on if any are given. Raises
        SettingsError if the address cannot be used."""
        try:
            await self._open(given)
        except OSError as error:
            await self.stop()
            raise SettingsError(
                f"cannot listen on {self.address} for the {self.name} listener: "
                f"{_reason(error).lower()}; set another address with {self.set_by}"
            ) from error
        for url in self.urls():
            _LOG.info("listening", what=self.name, url=url)

    async def start_once_free(self) -> None:
        """Listen as soon as nobody else does on its address, however many wait for that. Raises
        SettingsError if the address cannot be used."""
        while True:
            try:
                free = await self._listening()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    break
                await asyncio.sleep(FREE_POLL_S)
            else:
                return await self.start(free)
        return await self.start()  # which says why it cannot

    async def _listening(self) -> Sequence[socket.socket]:
        """New sockets that listen on its address; raises OSError."""
        if isinstance(self.address, SocketPath):
            return [_listening_at(self.address.path)]
        host, port = self.address.bind_host, self.address.port
        return await listening_on(host, port, shares_port=self.shares_port)

    def urls(self) -> list[str]:
        if isinstance(self.address, SocketPath):
            return [str(self.address)]
        scheme = "http" if self.context is None else "https"
        bound = [ListenAddress(*each.getsockname()[:2]) for each in self.sockets]
        addresses = [self.address] if self.address.port else bound
        return [f"{scheme}://{address}{self.url_ends}" for address in addresses]

    @property
    def sockets(self) -> list[socket.socket]:
        """Those that it listens on."""
        return self._acceptor.sockets if self._acceptor is not None else []

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        refused = self._acceptor.refused if self._acceptor is not None else 0
        most = f"it keeps {self.limits.connections}, and {self.limits.of_source} of one address"
        return [f"{self.name}: {refused} connections had to make room: {most}"] if refused else []

    @abstractmethod
    async def stop(self) -> None:
        """Accept no new connections, and let requests in progress finish."""

    @abstractmethod
    async def _open(self, given: Sequence[socket.socket]) -> None:
        """Listen; raises OSError if the address cannot be used."""

    async def _listen(self, make: MakeProtocol, given: Sequence[socket.socket]) -> None:
        self._acceptor = Acceptor(make, self.context, self.limits)
        self._acceptor.open(given or await self._listening())

    async def _accept_no_more(self) -> None:
        if self._acceptor is not None:
            await self._acceptor.close()


class _NotMalformed(logging.Filter):
    """Drops tracebacks about input that is not HTTP: the sender gets an answer that says so."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


logging.getLogger("aiohttp.server").addFilter(_NotMalformed())


class AppListener(Listener):
    """An aiohttp application. With `callers`, those are answered whom they let in."""

    def __init__(
        self,
        name: str,
        address: Address,
        context: ssl.SSLContext | None,
        app: web.Application,
        callers: Callers | None = None,
        *,
        shares_port: bool = True,
        url_ends: str = "",
    ) -> None:
        super().__init__(name, address, context)
        self.shares_port = shares_port
        self.url_ends = url_ends
        self._stopping = False
        app.on_response_prepare.append(self._close_if_last)
        self._connections = AppConnections(callers)
        app.middlewares.insert(0, self._connections.middleware)
        app.router.add_route("*", "/{path:.*}", unserved)
        # aiohttp waits twice for so long: for a handler to end, and again once it is cancelled.
        self._runner = web.AppRunner(
            app,
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=LINGER_AFTER_S,
            access_log=None,
            shutdown_timeout=DRAIN_S / 2,
            auto_decompress=False,
        )

    async def _open(self, given: Sequence[socket.socket]) -> None:
        await self._runner.setup()
        self._connections.server, self._connections.turns = self._runner.server, self.turns
        await self._listen(self._connections, given)

    async def stop(self) -> None:
        self._stopping = True
        await self._accept_no_more()
        for _ in range(round(LINGER_S / _DRAIN_POLL_S)):
            if self._runner.server is None or not self._runner.server.connections:
                break
            await asyncio.sleep(_DRAIN_POLL_S)
        await self._runner.cleanup()

    async def _close_if_last(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._stopping:
            response.force_close()
            response.headers["Connection"] = "close"


class ExtenderListener(Listener):
    """The extender's connections, which do without aiohttp for speed. With `callers`, those are
    answered whom they let in."""

    def __init__(
        self,
        name: str,
        address: ListenAddress,
        context: ssl.SSLContext | None,
        connections: SchedulerConnections,
        callers: Callers | None = None,
    ) -> None:
        super().__init__(name, address, context)
        self._connections = connections
        self._callers = callers
        self.limits = connections.limits

    async def _open(self, given: Sequence[socket.socket]) -> None:
        await self._listen(partial(self._connections, callers=self._callers), given)
        if isinstance(self.address, ListenAddress) and self.address.loopback:
            for listening in self.sockets:
                _unpaced(listening)

    async def stop(self) -> None:
        await self._accept_no_more()
        if self._acceptor is not None:
            await self._connections.drain(DRAIN_S)


def _reason(error: OSError) -> str:
    """The error without the address, which event loops repeat."""
    if error.errno is None or isinstance(error, socket.gaierror):  # whose number is no errno
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _unpaced(listening: socket.socket) -> None:
    """Choose a congestion control without pacing; connections inherit it.

    BBR, the default of some hosts, spreads a large reply over 10 ms and more even on loopback,
    where nothing is congested (decision 0007).
    """
    try:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
    except (AttributeError, OSError) as error:  # not Linux, or forbidden: slower, nothing else
        _LOG.debug("congestion control stays the host's", reason=str(error))


class Listeners:
    """Opens the listeners, keeps their certificates fresh, and drains all of them at the end."""

    def __init__(
        self,
        tasks: Tasks,
        readiness: Readiness,
        metrics: CertificateMetrics,
        succession: Succession,
    ) -> None:
        self._tasks = tasks
        self._succession = succession
        self._readiness = readiness
        self._metrics = metrics
        self._listeners: list[Listener] = []
        self._turns = Turns()

    async def open(self, listener: Listener, tls: ListenerTLS, *, once_free: bool = False) -> None:
        """Raises SettingsError if the address cannot be used. `once_free`: wait while somebody
        else listens there."""
        self._listeners.append(listener)  # before it is open: it may have to stop meanwhile
        listener.turns = self._turns
        if once_free:
            await listener.start_once_free()
        else:
            await listener.start(self._succession.listening(listener.name))
        if listener.shares_port:
            self._succession.opened(listener.name, [each.fileno() for each in listener.sockets])
        self._readiness.problems.append(tls.problem)
        self._readiness.notes.append(tls.notes)
        self._readiness.notes.append(listener.notes)
        if (certificate := tls.certificate) is not None:
            self._metrics.serves(listener.name, lambda: certificate.validity.ends_at)
            if certificate.client_ca is not None:
                self._metrics.trusts(listener.name, lambda: certificate.client_ca_ends_at)
        if tls.keep is not None:
            name = f"certificates of the {listener.name}"
            self._tasks.keep(name, tls.keep(), early=True)
            warnings = CertificateWarnings(tls, listener.name)
            self._tasks.keep(f"warnings about {name}", warnings.keep(), early=True)

    async def open_with_certificate(
        self,
        name: str,
        obtain: Callable[[], Awaitable[ListenerTLS]],
        make: Callable[[ListenerTLS], Listener],
    ) -> None:
        """Open a listener once its certificate can be obtained and answers can be given: where
        another process listens on the same port, callers are answered by that one until then.

        That may have to wait for the API server, or for somebody to repair a Secret.
        """
        waits_for = f"{name}: no certificate yet"
        self._readiness.problems.append(lambda: waits_for)
        while True:
            try:
                tls = await obtain()
            except (ClusterError, AuthorityError) as error:
                before, waits_for = waits_for, f"{name}: no certificate yet: {error}"
                if waits_for != before:
                    _LOG.warning("no certificate yet", of=name, reason=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                break
        waits_for = f"{name}: it opens once all sources are synced"
        await self._readiness.may_refuse()
        await self.open(make(tls), tls)
        waits_for = ""

    async def drain(self) -> None:
        """Stop all listeners at once; none may be opened any more."""
        await asyncio.gather(*(listener.stop() for listener in self._listeners))


def _listening_at(path: Path) -> socket.socket:
    """A socket that listens at this path, which only its owner can open, in place of one on which
    nobody listens. Raises OSError."""
    if _is_answered(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
    # Others find it only once it is theirs no more.
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    found = socket.socket(socket.AF_UNIX)
    try:
        found.bind(str(beside))
        beside.chmod(0o600)
        found.listen(BACKLOG)
        beside.rename(path)
    except OSError:
        found.close()
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    return found


def _is_answered(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
