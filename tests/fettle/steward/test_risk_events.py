"""Events on pods that are on what their own policy refuses."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fettle.client import EventRecorder, Session, event_recorder
from fettle.steward import STEWARD, EventsOnPods, news_of_risks
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.scheduling.placed.builders import Watched, placed

ILL, WORSE = b.node(gpus=8, own=b.health(0.5)), b.node(gpus=8, own=b.health(0.1))


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


@pytest.fixture
async def session(api: FakeApi, tmp_path: Path) -> AsyncIterator[Session]:
    async with await Session.open(api.kubeconfig(tmp_path)) as session:
        yield session


class Telling:
    """A steward's Events about a cluster; `again` is the next leader, or the same after a
    restart."""

    def __init__(self, session: Session, cluster: Watched, **how: Any) -> None:
        self.results: list[str] = []
        self.recorder = EventRecorder(session, STEWARD, "one", self.results.append)
        find = partial(news_of_risks, cluster.at_risk)
        self.events = EventsOnPods("pods at risk", find, self.recorder, **how)

    async def record(self) -> None:
        self.events.record()
        await self.recorder.write()


def told(api: FakeApi) -> list[tuple[str, str]]:
    events = api.objects.get("events", {}).values()
    return [(event["regarding"]["name"], event["note"]) for event in events]


async def test_a_pod_is_told_once_for_each_reason(api: FakeApi, session: Session) -> None:
    cluster = Watched()
    telling = Telling(session, cluster)
    await cluster.see(ILL, pods=(placed("p", gpus=1), placed("easy", gpus=1, policy="inference")))
    await telling.record()
    await telling.record()
    await cluster.see(b.node(gpus=8))
    await telling.record()
    await cluster.see(ILL)
    await telling.record()
    why = "policy training refuses where the pod is, on node n: node is Degraded (0.50): a fault"
    assert told(api) == [("p", why)]
    assert telling.results == ["written"], "not counted, either, when it comes back"
    await cluster.see(WORSE)
    await telling.record()
    assert sorted(name for name, _ in told(api)) == ["easy", "p", "p"]
    assert all("series" not in event for event in api.objects["events"].values())


async def test_the_next_leader_does_not_repeat_it(api: FakeApi, session: Session) -> None:
    cluster = Watched()
    await cluster.see(ILL, pods=(placed("p", gpus=1),))
    for _ in range(2):
        telling = Telling(session, cluster)
        await telling.record()
        assert telling.results == ["written"]
    assert len(told(api)) == 1


async def test_what_is_held_back_is_told_later(
    api: FakeApi, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Watched()
    number = event_recorder.BURST + 1
    await cluster.see(
        b.node(gpus=64, own=b.health(0.1)),
        pods=tuple(placed(f"p{i}", gpus=1) for i in range(number)),
    )
    telling = Telling(session, cluster)
    await telling.record()
    await telling.record()
    assert telling.results.count("held_back") == 1
    assert len(told(api)) == event_recorder.BURST
    telling.events._full.clear()
    monkeypatch.setattr(event_recorder, "REFILL_S", 1e-6)
    await telling.record()
    assert len(told(api)) == number


async def test_nothing_is_written_about_pods_of_which_nothing_may_be(
    api: FakeApi, session: Session
) -> None:
    cluster = Watched()
    await cluster.see(WORSE, pods=(placed("p", gpus=1),))
    await Telling(session, cluster, writes_about=lambda _: False).record()
    assert told(api) == []


async def test_what_a_breaker_sets_aside_is_told_all_the_same(
    api: FakeApi, session: Session
) -> None:
    cluster = Watched()
    nodes = (b.node(f"n{i}", gpus=8, own=b.health(0.1)) for i in range(12))
    await cluster.see(*nodes, pods=(placed("p", "n0", gpus=1),))
    await Telling(session, cluster).record()
    ((pod, _),) = told(api)
    assert pod == "p"
