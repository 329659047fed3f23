"""A fake API server: lists in pages, watches (with and without watch-list), bookmarks, merge
patches, server-side apply and optimistic concurrency. Its JSON objects may be as malformed as a
test likes. It serves HTTP on loopback, and a test can make it forget, refuse, hang or restart.
"""

from __future__ import annotations

import asyncio
import copy
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

Object = dict[str, Any]
OPERATOR = {"Authorization": "Bearer of-the-operator"}
"""As somebody who may do everything, by the reviews of this API server."""
USER = "system:serviceaccount:fettle-system:fettle"
PAGE = "<!DOCTYPE html><title>Please log in</title>"
"""What some proxies answer instead of the server behind them, with status 200."""
AUTHORITIES = ("fettle-webhook-ca", "fettle-extender-ca")
"""Secrets that deploy/rbac has, without data."""
INITIAL_END = {"k8s.io/initial-events-end": "true"}


class Target(NamedTuple):
    """What a URL path names: `name` is "" for a collection."""

    group: str
    plural: str
    namespace: str
    name: str
    version: str


class Asked(NamedTuple):
    """One request that came in; `verb` is Kubernetes' (`list`, `watch`, `get`, …)."""

    verb: str
    target: Target
    query: dict[str, str]
    headers: Mapping[str, str]
    """A header that came several times has its values joined by commas."""


class _Change(NamedTuple):
    version: int
    type: str
    plural: str
    object: Object


