"""IP addresses, networks and URLs, as Go parses them.

Addresses have no zone, and no IPv4 address may be written as IPv6. URLs are those of requests:
absolute, or a path. A URL with an escaped host is undecided.
"""

import ipaddress
import re
from urllib.parse import unquote_plus, unquote_to_bytes

from fettle.cel.library.strings import quoted
from fettle.cel.library.values import (
    BOOL,
    CIDR,
    INT,
    IP,
    STRING,
    URL,
    Address,
    Apply,
    CelError,
    Frame,
    Functions,
    Map,
    Network,
    Undecidable,
    Url,
    function,
    list_of,
    map_of,
    method,
)

_BITS = re.compile("0|[1-9][0-9]{0,2}")
_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


# IP addresses and networks


def _parse_ip(text: str) -> _Ip:
    try:
        if not text.isascii() or "%" in text:
            raise ValueError("zone or other alphabet")
        ip = ipaddress.ip_address(text)
    except ValueError as error:
        raise CelError(f"{text[:60]!r} is not an IP address") from error
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        raise CelError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return ip


def _address(frame: Frame, text: str) -> Address:
    frame.read(text)
    return Address(_parse_ip(text))


def _network(frame: Frame, text: str) -> Network:
    frame.read(text)
    before, slash, bits = text.rpartition("/")
    if not slash or _BITS.fullmatch(bits) is None:
        raise CelError(f"{text[:60]!r} is not a CIDR")
    ip = _parse_ip(before)
    if int(bits) > ip.max_prefixlen:
        raise CelError(f"{text[:60]!r} is not a CIDR")
    return Network(ip, int(bits))


def _parses(parse: Apply) -> Apply:
    def apply(frame: Frame, text: str) -> bool:
        try:
            parse(frame, text)
        except CelError:
            return False
        return True

    return apply


def _is_canonical(frame: Frame, text: str) -> bool:
    frame.read(text)
    return str(_parse_ip(text)) == text


def _is_link_local_multicast(ip: _Ip) -> bool:
    if ip.version == 4:
        return ip.packed[:3] == b"\xe0\x00\x00"
    return ip.packed[0] == 0xFF and ip.packed[1] & 0x0F == 0x02


def _is_global_unicast(ip: _Ip) -> bool:
    broadcast = ip.version == 4 and ip.packed == b"\xff\xff\xff\xff"
    special = ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local
    return not broadcast and not special


def _of_ip(test: Apply) -> Apply:
    return lambda _frame, address: test(address.ip)


def _shifted(ip: _Ip, bits: int) -> int:
    return int(ip) >> (ip.max_prefixlen - bits)


def _contains_ip(_frame: Frame, network: Network, address: Address) -> bool:
    ip = address.ip
    return ip.version == network.address.version and _shifted(ip, network.bits) == _shifted(
        network.address, network.bits
    )


def _contains_ip_text(frame: Frame, network: Network, text: str) -> bool:
    return _contains_ip(frame, network, _address(frame, text))


def _contains_cidr(frame: Frame, network: Network, other: Network) -> bool:
    return network.bits <= other.bits and _contains_ip(frame, network, Address(other.address))


def _contains_cidr_text(frame: Frame, network: Network, text: str) -> bool:
    return _contains_cidr(frame, network, _network(frame, text))


def _masked(_frame: Frame, network: Network) -> Network:
    rest = network.address.max_prefixlen - network.bits
    return Network(type(network.address)(int(network.address) >> rest << rest), network.bits)


def _ip_text(_frame: Frame, address: Address) -> str:
    return str(address.ip)


def _cidr_text(_frame: Frame, network: Network) -> str:
    return f"{network.address}/{network.bits}"


_TESTS: dict[str, Apply] = {
    "isUnspecified": lambda ip: ip.is_unspecified,
    "isLoopback": lambda ip: ip.is_loopback,
    "isLinkLocalMulticast": _is_link_local_multicast,
    "isLinkLocalUnicast": lambda ip: ip.is_link_local,
    "isGlobalUnicast": _is_global_unicast,
}


# URLs

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_HOST = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"\x80-\U0010ffff]*")
_PORT = re.compile(r":[0-9]*")
_ALLOWED_ESCAPE = re.compile(r"%(?:25|[89A-Fa-f][0-9A-Fa-f])")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~$&+,/:;=@")
_VALID = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/\[\]%]*")


class GoUrlError(CelError):
    """What is wrong with a URL, in Go's words."""


def parse_url(text: str) -> Url:
    """The URL; raises CelError."""
    require_url(text)
    before, _, fragment = text.partition("#")
    if _BAD_ESCAPE.search(fragment):
        raise CelError("invalid URL escape")
    return _parse_url(before, request=False)._replace(fragment=fragment)


def require_url(text: str) -> None:
    """Check a URL for a request; raises CelError, as GoUrlError if Go's words are known."""
    if any(c < " " or c == "\x7f" for c in text):
        raise GoUrlError("net/url: invalid control character in URL")
    if not text:
        raise GoUrlError("empty url")
    _parse_url(text, request=True)


