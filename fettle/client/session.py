"""One authenticated session with an API server: raw JSON in and out. Every call has a timeout, and
every failure is one of `fettle.model.errors` with a sentence for people. The official client owns
authentication, TLS and proxies. Its typed models are not used: decoding with them costs ten times
what decoding into our structs costs. Knows nothing of kinds or leases.
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
from kubernetes.aio.config import ConfigException

from fettle.client.connection import ClusterConnection, connect
from fettle.client.key_files import ended_at
from fettle.client.kubeconfig import AS_IT_STANDS, Chosen
from fettle.client.responses import read_status, refusal
from fettle.client.watch_streams import Streams
from fettle.logs import Logger
from fettle.model import ClusterError, FettleError, Silent, Unauthorized, Unreachable

log = Logger(__name__)

Parameters = Mapping[str, str | int | bool]
JSON = "application/json"
METADATA_ONLY = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Accepts an object's metadata alone."""

_CONNECT_S = 10.0
_HEADERS_S = 30.0
_RENEW_AT_MOST_EVERY_S = 10.0
_EARLY_S = 5.0
"""Credentials are renewed so long before they end."""
_BROKEN = (aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError)


class _Call(NamedTuple):
    method: str
    path: str
    parameters: Parameters | None = None
    body: Any = None
    content_type: str = JSON
    accept: str = JSON

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class _Untrusted(Unreachable):
    """The server's certificate is from no authority that we trust. The one that we trust may be
    outdated."""


