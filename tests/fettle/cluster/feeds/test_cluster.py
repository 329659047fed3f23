"""Reading a cluster, and waiting for a view that shows what it has sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fettle.api import Change, Contact, ListEnded, Lost, Unserved, kinds
from fettle.api.kinds import KINDS, NODE
from fettle.client import Session, Streams, reflector
from fettle.cluster import Inventory, Publisher
from fettle.cluster.feeds import cluster, writer
from fettle.cluster.feeds.cluster import ClusterFeed, FeedFreshness, read_once
from fettle.cluster.feeds.workloads import WorkloadFeed
from fettle.cluster.feeds.writer import Writer
from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules
from fettle.model import Forbidden, NotServed, Unauthorized
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.cluster.feeds.recorder import Recorder


@asynccontextmanager
async def feeding(folder: Path, recorder: Recorder, api: FakeApi) -> AsyncIterator[None]:
    async with await Session.open(api.kubeconfig(folder)) as session:
        feed = ClusterFeed(session)
        task = asyncio.create_task(feed.run(recorder))
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_every_kind_is_followed_by_itself(tmp_path: Path) -> None:
    recorder = Recorder()
    async with fake_api() as api, feeding(tmp_path, recorder, api):
        await recorder.until(lambda r: len(r.synced) == len(KINDS))
        api.put("pods", {"metadata": {"name": "p", "namespace": "ns"}})
        api.put("namespaces", {"metadata": {"name": "ns"}})
        await recorder.until(lambda r: r.names("Pod") == {"ns/p"})
        await recorder.until(lambda r: r.names("Namespace") == {"ns"})


async def test_of_a_cluster_without_dra_the_other_kinds_are_read(tmp_path: Path) -> None:
    recorder = Recorder()
    absent = {kind.name for kind in KINDS if kind.optional}
    async with fake_api() as api:
        api.unserved = {kind.plural for kind in KINDS if kind.optional}
        async with feeding(tmp_path, recorder, api):
            await recorder.until(lambda r: r.synced == {k.name for k in KINDS} - absent)
            await recorder.until(lambda r: all(r.count(Unserved, name) for name in absent))
            assert recorder.count(Lost, "Node") == 0


async def test_what_is_remembered_is_read_before_what_is_now(tmp_path: Path) -> None:
    recorder = Recorder()
    async with fake_api() as api:
        api.put("nodes", {"metadata": {"name": "n"}})
        api.put("devicehealths", {"metadata": {"name": "n"}})
        async with feeding(tmp_path, recorder, api):
            await recorder.until(lambda r: r.names("Node") == {"n"})
    first = next(i for i, c in enumerate(recorder.changes) if c.kind is not kinds.DEVICE_HEALTH)
    assert any(isinstance(c, ListEnded) for c in recorder.changes[:first])


async def test_what_is_read_once_is_remembered_first_and_what_cannot_be_read_counts_as_empty(
    tmp_path: Path,
) -> None:
    recorder = Recorder()
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        api.put("nodes", {"metadata": {"name": "n"}})
        api.put("devicehealths", {"metadata": {"name": "n"}})
        api.forbidden = {("list", "pods")}
        api.unserved = {"devicepolicies"}
        unread = await read_once(session, recorder)
        assert {asked.verb for asked in api.asked} == {"list"}
    assert {kind: type(error) for kind, error in unread.items()} == {
        kinds.POD: Forbidden,
        kinds.POLICY: NotServed,
    }
    assert recorder.names("Node") == {"n"}
    assert {kind for kind in KINDS if recorder.count(Unserved, kind.name)} == unread.keys()
    first = next(i for i, c in enumerate(recorder.changes) if c.kind is not kinds.DEVICE_HEALTH)
    assert any(isinstance(c, ListEnded) for c in recorder.changes[:first])


async def test_a_list_that_fails_otherwise_is_an_error(tmp_path: Path) -> None:
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        api.token = "another"
        with pytest.raises(Unauthorized):
            await read_once(session, Recorder())


async def test_without_the_right_to_read_what_is_remembered_the_rest_is_read(
    tmp_path: Path,
) -> None:
    recorder = Recorder()
    async with fake_api() as api:
        api.forbidden |= {("list", "devicehealths"), ("watch", "devicehealths")}
        api.put("nodes", {"metadata": {"name": "n"}})
        async with feeding(tmp_path, recorder, api):
            await recorder.until(lambda r: r.names("Node") == {"n"})
    assert recorder.notes("DeviceHealth")


class _Stumbling(Recorder):
    """Fails the first time that nodes are sent, as a bug of ours would."""

    stumbled = False

    async def send(self, changes: list[Change]) -> None:
        if not self.stumbled and any(change.kind is NODE for change in changes):
            self.stumbled = True
            raise RuntimeError("a bug")
        await super().send(changes)


@pytest.mark.usefixtures("parts")
async def test_a_kind_whose_reflector_fails_begins_again_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    recorder = _Stumbling()
    async with fake_api() as api, feeding(tmp_path, recorder, api):
        await recorder.until(lambda r: len(r.synced) == len(KINDS))
        assert recorder.notes("Node") == ["reading Node failed; retrying"]
        assert recorder.notes("Pod") == []


RULES = load_rules()


class Following:
    """A writer that follows a cluster; it publishes only if somebody catches up."""

    def __init__(self, api: FakeApi, session: Session) -> None:
        self.api = api
        self.publisher = Publisher()
        inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
        self.writer = Writer(inventory, self.publisher)
        workloads = WorkloadFeed(session, self.publisher, self.writer.find, ())
        self.freshness = FeedFreshness(session.streams, self.writer, workloads)

    @property
    def nodes(self) -> set[str]:
        return set(self.publisher.view.nodes)

    async def come(self, name: str) -> None:
        """Add a node; return once the change has come."""
        self.api.put("nodes", node(name))
        async with asyncio.timeout(20):
            while not self.freshness.stale:
                await asyncio.sleep(0.001)


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


@pytest.fixture
async def following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Following]:
    async with fake_api() as api, await Session.open(api.kubeconfig(tmp_path)) as session:
        api.put("nodes", node("first"))
        made = Following(api, session)
        work = made.writer.run(), ClusterFeed(session).run(made.writer)
        tasks = [asyncio.create_task(each) for each in work]
        async with asyncio.timeout(20):
            while "first" not in made.nodes or made.freshness.stale:
                await asyncio.sleep(0.01)
        monkeypatch.setattr(reflector, "GATHER_S", 600.0)
        monkeypatch.setattr(writer, "PUBLISH_EVERY_S", 600.0)
        monkeypatch.setattr(cluster, "CATCH_UP_S", 20.0)
        await made.come("last at once")
        await made.freshness.catch_up()
        yield made
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_catching_up_has_what_came_shown_at_once(following: Following) -> None:
    for number in range(5):
        await following.come(f"n{number}")
        await asyncio.sleep(0.02)
        assert f"n{number}" not in following.nodes
        await following.freshness.catch_up()
        assert f"n{number}" in following.nodes
        assert not following.freshness.stale


async def test_many_callers_can_catch_up_at_the_same_time(following: Following) -> None:
    async def ask() -> None:
        await following.freshness.catch_up()
        assert "second" in following.nodes

    await following.come("second")
    await asyncio.gather(*(ask() for _ in range(20)))


async def test_catching_up_ends_in_time_though_no_view_comes(
    following: Following, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES)
    stuck = Writer(inventory, Publisher())  # nobody runs it
    await stuck.send([Contact(kinds.NODE)])
    monkeypatch.setattr(cluster, "CATCH_UP_S", 0.01)
    workloads = WorkloadFeed(session, Publisher(), stuck.find, ())
    stale = FeedFreshness(Streams(), stuck, workloads)
    assert stale.stale
    async with asyncio.timeout(20):
        await stale.catch_up()
    assert stale.stale
