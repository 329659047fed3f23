"""Asks Prometheus, or what answers as one: one instant query, and typed samples back.

Every failure is a PrometheusError with a sentence for people. No redirect is followed, so
credentials go nowhere but to the server that the settings name. An answer is read up to a limit and
decoded in pieces, so a large one delays nobody.
"""

import asyncio
import re
import ssl
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
import msgspec

from fettle import __version__
from fettle.api import Sample
from fettle.client.connection import proxy_of_environment
from fettle.config import PrometheusSettings
from fettle.model import PrometheusError
from fettle.pacing import pause, run_within

_LONGEST = 300
_CHUNK = 64 * 1024
_WHOLE_BYTES = 32 * 1024
"""A smaller answer is decoded at once."""
_ENTRY = b'{"metric":'
"""Begins each entry. A string cannot contain it, since it would escape the quotes."""
_LAST = b'"]}]}'
"""Ends the last value, its entry, all entries, and the data."""
BLANK = 2.0**53
"""DCGM's values for "not supported" and the like, and nothing that is measured, are larger."""


class Answer(NamedTuple):
    """What a query found: usable samples, and those that are no number or none that can be.

    `at`: the server's time of the evaluation, in Unix seconds; 0 if nothing was found. `warnings`:
    what the server says is missing.
    """

    samples: tuple[Sample, ...]
    odd: tuple[Sample, ...]
    at: float
    warnings: tuple[str, ...]


class _Series(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True):
    result_type: str = msgspec.field(name="resultType", default="")
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Reply(msgspec.Struct, frozen=True):
    status: str = ""
    data: _Data | None = None
    error_type: str = msgspec.field(name="errorType", default="")
    error: str = ""
    warnings: tuple[str, ...] | None = None


_REPLY, _SERIES = msgspec.json.Decoder(_Reply), msgspec.json.Decoder(_Series)
_ALL_SERIES = msgspec.json.Decoder(tuple[_Series, ...])


