"""One breaker for each placement, kept up to date with new views, and forgotten when unused."""

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
from fettle.pacing import KeptParts, Pauses, taking_turns
from fettle.scheduling.answers import Answers
from fettle.scheduling.breaker import MAX_BREAKERS, Alarm
from fettle.scheduling.demand import Demand, Units, WaitStage
from tests.fettle import building as b
from tests.fettle.scheduling.census import share
from tests.fettle.scheduling.clusters import POD, Cluster, kept_complete
from tests.waiting import until

TRAINING = BUILT_IN["training"]


def scoring(min_score: float) -> Placement:
    return msgspec.structs.replace(TRAINING.placement, min_score=min_score)


class Watched:
    """Answers over a cluster of twenty nodes, and when the alarm of a policy began and ended."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.answers = Answers(
            self.cluster.publisher, SelectorEngine(), Settings(), on_breaker=self._turned
        )

    def _turned(self, alarm: Alarm, begins: bool) -> None:
        assert alarm.pool == b.RESOURCE
        if alarm.policy == TRAINING.name:
            (self.opened if begins else self.closed).append(alarm.policy)

    def place(self, policy: Policy = TRAINING) -> None:
        """Answer a pod by this policy."""
        demand = Demand(policy, units=(Units(b.RESOURCE, 8),))
        self.answers.table(demand)
        self.answers.note_nodes_given(demand, POD)

    def show(self, bad: int) -> None:
        nodes = [b.node(f"n{i}", gpus=8, own=b.health(0.1 if i < bad else 1.0)) for i in range(20)]
        self.cluster.show({node.name: node for node in nodes})


@pytest.fixture
def watched() -> Watched:
    return Watched()


def fabric(degraded: int) -> dict[str, NodeView]:
    """Fifty nodes that see the same network devices."""
    devices = [b.device(f"f{i}", 0.6 if i < degraded else 1.0, local="") for i in range(50)]
    shared = b.pool(*devices, name="fabric")
    return {f"n{i}": b.node(f"n{i}", pools=(shared,)) for i in range(50)}


async def a_while() -> None:
    """Let the loop run long enough to count these tests' nodes, one at a time."""
    for _ in range(500):
        await asyncio.sleep(0)


def test_the_breaker_unused_for_the_longest_is_forgotten_first(watched: Watched) -> None:
    watched.show(bad=10)
    scores = [0.5 + number / 1000 for number in range(MAX_BREAKERS + 10)]
    first = {score: watched.answers.breaker(scoring(score)) for score in scores[:2]}
    for score in scores:
        assert watched.answers.breaker(scoring(score)).set_aside.keys() == {b.RESOURCE}
        watched.answers.breaker(scoring(scores[0]))
    assert watched.answers.breaker(scoring(scores[0])) is first[scores[0]]
    assert watched.answers.breaker(scoring(scores[1])) is not first[scores[1]]


def test_breakers_of_many_minimum_scores_share_one_census(watched: Watched) -> None:
    watched.cluster.show(fabric(degraded=1))
    scores = [0.3 + number / 1000 for number in range(MAX_BREAKERS)]
    kept = [watched.answers.breaker(scoring(score)) for score in scores]
    assert all(share(breaker, b.DRIVER) == 1 / 50 for breaker in kept)
    assert len(pickle.dumps(kept)) < len(pickle.dumps(kept[:1])) + 1000 * len(kept)


@pytest.mark.usefixtures("parts")
async def test_the_breaker_of_an_unused_policy_still_closes_once_all_is_sound(
    watched: Watched,
) -> None:
    watched.show(bad=10)
    policies = TRAINING, BUILT_IN["inference"]
    for policy in policies:
        watched.place(policy)
    async with kept_complete(watched.answers):
        for bad in (8, 0):
            watched.show(bad)
            await asyncio.sleep(0.05)
        await until(lambda: watched.closed)
        assert watched.opened == watched.closed == ["training"]
        assert not any(watched.answers.breaker(policy.placement).set_aside for policy in policies)


@pytest.mark.usefixtures("parts")
async def test_counting_does_not_keep_an_unused_breaker_from_being_forgotten(
    watched: Watched,
) -> None:
    watched.show(bad=10)
    oldest = watched.answers.breaker(scoring(0.5))
    latest = watched.answers.breaker(scoring(0.05))
    async with kept_complete(watched.answers):
        watched.show(bad=9)
        await until(lambda: share(oldest, b.RESOURCE) == 9 / 20)
        for number in range(MAX_BREAKERS - 1):
            watched.answers.breaker(scoring(0.6 + number / 1000))
        assert watched.answers.breaker(scoring(0.05)) is latest
        assert watched.answers.breaker(scoring(0.5)) is not oldest


