"""URLs as Go parses them for requests: absolute, or a path.

Runs in the worker. Hosts with escapes are not decided.
"""

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import unquote_plus, unquote_to_bytes

from fettle.cel.library.containers import Map
from fettle.cel.library.quoting import quoted
from fettle.cel.library.signatures import (
    BOOL,
    STRING,
    URL,
    Apply,
    Functions,
    function,
    list_of,
    map_of,
    method,
)
from fettle.cel.library.values import CelError, Frame, Undecidable

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_HOST = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"\x80-\U0010ffff]*")
_PORT = re.compile(r":[0-9]*")
_ALLOWED_ESCAPE = re.compile(r"%(?:25|[89A-Fa-f][0-9A-Fa-f])")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~$&+,/:;=@")
_VALID = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/\[\]%]*")


class Url(NamedTuple):
    """The parts, unescaped only where Go's accessors unescape them."""

    scheme: str = ""
    opaque: str = ""
    user: str = ""
    host: str = ""
    path: str = ""
    query: str = ""
    fragment: str = ""
    bare_query: bool = False
    """Whether it ends in a lonely question mark."""


class Worded(CelError):
    """What is wrong with a URL, in Go's words."""


def parse(text: str) -> Url:
    """The URL; raises CelError."""
    require(text)
    before, _, fragment = text.partition("#")
    if _BAD_ESCAPE.search(fragment):
        raise CelError("invalid URL escape")
    return _parsed(before, request=False)._replace(fragment=fragment)


def require(text: str) -> None:
    """That it is a URL for a request; raises CelError, and Worded where Go's words are known."""
    if any(c < " " or c == "\x7f" for c in text):
        raise Worded("net/url: invalid control character in URL")
    if not text:
        raise Worded("empty url")
    _parsed(text, request=True)


def _parsed(text: str, *, request: bool) -> Url:
    """As Go has it for a request, or for any other use of what may be one."""
    if text == "*":
        return Url(path="*")
    if text.startswith(":"):
        raise Worded("missing protocol scheme")
    match = _SCHEME.match(text)
    scheme, rest = (match[1].lower(), text[match.end() :]) if match else ("", text)
    rest, mark, query = rest.partition("?")
    bare = bool(mark) and not query
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, opaque=rest, query=query, bare_query=bare)
        raise Worded("invalid URI for request")
    user = host = ""
    if rest.startswith("//") and (scheme or (not request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        user, host, rest = *_authority(scheme, authority), slash + path
    escape = _BAD_ESCAPE.search(rest)
    if escape is not None:
        shown = rest[escape.start() : escape.start() + 3]
        raise (
            Worded(f"invalid URL escape {quoted(shown)}")
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
    name, port = _bracketed(host) if "[" in host else _named(scheme, host)
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


def _named(scheme: str, host: str) -> tuple[str, str]:
    """Schemes other than the web's may list hosts with ports: there the last colon counts."""
    first = scheme in ("http", "https")
    at = host.find(":") if first else host.rfind(":")
    return (host, "") if at < 0 else (host[:at], host[at:])


def _hostname(_frame: Frame, url: Url) -> str:
    host = _split(url.host)[0]
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _port(_frame: Frame, url: Url) -> str:
    return _split(url.host)[1]


def _split(host: str) -> tuple[str, str]:
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
    return parse(text)


def is_url(frame: Frame, text: str) -> bool:
    frame.read(text)
    try:
        require(text)
    except CelError:
        return False
    return True


def _part(name: str) -> Apply:
    return lambda _frame, url: getattr(url, name)


FUNCTIONS: Functions = {
    "url": (function((STRING,), URL, _url),),
    "isURL": (function((STRING,), BOOL, is_url),),
    "getScheme": (method((URL,), STRING, _part("scheme")),),
    "getHost": (method((URL,), STRING, _part("host")),),
    "getHostname": (method((URL,), STRING, _hostname),),
    "getPort": (method((URL,), STRING, _port),),
    "getEscapedPath": (method((URL,), STRING, _escaped_path),),
    "getQuery": (method((URL,), map_of(STRING, list_of(STRING)), _query),),
}
