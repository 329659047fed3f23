"""What serves the page: its files, for everybody, since they hold no data; that there is a newer
view, as server-sent events (`/changes`); and what it says first (`/headline`): mode, breakers, who
asks, and which pods wait.

What the files show, they ask for as anybody else does. An event has no more than the number of the
view: what is in it the page asks for, too.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from aiohttp import web

from fettle.api import core
from fettle.browse.access import DEVICES, Access, Viewer, refusal
from fettle.browse.known import Known, Query, as_json
from fettle.browse.reviews import NotShown
from fettle.cluster import readiness
from fettle.explain import JSON_VERSION, WITHHELD, describe_modes, plain_reason
from fettle.model import NO_SETTINGS, Mode
from fettle.pacing import pause, run_within
from fettle.records import Decided, Decision, wordless
from fettle.scheduling import resolve_policy

FOLDER = "page"
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""What a browser lets the page do. Text that a tenant wrote is shown there, so nothing that is
written into the page may ever run."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
MOST_LISTENERS = 64
LASTS_S = 60.0
"""Then it ends, and whoever goes on listening is looked at anew: a right may have ended."""
REST_S = 0.1
"""Views that follow each other closely are one event: each makes a page ask. So long a page may be
behind, beside what its answer takes."""
WRITES_S = 10.0
"""How long an event may wait for a reader that takes nothing. Nothing else is kept for it."""
_FULL = f"{MOST_LISTENERS} pages are told of changes already: ask again every few seconds"
MOST_WAITING = 500
"""Pods that wait in one answer, those that waited longest."""


class PageFile(NamedTuple):
    """`tag` changes with the content."""

    content: bytes
    type: str
    tag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """By the path that they are served at."""
    found = {}
    for file in resources.files("fettle.browse").joinpath(FOLDER).iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in TYPES:
            content = file.read_bytes()
            tag = hashlib.sha256(content).hexdigest()[:16]
            path = "/" if file.name == INDEX else f"/{FOLDER}/{file.name}"
            found[path] = PageFile(content, TYPES[suffix], tag)
    return found


async def page_file(request: web.Request) -> web.Response:
    """One of them."""
    file = page_files()[request.path]
    headers = HEADERS | {"ETag": f'"{file.tag}"'}
    if any(one.value == file.tag for one in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    return web.Response(body=file.content, content_type=file.type, charset="utf-8", headers=headers)


class ChangeHandlers:
    def __init__(self, known: Known, access: Access, most: int = MOST_LISTENERS) -> None:
        self._known = known
        self._access = access
        self._most = most
        self._listeners = 0
        self._stopping = asyncio.Event()

    async def stop(self, _app: web.Application) -> None:
        self._stopping.set()

    async def changes(self, request: web.Request) -> web.StreamResponse:
        try:
            await self._access(request)
            if self._listeners >= self._most:
                raise NotShown(503, _FULL)
        except NotShown as refused:
            return refusal(refused)
        self._listeners += 1
        try:
            return await self._tell(request)
        finally:
            self._listeners -= 1

    async def _tell(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        until = loop.time() + LASTS_S * random.uniform(0.8, 1.0)  # noqa: S311 (jitter is no secret)
        publisher = self._known.answers.publisher
        seen = publisher.view.generation
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while loop.time() < until and not self._stopping.is_set():
                newer = asyncio.create_task(publisher.newer_than(seen, until))
                await asyncio.wait((newer, stopping), return_when=asyncio.FIRST_COMPLETED)
                newer.cancel()
                if publisher.view.generation <= seen:
                    break
                seen = publisher.view.generation
                async with asyncio.timeout(WRITES_S):
                    await response.write(b"data: %d\n\n" % seen)
                await asyncio.wait((stopping,), timeout=REST_S)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            stopping.cancel()
        return response


class HeadlineHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._unplaced: tuple[int, Sequence[core.Pod]] = (-1, ())

    async def headline(self, _query: Query, viewer: Viewer) -> web.Response:
        """The pods with devices that have no node, each with what was last said of it, and how many
        pods are where their policy refuses; of the namespaces that the viewer may see. Whoever may
        see devices is told of modes, breakers and who asks, too."""
        known, answers = self._known, self._known.answers
        view = answers.view
        if self._unplaced[0] != view.generation:
            found = await run_within(lambda: _unplaced(view.pods.values()))
            self._unplaced = view.generation, found
        at_risk = await known.pods.at_risk.current()
        risky = [one.pod.metadata.namespace for one in at_risk.values() if one.at_risk]
        unplaced = self._unplaced[1]
        shown = await viewer.shown({*risky, *(pod.metadata.namespace for pod in unplaced)})
        waiting = [pod for pod in unplaced if pod.metadata.namespace in shown]
        sees_devices = await viewer.may(DEVICES)
        rows = await run_within(lambda: [*map(self._waiting, waiting[:MOST_WAITING])])
        told: dict[str, Any] = {
            "version": JSON_VERSION,
            "generation": view.generation,
            "now": time.time(),
            "notes": [] if sees_devices else [WITHHELD],
            "waiting": rows if sees_devices else [_wordless(row) for row in rows],
            "waitingTotal": len(waiting),
            "atRisk": sum(namespace in shown for namespace in risky),
        }
        if sees_devices:
            modes = describe_modes(view, answers.policies)
            is_known = answers.policies.mode_origin != NO_SETTINGS
            told |= {
                "mode": str(answers.policies.mode) if is_known else "not known",
                "modes": modes,
                "setAside": [*map(plain_reason, answers.set_aside())],
                "problems": [*([] if is_known else modes[:1]), *known.unready()],
                "unseen": readiness.unseen(answers.publisher.sources.values()),
                "roles": sorted(known.roles),
                "asked": {role: last.ages_s() for role, last in known.last_requests().items()},
                "callers": known.caller_notes(),
                "quarantined": len(view.quarantined),
            }
        return as_json(told)

    def _waiting(self, pod: core.Pod) -> dict[str, Any]:
        pause()
        answers, recorder = self._known.answers, self._known.recorder
        resolved = resolve_policy(pod, answers.view, answers.policies)
        said = recorder.of_pod(pod.metadata.uid) if recorder is not None else None
        created = pod.metadata.creation_timestamp
        return {
            "pod": pod.metadata.key,
            "policy": resolved.policy.name,
            "mode": str(resolved.mode.mode),
            "since": created.timestamp() if created is not None else None,
            "scheduler": pod.scheduler_name,
            "gates": list(pod.scheduling_gates),
            "refused": said is not None and said.decided is Decided.REFUSED,
            "enforced": resolved.mode.mode is Mode.ENFORCE,
            "said": said,
        }


def _unplaced(pods: Iterable[core.Pod]) -> Sequence[core.Pod]:
    """Pods without a node, the oldest first."""
    found = []
    for pod in pods:
        if not pod.node_name and not pod.terminal:
            found.append(pod)
        pause()
    return sorted(found, key=_age)


def _age(pod: core.Pod) -> tuple[float, str]:
    created = pod.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0), pod.metadata.key


def _wordless(row: dict[str, Any]) -> dict[str, Any]:
    said = row["said"]
    return {**row, "said": wordless(said) if isinstance(said, Decision) else None}
