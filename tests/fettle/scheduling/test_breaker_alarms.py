"""Alarms about open breakers: only for policies that place pods."""

import asyncio
from typing import Any

import msgspec
import pytest

from fettle.api import core, kinds
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView
from fettle.config import HealthSettings, Settings
from fettle.explain.wording import text
from fettle.health import HealthBook
from fettle.model import BUILT_IN, Policy
from fettle.scheduling.answers import Answers
from fettle.scheduling.breaker import CLOSED, FORGET_S, FORGOTTEN, Alarm
from fettle.steward import AllowedNodes
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import RULES, Fleet, node
from tests.fettle.scheduling.clusters import Cluster, kept_complete

TRAINING = BUILT_IN["training"]
MINUTE_S = 60.0


def fleet(bad: int) -> dict[str, NodeView]:
    return {
        f"n{i}": b.node(f"n{i}", gpus=8, own=b.health(0.1 if i < bad else 1.0)) for i in range(20)
    }


def withdrawn(nodes: int) -> dict[str, NodeView]:
    """Nodes of which the device plugin has withdrawn one GPU of eight."""
    cluster = Fleet(HealthBook(HealthSettings(), RULES))
    for i in range(nodes):
        cluster.put(kinds.NODE, node(f"n{i}", gpus=8, allocatable=7))
    return dict(cluster.look().nodes)


def pod(policy: str = "training", min_score: str | None = None) -> core.Pod:
    annotations = {"fettle.dev/policy": policy}
    if min_score is not None:
        annotations["fettle.dev/min-score"] = min_score
    return b.pod(b.gpu_pod(annotations=annotations))


