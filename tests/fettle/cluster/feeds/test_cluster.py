from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fettle.api import Change, Lost, Unserved
from fettle.api.kinds import KINDS, NODE
from fettle.client import Session
from fettle.cluster.feeds.cluster import ClusterFeed
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.cluster.feeds.recorder import Recorder


@asynccontextmanager
async def feeding(folder: Path, recorder: Recorder, api: FakeApi) -> AsyncIterator[None]:
    async with await Session.open(api.kubeconfig(folder)) as session:
        feed = ClusterFeed(session, restart_s=0.01)
        task = asyncio.create_task(feed.run(recorder))
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_every_kind_is_followed_at_its_own_pace(tmp_path: Path) -> None:
    recorder = Recorder()
    async with fake_api() as api, feeding(tmp_path, recorder, api):
        await recorder.until(lambda r: len(r.synced) == len(KINDS))
        api.put("pods", {"metadata": {"name": "p", "namespace": "ns"}})
        api.put("namespaces", {"metadata": {"name": "ns"}})
        await recorder.until(lambda r: r.names("Pod") == {"ns/p"})
        await recorder.until(lambda r: r.names("Namespace") == {"ns"})


async def test_a_cluster_without_dra_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    recorder = Recorder()
    absent = {kind.name for kind in KINDS if kind.optional}
    async with fake_api() as api:
        api.unserved = {kind.plural for kind in KINDS if kind.optional}
        async with feeding(tmp_path, recorder, api):
            await recorder.until(lambda r: r.synced == {k.name for k in KINDS} - absent)
            await recorder.until(lambda r: all(r.count(Unserved, name) for name in absent))
            assert recorder.count(Lost, "Node") == 0


class _Stumbling(Recorder):
    """Fails the first time it is told of nodes, as a bug of ours would."""

    stumbled = False

    async def send(self, changes: list[Change]) -> None:
        if not self.stumbled and any(change.kind is NODE for change in changes):
            self.stumbled = True
            raise RuntimeError("a bug")
        await super().send(changes)


async def test_a_kind_whose_reading_fails_begins_again_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    recorder = _Stumbling()
    async with fake_api() as api, feeding(tmp_path, recorder, api):
        await recorder.until(lambda r: len(r.synced) == len(KINDS))
        assert recorder.notes("Node") == ["reading Node failed; retrying"]
        assert recorder.notes("Pod") == []
