"""The pictures of docs/page.md: each view of the page, of the demo's fleet, taken by a browser.

`python -m tests.browser.pictures` makes them again in docs/pictures.
"""

import asyncio
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from fettle.cli.demo import story
from fettle.cli.demo.past import FleetPast
from fettle.cli.demo.served import Served
from tests.browser.chromium import Tab, browser

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDE, HIGH = 1000, 620
DEVICE = "hgx-05/nvidia.com/gpu/GPU-05d9a1c0-77a3-4f0b-8a67-5c1f4e0a9b44"
LARGEST = 120_000
"""Bytes of one picture."""
WITHIN_S, SETTLES_S = 30.0, 3.0
VIEWS = {
    "fleet": ("fleet", "canvas"),
    "why": ("why", "table"),
    "waiting": ("waiting", "table"),
    "risk": ("risk", "table"),
    "report": ("report", "main h2, main h3"),
    "node": ("node/hgx-04", "svg.chart"),
    "device": (f"device/{quote(DEVICE, safe='')}", "svg.chart"),
    "pod": ("pod/ml/llm-0", "table"),
}
"""By the name of the picture: the view, and what is there once it is drawn."""


async def take(tab: Tab, url: str, folder: Path) -> list[Path]:
    """A picture of each view, and one of the fleet in the dark scheme."""
    await tab.look(WIDE, HIGH)
    await tab.go(url)
    await tab.until("performance.getEntriesByName('fleet-drawn').length")
    taken = []
    for name, (path, drawn) in VIEWS.items():
        await tab.value(f"location.hash = '#/{path}'")
        await tab.until(f"document.querySelector({drawn!r})")
        taken.append(await _picture(tab, folder / f"page-{name}.png"))
    await tab.look(WIDE, HIGH, dark=True)
    await tab.go("about:blank")
    await tab.go(url)
    await tab.until("performance.getEntriesByName('fleet-drawn').length")
    return [*taken, await _picture(tab, folder / "page-fleet-dark.png")]


async def _picture(tab: Tab, file: Path) -> Path:
    await tab.value("new Promise((done) => setTimeout(done, 300))")
    await tab.picture(file)
    return file


def _live(served: Served, snapshot: Path, now: datetime) -> None:
    """Pods run, one waits, and a node that some of them run on loses a GPU."""
    story.lose_gpu(snapshot, story.BREAKING, now)
    until = time.monotonic() + WITHIN_S
    eight = story.waiting()
    while story.BREAKING not in served.filter(eight, [story.BREAKING]):
        assert time.monotonic() < until
        time.sleep(0.1)
    roomy = story.schedule(served, snapshot, now - timedelta(hours=1))
    story.play(snapshot, 0, now)
    time.sleep(SETTLES_S)
    served.filter(eight, roomy)


async def take_all(folder: Path) -> list[Path]:
    """Of a demo of its own, in which schedulers have asked about some pods."""
    with tempfile.TemporaryDirectory() as scratch:
        snapshot = Path(scratch, "snapshot")
        snapshot.mkdir()
        now = datetime.now(UTC)
        story.write(snapshot, now)
        FleetPast(snapshot, now, {}).write()
        with Served(snapshot, Path(scratch, "log")) as served:
            await asyncio.to_thread(_live, served, snapshot, now)
            async with browser(Path(scratch, "browser")) as tab:
                return await take(tab, served.browse, folder)


if __name__ == "__main__":
    for each in asyncio.run(take_all(FOLDER)):
        print(f"{each.relative_to(Path.cwd())}: {each.stat().st_size} bytes")