class Session:
    """Paths are URL paths below the server's, made by `fettle/api/api_server.py`; results are the
    raw body.

    `namespace` is that of our service account, else that of the kubeconfig's context, else
    `fettle-system`. `user` is the name of the kubeconfig's user; "" in a pod. `streams` are the
    watches that are open.
    """

    def __init__(
        self, connection: ClusterConnection, reconnect: Callable[[], Awaitable[ClusterConnection]]
    ) -> None:
        self.namespace = connection.namespace
        self.users_namespace = connection.users_namespace
        self.user = connection.user
        self.streams = Streams()
        self._client = connection.client
        self._authority = connection.authority
        self._certificate = connection.certificate
        self._expires_at = connection.expires_at
        self._retired: Any = None
        self._reconnect = reconnect
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_at = float("-inf")
        self._dated: tuple[float, float] | None = None
        """The `Date` of the last answer, and when it came by the loop's clock."""

    @classmethod
    async def open(
        cls,
        kubeconfig: Path | None = None,
        account: Path | None = None,
        chosen: Chosen = AS_IT_STANDS,
    ) -> Self:
        """Read the credentials without contacting the server; raises SettingsError if there are
        none.

        `account` is where to look for a pod's service account, if not in the usual place.
        """

        def connecting() -> Awaitable[ClusterConnection]:
            return connect(kubeconfig, account, chosen)

        return cls(await connecting(), connecting)

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self._client.configuration.host)

    async def bearer_token(self) -> str:
        """Ours, which is our name for whoever asks this API server; "" if we have none. Raises
        Unauthorized if it can no longer be read."""
        try:
            given = await self._client.configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError, ValueError) as error:
            raise Unauthorized(f"the token for {self.server} cannot be read: {error}") from error
        scheme, _, token = (given or "").partition(" ")
        return token if scheme.lower() == "bearer" else ""

    def server_clock(self) -> float | None:
        """What the API server's clock shows now, Unix seconds, by the `Date` of its last answer;
        None if it has sent none."""
        if self._dated is None:
            return None
        date_s, received_at = self._dated
        return date_s + _now_s() - received_at

    async def get(
        self,
        path: str,
        parameters: Parameters | None = None,
        *,
        timeout_s: float = 30.0,
        accept: str = JSON,
    ) -> bytes:
        return await self._call(_Call("GET", path, parameters, accept=accept), timeout_s)

    async def create(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        dry_run: bool = False,
        timeout_s: float = 10.0,
    ) -> bytes:
        """POST to a collection; raises Conflict if the object exists."""
        parameters = {"dryRun": "All"} if dry_run else None
        return await self._call(_Call("POST", path, parameters, body), timeout_s)

    async def replace(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float = 10.0
    ) -> bytes:
        """PUT of an object; raises Conflict if its resourceVersion is not the newest."""
        return await self._call(_Call("PUT", path, body=body), timeout_s)

    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        strategic: bool = False,
    ) -> bytes:
        """A JSON merge patch, or a strategic one: that changes single entries of lists such as
        conditions, which others write too."""
        form = "strategic-merge-patch" if strategic else "merge-patch"
        call = _Call("PATCH", path, body=body, content_type=f"application/{form}+json")
        return await self._call(call)

    async def apply(
        self, path: str, body: Mapping[str, Any], manager: str, *, timeout_s: float = 10.0
    ) -> bytes:
        """Server-side apply: makes the object, or sets our fields in it, also those of others."""
        form = "application/apply-patch+yaml"  # JSON is YAML
        given: dict[str, str | bool] = {"fieldManager": manager, "force": True}
        return await self._call(_Call("PATCH", path, given, body, form), timeout_s)

    async def delete(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """`body`: DeleteOptions."""
        return await self._call(_Call("DELETE", path, body=body))

    async def stream(
        self,
        path: str,
        parameters: Parameters | None = None,
        *,
        silence_s: float = 90.0,
        gather_s: Callable[[], float] = lambda: 0.0,
    ) -> AsyncGenerator[bytes, None]:
        """The body of a watch, in chunks as they come. The first is empty: the server accepted.

        After each small chunk the connection is left unread for `gather_s`, so that a burst is read
        at once. Raises Silent if nothing came for `silence_s`. Close it (`contextlib.aclosing`).
        """
        call = _Call("GET", path, parameters)
        limits = aiohttp.ClientTimeout(
            sock_connect=_CONNECT_S, sock_read=silence_s, connect=_CONNECT_S
        )
        async with self._in_time(_HEADERS_S):
            response = await self._respond(call, limits)
        with _closing(response), self.streams.opened(response) as stream:
            yield b""
            async with aclosing(stream.chunks(gather_s)) as chunks:
                while chunk := await self._next(chunks, silence_s):
                    yield chunk

    async def close(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait((self._renewal,))
        await self._client.close()
        if self._retired is not None:
            await self._retired.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(self, call: _Call, timeout_s: float = 10.0) -> bytes:
        limits = aiohttp.ClientTimeout(sock_connect=min(timeout_s, _CONNECT_S))
        async with self._in_time(timeout_s):
            with _closing(await self._respond(call, limits)) as response:
                try:
                    return await response.read()
                except _BROKEN as error:
                    raise self._unreachable(error) from error

    @asynccontextmanager
    async def _in_time(self, timeout_s: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError as error:
            raise self._unreachable(error) from error

    async def _next(self, chunks: AsyncIterator[bytes], silence_s: float) -> bytes:
        """The next chunk; empty at the end."""
        try:
            return await anext(chunks, b"")
        except TimeoutError as error:
            raise Silent(f"{self.server} sent nothing for {silence_s:g} s") from error
        except _BROKEN as error:
            raise self._unreachable(error) from error

    async def _respond(self, call: _Call, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """The successful response; raises the error that a refusal or a broken connection means."""
        if time.time() + _EARLY_S >= self._expires_at:
            await self._renewed(self._client)
        client = self._client
        try:
            return await self._send(client, call, limits)
        except (Unauthorized, _Untrusted):
            if not await self._renewed(client):
                raise
        return await self._send(self._client, call, limits)

    async def _send(
        self, client: Any, call: _Call, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        try:
            request = await client.param_serialize(
                call.method,
                call.path,
                query_params=dict(call.parameters or {}),
                header_params={
                    "Accept": call.accept,
                    "Content-Type": call.content_type,
                    # To decompress a list would stall the loop that answers the scheduler.
                    "Accept-Encoding": "identity",
                },
                body=call.body,
                auth_settings=["BearerToken"],
            )
            answer = await client.call_api(*request, _request_timeout=limits)
        except (ConfigException, FileNotFoundError, PermissionError) as error:
            raise self._unusable(error) from error
        except _BROKEN as error:
            raise self._unreachable(error) from error
        except ValueError as error:  # a token that fits no header
            raise self._unusable(error) from error
        response: aiohttp.ClientResponse = answer.response
        if (date_s := _unix_s(response.headers.get("Date", ""))) is not None:
            self._dated = date_s, _now_s()
        if response.status < 300:
            return response
        with _closing(response):
            raise await self._refused(call, response)

    async def _refused(self, call: _Call, response: aiohttp.ClientResponse) -> ClusterError:
        try:
            body = await response.read()
        except _BROKEN as error:
            return self._unreachable(error)
        refused = refusal(self.server, str(call), response.status, read_status(body))
        if isinstance(refused, Unreachable):
            refused.retry_after_s = _seconds(response.headers.get("Retry-After", ""))
        if isinstance(refused, Unauthorized) and (
            ended := ended_at(self._certificate, time.time())
        ):
            return Unauthorized(
                f"{self.server} does not accept our credentials: the client certificate of the "
                f"kubeconfig's user {self.user!r} ended at {ended:%Y-%m-%d %H:%M:%SZ}; get a new "
                "one"
            )
        return refused

    def _unusable(self, error: Exception) -> Unauthorized:
        """From the token file, which the client reads every minute."""
        return Unauthorized(
            f"the credentials for {self.server} can no longer be used: {error}; "
            "put a valid token there"
        )

    def _unreachable(self, error: BaseException) -> Unreachable:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return _Untrusted(
                f"{self.server} presents a certificate that is not trusted "
                f"({error.certificate_error}); check {self._authority}"
            )
        reason = self._timeout() if isinstance(error, TimeoutError) else _reason(error)
        return Unreachable(f"{self.server} cannot be reached: {reason or type(error).__name__}")

    def _timeout(self) -> str:
        renewing = self._renewal is not None and not self._renewal.done()
        return "no answer in time" + (", credentials are still being renewed" if renewing else "")

    async def _renewed(self, refused: Any) -> bool:
        """Renew the credentials that were refused; whether a retry makes sense.

        All callers wait for one renewal. It goes on for the others if one of them gives up.
        """
        if self._client is refused:
            if self._renewal is None or self._renewal.done():
                if _now_s() - self._renewed_at < _RENEW_AT_MOST_EVERY_S:
                    return False
                self._renewal = asyncio.create_task(self._renew())
            await asyncio.shield(self._renewal)
        return self._client is not refused

    async def _renew(self) -> None:
        """Reload the credentials. A plugin may take longer for that than callers wait."""
        try:
            connection = await self._reconnect()
        except FettleError as error:
            # The file may be half written, or the plugin may have failed.
            log.warning("cannot reload credentials", reason=str(error))
            return
        finally:
            self._renewed_at = _now_s()
        # Calls and watches in flight go on with the client before.
        ended, self._retired, self._client = self._retired, self._client, connection.client
        self._authority = connection.authority
        self._certificate = connection.certificate
        self._expires_at = connection.expires_at
        if ended is not None:
            await ended.close()


@contextmanager
def _closing(response: aiohttp.ClientResponse) -> Iterator[aiohttp.ClientResponse]:
    try:
        yield response
    finally:
        # `release` would wait for the unread rest of a stream.
        response.close() if not response.content.at_eof() else response.release()


def _seconds(retry_after: str) -> float:
    """API servers send whole seconds; anything else counts as 0."""
    is_number = retry_after.isascii() and retry_after.isdigit() and len(retry_after) <= 5
    return float(retry_after) if is_number else 0.0


def _unix_s(date: str) -> float | None:
    """A `Date` header in Unix seconds; None if it is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def _reason(error: BaseException) -> str:
    # A connection that is cut as it begins may end in a reset or not. Both give one text: where
    # they alternate, each would be logged as something new.
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionResetError
    ):
        return f"{error.host}:{error.port} closes connections as they begin"
    if isinstance(error, aiohttp.ClientConnectorError):
        number, said = error.os_error.errno or 0, error.os_error.strerror
        if plain := os.strerror(number) if number > 0 else said:
            return plain
    return " ".join(str(error).split())


def _now_s() -> float:
    return asyncio.get_running_loop().time()
