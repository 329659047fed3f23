"""The proxy that the environment names for an API server, as `kubectl` and Go programs find it.

Looked up once: the HTTP client would do it with each request, in a thread, and would read a netrc
for credentials that are none of Kubernetes'. Port of golang.org/x/net/http/httpproxy, which
`urllib.request` differs from in what $NO_PROXY matches and in which variables count; only the
Punycode form of names is left out.
"""

import ipaddress
import os
import re
from contextlib import suppress
from urllib.parse import urlsplit

from fettle.client import kubeconfigs

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_PORTS = {"http": 80, "https": 443}
_HOST_AND_PORT = re.compile(r"(\[[^][]*\]|[^][:]*):([^][:]*)")


def of_environment(server: str) -> str | None:
    """The URL in $HTTPS_PROXY ($HTTP_PROXY for a plain server); None where there is none, and for
    servers that $NO_PROXY names or that are on this machine. Raises ConfigException where it is no
    URL."""
    parts = urlsplit(server)
    variable = f"{parts.scheme.upper()}_PROXY"
    proxy = _variable(variable)
    if not proxy or not _use_proxy(parts.hostname or "", parts.port or _PORTS[parts.scheme]):
        return None
    scheme, rest = proxy.split("://", 1) if "://" in proxy else ("http", proxy)
    proxy = f"{scheme.lower()}://{rest}"
    kubeconfigs.check_url(f"${variable}", proxy, "http://proxy:3128")
    return proxy


def _variable(name: str) -> str:
    """In capitals, else in lower case: an empty one counts as none."""
    return os.environ.get(name) or os.environ.get(name.lower(), "")


def _use_proxy(host: str, port: int) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    entries = (entry.strip().lower() for entry in _variable("NO_PROXY").split(","))
    return not any(_matches(entry, host, str(port), address) for entry in entries)


def _matches(entry: str, host: str, port: str, address: Address | None) -> bool:
    """Whether an entry of $NO_PROXY means this host, which is at `address` if it is one itself."""
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    parts = _HOST_AND_PORT.fullmatch(entry)
    name, only_port = (parts[1].strip("[]"), parts[2]) if parts else (entry, "")
    if not name or only_port not in ("", port):
        return False
    if (listed := _address(name)) is not None or address is not None:
        return listed == address
    domain = name.removeprefix("*") if name.startswith("*.") else name
    if domain.startswith("."):
        return host.endswith(domain)
    return f".{host}".endswith(f".{domain}")


def _address(host: str) -> Address | None:
    """An IPv4 address also where IPv6 notation wraps it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _network(entry: str) -> Network | None:
    """A range in CIDR notation; unlike Python, Go knows no netmasks such as /255.0.0.0."""
    if entry.rpartition("/")[2].isdecimal() and "/" in entry:
        with suppress(ValueError):
            return ipaddress.ip_network(entry, strict=False)
    return None
