"""What is set aside, and what operators are told of it."""

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
from fettle.model import BUILT_IN, EvidenceKind, Policy, reasons
from fettle.scheduling.answers import Answers
from fettle.scheduling.breaker import Alarm
from fettle.scheduling.tables import Table
from fettle.steward import AllowedNodes
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import RULES, Fleet, node
from tests.fettle.scheduling.clusters import Cluster, kept_complete

TRAINING = BUILT_IN["training"]


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
    raw = b.gpu_pod(annotations=annotations)
    raw["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return b.pod(raw)


class Operated:
    """Answers over a cluster, and the alarms that an operator sees, by policy and rule."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.standing: set[tuple[str, str]] = set()
        self.answers = Answers(
            self.cluster.publisher, SelectorEngine(), Settings(), on_breaker=self._turned
        )

    def _turned(self, alarm: Alarm, begins: bool) -> None:
        self.standing ^= {(alarm.policy, alarm.cause.source.name)}
        assert begins is ((alarm.policy, alarm.cause.source.name) in self.standing)

    def show(self, nodes: dict[str, NodeView], **fields: Any) -> None:
        self.cluster.show(nodes, **fields)

    async def judge(self, waiting: core.Pod) -> Table:
        demand = self.answers.demand_now(waiting)
        assert demand is not None
        return await self.answers.judged(demand)

    def told(self) -> set[tuple[str, str]]:
        self.answers.set_aside()
        return self.standing


@pytest.fixture
def operated() -> Operated:
    return Operated()


def test_a_rule_that_condemns_too_much_is_told_before_any_pod_asks(operated: Operated) -> None:
    operated.show(fleet(bad=5))
    (said,) = operated.answers.set_aside()
    assert isinstance(said, reasons.RuleSetAside)
    assert (said.rule, said.pool, said.burst) == (b.SOURCE, "example.com/gpu", True)
    assert (said.condemned, said.devices, said.limit) == (40, 160, 0.2)
    assert sorted(said.policies) == sorted(BUILT_IN)
    assert operated.standing == {(name, "test") for name in BUILT_IN}


def test_one_bad_device_on_every_node_opens_no_breaker(operated: Operated) -> None:
    """It is an eighth of the devices."""
    operated.show({f"n{i}": b.node(f"n{i}", gpus=8, units={"gpu-0": 0.1}) for i in range(20)})
    assert operated.answers.set_aside() == []


async def test_what_condemns_too_many_devices_is_set_aside_for_pods_that_have_waited(
    operated: Operated,
) -> None:
    operated.show(fleet(bad=5))
    new = b.pod(b.gpu_pod(annotations={"fettle.dev/policy": "training"}))
    assert len((await operated.judge(new)).refused) == 5
    assert not (await operated.judge(pod())).refused


def test_the_rule_that_condemns_most_is_told_first(operated: Operated) -> None:
    nodes = {f"m{i}": b.node(f"m{i}", gpus=8, own=b.ill(("a minor rule", 1.0))) for i in range(6)}
    nodes |= {
        f"n{i}": b.node(f"n{i}", gpus=8, own=b.ill(("the worst rule", 1.0))) for i in range(9)
    }
    operated.show(nodes)
    assert [str(said.rule) for said in operated.answers.set_aside()] == [
        "taint the worst rule",
        "taint a minor rule",
    ]


async def test_the_first_view_after_a_start_is_counted_while_answers_are_kept(
    operated: Operated,
) -> None:
    async with kept_complete(operated.answers):
        operated.show(fleet(bad=5))
        async with asyncio.timeout(20):
            while not operated.standing:
                await asyncio.sleep(0.001)
        assert operated.answers.set_aside()


def test_faults_of_several_rules_never_add_up(operated: Operated) -> None:
    """A bad day: twelve per cent by each of five rules."""
    nodes = {
        f"n{i}": b.node(f"n{i}", gpus=8, own=b.ill((f"rule {i // 3}", 1.0))) for i in range(15)
    }
    sound = {f"s{i}": b.node(f"s{i}", gpus=8) for i in range(10)}
    operated.show(nodes | sound)
    assert operated.answers.set_aside() == []


async def test_a_device_that_two_rules_condemn_stays_refused_by_the_other(
    operated: Operated,
) -> None:
    nodes = fleet(bad=5)
    nodes["n0"] = b.node("n0", gpus=8, own=b.ill(("test", 0.9), ("another", 0.9)))
    operated.show(nodes)
    table = await operated.judge(pod())
    assert table.refused == {"n0"}
    assert {name for name, verdict in table.verdicts.items() if verdict.overruled} == {
        "n1",
        "n2",
        "n3",
        "n4",
    }


@pytest.mark.parametrize("kind", [EvidenceKind.LATCHED, EvidenceKind.LEVEL])
def test_hard_evidence_is_set_aside_only_where_it_condemns_most_of_a_pool(
    operated: Operated, kind: EvidenceKind
) -> None:
    def shown(bad: int) -> bool:
        ill = b.ill(("xid", 1.0), kind=kind)
        nodes = [b.node(f"n{i}", gpus=8, own=ill if i < bad else b.health(1)) for i in range(20)]
        operated.show({node.name: node for node in nodes})
        return bool(operated.answers.set_aside())

    hard = kind is EvidenceKind.LATCHED
    assert [shown(4), shown(5), shown(10), shown(11)] == [False, not hard, not hard, True]


async def test_no_pod_is_woken_for_a_node_that_a_breaker_alone_allows(operated: Operated) -> None:
    operated.show(fleet(bad=5))
    allowed = await AllowedNodes(operated.answers).find(pod(), operated.answers.view)
    assert allowed == {f"n{i}" for i in range(5, 20)}


async def test_nodes_that_a_breaker_alone_allows_come_last_the_best_of_them_first(
    operated: Operated,
) -> None:
    nodes = {f"n{i}": b.node(f"n{i}", gpus=8, own=b.health(0.1 + i / 100)) for i in range(10)}
    nodes |= {"worst": b.node("worst", gpus=8, own=b.ill(("test", 0.9), ("heat", 0.65)))}
    nodes |= {f"s{i}": b.node(f"s{i}", gpus=8, own=b.health(0.85)) for i in range(9)}
    operated.show(nodes)
    table = await operated.judge(pod("inference"))
    of_set_aside = [table.score_of(f"n{i}") for i in range(10)]
    assert max(of_set_aside) < min(table.score_of(f"s{i}") for i in range(9))
    assert table.score_of("worst") < max(of_set_aside)


async def test_a_breaker_for_a_pods_own_minimum_score_raises_no_alarm(operated: Operated) -> None:
    operated.show(withdrawn(12))
    table = await operated.judge(pod("training", min_score="1"))
    conceded, *_ = table.verdicts["n0"].conceded
    assert "score below 1 " in text(conceded)
    assert not operated.told()


async def test_an_alarm_ends_when_the_rule_condemns_less(operated: Operated) -> None:
    operated.show(fleet(bad=5))
    assert operated.told()
    operated.show(fleet(bad=4))
    assert not operated.told()


def test_an_alarm_ends_when_the_policy_is_changed_or_removed(operated: Operated) -> None:
    strict = msgspec.structs.replace(TRAINING, name="strict")
    other = msgspec.structs.replace(TRAINING, name="other")
    mild = Policy(name="strict", placement=BUILT_IN["inference"].placement)
    degraded = {f"n{i}": b.node(f"n{i}", gpus=8, own=b.health(0.6)) for i in range(20)}
    operated.show(degraded, policies={"strict": strict, "other": other})
    assert {policy for policy, _ in operated.told()} == {"training", "strict", "other"}
    operated.show(degraded, policies={"strict": mild})
    assert {policy for policy, _ in operated.told()} == {"training"}
