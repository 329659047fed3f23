"""The pictures of docs/page.md: each view of the page, of the demo's fleet, taken by a browser.

`python -m tests.browser.pictures` makes them again in docs/pictures.
"""

import asyncio
import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from fettle.api.meta import rfc3339
from fettle.cli.demo import story
from fettle.cli.demo.served import Served
from tests.browser.chromium import Tab, browser

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDE, HIGH = 1000, 620
LARGEST = 120_000
"""Bytes of one picture."""
VIEWS = {
    "fleet": ("fleet", "canvas"),
    "why": ("why", "table"),
    "waiting": ("waiting", "table"),
    "risk": ("risk", "table"),
    "report": ("report", "main h2, main h3"),
    "node": ("node/hgx-05", "svg.chart"),
    "device": (f"device/{quote('gpu.nvidia.com/dra-02/gpu-0', safe='')}", "svg.chart"),
    "pod": ("pod/ml/training-plugin", "table"),
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


def _an_hour_ago() -> str:
    return rfc3339(datetime.now(UTC) - timedelta(hours=1))


async def take_all(folder: Path) -> list[Path]:
    """Of a demo of its own, in which schedulers have asked about some pods."""
    with tempfile.TemporaryDirectory() as scratch:
        snapshot = Path(scratch, "snapshot")
        snapshot.mkdir()
        story.write(snapshot, datetime.now(UTC))
        waiting = story.plugin_pod("training", 8)
        waiting["metadata"] |= {
            "name": "llm-0",
            "uid": "llm-0",
            "creationTimestamp": _an_hour_ago(),
        }
        (snapshot / "waiting.yaml").write_text(json.dumps(waiting))
        with Served(snapshot, Path(scratch, "log")) as served:
            nodes = [f"hgx-0{number}" for number in range(1, 8)]
            for policy in story.POLICIES:
                pod = story.plugin_pod(policy, 4 if policy == "training" else 1)
                await asyncio.to_thread(served.filter, pod, nodes)
                await asyncio.to_thread(served.prioritize, pod, nodes)
            await asyncio.to_thread(served.filter, waiting, ["hgx-03", "hgx-04", "hgx-05"])
            async with browser(Path(scratch, "browser")) as tab:
                return await take(tab, served.browse, folder)


if __name__ == "__main__":
    for each in asyncio.run(take_all(FOLDER)):
        print(f"{each.relative_to(Path.cwd())}: {each.stat().st_size} bytes")
