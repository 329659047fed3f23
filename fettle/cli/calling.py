"""HTTP calls of the command line: JSON in and out, one sentence for each way a call can fail.

Proxies from the environment are not used for addresses of this host.
"""

import http.client
import ipaddress
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from fettle.model import FettleError

SECONDS = 30.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_USUAL = urllib.request.build_opener()


class Answered(FettleError):
    """The server answered, but not with 2xx; `text` is the body."""

    def __init__(self, url: str, status: int, text: str) -> None:
        super().__init__(_error_in(text) or f"{url} returned {status}: {text.strip()[:500]}")
        self.status = status
        self.text = text


def call(url: str, body: Any = None, *, seconds: float = SECONDS) -> bytes:
    """GET, or POST if there is a body; raises Answered, or FettleError if there is no answer."""
    if not is_url(url):
        raise FettleError(f"{url!r} is not a URL such as http://127.0.0.1:8090")
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"} if data is not None else {}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 (checked above)
    opener = _DIRECT if _on_this_host(url) else _USUAL
    try:
        with opener.open(request, timeout=seconds) as reply:
            answer: bytes = reply.read()
            return answer
    except urllib.error.HTTPError as error:
        raise Answered(url, error.code, error.read().decode(errors="replace")) from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise FettleError(f"{url} did not answer: {reason}") from error
    except http.client.HTTPException as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise FettleError(f"{url} did not answer in HTTP: {said}") from error
    except ValueError as error:  # the host or path cannot be encoded
        raise FettleError(f"{url!r} cannot be called: {error}") from error


def is_url(text: str) -> bool:
    """Whether this can be the URL of a server; nothing is sent."""
    if any(letter.isspace() or not letter.isprintable() for letter in text):
        return False
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def call_json(url: str, body: Any = None, *, seconds: float = SECONDS) -> Any:
    """Like `call`, and decodes the JSON of the answer."""
    answer = call(url, body, seconds=seconds)
    try:
        return json.loads(answer)
    except ValueError as error:
        raise FettleError(f"{url} did not return JSON: is it a Fettle server?") from error


def fetch(server: str, path: str, query: dict[str, str] | None = None) -> Any:
    """The JSON that a running Fettle answers; raises FettleError with the reason if it does not."""
    url = f"{server.rstrip('/')}{path}"
    if query:
        url += "?" + urllib.parse.urlencode(query)
    try:
        return call_json(url)
    except Answered:
        raise
    except FettleError as error:
        raise FettleError(
            f"{error}; is `fettle serve` running there? (set the address with --server or "
            "FETTLE_SERVER)"
        ) from error


def _error_in(text: str) -> str:
    """The `error` of a JSON body; "" if it has none."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return ""


def _on_this_host(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