class FakeApi:
    """Objects live under their plural (`nodes`) and key (`namespace/name` or `name`). The Secrets
    of deploy/rbac are there. `asked` are the requests that came in."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {}
        self.clock: Callable[[], float] | None = None
        """Its `Date` is by this one, if not by the real one."""
        self.date = ""
        """This is its `Date`, if it is not by a clock."""
        self.version = 100
        self._log: list[_Change] = []
        self._turned = asyncio.Event()
        for name in AUTHORITIES:
            self.empty_secret(name)
        self.asked: list[Asked] = []
        self.watch_list = True
        self.accepts_but_ignores_watch_list = False
        self.silent = False
        self.answers_nothing = False
        self.answers_after_s = 0.0
        self.answers_lost: set[str] = set()
        """Verbs that are carried out without a response."""
        self.unserved: set[str] = set()
        """Plurals (`nodes`), or one version of a plural (`v1/nodes`)."""
        self.discovered: dict[str, list[Object]] = {}
        """By the path of a group's version (`resource.k8s.io/v1`): its resources, for discovery."""
        self.dies_after: int | None = None
        """After so many writes nothing is answered any more, of these the last one neither if it
        `loses_last`."""
        self.loses_last = False
        self.written = 0
        """Writes that were carried out."""
        self.forbidden: set[tuple[str, str]] = set()
        self.pages: set[str] = set()
        """Last parts of paths that are answered with a proxy's page."""
        self.gave: Counter[str] = Counter()
        """How often each of these pages was sent, and the version."""
        self.token: str | None = None
        self.users = {"of-the-operator": "operator"}
        """By bearer token: the name of whose it is, for TokenReviews."""
        self.granted: set[tuple[str, str, str, str]] = set()
        """User, verb, resource, and namespace ("" for all), for SubjectAccessReviews."""
        self.expire_by_event = False
        self.forgets_at_once = False
        """A watch expires, whatever version it resumes from."""
        self.ends_watches_at_once = False
        self.overloaded = ""
        """If set, every response is a 429 with this Retry-After."""
        self.raw_event: bytes | None = None
        self.git_version = "v1.37.1"
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self._oldest = 0
        self._runner: web.AppRunner | None = None
        self._watches: list[web.Request] = []

    # the server

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the port it had before, if it had one."""
        app = web.Application()
        app.on_response_prepare.append(self._date)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, "127.0.0.1", self.port, ssl_context=self.tls, reuse_address=True
        )
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.drop_watches()
        runner, self._runner = self._runner, None
        self.turn()  # handlers of lost connections wait for this
        if runner is not None:
            await runner.cleanup()

    def drop_watches(self) -> None:
        """Cut their connections, as a network that fails."""
        for request in self._watches:
            if request.transport is not None:
                request.transport.abort()

    def kubeconfig(
        self,
        folder: Path,
        *,
        token: str = "",
        namespace: str = "",
        user: Mapping[str, Any] | None = None,
    ) -> Path:
        """`user` are the user's fields, if there is more than a token."""
        context = {"cluster": "fake", "user": "fake"}
        if user is None:
            user = {"token": token} if token else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": user}],
            "contexts": [{"name": "fake", "context": context}],
            "current-context": "fake",
        }
        if namespace:
            context["namespace"] = namespace
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return path

    # what a test does to the cluster

    def put(self, plural: str, thing: Object) -> Object:
        """Create or replace an object, without any check."""
        kept = copy.deepcopy(thing)
        metadata = kept.setdefault("metadata", {})
        key = _key(metadata)
        known = key in self.objects.setdefault(plural, {})
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.objects[plural][key] = kept
        self._note("MODIFIED" if known else "ADDED", plural, kept)
        return kept

    def empty_secret(self, name: str) -> Object:
        """As deploy/rbac has it."""
        metadata = {"name": name, "namespace": "fettle-system"}
        return self.put("secrets", {"metadata": metadata, "type": "Opaque"})

    def remove(self, plural: str, key: str) -> Object:
        gone = copy.deepcopy(self.objects[plural].pop(key))
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._note("DELETED", plural, gone)
        return gone

    def bookmark(self, plural: str) -> None:
        self._note("BOOKMARK", plural, {"metadata": {"resourceVersion": str(self.version)}})

    def forget(self) -> None:
        """Compact: no watch can resume from an older version than now."""
        self._oldest = self.version
        self._log = []

    def verbs(self, plural: str) -> list[str]:
        """The verbs of requests for a resource, in order."""
        return [asked.verb for asked in self.asked if asked.target.plural == plural]

    def _note(self, type_: str, plural: str, thing: Object) -> None:
        self._log.append(_Change(self.version, type_, plural, copy.deepcopy(thing)))
        self.turn()

    def turn(self) -> None:
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    # answers

    async def _date(self, _: web.Request, response: web.StreamResponse) -> None:
        if self.clock is not None or self.date:
            date = formatdate(self.clock(), usegmt=True) if self.clock else self.date
            response.headers["Date"] = date

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        end = request.path.rpartition("/")[2]
        if end in self.pages:
            self.gave[end] += 1
            return web.Response(text=PAGE, content_type="text/html")
        if request.path == "/version":
            self.gave["version"] += 1
            return web.json_response({"gitVersion": self.git_version})
        target = _target(request.path)
        if (found := self._discovery(request.path)) is not None:
            return web.json_response(found)
        if target is None:
            return web.Response(status=404, text="404 page not found\n")
        verb = _verb(request, target)
        self.asked.append(Asked(verb, target, dict(request.query), _headers(request)))
        if self.answers_nothing or self._is_dead:
            await asyncio.Event().wait()
        await asyncio.sleep(self.answers_after_s)
        if self.overloaded:
            headers = {"Retry-After": self.overloaded}
            return web.Response(status=429, text="too many requests", headers=headers)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if self.token and (scheme.lower(), token) != ("bearer", self.token):
            return _status(401, "Unauthorized", "Unauthorized")
        if self.unserved & {target.plural, f"{target.version}/{target.plural}"}:
            return web.Response(status=404, text="404 page not found\n")
        if (verb, target.plural) in self.forbidden:
            return _status(403, "Forbidden", _forbidden(verb, target))
        if target.plural in ("tokenreviews", "subjectaccessreviews"):
            return web.json_response(self._reviewed((await request.json())["spec"]), status=201)
        if verb == "watch":
            return await self._watch(request, target.plural)
        if verb == "list":
            return self._list(request, target)
        response = await self._single(verb, request, target)
        self.written += verb != "get" and response.status < 300
        if verb in self.answers_lost or (self.loses_last and self._is_dead):
            await asyncio.Event().wait()
        return response

    @property
    def _is_dead(self) -> bool:
        return self.dies_after is not None and self.written >= self.dies_after

    def _discovery(self, path: str) -> Object | None:
        group, _, version = path.removeprefix("/apis/").partition("/")
        if version:
            resources = self.discovered.get(f"{group}/{version}")
            return None if resources is None else {"resources": resources}
        versions = [one.partition("/")[2] for one in self.discovered if one.startswith(f"{group}/")]
        return {"versions": [{"version": one} for one in versions]} if versions else None

    def _reviewed(self, spec: Object) -> Object:
        if "token" in spec:
            name = self.users.get(spec["token"])
            user = {"username": name, "groups": ["system:authenticated"]}
            known = {"authenticated": True, "user": user}
            return {"status": known if name else {"error": "invalid bearer token"}}
        right, user = spec["resourceAttributes"], spec["user"]
        asked = {(user, right["verb"], right["resource"], n) for n in ("", right["namespace"])}
        return {"status": {"allowed": user == "operator" or not asked.isdisjoint(self.granted)}}

    def _list(self, request: web.Request, target: Target) -> web.Response:
        things = sorted(self.objects.get(target.plural, {}).items())
        where = f"{target.namespace}/" if target.namespace else ""
        items = [copy.deepcopy(v) for key, v in things if key.startswith(where)]
        limit = int(request.query.get("limit", 0)) or len(items) or 1
        start = int(request.query.get("continue", 0))
        metadata: Object = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        page = items[start : start + limit] or None
        return web.json_response({"kind": "List", "metadata": metadata, "items": page})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        version = request.query.get("resourceVersion", "")
        asks_list = request.query.get("sendInitialEvents") == "true"
        if asks_list and not self.watch_list:
            text = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch"
            return _status(422, "Invalid", text)
        forgotten = self.forgets_at_once or (version and int(version) < self._oldest)
        expired = bool(version and forgotten)
        if expired and not self.expire_by_event:
            return _status(410, "Expired", "too old resource version")
        response = web.StreamResponse()
        await response.prepare(request)
        if self.ends_watches_at_once:
            return response
        self._watches.append(request)
        try:
            if expired:
                await _send(response, "ERROR", _status_body(410, "Expired", "too old"))
                return response
            seen = int(version) if version else await self._initial(response, plural, asks_list)
            if self.forgets_at_once:
                await _send(response, "ERROR", _status_body(410, "Expired", "too old"))
                return response
            await self._follow(response, plural, seen)
        finally:
            self._watches.remove(request)
        return response

    async def _initial(self, response: web.StreamResponse, plural: str, asks_list: bool) -> int:
        version = self.version
        for _, thing in sorted(self.objects.get(plural, {}).items()):
            await _send(response, "ADDED", thing)
        if asks_list and not self.accepts_but_ignores_watch_list and not self.silent:
            end = {"metadata": {"resourceVersion": str(version), "annotations": INITIAL_END}}
            await _send(response, "BOOKMARK", end)
        return version

    async def _follow(self, response: web.StreamResponse, plural: str, seen: int) -> None:
        position = 0
        while True:
            turned, log = self._turned, self._log
            if self.raw_event is not None:
                raw, self.raw_event = self.raw_event, None
                await response.write(raw)
            while position < len(log) and not self.silent:
                change, position = log[position], position + 1
                if change.plural == plural and (change.version > seen or change.type == "BOOKMARK"):
                    await _send(response, change.type, change.object)
            await turned.wait()
            if log is not self._log:
                position = 0
            if self.accepts_but_ignores_watch_list or self._runner is None:
                return

    async def _single(self, verb: str, request: web.Request, target: Target) -> web.Response:
        body: Any = await request.json() if request.can_read_body else None
        things = self.objects.setdefault(target.plural, {})
        if verb == "create":
            body["metadata"].setdefault("namespace", target.namespace)
            key = _key(body["metadata"])
            if request.query.get("dryRun"):
                return web.json_response(body, status=201)
            if key in things:
                return _status(409, "AlreadyExists", f'{target.plural} "{key}" already exists')
            if target.plural == "evictions":
                wanted = body["deleteOptions"]["preconditions"].get("resourceVersion")
                pod = self.objects.get("pods", {}).get(key)
                if wanted and pod and wanted != pod["metadata"]["resourceVersion"]:
                    return _status(409, "Conflict", "the object has been modified")
                self._end_pod(key)
            return web.json_response(self.put(target.plural, body), status=201)
        key = f"{target.namespace}/{target.name}" if target.namespace else target.name
        is_part = request.path.endswith("/status")
        if "apply" in request.content_type and not is_part:  # by one manager, with all its fields
            return web.json_response(self.put(target.plural, body))
        found = things.get(key)
        if found is None:
            text = f'{target.plural} "{target.name}" not found'
            return _status(404, "NotFound", text, {"name": target.name})
        if verb == "update":
            sent = body["metadata"].get("resourceVersion")
            if sent and sent != found["metadata"]["resourceVersion"]:
                return _status(409, "Conflict", "the object has been modified")
            found = self.put(target.plural, body)
        if verb == "delete":
            uid = ((body or {}).get("preconditions") or {}).get("uid")
            if uid and uid != found["metadata"].get("uid"):
                return _status(409, "Conflict", "the UID in the precondition is another one")
            found = self.remove(target.plural, key)
        if verb == "patch":
            sent = body.get("metadata", {}).get("resourceVersion")
            if sent and sent != found["metadata"]["resourceVersion"]:
                return _status(409, "Conflict", "the object has been modified")
            form = request.content_type
            by = "type" if "strategic" in form else "name" if "apply" in form else ""
            found = self.put(target.plural, _merged(found, body, by))
        return web.json_response(found)

    def _end_pod(self, key: str) -> None:
        """The pod is terminating from now on."""
        if (pod := self.objects.get("pods", {}).get(key)) is not None:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            ending = {"metadata": {"deletionTimestamp": now}}
            self.put("pods", _merged(pod, ending))