class Prometheus:
    """Enter it for one round: credentials are read then."""

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._url = f"{settings.url.rstrip('/')}/api/v1/query"
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        settings = self._settings
        try:
            headers = {"User-Agent": f"fettle/{__version__}", **settings.headers}
            if settings.bearer_token_file:
                headers["Authorization"] = f"Bearer {_secret(settings.bearer_token_file)}"
            elif settings.username_file:
                headers["Authorization"] = aiohttp.encode_basic_auth(
                    _secret(settings.username_file), _secret(settings.password_file)
                )
            context = await asyncio.to_thread(_tls, settings)
        except (OSError, ValueError) as error:
            raise PrometheusError(
                f"the credentials for {settings.url} cannot be used: {_one_line(str(error))}",
                reason="credentials",
                whole=True,
            ) from error
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=8),
            headers=headers,
            trust_env=False,
            proxy=proxy_of_environment(settings.url),
            timeout=aiohttp.ClientTimeout(sock_connect=min(5.0, settings.timeout_seconds)),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def query(self, expression: str, at: float | None = None) -> Answer:
        """Evaluate now, or at a Unix time. Raises PrometheusError."""
        form = {"query": expression, "timeout": f"{self._settings.timeout_seconds:g}s"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                status, kind, body = await self._post(form)
        except TimeoutError as error:
            raise PrometheusError(
                f"{self._settings.url} gave no answer within {self._settings.timeout_seconds:g} s",
                reason="timeout",
            ) from error
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            raise PrometheusError(
                f"{self._settings.url} cannot be reached: {_one_line(str(error))}",
                reason="unreachable",
                whole=True,
            ) from error
        return await run_within(partial(self._read, status, kind, body))

    async def _post(self, form: dict[str, str]) -> tuple[int, str, bytes]:
        assert self._session is not None
        limit = self._settings.max_mebibytes * 2**20
        async with self._session.post(self._url, data=form, allow_redirects=False) as response:
            if 300 <= response.status < 400:
                where = response.headers.get("Location", "")
                raise PrometheusError(
                    f"{self._settings.url} redirects to {_one_line(where)!r}, which is not "
                    "followed; name the final address in prometheus.url",
                    reason="redirect",
                    whole=True,
                )
            body = bytearray()
            async for chunk in response.content.iter_chunked(_CHUNK):
                body += chunk
                if len(body) > limit:
                    raise PrometheusError(
                        f"the answer is larger than prometheus.maxMebibytes "
                        f"({self._settings.max_mebibytes}): the rule fires for too many series",
                        reason="too_large",
                    )
            return response.status, response.content_type, bytes(body)

    def _read(self, status: int, kind: str, body: bytes) -> Answer:
        head, entries = _split(body)
        try:
            reply = _REPLY.decode(head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._no_json(status, kind, body) from error
        if reply.status == "error":
            said = _one_line(reply.error) or f"status {status}"
            unsure = status in (429, 502, 503, 504) or status >= 500
            raise PrometheusError(
                f"{self._settings.url} refuses the query: {reply.error_type or status}: {said}",
                reason="query" if not unsure else "unavailable",
            )
        if reply.status != "success" or reply.data is None:
            raise self._no_json(status, kind, body, is_json=True)
        if reply.data.result_type != "vector":
            raise PrometheusError(
                f"the query gives a {reply.data.result_type or 'result without a type'}, not an "
                "instant vector",
                reason="query",
            )
        try:
            series = list(_decoded(entries)) if entries else _ALL_SERIES.decode(reply.data.result)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._no_json(status, kind, body) from error
        return _answer(series, reply.warnings or ())

    def _no_json(
        self, status: int, kind: str, body: bytes, *, is_json: bool = False
    ) -> PrometheusError:
        url = self._settings.url
        if status in (401, 403):
            return PrometheusError(
                f"{url} does not accept our credentials (status {status}); check the files that "
                "prometheus names",
                reason="credentials",
                whole=True,
            )
        if status >= 500 or status == 429:
            return PrometheusError(
                f"{url} is not available (status {status})", reason="unavailable", whole=True
            )
        page = "JSON of another kind" if is_json else "no JSON"
        if b"<html" in body[:2000].lower() or "html" in kind:
            page = "a web page"
        return PrometheusError(
            f"{url} answers with {page} (status {status}), not as Prometheus does; a login page or "
            "another server may be in between",
            reason="not_prometheus",
            whole=True,
        )


def _split(body: bytes) -> tuple[bytes, list[bytes]]:
    """A large answer without its entries, and these; a small one as it is, and none."""
    if len(body) < _WHOLE_BYTES:
        return body, []
    begin, end = body.find(_ENTRY), body.rfind(_LAST) + len(_LAST) - 2
    if not 0 < begin < end:
        return body, []
    return body[:begin] + body[end:], body[begin:end].split(_ENTRY)[1:]


def _decoded(entries: list[bytes]) -> Iterator[_Series]:
    for entry in entries:
        pause()
        yield _SERIES.decode(_ENTRY + entry.rstrip(b", \n"))


def _answer(series: "list[_Series] | tuple[_Series, ...]", warnings: tuple[str, ...]) -> Answer:
    samples: list[Sample] = []
    odd: list[Sample] = []
    at = 0.0
    for one in series:
        pause()
        at = max(at, one.value[0])
        value = float("nan")
        with suppress(ValueError):
            value = float(one.value[1])
        sample = Sample(one.metric, value)
        (samples if isfinite(value) and abs(value) < BLANK else odd).append(sample)
    return Answer(tuple(samples), tuple(odd), at, tuple(map(_one_line, warnings)))


def _secret(path: str) -> str:
    text = Path(path).read_text(encoding="utf-8").strip()
    if not text or not text.isprintable():
        raise ValueError(f"{path} is empty, or not a single printable line")
    return text


def _tls(settings: PrometheusSettings) -> ssl.SSLContext | bool:
    if not settings.url.startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    # As for the API server: authorities of one's own often lack what Python 3.13 wants.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if settings.certificate_file:
        context.load_cert_chain(settings.certificate_file, settings.key_file)
    return context


_CONTROL = re.compile(r"[\x00-\x20\x7f]+")


def _one_line(text: str) -> str:
    text = _CONTROL.sub(" ", text).strip()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
