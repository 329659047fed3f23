"""HTTP calls of the command line: JSON in and out, one sentence for each way a call can fail.

Proxies from the environment are not used for addresses of this host. A server is a URL, or the
`unix:PATH` of a socket. A URL may end with `#TOKEN`: what stands there is never sent in a URL.
"""

import http.client
import ipaddress
import json
import socket
import ssl
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from fettle import __version__
from fettle.cli import tokens
from fettle.cli.sources import typed
from fettle.model import FettleError

SECONDS = 30.0
SHOWN_AFTER_S = 1.0
"""What is waited for is said after so long."""


class _SocketConnection(http.client.HTTPConnection):
    """To a Unix socket, whose path is the quoted host."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(urllib.parse.unquote(self.host))


class _SocketHandler(urllib.request.AbstractHTTPHandler, urllib.request.HTTPErrorProcessor):
    def unix_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SocketConnection, request)

    unix_request = urllib.request.AbstractHTTPHandler.do_request_
    unix_response = urllib.request.HTTPErrorProcessor.http_response


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}), _SocketHandler)
_USUAL = urllib.request.build_opener()


class Answered(FettleError):
    """The server answered, but not with 2xx; `text` is the body."""

    def __init__(self, url: str, status: int, text: str) -> None:
        super().__init__(typed(_error_in(text)) or f"{url} returned {status}: {text.strip()[:500]}")
        self.status = status
        self.text = text


class Untrusted(FettleError):
    """The server's certificate is from nobody whom we trust."""


def call(url: str, body: Any = None, *, token: str = "", seconds: float = SECONDS) -> bytes:
    """GET, or POST if there is a body; raises Answered, or FettleError if there is no answer."""
    if not is_url(url):
        raise FettleError(f"{url!r} is not a URL such as http://127.0.0.1:8090")
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"} if data is not None else {}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 (checked above)
    if token:  # for this server, and not for one that it redirects to
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    if _is_socket(url):
        request.add_unredirected_header("Host", "localhost")
    opener = _DIRECT if _on_this_host(url) else _USUAL
    try:
        with _waiting(_shown(url)), opener.open(request, timeout=seconds) as reply:
            answer: bytes = reply.read()
            return answer
    except urllib.error.HTTPError as error:
        raise Answered(url, error.code, error.read().decode(errors="replace")) from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise Untrusted(
                f"{_at(url)} presents a certificate that is not trusted "
                f"({reason.verify_message}): name the file of its authority in SSL_CERT_FILE, or "
                "use `kubectl port-forward` and http://127.0.0.1:8090"
            ) from error
        said = getattr(reason, "strerror", None) or reason
        raise FettleError(f"{_at(url)} did not answer: {said}") from error
    except http.client.HTTPException as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise FettleError(f"{_at(url)} did not answer in HTTP: {said}") from error
    except ValueError as error:  # the host or path cannot be encoded
        raise FettleError(f"{_shown(url)!r} cannot be called: {error}") from error