def _parse_url(text: str, *, request: bool) -> Url:
    """The URL as Go parses it for a request, or, more leniently, for any other use."""
    if text == "*":
        return Url(path="*")
    if text.startswith(":"):
        raise GoUrlError("missing protocol scheme")
    match = _SCHEME.match(text)
    scheme, rest = (match[1].lower(), text[match.end() :]) if match else ("", text)
    rest, mark, query = rest.partition("?")
    bare = bool(mark) and not query
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, opaque=rest, query=query, bare_query=bare)
        raise GoUrlError("invalid URI for request")
    user = host = ""
    if rest.startswith("//") and (scheme or (not request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        user, host, rest = *_authority(scheme, authority), slash + path
    escape = _BAD_ESCAPE.search(rest)
    if escape is not None:
        shown = rest[escape.start() : escape.start() + 3]
        raise (
            GoUrlError(f"invalid URL escape {quoted(shown)}")
            if shown.isascii()
            else CelError("invalid URL escape")  # Go cuts three bytes
        )
    return Url(scheme, "", user, host, rest, query, bare_query=bare)


def _authority(scheme: str, text: str) -> tuple[str, str]:
    user, _, host = text.rpartition("@")
    if _USER.fullmatch(user) is None or _BAD_ESCAPE.search(user):
        raise CelError("invalid userinfo")
    if _ALLOWED_ESCAPE.search(host):
        raise Undecidable("a URL with an escaped host")
    name, port = _bracketed(host) if "[" in host else _with_port(scheme, host)
    if port and _PORT.fullmatch(port) is None:
        raise CelError("invalid port after host")
    if "%" in name or _HOST.fullmatch(host) is None:
        raise CelError("invalid character in host name")
    return user, host


def _bracketed(host: str) -> tuple[str, str]:
    name, bracket, port = host[1:].rpartition("]")
    if not host.startswith("[") or not bracket:
        raise CelError("invalid host")
    try:
        ipaddress.IPv6Address(name)
    except ValueError as error:
        raise CelError("invalid host") from error
    return name, port


def _with_port(scheme: str, host: str) -> tuple[str, str]:
    """The host and its port. Except for HTTP, hosts may be lists, so the last colon counts."""
    first = scheme in ("http", "https")
    at = host.find(":") if first else host.rfind(":")
    return (host, "") if at < 0 else (host[:at], host[at:])


def _hostname(_frame: Frame, url: Url) -> str:
    host = _host_and_port(url.host)[0]
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _port(_frame: Frame, url: Url) -> str:
    return _host_and_port(url.host)[1]


def _host_and_port(host: str) -> tuple[str, str]:
    before, colon, port = host.rpartition(":")
    return (before, port) if colon and _PORT.fullmatch(colon + port) else (host, "")


def _escaped_path(_frame: Frame, url: Url) -> str:
    path = unquote_to_bytes(url.path)
    escaped = "".join(chr(c) if c in _PLAIN else f"%{c:02X}" for c in path)
    if url.path == "*" or (_VALID.fullmatch(url.path) and escaped != url.path):
        return url.path
    return escaped


def _query(_frame: Frame, url: Url) -> Map:
    found: dict[str, list[str]] = {}
    for part in url.query.split("&"):
        key, _, value = part.partition("=")
        if part and ";" not in part and not _BAD_ESCAPE.search(part):
            found.setdefault(_unescaped(key), []).append(_unescaped(value))
    return Map(list(found.items()))


def _unescaped(text: str) -> str:
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError as error:
        raise Undecidable("a URL with a broken character") from error


def _url(frame: Frame, text: str) -> Url:
    frame.read(text)
    return parse_url(text)


def _is_url(frame: Frame, text: str) -> bool:
    frame.read(text)
    try:
        require_url(text)
    except CelError:
        return False
    return True


def _part(name: str) -> Apply:
    return lambda _frame, url: getattr(url, name)


FUNCTIONS: Functions = {
    "ip": (
        function((STRING,), IP, _address),
        method((CIDR,), IP, lambda _frame, network: Address(network.address)),
    ),
    "isIP": (function((STRING,), BOOL, _parses(_address)),),
    "ip.isCanonical": (function((STRING,), BOOL, _is_canonical),),
    "family": (method((IP,), INT, lambda _frame, address: address.ip.version),),
    **{name: (method((IP,), BOOL, _of_ip(test)),) for name, test in _TESTS.items()},
    "cidr": (function((STRING,), CIDR, _network),),
    "isCIDR": (function((STRING,), BOOL, _parses(_network)),),
    "containsIP": (
        method((CIDR, STRING), BOOL, _contains_ip_text),
        method((CIDR, IP), BOOL, _contains_ip),
    ),
    "containsCIDR": (
        method((CIDR, STRING), BOOL, _contains_cidr_text),
        method((CIDR, CIDR), BOOL, _contains_cidr),
    ),
    "prefixLength": (method((CIDR,), INT, lambda _frame, network: network.bits),),
    "masked": (method((CIDR,), CIDR, _masked),),
    "string": (
        function((IP,), STRING, _ip_text),
        function((CIDR,), STRING, _cidr_text),
    ),
    "url": (function((STRING,), URL, _url),),
    "isURL": (function((STRING,), BOOL, _is_url),),
    "getScheme": (method((URL,), STRING, _part("scheme")),),
    "getHost": (method((URL,), STRING, _part("host")),),
    "getHostname": (method((URL,), STRING, _hostname),),
    "getPort": (method((URL,), STRING, _port),),
    "getEscapedPath": (method((URL,), STRING, _escaped_path),),
    "getQuery": (method((URL,), map_of(STRING, list_of(STRING)), _query),),
}