@pytest.mark.parametrize("views", [1, 300])
async def test_the_newest_view_counts_even_after_missed_ones(views: int, watched: Watched) -> None:
    watched.show(bad=10)
    watched.place()
    for _ in range(views):
        watched.show(bad=0)
    async with kept_complete(watched.answers):
        await until(lambda: share(watched.answers.breaker(TRAINING.placement), b.RESOURCE) == 0)
        assert not watched.answers.set_aside()


@pytest.mark.usefixtures("turns_at_each_pause")
@pytest.mark.parametrize("turns", range(25))
async def test_a_request_during_a_count_is_answered_by_the_counts_of_one_view(
    turns: int, watched: Watched
) -> None:
    watched.show(bad=10)
    async with kept_complete(watched.answers):
        await a_while()
        watched.place()
        assert watched.answers.breaker(scoring(0.5)).set_aside
        shares = []
        for bad, asked in ((0, turns), (2, 100)):
            watched.show(bad)
            for _ in range(asked):
                shares.append(share(watched.answers.breaker(scoring(0.5)), b.RESOURCE))
                await asyncio.sleep(0)
        assert [*dict.fromkeys([0.5, *shares])] in ([0.5, 0.0, 0.1], [0.5, 0.1])
        assert watched.opened == watched.closed == ["training"]


@pytest.mark.usefixtures("turns_at_each_pause")
async def test_views_published_during_a_count_are_counted_too(
    watched: Watched, kept_by: Callable[[Pauses], KeptParts]
) -> None:
    kept_by(Pauses(first_s=0.0))
    watched.show(bad=10)
    watched.place()
    watched.show(bad=9)
    async with kept_complete(watched.answers):
        for bad in (8, 7, 6, 1):
            for _ in range(10):
                await asyncio.sleep(0)
            watched.show(bad)
        await until(lambda: watched.closed)
        assert share(watched.answers.breaker(TRAINING.placement), b.RESOURCE) == 0.05


@pytest.mark.usefixtures("turns_at_each_pause")
async def test_a_request_that_finds_all_nodes_changed_lets_others_go_first(
    watched: Watched,
) -> None:
    watched.cluster.show(fabric(degraded=1))
    async with kept_complete(watched.answers):
        await a_while()
        assert share(watched.answers.breaker(scoring(0.8)), b.DRIVER) == 1 / 50
        watched.cluster.show(fabric(degraded=2))
        asked = 0
        while share(watched.answers.breaker(scoring(0.8)), b.DRIVER) == 1 / 50:
            asked += 1
            await asyncio.sleep(0)
        assert asked >= 50


@pytest.mark.usefixtures("turns_at_each_pause")
async def test_a_breaker_that_opens_after_a_count_publishes_the_view_again(
    watched: Watched,
) -> None:
    demand = Demand(TRAINING, units=(Units(b.RESOURCE, 8),), waited=WaitStage.ENOUGH)
    watched.show(bad=0)
    watched.place()
    async with kept_complete(watched.answers):
        await a_while()
        watched.show(bad=10)
        edition = watched.answers.edition
        with taking_turns(slice_s=60.0):  # nobody has a turn before the answer
            assert len((await watched.answers.judged(demand)).refused) == 10
        await until(lambda: watched.answers.edition != edition)
        await until(lambda: watched.opened == ["training"])
        assert not (await watched.answers.judged(demand)).refused


@pytest.mark.usefixtures("turns_at_each_pause")
async def test_a_breaker_that_was_forgotten_during_a_count_publishes_the_view_again(
    watched: Watched,
) -> None:
    demand = Demand(TRAINING, units=(Units(b.RESOURCE, 8),), waited=WaitStage.ENOUGH)
    degraded = {f"n{i}": b.node(f"n{i}", gpus=8, own=b.health(0.6)) for i in range(20)}
    watched.show(bad=0)
    async with kept_complete(watched.answers):
        await a_while()
        watched.cluster.show(degraded)
        with taking_turns(slice_s=60.0):  # nobody has a turn before the answer
            assert len((await watched.answers.judged(demand)).refused) == 20
        for number in range(MAX_BREAKERS):
            watched.answers.breaker(
                msgspec.structs.replace(BUILT_IN["inference"].placement, min_score=number / 1000)
            )
        await a_while()
        assert not (await watched.answers.judged(demand)).refused


@pytest.mark.usefixtures("parts")
async def test_an_error_in_counting_does_not_end_the_task(watched: Watched) -> None:
    watched.show(bad=10)
    assert watched.answers.set_aside()
    async with kept_complete(watched.answers):
        broken: Any = None
        with capture_logs() as logs:
            watched.cluster.show({"n0": b.node("n0", pools=(broken,))})
            await until(lambda: logs)
        assert logs[0]["part"] == "breakers"
        watched.show(bad=0)
        await until(lambda: watched.closed)
