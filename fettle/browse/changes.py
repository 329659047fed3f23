"""Tells an open page that there is a newer view, as server-sent events: `/changes`. An event has no
more than the number of the view. What is in it the page asks for, as anybody does.
"""

import asyncio
import random

from aiohttp import web

from fettle.browse.access import Access, refusal
from fettle.browse.known import Known
from fettle.browse.reviews import NotShown

MOST_LISTENERS = 64
LASTS_S = 60.0
"""Then it ends, and whoever goes on listening is looked at anew: a right may have ended."""
REST_S = 1.0
"""Views that follow each other closely are one event: each makes a page ask."""
WRITES_S = 10.0
"""How long an event may wait for a reader that takes nothing. Nothing else is kept for it."""
_FULL = f"{MOST_LISTENERS} pages are told of changes already: ask again every few seconds"


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
