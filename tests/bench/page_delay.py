"""How far an open page is behind the view of the big fleet: from when a view is published until the
page has an answer that shows it.

The page does what `fettle/browse/page/main.js` does, in the same process; what its browser takes to
draw is not in it (`tests/browser` has that).
"""

from __future__ import annotations

import asyncio
import time
from statistics import median

import aiohttp
import msgspec

from fettle.browse import make_browse_app, trusting
from fettle.cel import SelectorEngine
from fettle.cluster import Publisher
from fettle.config import ListenAddress, Settings
from fettle.scheduling import Answers
from fettle.serve.listening import AppListener
from tests.bench import fleets, inventories
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.controlplane.processes import free_port
from tests.fettle.browse.showing import known

MOST_MS = 100.0
CHANGES = 40
QUIET_S = 2.5
PER_S = 5.0
EVERY_S = 2.0
OPENS_WITHIN_S = 60.0


class _Told(msgspec.Struct):
    """As much of the answer as is looked at."""

    tag: str
    generation: int = 0


class _Changing:
    """A fleet in which one node after the other changes. `at`: by view, when it was published."""

    def __init__(self) -> None:
        self.publisher = Publisher()
        view = inventories.view(inventories.of_models(4))
        self._names = sorted(view.nodes)
        self.at: dict[int, float] = {}
        self.publisher.publish(
            msgspec.structs.replace(view, generation=view.generation + 1), frozenset()
        )

    def change(self) -> None:
        view = self.publisher.view
        number = view.generation + 1
        node = view.nodes[self._names[number % len(self._names)]]
        health = msgspec.structs.replace(node.health, since=float(number))
        changed = msgspec.structs.replace(node, health=health)
        newer = msgspec.structs.replace(
            view,
            generation=number,
            basis=view.basis + 1,
            nodes={**view.nodes, node.name: changed},
        )
        self.publisher.publish(newer, frozenset((node.name,)))
        self.at[number] = time.monotonic()


class _Page:
    def __init__(self, url: str, changing: _Changing) -> None:
        self._url, self._changing = url, changing
        self._news, self.opened = asyncio.Event(), asyncio.Event()
        self._shown = 0
        self.behind_ms: list[float] = []

    async def run(self) -> None:
        async with aiohttp.ClientSession(self._url) as client, asyncio.TaskGroup() as group:
            group.create_task(self._listen(client))
            group.create_task(self._ask(client))

    async def _listen(self, client: aiohttp.ClientSession) -> None:
        while True:
            async with client.get("/changes", timeout=aiohttp.ClientTimeout()) as reply:
                async for _ in reply.content.iter_any():
                    self._news.set()

    async def _ask(self, client: aiohttp.ClientSession) -> None:
        tag = ""
        while True:
            self._news.clear()
            async with client.get("/headline") as reply:
                await reply.read()
            async with client.get("/fleet", params={"tag": tag} if tag else {}) as reply:
                body = await reply.read()
            now, told = time.monotonic(), msgspec.json.decode(body, type=_Told)
            tag = told.tag
            for number in range(self._shown + 1, told.generation + 1):
                if (published := self._changing.at.get(number)) is not None:
                    self.behind_ms.append(1e3 * (now - published))
                self._shown = number
            self.opened.set()
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._news.wait()
            except TimeoutError:
                pass


async def measure(_house: House) -> list[Figure]:
    changing, port = _Changing(), free_port()
    shown = known(Answers(changing.publisher, SelectorEngine(), Settings()))
    app = make_browse_app(shown, trusting)
    listener = AppListener("browse", ListenAddress("127.0.0.1", port), None, app)
    await listener.start()
    page = _Page(f"http://127.0.0.1:{port}", changing)
    running = asyncio.create_task(page.run())
    figures = []
    try:
        async with asyncio.timeout(OPENS_WITHIN_S):
            await page.opened.wait()
        await asyncio.sleep(QUIET_S)
        for what, number, pause_s in (
            ("a change after a quiet time", CHANGES // 4, QUIET_S),
            (f"{PER_S:g} changes a second", CHANGES, 1 / PER_S),
        ):
            page.behind_ms.clear()
            for _ in range(number):
                changing.change()
                await asyncio.sleep(pause_s)
            await asyncio.sleep(QUIET_S)
            behind = f"a page of {fleets.NODES} nodes is behind the view, {what}"
            figures.append(Figure(f"{behind}, p50", median(page.behind_ms), "ms", target=MOST_MS))
            figures.append(Figure(f"{behind}, longest", max(page.behind_ms), "ms"))
    finally:
        running.cancel()
        await asyncio.wait((running,))
        await listener.stop()
    return figures
