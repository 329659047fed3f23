"""Which pods are on what their own policy refuses, as views follow one another."""

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from fettle.api import core
from fettle.api.meta import unix_s
from fettle.cluster import NodeView
from fettle.model import BUILT_IN, Inherited, Policy, reasons
from fettle.model.reasons import Complaint
from fettle.scheduling import bound_at
from fettle.scheduling.judge import placed as judging
from fettle.scheduling.placed import AtRisk, PlacedPod
from tests.fettle import building as b
from tests.fettle.scheduling.placed.builders import BOUND_S, Watched, claim, claimed, placed


@pytest.fixture
def cluster() -> Watched:
    return Watched()


def with_gpus(*devices: Any) -> NodeView:
    return b.node(pools=(b.pool(*devices),))


async def test_a_pod_is_at_risk_as_long_as_its_policy_refuses_its_node(cluster: Watched) -> None:
    ill, well = b.node(gpus=8, own=b.health(0.5)), b.node(gpus=8)
    pods = (placed("strict", gpus=1), placed("easy", gpus=1, policy="inference"))
    assert await cluster.see(ill, pods=pods) == ["strict"]
    (one,) = await cluster.listed()
    assert [why.code for why in one.verdict.refusals] == ["NodeDegraded"]
    assert (one.certain, one.since) == (True, BOUND_S)
    assert await cluster.see(well) == []
    assert await cluster.see(ill) == ["strict"]
    cluster.pods = {}
    assert await cluster.see() == []


async def test_a_device_of_a_claim_is_certain_and_a_unit_is_as_certain_as_it_can_be(
    cluster: Watched,
) -> None:
    node = msgspec.structs.replace(
        b.node(gpus=8, units={"bad": 0.2}), pools=(b.pool(b.device("gpu-0", 0.1)),)
    )
    pods = (placed("possible", gpus=2), claimed("certain"))
    assert await cluster.see(node, pods=pods, claims=[claim("certain", "gpu-0")]) == [
        "certain",
        "possible",
    ]
    certain, possible = await cluster.listed()
    assert (certain.certain, possible.certain) == (True, False)
    (why,) = possible.verdict.refusals
    assert why == reasons.UnitNotAcceptable(
        b.RESOURCE, "bad", False, Complaint.UNHEALTHY, b.health(0.2), 0.8
    )


async def test_a_claim_that_is_seen_after_its_pod_counts(cluster: Watched) -> None:
    node = with_gpus(b.device("gpu-0", 0.1))
    assert await cluster.see(node, pods=(claimed("p"),)) == []
    assert await cluster.see(claims=[claim("p", "gpu-0")]) == ["p"]


async def test_tolerated_taints_and_admin_access_count_as_in_placement(cluster: Watched) -> None:
    claims = [claim("watches", "gpu-0", adminAccess=True), claim("trains", "gpu-0")]
    node = with_gpus(b.device("gpu-0", 0.1))
    assert await cluster.see(node, pods=(claimed("watches"), claimed("trains")), claims=claims) == [
        "trains"
    ]


async def test_a_pod_that_came_after_the_unit_was_withdrawn_is_not_at_risk(
    cluster: Watched,
) -> None:
    node = b.node(gpus=7, units={"bad": 0.1}, withdrawn=frozenset({"bad"}))
    assert await cluster.see(node, pods=(placed("later", gpus=1),)) == []
    assert await cluster.see(pods=(placed("all", gpus=7),)) == ["all", "later"]


async def test_pods_before_the_withdrawal_are_at_risk(
    cluster: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "WITHDRAWAL_S", 2 * BOUND_S)
    node = b.node(gpus=7, units={"bad": 0.1}, withdrawn=frozenset({"bad"}))
    assert await cluster.see(node, pods=(placed("before", gpus=1),)) == ["before"]