@asynccontextmanager
async def fake_api() -> AsyncIterator[FakeApi]:
    api = FakeApi()
    await api.start()
    try:
        yield api
    finally:
        await api.stop()


def _target(path: str) -> Target | None:
    parts = path.strip("/").split("/")
    if parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if len(rest) == 3 and rest[2] == "status":  # here a part of the whole
        rest = rest[:2]
    if len(rest) == 3 and rest[2] == "eviction":  # here an object of its own
        rest = ["evictions"]
    if not rest or len(rest) > 2:
        return None
    return Target(group, rest[0], namespace, rest[1] if len(rest) == 2 else "", version)


def _verb(request: web.Request, target: Target) -> str:
    if request.method == "GET" and not target.name:
        return "watch" if request.query.get("watch") == "true" else "list"
    verbs = {"POST": "create", "PUT": "update"}
    return verbs.get(request.method, request.method.lower())


async def _send(response: web.StreamResponse, type_: str, thing: Object) -> None:
    await response.write(json.dumps({"type": type_, "object": thing}).encode() + b"\n")


def _headers(request: web.Request) -> Mapping[str, str]:
    return {name: ",".join(request.headers.getall(name)) for name in request.headers}


def _status_body(
    code: int, reason: str, message: str, details: Object | None = None
) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details or {},
        "code": code,
    }


def _status(code: int, reason: str, message: str, details: Object | None = None) -> web.Response:
    return web.json_response(_status_body(code, reason, message, details), status=code)


def _forbidden(verb: str, target: Target) -> str:
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    what = target.plural + (f".{target.group}" if target.group else "")
    return (
        f'{what} is forbidden: User "{USER}" cannot {verb} resource "{target.plural}" '
        f'in API group "{target.group}" {where}'
    )


def _key(metadata: Object) -> str:
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata.get('name')}" if namespace else str(metadata.get("name"))


def _merged(into: Any, patch: Any, by: str = "") -> Any:
    """`by`: entries of lists are told apart by this, as conditions by their `type`; or by that."""
    if by and isinstance(patch, list):
        if patch and by not in patch[0]:
            by = "type"
        kept = {entry[by]: entry for entry in into or ()}
        for entry in patch:
            if entry.get("$patch") == "delete":
                kept.pop(entry[by], None)
            else:
                kept[entry[by]] = {**kept.get(entry[by], {}), **entry}
        return [*kept.values()]
    if not isinstance(patch, dict):
        return patch
    merged = dict(into) if isinstance(into, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value, by)
    return merged
