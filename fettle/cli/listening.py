"""Listeners: where to listen, and what may be served there without TLS."""

import ipaddress
import ssl
from typing import NamedTuple

import structlog
from aiohttp import web

from fettle.errors import SettingsError

_LOG = structlog.get_logger(__name__)

KEEPALIVE_S = 120.0
"""Above the 90 s after which Go drops idle connections: the side that closes must not be ours."""
DRAIN_S = 3.0


class Address(NamedTuple):
    """Host and port; IPv6 hosts without brackets."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str, flag: str) -> Address:
    """`HOST:PORT`, `[V6]:PORT` or `:PORT` (all interfaces); raises SettingsError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "0.0.0.0"  # noqa: S104 (asked for)
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{flag} {text!r}: write HOST:PORT, such as 127.0.0.1:8088")
    return Address(host, int(port))


class Listener:
    """One aiohttp application on one address. `context` None: plain HTTP."""

    def __init__(
        self, name: str, app: web.Application, address: Address, context: ssl.SSLContext | None
    ) -> None:
        self._name = name
        self._address = address
        self._context = context
        self._runner = web.AppRunner(
            app, keepalive_timeout=KEEPALIVE_S, access_log=None, shutdown_timeout=DRAIN_S
        )

    async def start(self) -> None:
        """Listen; raises SettingsError where the address cannot be used."""
        await self._runner.setup()
        host, port = self._address
        site = web.TCPSite(self._runner, host, port, ssl_context=self._context, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise SettingsError(
                f"cannot listen on {self._address} for the {self._name}: {error.strerror}"
            ) from error
        scheme = "http" if self._context is None else "https"
        _LOG.info("listening", what=self._name, url=f"{scheme}://{self._address}")

    async def stop(self) -> None:
        """Take no new connections, let those under way finish."""
        await self._runner.cleanup()
