"""What ten open pages cost filter calls, on a fleet in which devices change.

Each page does what fettle/browse/page/main.js does: it listens, and asks for the headline and the
fleet whenever something is newer, and every two seconds. They are in a process of their own.
`python -m tests.bench.pages URL TOKEN` is that process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from tests.bench import calling, churn, fleets
from tests.bench.figures import Figure, compared
from tests.bench.houses import House
from tests.fettle.client.fake_api import OPERATOR

PAGES = 10
ROUNDS = 7
PER_S = 5.0
EVERY_S = 2.0
MOST = 2.0
"""How much longer the slowest calls may take meanwhile."""
OPEN_S = 3.0
"""After so long all pages have their first answer."""


async def measure(house: House) -> list[Figure]:
    without: list[calling.Outcome] = []
    beside: list[calling.Outcome] = []
    async with churn.told_fleet(house, 0) as (api, fettle):
        changing = asyncio.ensure_future(churn.go_on(api, PER_S, churn.change_slice))
        await churn.call_filter(house, fettle)
        for _ in range(ROUNDS):
            without.append(await churn.call_filter(house, fettle))
            async with _pages(fettle.browse_url):
                beside.append(await churn.call_filter(house, fettle))
        if changing.done():
            changing.result()
        changing.cancel()
    what = f"filter, {churn.NAMES} of {fleets.NODES} nodes, {PAGES} pages open"
    figures = []
    for name, most in (("p50", None), ("p99", MOST)):
        field = f"{name}_ms"
        ours, alone = compared(*([getattr(o, field) for o in each] for each in (beside, without)))
        figures.append(Figure(f"{what}, {name}", ours, "ms", alone, most and most * alone))
    return figures


@asynccontextmanager
async def _pages(url: str) -> AsyncIterator[None]:
    token = OPERATOR["Authorization"].removeprefix("Bearer ")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.pages", url, token), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            said = await process.stdout.readline()
        if said.strip() != b"open":
            raise calling.CallFailed("the pages cannot be opened")
        yield
        if process.returncode is not None:
            raise calling.CallFailed("the pages were closed")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _be_pages(url: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(url, headers=headers) as client,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(PAGES):
            news = asyncio.Event()
            group.create_task(_listen(client, news))
            group.create_task(_ask(client, news))
        await asyncio.sleep(OPEN_S)
        print("open", flush=True)


async def _listen(client: aiohttp.ClientSession, news: asyncio.Event) -> None:
    while True:
        async with client.get("/changes", timeout=aiohttp.ClientTimeout()) as reply:
            reply.raise_for_status()
            async for _ in reply.content.iter_any():
                news.set()


async def _ask(client: aiohttp.ClientSession, news: asyncio.Event) -> None:
    tag = ""
    while True:
        news.clear()
        await _json(client, "/headline", {})
        tag = (await _json(client, "/fleet", {"tag": tag} if tag else {}))["tag"]
        with suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await news.wait()


async def _json(client: aiohttp.ClientSession, path: str, query: dict[str, str]) -> Any:
    async with client.get(path, params=query) as reply:
        reply.raise_for_status()
        return await reply.json()


if __name__ == "__main__":
    asyncio.run(_be_pages(*sys.argv[1:]))
