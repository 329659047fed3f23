"""Addresses to listen on, as flags give them: `HOST:PORT`, or `unix:PATH`. Pure."""

import ipaddress
from pathlib import Path
from typing import NamedTuple

from fettle.model import SettingsError

_ALL = ipaddress.IPv6Address("::")


class ListenAddress(NamedTuple):
    """Host and port; IPv6 hosts without brackets. `::` means all interfaces, those of IPv4 too."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, flag: str) -> "ListenAddress":
        """`HOST:PORT`, `[V6]:PORT` or `:PORT` (the same as `[::]:PORT`); raises SettingsError."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") or str(_ALL)
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise SettingsError(f"{flag} {text!r}: write HOST:PORT, such as 127.0.0.1:8088")
        return cls(host, int(port))

    @property
    def loopback(self) -> bool:
        return self.host == "localhost" or (self._ip is not None and self._ip.is_loopback)

    @property
    def unspecified(self) -> bool:
        return self._ip is not None and self._ip.is_unspecified

    @property
    def bind_host(self) -> str | None:
        """The host for the event loop; None: a socket for IPv4 and one for IPv6, if available."""
        # One socket for both would show IPv4 callers as `::ffff:…`.
        return None if self._ip == _ALL else self.host

    @property
    def _ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SocketPath(NamedTuple):
    """A Unix socket."""

    path: Path

    @classmethod
    def parse(cls, text: str) -> "SocketPath | None":
        """`unix:PATH`; None for anything else."""
        scheme, _, path = text.partition(":")
        return cls(Path(path)) if scheme == "unix" and path else None

    def __str__(self) -> str:
        return f"unix:{self.path}"
