"""Probes and metrics, for everybody."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from fettle.browse.known import Known, as_json
from fettle.client import DENIED
from fettle.cluster import View, readiness
from fettle.explain import describe_modes, texts
from fettle.pacing import pause, run_within


class Probes:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._exposition = Exposition(known.registry)

    async def livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request, nameless: str = "") -> web.Response:
        """200 once the view is complete and fresh, else 503. ?verbose: for each source, with names
        of objects unless it must be `nameless`, and why. It is answered whoever asks."""
        now = time.monotonic()
        sources = self._known.answers.publisher.sources.values()
        found = self._known.problems()
        lines = ["not ready: " + p for p in dict.fromkeys(found)] or ["ok"]
        if "verbose" in request.query:
            lines += readiness.report(sources, now)
            lines += [*_counts(self._known.answers.view), nameless] if nameless else self._details()
        text = "".join(f"{line}\n" for line in lines)
        # Names of files need not be text.
        body = text.encode(errors="backslashreplace")
        return web.Response(
            body=body, content_type="text/plain", charset="utf-8", status=503 if found else 200
        )

    async def setup(self, _request: web.Request) -> web.Response:
        """What whoever installs it waits for: the roles, why they are not ready, whether they were
        asked, and how many sentences about rights that are missing `/readyz?verbose` has. It is
        answered whoever asks."""
        known = self._known
        sources = known.answers.publisher.sources.values()
        said = [*readiness.report(sources, time.monotonic()), *known.notes()]
        return as_json(
            {
                "roles": sorted(known.roles),
                # Names of files need not be text.
                "problems": [
                    why.encode(errors="backslashreplace").decode()
                    for why in dict.fromkeys(known.problems())
                ],
                "asked": {role: False for role in known.roles if role != "steward"}
                | {role: last.was_called for role, last in known.last_requests().items()},
                "denied": sum(DENIED in text for text in said),
            }
        )

    def _details(self) -> list[str]:
        """What may name objects."""
        quarantined = self._known.answers.view.quarantined.values()
        modes = describe_modes(self._known.answers.view, self._known.answers.policies)
        return [
            *texts(self._known.answers.set_aside()),
            *modes,
            *(f"quarantined: {text}" for text in quarantined),
            *(
                f"too long to be read whole: {source.cut} of {source.name}, the latest {last}"
                for source in self._known.answers.publisher.sources.values()
                if (last := source.last_cut)
            ),
            *self._known.notes(),
        ]

    async def metrics(self, _request: web.Request) -> web.Response:
        text = await self._exposition.text()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _counts(view: View) -> list[str]:
    """How many objects of each kind cannot be read."""
    kinds = Counter(key.partition(" ")[0] for key in view.quarantined)
    return [f"quarantined: {count} {kind}" for kind, count in sorted(kinds.items())]


class Exposition:
    """The text of `/metrics`. Everybody may ask for it, as often as they like, so one is made at a
    time, in time slices, for all who wait for one, and they are answered one after the other. It is
    made of what is counted once it is asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = _Paused(registry)
        self._making = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None
        self._answering = asyncio.Lock()

    async def text(self) -> bytes:
        if self._next is None:
            self._next = asyncio.create_task(self._make())
        text = await asyncio.shield(self._next)
        async with self._answering:
            await asyncio.sleep(0)
        return text

    async def _make(self) -> bytes:
        async with self._making:
            self._next = None  # whoever asks from here on may miss what was counted before
            return await run_within(lambda: generate_latest(self._registry))


class _Paused(Collector):
    """Others have their turn between two metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            yield metric
            pause()
