"""What all sections of the settings have in common: their base, checks, addresses to listen on and
TLS files. Pure."""

import ipaddress
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from fettle.model import SettingsError

_ALL = ipaddress.IPv6Address("::")
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LONGEST_LABEL, LONGEST_NAME = 63, 253


class SettingsSection(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Base of all sections. Unknown settings are refused."""


def check(section: str, holds: bool, must: str) -> None:
    if not holds:  # also where a value is NaN
        raise ValueError(f"{section}: {must}")


def check_name(setting: str, name: str, longest: int = LONGEST_NAME) -> None:
    """Checks an object name as Kubernetes does. Names of namespaces and Services are a single
    label."""
    label_only = longest == LONGEST_LABEL
    shape = _LABEL if label_only else rf"{_LABEL}(\.{_LABEL})*"
    if len(name) > longest or re.fullmatch(shape, name) is None:
        signs = "digits and '-'" if label_only else "digits, '-' and '.'"
        raise ValueError(
            f"{setting} {name[:longest]!r} must be at most {longest} lower-case letters, {signs}, "
            "beginning and ending with a letter or digit"
        )


class TLSSettings(SettingsSection, frozen=True, kw_only=True):
    """PEM files for TLS."""

    certificate_file: str | None = None
    """The server's certificate chain. Read only with `certificates: files`."""
    key_file: str | None = None
    """The key of that certificate. Read only with `certificates: files`."""
    client_ca_file: str | None = None
    """Callers must present a certificate signed by this CA."""

    def check(self, section: str, certificates: str) -> None:
        """Raises ValueError if files are named that would not be read."""
        named = self.certificate_file is not None or self.key_file is not None
        check(
            section,
            certificates == "files" or not named,
            "tls.certificateFile and keyFile are read only with certificates: files",
        )


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