@contextmanager
def _waiting(where: str) -> Iterator[None]:
    """Says on a terminal whom it waits for, if that takes longer than a second."""
    if not sys.stderr.isatty():
        yield
        return
    said = threading.Event()

    def say() -> None:
        said.set()
        click.echo(f"\r\x1b[Kwaiting for {where}", nl=False, err=True)

    timer = threading.Timer(SHOWN_AFTER_S, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said.is_set():
            click.echo("\r\x1b[K", nl=False, err=True)


def url_of(server: str, path: str) -> str:
    """For `call`; `server` has no token."""
    if server.startswith("unix:"):
        # Quoted twice: for the URL, whose host is unquoted, and for the host's name.
        socket_path = urllib.parse.quote(server.removeprefix("unix:"), safe="")
        server = f"unix://{urllib.parse.quote(socket_path)}"
    return f"{server.rstrip('/')}{path}"


def is_url(text: str) -> bool:
    """Whether this can be the URL of a server; nothing is sent."""
    if any(letter.isspace() or not letter.isprintable() for letter in text):
        return False
    try:
        parts = urllib.parse.urlsplit(text)
        if parts.scheme == "unix":
            return bool(parts.netloc or parts.path)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def call_json(url: str, body: Any = None) -> Any:
    """Like `call`, and decodes the JSON of the answer."""
    answer = call(url, body)
    try:
        return json.loads(answer)
    except ValueError as error:
        raise FettleError(f"{url} did not return JSON: is it a Fettle server?") from error


def ask(server: str, path: str, query: dict[str, str] | None = None) -> bytes:
    """What a running Fettle answers; raises FettleError with the reason if it does not. If it asks
    who we are, we say so: by its own token, if we were given one, else by ours."""
    base, _, token = server.partition("#")
    url = url_of(base, path)
    if query:
        url += "?" + urllib.parse.urlencode(query)
    try:
        if token := token or tokens.given():
            return call(url, token=_may_be_sent(token, url))
        try:
            return call(url)
        except Answered as answered:
            if answered.status != 401:
                raise
            _may_be_sent("", url)
            return call(url, token=tokens.of_cluster(str(answered)))
    except (Answered, Untrusted, tokens.NoToken):
        raise
    except FettleError as error:
        raise FettleError(
            f"{error}; is `fettle serve` running there? (set the address with --server or "
            "FETTLE_SERVER)"
        ) from error


def fetch(server: str, path: str, query: dict[str, str] | None = None) -> Any:
    """As `ask`, and decodes the JSON. Without a server, what one would answer about the cluster
    that the kubeconfig reaches."""
    if not server:
        from fettle.cli import direct  # heavy

        return direct.fetch(path, query)
    answer = ask(server, path, query)
    base = server.partition("#")[0]
    try:
        told = json.loads(answer)
    except ValueError as error:
        raise FettleError(f"{base} did not return JSON: is it a Fettle server?") from error
    from fettle.explain import JSON_VERSION

    if not isinstance(told, dict):
        raise FettleError(f"{base} returned no object of JSON: is it a Fettle server?")
    if (version := told.get("version", JSON_VERSION)) != JSON_VERSION:
        said = f"speaks version {version!r:.20} of JSON, and this program version {JSON_VERSION}"
        raise FettleError(f"{base} {said}{_OTHER}")
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_ASKED] = base
    return told


_ASKED = "fettle.asked"
_OTHER = f": use the `fettle` that belongs to that server (this is {__version__})"


def of_another_version(missing: KeyError) -> str:
    """What to say if a server's answer lacks something; "" if no server was asked."""
    context = click.get_current_context(silent=True)
    asked = context.meta.get(_ASKED, "") if context is not None else ""
    return asked and f"{asked} does not say {missing}, so it is of another version{_OTHER}"


def _may_be_sent(token: str, url: str) -> str:
    if not url.startswith("https:") and not _on_this_host(url):
        raise tokens.NoToken(
            f"{url} is plain HTTP, so your token is not sent there: whoever is on the way could "
            "read it. Use https, or `kubectl port-forward` and --server http://127.0.0.1:8090"
        )
    return token


def _error_in(text: str) -> str:
    """The `error` of a JSON body; "" if it has none."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return ""


def _at(url: str) -> str:
    """Where that is: without path and query."""
    parts = urllib.parse.urlsplit(url)
    return _shown(url) if _is_socket(url) else f"{parts.scheme}://{parts.netloc}"


def _is_socket(url: str) -> bool:
    return url.startswith("unix:")


def _shown(url: str) -> str:
    if not _is_socket(url):
        return url
    return f"unix:{urllib.parse.unquote(urllib.parse.unquote(urllib.parse.urlsplit(url).netloc))}"


def _on_this_host(url: str) -> bool:
    if _is_socket(url):
        return True
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
