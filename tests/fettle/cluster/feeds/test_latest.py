"""Whoever must know what the cluster has told by now has it in a view at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fettle.api import Contact, kinds
from fettle.client import Session, Streams, reflecting
from fettle.cluster import Inventory, Publisher
from fettle.cluster.feeds import latest, writing
from fettle.cluster.feeds.cluster import ClusterFeed
from fettle.cluster.feeds.latest import FeedFreshness
from fettle.cluster.feeds.writing import Writer
from fettle.config import HealthSettings
from fettle.health import HealthBook, rules
from tests.fettle.client.fake_api import FakeApi, fake_api

RULES = rules.load()


class House:
    """A writer that follows a cluster, in no hurry at all."""

    def __init__(self, api: FakeApi, session: Session) -> None:
        self.api = api
        self.publisher = Publisher()
        inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
        self.writer = Writer(inventory, self.publisher)
        self.latest = FeedFreshness(session.streams, self.writer)

    @property
    def nodes(self) -> set[str]:
        return set(self.publisher.view.nodes)

    async def come(self, name: str) -> None:
        """A node comes, and has arrived."""
        self.api.put("nodes", node(name))
        async with asyncio.timeout(20):
            while not self.latest.behind:
                await asyncio.sleep(0.001)


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        api.put("nodes", node("first"))
        made = House(api, session)
        work = made.writer.run(), ClusterFeed(session).run(made.writer)
        tasks = [asyncio.create_task(each) for each in work]
        async with asyncio.timeout(20):
            while "first" not in made.nodes or made.latest.behind:
                await asyncio.sleep(0.01)
        monkeypatch.setattr(reflecting, "GATHER_S", 600.0)
        monkeypatch.setattr(writing, "PUBLISH_EVERY_S", 600.0)
        monkeypatch.setattr(latest, "WITHIN_S", 20.0)
        await made.come("last at once")
        await made.latest.catch_up()
        yield made
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_what_has_come_is_shown_at_once_to_who_asks(house: House) -> None:
    for number in range(5):
        await house.come(f"n{number}")
        await asyncio.sleep(0.02)
        assert f"n{number}" not in house.nodes
        await house.latest.catch_up()
        assert f"n{number}" in house.nodes
        assert not house.latest.behind


async def test_many_who_ask_at_the_same_time_all_have_it(house: House) -> None:
    async def ask() -> None:
        await house.latest.catch_up()
        assert "second" in house.nodes

    await house.come("second")
    await asyncio.gather(*(ask() for _ in range(20)))


async def test_nobody_waits_for_ever(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
    stuck = Writer(inventory, Publisher())  # nobody runs it
    await stuck.send([Contact(kinds.NODE)])
    monkeypatch.setattr(latest, "WITHIN_S", 0.01)
    behind = FeedFreshness(Streams(), stuck)
    assert behind.behind
    async with asyncio.timeout(20):
        await behind.catch_up()
    assert behind.behind
