"""Listeners: where to listen, and what may be served there without TLS."""

import asyncio
import ipaddress
import logging
import os
import socket
import ssl
from abc import ABC, abstractmethod
from typing import NamedTuple

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from extender import LINGER_S, SchedulerConnections
from fettle.model import SettingsError

_LOG = structlog.get_logger(__name__)

KEEPALIVE_S = 120.0
"""Above the 90 s after which Go drops idle connections: the side that closes must not be ours."""
DRAIN_S = 3.0
_LOOK_S = 0.02
BACKLOG = 1024
UNPACED = b"reno"
"""A congestion control that every Linux has and everybody may choose."""


_ALL = ipaddress.IPv6Address("::")


class ListenAddress(NamedTuple):
    """Host and port; IPv6 hosts without brackets. `::` means all interfaces, also of IPv4."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        return self.host == "localhost" or (self._ip is not None and self._ip.is_loopback)

    @property
    def unspecified(self) -> bool:
        return self._ip is not None and self._ip.is_unspecified

    @property
    def bound(self) -> str | None:
        """What to listen on; None: event loops then bind a socket for IPv4 and one for IPv6, each
        where the kernel has it. One socket for both would show IPv4 callers as `::ffff:…`.
        """
        return None if self._ip == _ALL else self.host

    @property
    def _ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str, flag: str) -> ListenAddress:
    """`HOST:PORT`, `[V6]:PORT` or `:PORT` (the same as `[::]:PORT`); raises SettingsError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or str(_ALL)
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{flag} {text!r}: write HOST:PORT, such as 127.0.0.1:8088")
    return ListenAddress(host, int(port))


class Listener(ABC):
    """Something that serves on one address until it is stopped. `context` None: plain HTTP."""

    def __init__(self, name: str, address: ListenAddress, context: ssl.SSLContext | None) -> None:
        self.name = name
        self.address = address
        self.context = context

    async def start(self) -> None:
        """Listen; raises SettingsError where the address cannot be used."""
        try:
            bound = await self._open()
        except OSError as error:
            await self.stop()
            raise SettingsError(
                f"cannot listen on {self.address} for the {self.name} listener: "
                f"{_reason(error).lower()}; set another address with --{self.name}-listen"
            ) from error
        scheme = "http" if self.context is None else "https"
        for address in [self.address] if self.address.port else bound:
            _LOG.info("listening", what=self.name, url=f"{scheme}://{address}")

    @abstractmethod
    async def stop(self) -> None:
        """Take no new connections, let those under way finish."""

    @abstractmethod
    async def _open(self) -> list[ListenAddress]:
        """That of each socket; raises OSError where the address cannot be used."""


class _NotMalformed(logging.Filter):
    """Input that is not HTTP is the sender's mistake, and answered as such: it gets no
    traceback.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


logging.getLogger("aiohttp.server").addFilter(_NotMalformed())


class AppListener(Listener):
    """An aiohttp application."""

    def __init__(
        self,
        name: str,
        address: ListenAddress,
        context: ssl.SSLContext | None,
        app: web.Application,
    ) -> None:
        super().__init__(name, address, context)
        self._stopping = False
        app.on_response_prepare.append(self._say_if_last)
        # aiohttp waits as long twice: for a handler, and for it to end once it is cancelled.
        self._runner = web.AppRunner(
            app, keepalive_timeout=KEEPALIVE_S, access_log=None, shutdown_timeout=DRAIN_S / 2
        )

    async def _open(self) -> list[ListenAddress]:
        await self._runner.setup()
        await web.TCPSite(
            self._runner,
            self.address.bound,
            self.address.port,
            ssl_context=self.context,
            backlog=BACKLOG,
        ).start()
        return [ListenAddress(*name[:2]) for name in self._runner.addresses]

    async def stop(self) -> None:
        self._stopping = True
        for site in list(self._runner.sites):
            await site.stop()
        for _ in range(round(LINGER_S / _LOOK_S)):
            if self._runner.server is None or not self._runner.server.connections:
                break
            await asyncio.sleep(_LOOK_S)
        await self._runner.cleanup()

    async def _say_if_last(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._stopping:
            response.force_close()
            response.headers["Connection"] = "close"


class ExtenderListener(Listener):
    """The extender's own connections."""

    def __init__(
        self,
        name: str,
        address: ListenAddress,
        context: ssl.SSLContext | None,
        connections: SchedulerConnections,
    ) -> None:
        super().__init__(name, address, context)
        self._connections = connections
        self._server: asyncio.Server | None = None

    async def _open(self) -> list[ListenAddress]:
        self._server = await asyncio.get_running_loop().create_server(
            self._connections,
            self.address.bound,
            self.address.port,
            ssl=self.context,
            backlog=BACKLOG,
        )
        if self.address.loopback:
            for listening in self._server.sockets:
                _unpaced(listening)
        return [ListenAddress(*listening.getsockname()[:2]) for listening in self._server.sockets]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._connections.drain(DRAIN_S)


def _reason(error: OSError) -> str:
    """Without the address, which event loops repeat; that of a name that does not resolve is no
    errno."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _unpaced(listening: socket.socket) -> None:
    """Where the host's congestion control is BBR, it spreads a large reply over 10 ms and more even
    on loopback, where nothing is congested (`docs/decisions/0007`). Connections inherit this."""
    try:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
    except (AttributeError, OSError) as error:  # not Linux, or forbidden: slower, nothing else
        _LOG.debug("congestion control stays the host's", reason=str(error))
