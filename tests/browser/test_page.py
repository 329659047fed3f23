"""The page in a real browser."""

from pathlib import Path

import pytest

from tests.browser.chromium import Tab, needs_chromium
from tests.browser.conftest import PICTURES, Shown

pytestmark = [needs_chromium, pytest.mark.long]
DRAWN = "performance.getEntriesByName('fleet-drawn').length"
INK = """(() => { const canvas = document.querySelector('.scroller canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set(); for (let i = 0; i < data.length; i += 4)
    if (data[i + 3] === 255) found.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
  return [...found]; })()"""
"""The colours on the canvas."""
UNHEALTHY, HEALTHY = "183,51,11", "169,203,230"


async def is_unharmed(tab: Tab) -> None:
    """Nothing that a tenant wrote ran, became an element, or was even tried."""
    assert await tab.value("window.__ran") == []
    assert await tab.value("window.__violations") == []
    assert (
        await tab.value("document.querySelectorAll('img, iframe, object, main script').length") == 0
    )
    assert tab.complaints == []


async def keep(tab: Tab, name: str) -> None:
    if PICTURES:
        await tab.picture(Path(PICTURES, f"{name}.png"))


async def opened(tab: Tab, shown: Shown) -> None:
    await tab.go(shown.url)
    await tab.until(DRAWN)


async def test_the_fleet_is_drawn_with_its_headline_by_the_token_of_the_url(
    shown: Shown, tab: Tab
) -> None:
    await opened(tab, shown)
    assert await tab.value("location.hash") == "#/fleet"
    told = " ".join((await tab.text("#headline")).split())
    assert "devices bad" in told
    assert "1 pods at risk" in told
    assert "2 pods wait for health" in told
    assert "last asked: filter 3 s ago" in told
    colours: list[str] = await tab.value(INK)
    assert {UNHEALTHY, HEALTHY} <= {*colours}
    await keep(tab, "fleet")
    await is_unharmed(tab)
