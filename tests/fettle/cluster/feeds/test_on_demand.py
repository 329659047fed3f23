"""Kinds that are read only if the settings name them."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fettle.api import Change, Contact, Gone, ListEnded, ListStarted, Lost, Put, Unserved, kinds
from fettle.cluster import Inventory, Publisher, View, readiness
from fettle.cluster.feeds.snapshot import SnapshotFeed
from fettle.cluster.feeds.writer import Writer
from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules

RULES = load_rules()
QUOTA = b'{"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {"x": "2"}}}'
DOMAIN = b'{"metadata": {"name": "d", "namespace": "team", "uid": "u"}}'


class Writing:
    """A writer with both kinds on demand, and all other kinds."""

    def __init__(self) -> None:
        self.publisher = Publisher()
        watched = kinds.read_with(("ResourceQuota", "ComputeDomain"))
        inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
        self.writer = Writer(inventory, self.publisher, lambda: 0.0, watched)

    async def view(self) -> View:
        for kind in kinds.KINDS:
            await self.writer.send([ListStarted(kind), ListEnded(kind)])
        async with asyncio.timeout(20):
            return await self.publisher.newer_than(0)

    async def newer(self, view: View) -> View:
        async with asyncio.timeout(20):
            return await self.publisher.newer_than(view.generation)


@pytest.fixture
async def writing() -> AsyncIterator[Writing]:
    made = Writing()
    task = asyncio.create_task(made.writer.run())
    yield made
    task.cancel()


async def test_readiness_does_not_wait_for_kinds_on_demand(writing: Writing) -> None:
    await writing.writer.send([Lost(kinds.QUOTA, "forbidden")])
    view = await writing.view()
    assert view.synced
    assert (view.quotas, view.compute_domains) == (None, None)
    sources, now = writing.publisher.sources.values(), time.monotonic()
    assert readiness.problems(sources, now, 150.0) == []
    assert "ResourceQuota: not synced forbidden" in readiness.report(sources, now)


async def test_objects_of_kinds_on_demand_are_in_the_views(writing: Writing) -> None:
    view = await writing.view()
    quota = Put(kinds.QUOTA, kinds.QUOTA.decode(QUOTA))
    domain = Put(kinds.COMPUTE_DOMAIN, kinds.COMPUTE_DOMAIN.decode(DOMAIN))
    for put in (quota, domain):
        await writing.writer.send([ListStarted(put.kind), put, ListEnded(put.kind)])
        view = await writing.newer(view)
    while view.compute_domains is None:
        view = await writing.newer(view)
    assert view.quotas is not None
    assert [quota.metadata.name for quota in view.quotas["team"]] == ["q"]
    assert list(view.compute_domains) == ["u"]
    basis = view.basis
    await writing.writer.send([Gone(kinds.QUOTA, "team/q")])
    view = await writing.newer(view)
    assert (view.quotas, view.basis) == ({}, basis)


async def test_a_kind_on_demand_that_is_not_served_is_unknown(writing: Writing) -> None:
    await writing.writer.send([Unserved(kinds.COMPUTE_DOMAIN, "404")])
    assert (await writing.view()).compute_domains is None


async def test_a_snapshot_sends_kinds_on_demand_only_if_asked_to(tmp_path: Path) -> None:
    head = b"apiVersion: resource.nvidia.com/v1beta1\nkind: ComputeDomain\n"
    (tmp_path / "domains.yaml").write_bytes(head + b"metadata: {name: d, uid: u}\n")
    for asked_for, told in ((("ComputeDomain",), 1), ((), 0)):
        sink = Noting()
        feed = SnapshotFeed(tmp_path, kinds=kinds.read_with(asked_for))
        task = asyncio.create_task(feed.run(sink))
        async with asyncio.timeout(20):
            await sink.listed.wait()
        task.cancel()
        assert len(sink.puts) == told


class Noting:
    """A sink that keeps which objects were sent."""

    def __init__(self) -> None:
        self.puts: list[Put] = []
        self.listed = asyncio.Event()

    async def send(self, changes: list[Change]) -> None:
        self.puts += [change for change in changes if isinstance(change, Put)]
        if any(isinstance(change, Contact) for change in changes):
            self.listed.set()
