"""One authenticated connection to an API server: raw JSON in and out, every call with a timeout,
every failure one of `fettle.model.errors` with a sentence for people. The official client owns
authentication, TLS and proxies; none of its typed models are used, since decoding with them costs
ten times what the wire structs cost. Knows nothing of kinds, caches or leases.
"""

import asyncio
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import structlog
from kubernetes.aio.config import ConfigException

from fettle.client.connecting import ClusterConnection, connect
from fettle.client.refusals import read_status, refusal
from fettle.client.streaming import Streams
from fettle.model import ClusterError, FettleError, Silent, Unauthorized, Unreachable

log = structlog.get_logger(__name__)

Parameters = Mapping[str, str | int | bool]

_CONNECT_S = 10.0
_HEADERS_S = 30.0
_RENEW_AT_MOST_EVERY_S = 10.0
_EARLY_S = 5.0
"""How long before their end credentials are renewed."""
_BROKEN = (aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError)


class _Call(NamedTuple):
    method: str
    path: str
    parameters: Parameters | None = None
    body: Any = None
    content_type: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class _Untrusted(Unreachable):
    """The server's certificate is from no authority that we trust; ours may be outdated."""


class Session:
    """Paths are URL paths below the server's, such as `/api/v1/nodes`; answers are the raw body.

    `namespace` is that of our service account, else that of the kubeconfig's context, else
    `fettle-system`; `server` is the API server's URL; `streams` are those that are open.
    """

    def __init__(
        self, connection: ClusterConnection, reconnect: Callable[[], Awaitable[ClusterConnection]]
    ) -> None:
        self.namespace = connection.namespace
        self.streams = Streams()
        self._client = connection.client
        self._authority = connection.authority
        self._expires_at = connection.expires_at
        self._retired: Any = None
        self._reconnect = reconnect
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_at = float("-inf")

    @classmethod
    async def open(cls, kubeconfig: Path | None = None, account: Path | None = None) -> Self:
        """Reads the credentials without contacting the server; raises SettingsError if there are
        none.

        `account` is where to look for a pod's service account, if not where pods have it.
        """
        return cls(await connect(kubeconfig, account), lambda: connect(kubeconfig, account))

    @property
    def server(self) -> str:
        return str(self._client.configuration.host)

    async def get(
        self, path: str, parameters: Parameters | None = None, *, timeout_s: float = 30.0
    ) -> bytes:
        return await self._call(_Call("GET", path, parameters), timeout_s)

    async def create(self, path: str, body: Mapping[str, Any], *, timeout_s: float = 10.0) -> bytes:
        """POST to a collection; raises Conflict where the object exists."""
        return await self._call(_Call("POST", path, body=body), timeout_s)

    async def replace(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float = 10.0
    ) -> bytes:
        """PUT of an object; raises Conflict where its resourceVersion is not the newest."""
        return await self._call(_Call("PUT", path, body=body), timeout_s)

    async def patch(self, path: str, body: Mapping[str, Any], *, timeout_s: float = 10.0) -> bytes:
        """A JSON merge patch."""
        call = _Call("PATCH", path, body=body, content_type="application/merge-patch+json")
        return await self._call(call, timeout_s)

    async def stream(
        self,
        path: str,
        parameters: Parameters | None = None,
        *,
        silence_s: float = 90.0,
        gather_s: Callable[[], float] = lambda: 0.0,
    ) -> AsyncGenerator[bytes, None]:
        """The body in chunks as they come, for watches: an empty one once the server accepted.

        After each small chunk the connection is left unread for `gather_s`, so that what comes in
        a burst is read at once. Raises Silent where nothing came for `silence_s`. Close it
        (`contextlib.aclosing`).
        """
        call = _Call("GET", path, parameters)
        limits = aiohttp.ClientTimeout(
            sock_connect=_CONNECT_S, sock_read=silence_s, connect=_CONNECT_S
        )
        async with self._in_time(_HEADERS_S):
            response = await self._answer(call, limits)
        with _left(response), self.streams.opened(response) as stream:
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

    async def _call(self, call: _Call, timeout_s: float) -> bytes:
        limits = aiohttp.ClientTimeout(sock_connect=min(timeout_s, _CONNECT_S))
        async with self._in_time(timeout_s):
            with _left(await self._answer(call, limits)) as response:
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

    async def _answer(self, call: _Call, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """A successful one; raises what a refusal or a broken connection means."""
        if time.time() + _EARLY_S >= self._expires_at:
            await self._renewed(self._client)
        client = self._client
        try:
            return await self._ask(client, call, limits)
        except (Unauthorized, _Untrusted):
            if not await self._renewed(client):
                raise
        return await self._ask(self._client, call, limits)

    async def _ask(
        self, client: Any, call: _Call, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        try:
            request = await client.param_serialize(
                call.method,
                call.path,
                query_params=dict(call.parameters or {}),
                header_params={
                    "Accept": "application/json",
                    "Content-Type": call.content_type,
                    # Unpacking a page of a list would stall the loop that answers the scheduler.
                    "Accept-Encoding": "identity",
                },
                body=call.body,
                auth_settings=["BearerToken"],
            )
            answer = await client.call_api(*request, _request_timeout=limits)
        except (ConfigException, FileNotFoundError, PermissionError) as error:
            # The token file, which the client reads again and again.
            raise Unauthorized(
                f"the credentials for {self.server} can no longer be used: {error}; "
                "put a valid token there"
            ) from error
        except _BROKEN as error:
            raise self._unreachable(error) from error
        response: aiohttp.ClientResponse = answer.response
        if response.status < 300:
            return response
        with _left(response):
            raise await self._refused(call, response)

    async def _refused(self, call: _Call, response: aiohttp.ClientResponse) -> ClusterError:
        try:
            body = await response.read()
        except _BROKEN as error:
            return self._unreachable(error)
        refused = refusal(self.server, str(call), response.status, read_status(body))
        if isinstance(refused, Unreachable):
            refused.retry_after_s = _seconds(response.headers.get("Retry-After", ""))
        return refused

    def _unreachable(self, error: BaseException) -> Unreachable:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return _Untrusted(
                f"{self.server} presents a certificate that is not trusted "
                f"({error.certificate_error}); check {self._authority}"
            )
        said = self._late() if isinstance(error, TimeoutError) else _said(error)
        return Unreachable(f"{self.server} cannot be reached: {said or type(error).__name__}")

    def _late(self) -> str:
        renewing = self._renewal is not None and not self._renewal.done()
        return "no answer in time" + (", credentials are still being renewed" if renewing else "")

    async def _renewed(self, refused: Any) -> bool:
        """Whether a retry makes sense, once this client may have been replaced.

        All callers wait for one renewal, which goes on for the others where one gives up.
        """
        if self._client is refused:
            if self._renewal is None or self._renewal.done():
                if _now_s() - self._renewed_at < _RENEW_AT_MOST_EVERY_S:
                    return False
                self._renewal = asyncio.create_task(self._renew())
            await asyncio.shield(self._renewal)
        return self._client is not refused

    async def _renew(self) -> None:
        """Reload the credentials, for which a plugin may take longer than callers wait."""
        try:
            connection = await self._reconnect()
        except FettleError as error:
            # A file that is being rewritten, or a plug-in that fails.
            log.warning("cannot reload credentials", reason=str(error))
            return
        finally:
            self._renewed_at = _now_s()
        # Calls and watches under way may end in peace.
        ended, self._retired, self._client = self._retired, self._client, connection.client
        self._authority = connection.authority
        self._expires_at = connection.expires_at
        if ended is not None:
            await ended.close()


@contextmanager
def _left(response: aiohttp.ClientResponse) -> Iterator[aiohttp.ClientResponse]:
    """What is left unread of a stream would be waited for by `release`."""
    try:
        yield response
    finally:
        response.close() if not response.content.at_eof() else response.release()


def _seconds(retry_after: str) -> float:
    """An API server says it in whole seconds; 0 of anything else."""
    return float(retry_after) if re.fullmatch("[0-9]{1,5}", retry_after) else 0.0


def _said(error: BaseException) -> str:
    """In one line. Of connections that are cut as they begin the same, whether by a reset or by an
    end: where these alternate, each would be logged as something new."""
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionResetError
    ):
        return f"{error.host}:{error.port} closes connections as they begin"
    return " ".join(str(error).split())


def _now_s() -> float:
    return asyncio.get_running_loop().time()
