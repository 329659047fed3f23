"""Sound devices beside a bad one: for pods that fit there, so that whole nodes stay whole."""

import msgspec
import pytest

from fettle.api.resource import DeviceTaint, DeviceToleration
from fettle.cluster import NodeView
from fettle.explain.wording import texts
from fettle.model import Policy, TaintRef, Weighed, reasons
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.acceptance import Acceptance, Cause
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.scores import HIGHEST_SCORE, LEFTOVER_BONUS, MAX_SCORE
from fettle.scheduling.judge.verdicts import LAST_SCORE, judge
from tests.fettle import building as b
from tests.fettle.scheduling.judge.judging import (
    INFERENCE,
    SCAVENGER,
    TRAINING,
    every_device,
    request,
    units,
    verdict,
)

BAD = frozenset({"GPU-a"})
HELD = b.node(gpus=8, units={"GPU-a": 0.1}, busy=BAD)
WITHDRAWN = b.node(gpus=7, units={"GPU-a": 0.1}, withdrawn=BAD)


def dra(*devices: object) -> NodeView:
    return b.node(pools=(b.pool(*devices),))  # type: ignore[arg-type]


SOUND_BEFORE_BAD = dra(b.device("a"), b.device("b"), b.device("c", 0.1))


def is_preferred(demand: Demand, node: NodeView) -> bool:
    answer = verdict(demand, node)
    noted = any(isinstance(note, reasons.NodeNotWhole) for note in answer.notes)
    assert noted is (answer.score > MAX_SCORE or (demand.policy is SCAVENGER and answer.score > 1))
    return noted


@pytest.mark.parametrize("policy", [TRAINING, INFERENCE, SCAVENGER])
@pytest.mark.parametrize("node", [HELD, WITHDRAWN])
def test_a_pod_is_better_beside_a_unit_that_cannot_be_given_out(
    policy: Policy, node: NodeView
) -> None:
    whole = verdict(units(policy, 2), b.node(gpus=8))
    assert verdict(units(policy, 2), node).score == whole.score + LEFTOVER_BONUS


def test_units_that_were_withdrawn_without_a_name_count_too() -> None:
    whole = b.node(gpus=7)
    plugin = msgspec.structs.replace(whole.plugins[b.RESOURCE], capacity=8)
    node = msgspec.structs.replace(whole, plugins={b.RESOURCE: plugin})
    answer = verdict(units(TRAINING), node)
    assert answer.score == HIGHEST_SCORE
    assert answer.notes == (reasons.NodeNotWhole(b.RESOURCE, (), unnamed=1),)


@pytest.mark.parametrize(
    "node",
    [
        b.node(gpus=8),
        b.node(gpus=8, units={"GPU-a": 1.0}),
        b.node(gpus=8, units={"GPU-a": 0.1}),
        b.node(gpus=7, units={"GPU-a": 0.1, "GPU-b": 0.5}, withdrawn=BAD),
        b.node(gpus=7, units={"GPU-a": 0.1}, withdrawn=BAD, own=b.health(0.6)),
    ],
    ids=["whole", "sound", "may be drawn", "another may be drawn", "degraded as a whole"],
)
def test_a_node_is_not_preferred_if_it_is_whole_or_the_pod_may_get_a_bad_unit(
    node: NodeView,
) -> None:
    assert not is_preferred(units(INFERENCE), node)


def test_a_pod_that_asks_for_the_whole_node_is_not_concerned() -> None:
    assert not is_preferred(units(INFERENCE, 8), WITHDRAWN)
    assert not is_preferred(units(INFERENCE, 8), HELD)
    assert not is_preferred(request(INFERENCE, 3), SOUND_BEFORE_BAD)


@pytest.mark.parametrize(("count", "preferred"), [(1, True), (2, True), (3, False)])
def test_a_claim_is_better_where_the_allocator_leaves_the_bad_device(
    count: int, preferred: bool
) -> None:
    assert is_preferred(request(INFERENCE, count), SOUND_BEFORE_BAD) is preferred
    assert not is_preferred(request(INFERENCE, count), dra(*map(b.device, "abc")))


def test_a_tainted_or_allocated_bad_device_is_named() -> None:
    taint = DeviceTaint(key="k", effect="NoSchedule")
    for bad in (b.device("c", 0.1, taints=(taint,)), b.device("c", 0.1, allocated=True)):
        answer = verdict(request(TRAINING), dra(bad, b.device("a")))
        assert answer.score == HIGHEST_SCORE
        unhealthy = reasons.BadDevice(f"{b.DRIVER}/n/c", "Unhealthy")
        assert answer.notes == (reasons.NodeNotWhole(b.DRIVER, (unhealthy,)),)
    held = msgspec.structs.replace(bad, health=b.health(0.0, held=True))
    (said,) = texts(verdict(request(TRAINING), dra(held, b.device("a"))).notes)
    assert said.endswith("n/c is held")


def test_another_drivers_bad_device_does_not_count() -> None:
    other = msgspec.structs.replace(
        b.pool(b.device("nic", 0.1, driver="nic.example.com")), driver="nic.example.com"
    )
    node = b.node(pools=(b.pool(b.device("a")), other))
    assert not is_preferred(request(TRAINING), node)


def test_a_claim_that_may_get_the_bad_device_in_a_burst_does_not_prefer_it() -> None:
    node = dra(b.device("a"), b.device("b", 0.1))
    assert is_preferred(request(INFERENCE), node)
    assert not is_preferred(msgspec.structs.replace(request(INFERENCE), in_flight=1), node)


def test_whoever_gets_a_tainted_device_by_toleration_does_not_prefer_its_node() -> None:
    everything = (DeviceToleration(operator="Exists"),)
    worn = b.health(0.1)
    tainted = msgspec.structs.replace(
        worn.evidence[0].evidence, taints=(TaintRef("k", "", "NoSchedule"),)
    )
    health = msgspec.structs.replace(worn, evidence=(Weighed(tainted, 0.9),))
    devices = [msgspec.structs.replace(b.device(name), health=health) for name in "ab"]
    assert not is_preferred(request(INFERENCE, tolerations=everything), dra(*devices))


def test_a_node_is_not_preferred_where_something_else_is_in_the_way() -> None:
    unsettled = (reasons.ClaimNotFound("c"),)
    demand = msgspec.structs.replace(units(INFERENCE), unsettled=unsettled)
    assert not is_preferred(demand, WITHDRAWN)


def test_a_breaker_keeps_its_nodes_last() -> None:
    worn = b.health(0.6)
    cause = Cause(worn.evidence[0].evidence.source)
    acceptance = Acceptance(TRAINING.placement, {b.RESOURCE: frozenset({cause})})
    node = b.node(gpus=7, units={"GPU-a": 0.1}, withdrawn=BAD, own=worn)
    answer = judge(units(TRAINING), node, acceptance, Allocator(every_device))
    assert answer.overruled
    assert answer.score <= LAST_SCORE
