"""A minimal JSON client of the API server for tests: objects are plain dictionaries, resources are
named by their plural, errors carry the message of the API's Status. It is not Fettle's client, on
purpose: a test must not see the cluster through the code that it tests."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Literal

import aiohttp

from tests.controlplane.discovery import AGGREGATED, Resource, Served

Object = dict[str, Any]
Objects = list[Object]
PatchForm = Literal["merge", "json", "strategic"]

_CONTENT_TYPES: Mapping[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """The API server refused; `message` and `reason` are those of its Status."""

    def __init__(self, code: int, reason: str, message: str, request: str) -> None:
        super().__init__(f"{request}: {code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message


class Api:
    def __init__(self, server: str, tls: ssl.SSLContext, *, token: str | None = None) -> None:
        self.server = server
        self.tls = tls
        self.warnings: list[str] = []
        """The Warning headers of the last reply, where admission webhooks' warnings appear."""
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None
        self._served = Served()

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop all connections; the next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def table(self, resource: str) -> list[dict[str, Any]]:
        """What `kubectl get` prints of all, by column."""
        path = (await self._named(resource)).path(None, None)
        headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        async with self._open().get(self.server + path, headers=headers) as response:
            await _raise_for(response, f"GET {path}")
            table = await response.json()
        names = [column["name"] for column in table["columnDefinitions"]]
        return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]

    # --- one object

    async def get(
        self,
        resource: str,
        name: str,
        namespace: str = "default",
        *,
        subresource: str | None = None,
    ) -> Object:
        path = (await self._named(resource)).path(name, namespace, subresource)
        return await self.request("GET", path)

    async def find(self, resource: str, name: str, namespace: str = "default") -> Object | None:
        """None when there is no such object."""
        try:
            return await self.get(resource, name, namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def create(
        self,
        manifest: Object,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        strict: bool = False,
    ) -> Object:
        """`strict`: unknown fields are refused, as kubectl has it."""
        found = await self._of(manifest)
        path = found.path(None, namespace or _namespace(manifest))
        params = _dry(dry_run) | ({"fieldValidation": "Strict"} if strict else {})
        return await self.request("POST", path, body=manifest, params=params)

    async def replace(self, manifest: Object, *, subresource: str | None = None) -> Object:
        found = await self._of(manifest)
        path = found.path(manifest["metadata"]["name"], _namespace(manifest), subresource)
        return await self.request("PUT", path, body=manifest)

    async def apply(
        self, manifest: Object, *, manager: str = "tester", dry_run: bool = False
    ) -> Object:
        """Server-side apply, taking over fields of other managers."""
        found = await self._of(manifest)
        path = found.path(manifest["metadata"]["name"], _namespace(manifest))
        params = {"fieldManager": manager, "force": "true", **_dry(dry_run)}
        return await self.request("PATCH", path, body=manifest, params=params, form="apply")

    async def patch(
        self,
        resource: str,
        name: str,
        patch: Object | Objects,
        namespace: str = "default",
        *,
        form: PatchForm = "merge",
        subresource: str | None = None,
    ) -> Object:
        path = (await self._named(resource)).path(name, namespace, subresource)
        return await self.request("PATCH", path, body=patch, form=form)

    async def patch_status(
        self,
        resource: str,
        name: str,
        status: Object,
        namespace: str = "default",
        *,
        form: PatchForm = "merge",
    ) -> Object:
        """Patch what is inside `.status`, through the status subresource."""
        body = {"status": status}
        return await self.patch(resource, name, body, namespace, form=form, subresource="status")

    async def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "default",
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        propagation: str = "Background",
    ) -> None:
        options: Object = {"propagationPolicy": propagation}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        path = (await self._named(resource)).path(name, namespace)
        await self.request("DELETE", path, body=options)

    async def evict(self, pod: str, namespace: str = "default") -> None:
        """Through the Eviction API, so that PodDisruptionBudgets apply."""
        names = {"name": pod, "namespace": namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": names}
        path = (await self._named("pods")).path(pod, namespace, "eviction")
        await self.request("POST", path, body=body)

    # --- many objects

    async def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
    ) -> Objects:
        """In one namespace, or in all of them; `labels` and `fields` are selectors."""
        return list((await self._list(resource, namespace, labels, fields))["items"])

    async def watch(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        fields: str | None = None,
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """What exists, as ADDED, then every change, until the server ends the watch. Close it
        (`contextlib.aclosing`)."""
        first = await self._list(resource, namespace, None, fields)
        for item in first["items"]:
            yield "ADDED", item
        params = {"watch": "true", "resourceVersion": first["metadata"]["resourceVersion"]}
        if fields:
            params["fieldSelector"] = fields
        path = (await self._named(resource)).path(None, namespace)
        rest = b""
        # A session of its own: to close a session leaves whoever reads from it waiting forever.
        async with (
            self._new_session(None) as session,
            session.get(self.server + path, params=params) as response,
        ):
            await _raise_for(response, f"WATCH {path}")
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield event["type"], event["object"]

    async def events_about(self, name: str, namespace: str = "default") -> Objects:
        return await self.list("events", namespace, fields=f"involvedObject.name={name}")

    # --- requests

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Object | Objects | None = None,
        params: Mapping[str, str] | None = None,
        form: str | None = None,
    ) -> Object:
        """Any request; the decoded reply."""
        reply = await self.request_text(method, path, body=body, params=params, form=form)
        decoded: Object = json.loads(reply)
        return decoded

    async def request_text(
        self,
        method: str,
        path: str,
        *,
        body: Object | Objects | None = None,
        params: Mapping[str, str] | None = None,
        form: str | None = None,
    ) -> str:
        sent = json.dumps(body).encode() if body is not None else None
        reply = await self.request_bytes(method, path, body=sent, params=params, form=form)
        return reply.decode()

    async def request_bytes(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        form: str | None = None,
    ) -> bytes:
        """What is sent and answered, to the byte."""
        headers = {"Content-Type": _CONTENT_TYPES[form] if form else "application/json"}
        async with self._open().request(
            method, self.server + path, data=body, params=params, headers=headers
        ) as response:
            self.warnings = [_warning(h) for h in response.headers.getall("Warning", [])]
            await _raise_for(response, f"{method} {path}")
            return await response.read()

    async def _list(
        self, resource: str, namespace: str | None, labels: str | None, fields: str | None
    ) -> Object:
        found = await self._named(resource)
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        params = {key: value for key, value in selectors.items() if value}
        reply = await self.request("GET", found.path(None, namespace), params=params)
        for item in reply["items"]:  # a list leaves these out
            item.setdefault("apiVersion", found.api_version)
            item.setdefault("kind", found.kind)
        return reply

    async def _named(self, name: str) -> Resource:
        found = self._served.named(name)
        for _ in range(20):
            if found is not None:
                return found
            await self._discover()
            if (found := self._served.named(name)) is None:
                await asyncio.sleep(0.25)  # a new CustomResourceDefinition takes a moment
        raise LookupError(f"the API server serves no resource called {name!r}")

    async def _of(self, manifest: Object) -> Resource:
        api_version, kind = manifest["apiVersion"], manifest["kind"]
        found = self._served.of_kind(api_version, kind)
        for _ in range(20):
            if found is not None:
                return found
            await self._discover()
            if (found := self._served.of_kind(api_version, kind)) is None:
                await asyncio.sleep(0.25)
        raise LookupError(f"the API server serves no {kind} of {api_version}")

    async def _discover(self) -> None:
        self._served = await self.discover()

    async def discover(self) -> Served:
        """What the API server serves now."""
        groups: Objects = []
        for root in ("/api", "/apis"):
            headers = {"Accept": AGGREGATED}
            async with self._open().get(self.server + root, headers=headers) as response:
                await _raise_for(response, f"GET {root}")
                groups += (await response.json(content_type=None))["items"]
        return Served(groups)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = self._new_session(30)
        return self._session

    def _new_session(self, timeout_s: float | None) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.tls, limit=64),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(timeout_s),
        )


async def _raise_for(response: aiohttp.ClientResponse, request: str) -> None:
    if response.status < 400:
        return
    text = await response.text()
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    reason = status.get("reason") or response.reason or ""
    raise ApiError(response.status, reason, status.get("message") or text, request)


def _warning(header: str) -> str:
    """The text of `299 - "text"`."""
    quoted = header.partition('"')[2].rpartition('"')[0]
    return quoted.replace('\\"', '"').replace("\\\\", "\\")


def _namespace(manifest: Object) -> str:
    return str(manifest["metadata"].get("namespace", "default"))


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}
