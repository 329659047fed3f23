"""What makes the process unready, whatever the wall clock does."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fettle.cluster import Inventory, Publisher, SourceStatus
from fettle.cluster.feeds import SnapshotFeed, Writer
from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules
from fettle.serve.readiness import Readiness
from tests.fettle.cluster.feeds.manifests import node, write

RULES = load_rules()
HOUR_S = 3600.0


def step_the_wall_clock(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + by_s)


@pytest.fixture
async def publisher(tmp_path: Path) -> AsyncIterator[Publisher]:
    """Of a folder that is read all the time, with its first view."""
    write(tmp_path / "nodes.yaml", node("a"))
    made = Publisher()
    inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
    writer = Writer(inventory, made, lambda: time.time())
    feed = SnapshotFeed(tmp_path, poll_s=0.01)
    tasks = [asyncio.create_task(work) for work in (writer.run(), feed.run(writer))]
    async with asyncio.timeout(20):
        await made.newer_than(0)
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def silent(readiness: Readiness) -> str:
    """What is said once a source counts as silent."""
    async with asyncio.timeout(20):
        while "silent" not in (said := readiness.problem()):
            await asyncio.sleep(0.01)
    return said


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
async def test_a_step_of_the_wall_clock_makes_no_source_silent(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    step_the_wall_clock(monkeypatch, by_s)
    assert Readiness(publisher, silent_after_s=60).problem() == ""


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
async def test_a_source_that_falls_silent_after_a_step_is_told_in_time(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    step_the_wall_clock(monkeypatch, by_s)
    shutil.rmtree(tmp_path)
    assert "silent for more than 0.2 s" in await silent(Readiness(publisher, silent_after_s=0.2))


def test_synced_sources_are_not_enough_before_a_view_shows_them() -> None:
    publisher = Publisher()
    contact = time.monotonic()
    publisher.sources["Node"] = SourceStatus("Node", synced=True, served=True, contact_at=contact)
    assert Readiness(publisher, silent_after_s=60).problem() == "the first view is being built"
