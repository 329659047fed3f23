"""One breaker for each placement, as pods ask with them and as they are forgotten."""

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from fettle.cel import SelectorEngine
from fettle.cluster import NodeView
from fettle.config import Settings
from fettle.model import BUILT_IN, Placement, Policy
from fettle.pacing import pausing
from fettle.scheduling.answers import Answers
from fettle.scheduling.breaker import MAX_BREAKERS, Alarm
from fettle.scheduling.demand import Demand, Units
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import POD, Cluster, kept_complete

TRAINING = BUILT_IN["training"]


def scoring(min_score: float) -> Placement:
    return msgspec.structs.replace(TRAINING.placement, min_score=min_score)


class Told:
    """Answers over a cluster of twenty nodes, and the policies whose breakers they say opened and
    closed."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.shares: list[float] = []
        self.answers = Answers(
            self.cluster.publisher, SelectorEngine(), Settings(), on_breaker=self._turned
        )

    def _turned(self, alarm: Alarm, ended: str) -> None:
        assert alarm.pool == b.RESOURCE
        (self.closed if ended else self.opened).append(alarm.policy)
        self.shares.append(alarm.share)

    def place(self, policy: Policy = TRAINING) -> None:
        """A pod is told of nodes by this policy."""
        demand = Demand(policy, units=(Units(b.RESOURCE, 8),))
        self.answers.table(demand)
        self.answers.answered(demand, POD)

    def show(self, bad: int) -> None:
        nodes = [b.node(f"n{i}", gpus=8, own=b.health(0.1 if i < bad else 1.0)) for i in range(20)]
        self.cluster.show({node.name: node for node in nodes})


@pytest.fixture
def told() -> Told:
    return Told()


def fabric(degraded: int) -> dict[str, NodeView]:
    """Fifty nodes that see the same devices of the network."""
    devices = [b.device(f"f{i}", 0.6 if i < degraded else 1.0, local="") for i in range(50)]
    shared = b.pool(*devices, name="fabric")
    return {f"n{i}": b.node(f"n{i}", pools=(shared,)) for i in range(50)}


async def a_while() -> None:
    """As many turns as it takes to count what these tests show, one node a turn."""
    for _ in range(500):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


def test_the_breaker_unused_for_the_longest_is_forgotten_first(told: Told) -> None:
    told.show(bad=10)
    scores = [0.5 + number / 1000 for number in range(MAX_BREAKERS + 10)]
    first = {score: told.answers.breaker(scoring(score)) for score in scores[:2]}
    for score in scores:
        assert told.answers.breaker(scoring(score)).open == {b.RESOURCE}
        told.answers.breaker(scoring(scores[0]))
    assert told.answers.breaker(scoring(scores[0])) is first[scores[0]]
    assert told.answers.breaker(scoring(scores[1])) is not first[scores[1]]


def test_breakers_of_many_minimum_scores_share_one_census(told: Told) -> None:
    told.cluster.show(fabric(degraded=1))
    scores = [0.3 + number / 1000 for number in range(MAX_BREAKERS)]
    kept = [told.answers.breaker(scoring(score)) for score in scores]
    assert all(breaker.share(b.DRIVER) == 1 / 50 for breaker in kept)
    assert len(pickle.dumps(kept)) < len(pickle.dumps(kept[:1])) + 1000 * len(kept)


async def test_the_breaker_of_an_unused_policy_still_closes_once_all_is_sound(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fettle.scheduling.breaker.PAUSE_S", 0.001)
    told.show(bad=10)
    policies = TRAINING, BUILT_IN["inference"]
    for policy in policies:
        told.place(policy)
    async with kept_complete(told.answers):
        for bad in (8, 0):
            told.show(bad)
            await asyncio.sleep(0.05)
        await until(lambda: len(told.closed) == 2)
        assert told.opened == told.closed == ["training", "inference"]
        assert told.shares == [0.5, 0.5, 0, 0]
        assert not any(told.answers.breaker(policy.placement).open for policy in policies)


async def test_counting_does_not_keep_an_unused_breaker_from_being_forgotten(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fettle.scheduling.breaker.PAUSE_S", 0.001)
    told.show(bad=10)
    oldest = told.answers.breaker(scoring(0.5))
    latest = told.answers.breaker(scoring(0.05))
    async with kept_complete(told.answers):
        told.show(bad=9)
        await until(lambda: oldest.share(b.RESOURCE) == 9 / 20)
        for number in range(MAX_BREAKERS - 1):
            told.answers.breaker(scoring(0.6 + number / 1000))
        assert told.answers.breaker(scoring(0.05)) is latest
        assert told.answers.breaker(scoring(0.5)) is not oldest


@pytest.mark.parametrize("views", [1, 300])
async def test_the_newest_view_counts_however_many_were_missed(views: int, told: Told) -> None:
    told.show(bad=10)
    told.place()
    for _ in range(views):
        told.show(bad=0)
    async with kept_complete(told.answers):
        await until(lambda: told.closed)
        assert told.shares == [0.5, 0]


@pytest.mark.parametrize("turns", range(25))
async def test_a_request_during_a_count_is_answered_by_the_counts_of_one_view(
    turns: int, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "SLICE_S", 0.0)  # after each node others have their turn
    told.show(bad=10)
    async with kept_complete(told.answers):
        await a_while()
        told.place()
        assert told.answers.breaker(scoring(0.5)).open
        shares = []
        for bad, asked in ((0, turns), (2, 100)):
            told.show(bad)
            for _ in range(asked):
                shares.append(told.answers.breaker(scoring(0.5)).share(b.RESOURCE))
                await asyncio.sleep(0)
        assert [*dict.fromkeys([0.5, *shares])] in ([0.5, 0.0, 0.1], [0.5, 0.1])
        assert told.opened == told.closed == ["training"]


async def test_views_published_during_a_count_are_counted_too(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "SLICE_S", 0.0)
    monkeypatch.setattr("fettle.scheduling.breaker.PAUSE_S", 0.0)
    told.show(bad=10)
    told.place()
    told.show(bad=9)
    async with kept_complete(told.answers):
        for bad in (8, 7, 6, 1):
            for _ in range(10):
                await asyncio.sleep(0)
            told.show(bad)
        await until(lambda: told.closed)
        assert told.shares == [0.5, 0.05]


async def test_a_request_that_finds_all_nodes_changed_lets_others_go_first(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "SLICE_S", 0.0)
    told.cluster.show(fabric(degraded=1))
    async with kept_complete(told.answers):
        await a_while()
        assert told.answers.breaker(scoring(0.8)).share(b.DRIVER) == 1 / 50
        told.cluster.show(fabric(degraded=2))
        asked = 0
        while told.answers.breaker(scoring(0.8)).share(b.DRIVER) == 1 / 50:
            asked += 1
            await asyncio.sleep(0)
        assert asked >= 50


async def test_a_breaker_that_opens_after_a_count_publishes_the_view_again(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "SLICE_S", 0.0)
    demand = Demand(TRAINING, units=(Units(b.RESOURCE, 8),))
    told.show(bad=0)
    told.place()
    async with kept_complete(told.answers):
        await a_while()
        told.show(bad=10)
        edition = told.answers.edition
        monkeypatch.setattr(pausing, "SLICE_S", 60.0)  # nobody has a turn before the answer
        assert len((await told.answers.judged(demand)).refused) == 10
        monkeypatch.setattr(pausing, "SLICE_S", 0.0)
        await until(lambda: told.answers.edition != edition)
        await until(lambda: told.opened == ["training"])
        assert not (await told.answers.judged(demand)).refused


async def test_a_breaker_that_was_forgotten_during_a_count_publishes_the_view_again(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "SLICE_S", 0.0)
    demand = Demand(TRAINING, units=(Units(b.RESOURCE, 8),))
    degraded = {f"n{i}": b.node(f"n{i}", gpus=8, own=b.health(0.6)) for i in range(20)}
    told.show(bad=0)
    async with kept_complete(told.answers):
        await a_while()
        told.cluster.show(degraded)
        monkeypatch.setattr(pausing, "SLICE_S", 60.0)  # nobody has a turn before the answer
        assert len((await told.answers.judged(demand)).refused) == 20
        monkeypatch.setattr(pausing, "SLICE_S", 0.0)
        for number in range(MAX_BREAKERS):
            told.answers.breaker(
                msgspec.structs.replace(BUILT_IN["inference"].placement, min_score=number / 1000)
            )
        await a_while()
        assert not (await told.answers.judged(demand)).refused


async def test_an_error_in_counting_does_not_end_the_task(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fettle.scheduling.breaker.PAUSE_S", 0.001)
    told.show(bad=10)
    told.place()
    async with kept_complete(told.answers):
        broken: Any = None
        with capture_logs() as logs:
            told.cluster.show({"n0": b.node("n0", pools=(broken,))})
            await until(lambda: logs)
        assert logs[0]["event"] == "breakers cannot be counted"
        told.show(bad=0)
        await until(lambda: told.closed)
