"""The proxy that the environment names for an API server, as `kubectl` and Go programs find it.

Looked up once: the HTTP client would do it with each request, in a thread, and would read a netrc
for credentials that are none of Kubernetes'. Source: golang.org/x/net/http/httpproxy.
"""

import ipaddress
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from fettle.kube import kubeconfigs

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def of_environment(server: str) -> str | None:
    """The URL in $HTTPS_PROXY ($HTTP_PROXY for a plain server); None where there is none, and for
    servers that $NO_PROXY names or that are on this machine. Raises ConfigException where it is no
    URL."""
    parts = urlsplit(server)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme)
    if not proxy or _is_beside(parts.hostname or "", parts.netloc, proxies.get("no", "")):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    kubeconfigs.check_url(f"${parts.scheme.upper()}_PROXY", proxy, "http://proxy:3128")
    return proxy


def _is_beside(host: str, netloc: str, left_out: str) -> bool:
    if host == "localhost" or proxy_bypass(netloc):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(address in network for network in _networks(left_out))


def _networks(left_out: str) -> Iterator[Network]:
    """The entries of a $NO_PROXY that are ranges of addresses."""
    for entry in left_out.split(","):
        with suppress(ValueError):
            yield ipaddress.ip_network(entry.strip(), strict=False)