async def test_a_view_judges_only_the_pods_of_nodes_that_it_changes(
    cluster: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [b.node(f"n{i}", gpus=8) for i in range(20)]
    pods = tuple(placed(f"p{i}", f"n{i}", gpus=1) for i in range(20))
    await cluster.see(*nodes, pods=pods)
    judged: list[str] = []
    judge = AtRisk._judge

    def counted(self: AtRisk, pod: core.Pod, *others: Any) -> PlacedPod:
        judged.append(pod.metadata.name)
        return judge(self, pod, *others)

    monkeypatch.setattr(AtRisk, "_judge", counted)
    assert await cluster.see(b.node("n3", gpus=8, own=b.health(0.1))) == ["p3"]
    assert judged == ["p3"]
    assert await cluster.see(pods=(placed("new", "n5", gpus=1),)) == ["p3"]
    assert sorted(judged[1:]) == ["new", "p5"]
    await cluster.see()
    assert len(judged) == 3
    easy = {"fettle.dev/policy": "inference"}
    await cluster.see(namespaces={"other": easy})
    assert len(judged) == 3
    await cluster.see(namespaces={"other": easy, "default": easy})
    assert len(judged) == 3 + 21


async def test_what_its_workload_names_judges_a_pod_anew(cluster: Watched) -> None:
    ill, pod = b.node(gpus=8, own=b.health(0.5)), placed("p", gpus=1)
    del pod["metadata"]["annotations"]
    owner = {"kind": "Job", "name": "train", "uid": "j", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    assert await cluster.see(ill, b.node("n2"), pods=(pod,)) == []
    named = Inherited("Job train", {"fettle.dev/policy": "training"})
    assert await cluster.see(inherited={"other/j": named}) == []
    assert await cluster.see(inherited={"default/j": named}) == ["p"]


async def test_another_policy_of_the_same_name_judges_its_pods_anew(cluster: Watched) -> None:
    ill, pods = b.node(gpus=8, own=b.health(0.5)), (placed("p", gpus=1, policy="mine"),)
    easy, strict = (
        Policy(name="mine", placement=BUILT_IN[like].placement)
        for like in ("inference", "training")
    )
    assert await cluster.see(ill, pods=pods, policies={"mine": easy}) == []
    assert await cluster.see(policies={"mine": strict}) == ["p"]


async def test_what_a_breaker_sets_aside_is_at_risk_all_the_same(cluster: Watched) -> None:
    nodes = [b.node(f"n{i}", gpus=8, own=b.health(0.1 if i < 9 else 1.0)) for i in range(12)]
    pods = tuple(placed(f"p{i}", f"n{i}", gpus=1) for i in range(2))
    assert await cluster.see(*nodes, pods=pods) == ["p0", "p1"]
    assert [one.at_risk for one in await cluster.listed()] == [True, True]
    assert cluster.at_risk.count()["training", True] == 2


async def test_it_is_told_of_any_pod_with_a_node_what_it_holds(cluster: Watched) -> None:
    node = with_gpus(b.device("gpu-0"))
    await cluster.see(node, pods=(claimed("p"),), claims=[claim("p", "gpu-0")])
    (one,) = await cluster.at_risk.placed(cluster.pods.values())
    assert [choice.device.device for choice in one.verdict.devices] == ["gpu-0"]
    assert (one.worst, one.since) == (None, 0.0)


async def test_a_pod_holds_the_units_that_the_kubelet_names_though_no_evidence_does(
    cluster: Watched,
) -> None:
    pod = placed("p", gpus=1)
    held = {"name": b.RESOURCE, "resources": [{"resourceID": "GPU-1", "health": "Healthy"}]}
    pod["status"]["containerStatuses"] = [{"allocatedResourcesStatus": [held]}]
    await cluster.see(b.node(gpus=8, units={"GPU-2": 0.2}), pods=(pod,))
    (one,) = await cluster.at_risk.placed(cluster.pods.values())
    assert [(unit.unit, unit.certain) for unit in one.units] == [("GPU-1", True)]
    assert not one.at_risk


def test_a_pod_was_bound_when_its_condition_says_or_else_when_it_started() -> None:
    pod = b.pod(placed("p"))
    assert bound_at(pod) == BOUND_S
    raw = placed("p")
    raw["status"] = {"startTime": "2026-01-01T00:00:07Z"}
    assert bound_at(b.pod(raw)) == BOUND_S + 7
    assert bound_at(b.pod(b.gpu_pod())) == unix_s(None, 0.0)


async def test_the_first_view_logs_the_pods_that_are_at_risk(cluster: Watched) -> None:
    await cluster.see(b.node(gpus=8, own=b.health(0.1)), pods=(placed("p", gpus=1),))
    with capture_logs() as logs:
        cluster.at_risk.log_first(cluster.at_risk.found)
    (line,) = logs
    assert (line["pods"], line["bound_in_the_last_10_minutes"]) == (1, 1)
    assert line["newest"] == "default/p"


async def test_what_a_pod_took_as_its_last_choice_is_no_risk_and_what_came_later_is(
    cluster: Watched,
) -> None:
    training = BUILT_IN["training"]
    placement = msgspec.structs.replace(training.placement, patience="1m", gang_patience=None)
    policies = {"training": msgspec.structs.replace(training, placement=placement)}
    waited, hurried = placed("waited", gpus=1), placed("hurried", gpus=1)
    waited["metadata"]["creationTimestamp"] = "2025-12-31T23:58:59Z"
    hurried["metadata"]["creationTimestamp"] = "2025-12-31T23:59:01Z"
    worn = b.node(gpus=8, own=b.health(0.5))
    assert await cluster.see(worn, pods=(waited, hurried), policies=policies) == ["hurried"]
    dead = b.node(gpus=8, own=b.health(0.1))
    assert await cluster.see(dead, policies=policies) == ["hurried", "waited"]
    later = msgspec.structs.replace(worn.health, since=BOUND_S + 50)
    anew = b.node(gpus=8, own=later)
    assert await cluster.see(anew, policies=policies) == ["hurried", "waited"]