class Operated:
    """Answers over a cluster, with a clock in seconds, and the alarms that an operator sees.

    These are the alarms that stand, and why others ended.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.cluster = Cluster()
        self.standing: dict[tuple[str, str], float] = {}
        self.ended: list[tuple[str, str]] = []
        self.answers = Answers(
            self.cluster.publisher,
            SelectorEngine(),
            Settings(),
            lambda: self.now,
            on_breaker=self._turned,
        )

    def _turned(self, alarm: Alarm, ended: str) -> None:
        if ended:
            del self.standing[alarm.policy, alarm.pool]
            self.ended.append((alarm.policy, ended))
        else:
            assert (alarm.policy, alarm.pool) not in self.standing
            self.standing[alarm.policy, alarm.pool] = alarm.share

    def show(self, nodes: dict[str, NodeView], **fields: Any) -> None:
        self.cluster.show(nodes, **fields)

    async def place(self, waiting: core.Pod) -> set[str]:
        """The names of the nodes that are refused for this pod."""
        demand = self.answers.demand_now(waiting)
        assert demand is not None
        table = await self.answers.judged(demand)
        self.answers.answered(demand, waiting)
        return set(table.refused)

    async def stands(self, *policies: str) -> None:
        """Wait until there are alarms of exactly these policies."""
        async with asyncio.timeout(20):
            while {policy for policy, _ in self.standing} != {*policies}:
                await asyncio.sleep(0.001)


@pytest.fixture
def operated() -> Operated:
    return Operated()


async def test_an_open_breaker_of_a_policy_that_places_pods_raises_an_alarm(
    operated: Operated,
) -> None:
    operated.show(fleet(bad=5))
    assert not await operated.place(pod("training"))
    assert operated.standing == {("training", b.RESOURCE): 0.25}
    assert operated.answers.open_breakers() == [
        "breaker open: refusals by policy training are off for example.com/gpu, since they would "
        "exclude 25 % of it (breaker.maxExcludedShare: 20 %), so its pods may get unsound devices; "
        "`fettle devices` shows what is wrong with them"
    ]


async def test_each_of_two_equal_policies_raises_its_own_alarm(operated: Operated) -> None:
    same = Policy(name="same", placement=TRAINING.placement)
    operated.show(fleet(bad=5), policies={"same": same})
    for policy in ("training", "same", "same"):
        await operated.place(pod(policy))
    assert {policy for policy, _ in operated.standing} == {"training", "same"}
    assert len(operated.answers.open_breakers()) == 2


async def test_an_explanation_raises_no_alarm(operated: Operated) -> None:
    operated.show(fleet(bad=5))
    waiting = pod("training")
    demand = operated.answers.demand_now(waiting)
    assert demand is not None
    explained = await operated.answers.explained(demand)
    assert explained["n0"].overruled
    assert await AllowedNodes(operated.answers).find(waiting, operated.answers.view)
    assert not operated.standing
    assert not operated.answers.open_breakers()


async def test_a_breaker_for_a_pods_own_minimum_score_raises_no_alarm(operated: Operated) -> None:
    operated.show(withdrawn(12))
    waiting = pod("training", min_score="1")
    assert not await operated.place(waiting)
    demand = operated.answers.demand_now(waiting)
    assert demand is not None
    overruled, *_ = (await operated.answers.explained(demand))["n0"].overruled
    assert "score below 1 " in text(overruled)
    assert not operated.standing
    assert not operated.answers.open_breakers()


async def test_a_pod_that_repeats_its_policys_values_counts_as_placed_by_the_policy(
    operated: Operated,
) -> None:
    operated.show(fleet(bad=5))
    await operated.place(pod("training", min_score="0.8"))
    assert operated.standing == {("training", b.RESOURCE): 0.25}


async def test_an_alarm_ends_when_the_breaker_closes(operated: Operated) -> None:
    operated.show(fleet(bad=5))
    await operated.place(pod("training"))
    async with kept_complete(operated.answers):
        operated.show(fleet(bad=4))
        await operated.stands()
    assert operated.ended == [("training", CLOSED)]
    assert not operated.answers.open_breakers()


async def test_an_alarm_ends_an_hour_after_the_last_pod_even_in_a_quiet_cluster(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fettle.scheduling.breaker.REFRESH_S", 0.001)
    operated.show(fleet(bad=5))
    await operated.place(pod("training"))
    await operated.place(pod("inference"))
    async with kept_complete(operated.answers):
        operated.now += FORGET_S - MINUTE_S
        await operated.place(pod("training"))
        await asyncio.sleep(0.05)
        await operated.stands("training", "inference")
        operated.now += 2 * MINUTE_S
        await operated.stands("training")
        assert operated.ended == [("inference", FORGOTTEN)]
        await operated.place(pod("inference"))
        await operated.stands("training", "inference")


async def test_an_alarm_ends_when_the_policy_is_changed_or_removed(operated: Operated) -> None:
    strict = msgspec.structs.replace(TRAINING, name="strict")
    other = msgspec.structs.replace(TRAINING, name="other")
    mild = Policy(name="strict", placement=BUILT_IN["inference"].placement)
    degraded = {f"n{i}": b.node(f"n{i}", gpus=8, own=b.health(0.6)) for i in range(20)}
    operated.show(degraded, policies={"strict": strict, "other": other})
    async with kept_complete(operated.answers):
        await operated.place(pod("strict"))
        await operated.place(pod("other"))
        await operated.stands("strict", "other")
        operated.show(degraded, policies={"strict": mild})
        await operated.stands()
        await operated.place(pod("strict"))
        await operated.stands()
    assert sorted(operated.ended) == [("other", FORGOTTEN), ("strict", FORGOTTEN)]


async def test_a_stricter_policy_raises_an_alarm_with_the_next_pod(
    operated: Operated,
) -> None:
    mild = Policy(name="mine", placement=BUILT_IN["inference"].placement)
    strict = msgspec.structs.replace(TRAINING, name="mine")
    degraded = {f"n{i}": b.node(f"n{i}", gpus=8, own=b.health(0.6)) for i in range(20)}
    operated.show(degraded, policies={"mine": mild})
    await operated.place(pod("mine"))
    assert not operated.standing
    operated.show(degraded, policies={"mine": strict})
    await operated.place(pod("mine"))
    assert operated.standing == {("mine", b.RESOURCE): 1.0}
