"""What people read about a node's answer to a pod, and about its devices."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.cel.runtime.protocol import MATCH
from fettle.cli.explained_pods import evidence_lines, print_evidence
from fettle.cluster import NodeView, PluginView, UnitView
from fettle.dra import AllocatedDevice, Alternative, Claim, DeviceView, Request
from fettle.explain.conclusions import result_word, summary
from fettle.explain.devices import list_nodes
from fettle.explain.pods import (
    Stewardship,
    explain_pod,
    explain_policy,
    plain_health,
    plain_verdict,
)
from fettle.model import (
    BUILT_IN,
    SOUND,
    Health,
    Kept,
    Mode,
    OnDeviceFailure,
    Policies,
    Resolved,
    State,
    Weighed,
    reasons,
)
from fettle.model.modes import ModeOf
from fettle.scheduling import Demand, Units
from fettle.scheduling.demand import Bound
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.verdicts import judge
from tests.fettle import building as b

INFERENCE = BUILT_IN["inference"]


def answer_to(demand: Demand, node: NodeView) -> dict[str, Any]:
    """A node's answer as `/explain` has it."""
    allocator = Allocator(lambda *_: MATCH, explains=True)
    answer = judge(demand, node, Acceptance(demand.policy.placement), allocator)
    return {**plain_verdict(answer), "health": plain_health(node.health), "units": []}


def bound(device: str, *, to: str = "n") -> Demand:
    field = {"key": "metadata.name", "operator": "In", "values": [to]}
    raw = msgspec.json.encode({"nodeSelectorTerms": [{"matchFields": [field]}]})
    nodes = msgspec.json.decode(raw, type=core.NodeSelector)
    return Demand(INFERENCE, bound=(Bound("k", (AllocatedDevice(b.device(device).id),), nodes),))


def wanted(name: str, count: int = 1) -> Alternative:
    return Alternative(name, b.DRIVER, ("any",), count=count)


def demand_for(*requests: Request) -> Demand:
    return Demand(INFERENCE, claims=(Claim("k", requests),))


NODE = b.node(pools=(b.pool(b.device("a"), b.device("b")),))


def test_a_node_to_which_a_claim_is_not_allocated_does_not_fit() -> None:
    value = answer_to(bound("a", to="other"), NODE)
    assert result_word(value) == "no fit"
    assert summary(value).startswith("claim k is allocated to other nodes (it holds ")
    assert (value["fits"], value["allowed"]) == (False, True)


def test_a_refusal_also_says_that_the_claim_is_allocated_elsewhere_anyway() -> None:
    lost = b.node(pools=(b.pool(b.device("a", 0.1)),))
    both = msgspec.structs.replace(
        bound("b", to="other"), claims=demand_for(Request("g", (wanted("g"),))).claims
    )
    value = answer_to(both, lost)
    assert result_word(value) == "refused"
    refusal, anyway = summary(value).split("; no fit anyway: ")
    assert "which is Unhealthy" in refusal
    assert anyway.startswith("claim k is allocated to other nodes")


def test_the_summary_names_an_allocated_device_that_is_no_longer_published() -> None:
    value = answer_to(bound("dead"), NODE)
    assert result_word(value) == "fits"
    assert value["score"] == 8
    assert summary(value) == (
        "claim k holds gpu.example.com/n/dead, which is not published for this node"
    )


def test_the_summary_names_the_device_that_a_claim_holds() -> None:
    assert summary(answer_to(bound("a"), NODE)) == "holds gpu.example.com/n/a"


def test_the_devices_of_a_single_request_are_listed_without_its_name() -> None:
    value = answer_to(demand_for(Request("g", (wanted("g", 2),))), NODE)
    assert summary(value) == "would get gpu.example.com/n/a, gpu.example.com/n/b"


def test_the_devices_of_several_requests_are_listed_by_request() -> None:
    value = answer_to(demand_for(Request("g", (wanted("g"),)), Request("h", (wanted("h"),))), NODE)
    assert summary(value) == (
        "would get gpu.example.com/n/a for k/g and gpu.example.com/n/b for k/h"
    )


def test_the_summary_names_the_alternative_that_would_be_chosen() -> None:
    listed = Request("g", (wanted("g/four", 4), wanted("g/one")), listed=True)
    value = answer_to(demand_for(listed), NODE)
    assert summary(value) == "would get gpu.example.com/n/a for k/g (alternative one)"


def in_a_burst(policy: str, in_flight: int, *requests: Request) -> Demand:
    return Demand(BUILT_IN[policy], claims=(Claim("k", requests),), in_flight=in_flight)


def test_the_summary_names_the_device_that_pods_in_flight_would_leave() -> None:
    node = b.node(pools=(b.pool(b.device("a"), b.device("b", 0.85), b.device("c")),))
    value = answer_to(in_a_burst("inference", 2, Request("g", (wanted("g"),))), node)
    assert value["score"] == 8
    assert summary(value) == (
        "would get gpu.example.com/n/a; up to 2 pods with the same needs may be placed here first: "
        "this one may then get gpu.example.com/n/b (0.85)"
    )


def test_of_many_devices_that_would_be_left_the_worst_are_named_first() -> None:
    scores = {"a": 1.0, "b": 1.0, "c": 0.9, "d": 0.85}
    node = b.node(pools=(b.pool(*(b.device(name, score) for name, score in scores.items())),))
    value = answer_to(in_a_burst("inference", 1, Request("g", (wanted("g", 2),))), node)
    assert value["notes"] == [
        "1 pod with the same needs may be placed here first: this one may then get "
        "gpu.example.com/n/d (0.85), gpu.example.com/n/c (0.90)"
    ]
    node = b.node(pools=(b.pool(*(b.device(name) for name in "abc"), b.device("d", 0.85)),))
    value = answer_to(in_a_burst("training", 1, Request("g", (wanted("g", 2),))), node)
    assert value["notes"][0].endswith("may then get gpu.example.com/n/d (0.85)")


def test_a_device_that_would_be_refused_after_pods_in_flight_is_named_with_the_refusal() -> None:
    node = b.node(pools=(b.pool(b.device("a"), b.device("b", 0.1)),))
    value = answer_to(in_a_burst("training", 4, Request("g", (wanted("g"),))), node)
    assert (value["fits"], value["score"]) == (True, 0)
    assert value["notes"] == [
        "up to 4 pods with the same needs may be placed here first: then k/g would get "
        "gpu.example.com/n/b, which is Unhealthy (0.10): a fault"
    ]


@pytest.mark.parametrize("devices", ["a", "abcdef"], ids=["none are left", "they are as good"])
def test_if_pods_in_flight_lower_no_score_only_their_number_is_noted(
    devices: str,
) -> None:
    node = b.node(pools=(b.pool(*map(b.device, devices)),))
    value = answer_to(in_a_burst("training", 4, Request("g", (wanted("g"),))), node)
    assert value["score"] == 10
    assert value["notes"] == ["up to 4 pods with the same needs may be placed here first"]


def test_a_held_device_is_named_beside_an_unpublished_one_with_a_longer_name() -> None:
    held = bound("d1").bound
    demand = in_a_burst("inference", 1, Request("g", (wanted("g"),)))
    taken = b.device("d1", allocated=True)
    node = b.node(pools=(b.pool(taken, b.device("a"), b.device("d10", 0.8)),))
    reason = summary(answer_to(msgspec.structs.replace(demand, bound=held), node))
    assert reason.startswith("holds gpu.example.com/n/d1; would get gpu.example.com/n/a for k/g; ")
    assert reason.endswith("may then get gpu.example.com/n/d10 (0.80)")


def test_a_missing_resource_does_not_fit_and_an_unseen_claim_is_undecided() -> None:
    value = answer_to(Demand(INFERENCE, units=(Units(b.RESOURCE, 1),)), NODE)
    assert result_word(value) == "no fit"
    assert result_word(
        answer_to(Demand(INFERENCE, unsettled=(reasons.ClaimNotFound("k", "ns/k"),)), NODE)
    ) == ("undecided")


def explained(node: NodeView, count: int, *pods: core.Pod) -> dict[str, Any]:
    """A node's answer to a pod that needs so many units, beside pods that are there already."""
    demand = Demand(INFERENCE, units=(Units(b.RESOURCE, count),))
    answer = judge(demand, node, Acceptance(demand.policy.placement), Allocator(lambda *_: MATCH))
    resolved = Policies().resolve({}, {}, {}, {})
    view = b.view(node, pods={f"ns/{i}": pod for i, pod in enumerate(pods)})
    (answer,) = explain_pod("ns/p", resolved, demand, {node.name: answer}, view)["nodes"].values()
    assert isinstance(answer, dict)
    return answer


def holding(count: int, node: str) -> core.Pod:
    raw = b.gpu_pod(count)
    raw["spec"]["nodeName"] = node
    return b.pod({**raw, "status": {"phase": "Running"}})


def test_a_node_whose_units_are_taken_does_not_fit() -> None:
    """kube-scheduler: Insufficient example.com/gpu."""
    node = b.node("n1", gpus=8)
    value = explained(node, 2, holding(7, "n1"))
    assert (result_word(value), value["fits"], value["allowed"]) == ("no fit", False, True)
    assert summary(value) == (
        f"{b.RESOURCE}: 7 of 8 are taken by pods, 2 requested, which the scheduler's own check "
        "refuses"
    )
    assert result_word(explained(node, 1, holding(7, "n1"))) == "fits"
    assert result_word(explained(node, 8, holding(8, "n2"))) == "fits"


@pytest.mark.parametrize(
    ("capacity", "allocatable", "fewer", "why"),
    [
        (8, 0, 0, ": 8 of 8 withdrawn by the device plugin"),
        (6, 6, 2, ": most nodes of its kind have 2 more"),
        (8, 4, 2, ": 4 of 8 withdrawn by the device plugin, most nodes of its kind have 2 more"),
        (0, 0, 0, ": its device plugin offers none"),
        (7, 7, 0, ""),
    ],
)
def test_too_few_units_say_where_the_others_are(
    capacity: int, allocatable: int, fewer: int, why: str
) -> None:
    few = PluginView(b.RESOURCE, capacity, allocatable, fewer=fewer)
    node = msgspec.structs.replace(b.node("n1", gpus=1), plugins={b.RESOURCE: few})
    assert explained(node, 8)["rejected"] == [
        f"{b.RESOURCE}: {allocatable} allocatable, 8 requested, which the scheduler's own check "
        f"refuses{why}"
    ]


def test_a_node_without_a_plugin_and_a_driver_says_so() -> None:
    (why,) = explained(b.node("n1"), 1)["rejected"]
    assert why.endswith("no device plugin offers it here, and no DeviceClass stands for it")


def test_taken_units_decide_nothing_on_an_unreadable_node() -> None:
    node = msgspec.structs.replace(b.node("n1", gpus=8), quarantined=("Node n1: no object",))
    value = explained(node, 1, holding(8, "n1"))
    assert result_word(value) == "undecided"
    assert any("8 of 8 are taken" in why for why in value["undecided"])


def test_a_cordon_is_noted_and_changes_no_verdict() -> None:
    demand = Demand(INFERENCE, units=(Units(b.RESOURCE, 1),))
    cordon = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    nodes = [b.node("free", gpus=1), b.node("cordoned", gpus=1)]
    nodes[1] = msgspec.structs.replace(nodes[1], taints=(cordon,))
    accepts, allocator = Acceptance(demand.policy.placement), Allocator(lambda *_: MATCH)
    verdicts = {node.name: judge(demand, node, accepts, allocator) for node in nodes}
    resolved = Policies().resolve({}, {}, {}, {})
    answered = explain_pod("ns/p", resolved, demand, verdicts, b.view(*nodes))["nodes"]
    assert answered["cordoned"]["score"] == answered["free"]["score"]
    assert summary(answered["free"]) == ""
    assert summary(answered["cordoned"]).startswith("cordoned: ")


def for_units(*devices: DeviceView, counts: tuple[int, ...]) -> dict[str, Any]:
    """A node's answer to a pod whose containers each need so many units of a device class."""
    backing = tuple(
        Request(f"container-{i}-request-0", (wanted(f"container-{i}-request-0", count),))
        for i, count in enumerate(counts)
    )
    demand = Demand(BUILT_IN["training"], units=(Units(b.RESOURCE, sum(counts), backing),))
    node = b.node(pools=(b.pool(*devices),))
    allocator = Allocator(lambda *_: MATCH, explains=True)
    answer = judge(demand, node, Acceptance(demand.policy.placement), allocator)
    resolved = Policies().resolve({}, {}, {}, {})
    value = explain_pod("ns/p", resolved, demand, {"n": answer}, b.view(node))["nodes"]["n"]
    assert isinstance(value, dict)
    return value


def test_devices_for_an_extended_resource_are_listed_under_its_name() -> None:
    value = for_units(b.device("a"), b.device("b"), counts=(1, 1))
    assert summary(value) == "would get gpu.example.com/n/a, gpu.example.com/n/b"
    assert [d["resource"] for d in value["devices"]] == [b.RESOURCE, b.RESOURCE]
    assert value["devices"][1]["request"] == "<extended-resources>/container-1-request-0"


def test_reasons_name_the_extended_resource_and_its_request_if_there_are_several() -> None:
    reason = summary(for_units(b.device("a", 0.1), counts=(1,)))
    assert (
        reason == f"{b.RESOURCE} would get gpu.example.com/n/a, which is Unhealthy (0.10): a fault"
    )
    reason = summary(for_units(b.device("a"), counts=(1,) * 10 + (2,)))
    assert "<" not in reason
    assert f"{b.RESOURCE} (container-10-request-0): 2 requested, 1 device matches" in reason


def test_evidence_names_the_object_that_reported_it() -> None:
    line = evidence_lines(plain_health(b.health(0.5))["evidence"])[0]
    assert line.endswith("[node, taint test, Node n]")


def test_the_summary_names_the_evidence_of_the_unit_that_lowers_the_score() -> None:
    node = b.node(gpus=8, units={"GPU-a": 0.25})
    demand = Demand(INFERENCE, units=(Units(b.RESOURCE, 1),))
    answer = judge(demand, node, Acceptance(demand.policy.placement), Allocator(lambda *_: MATCH))
    resolved = Policies().resolve({}, {}, {}, {})
    value = explain_pod("ns/p", resolved, demand, {"n": answer}, b.view(node))["nodes"]["n"]
    (unit,) = value["units"]
    assert (unit["resource"], unit["unit"], unit["score"]) == (b.RESOURCE, "GPU-a", 0.25)
    assert unit["evidence"][0]["text"] == "a fault"
    assert summary(value) == "a fault"


def test_the_summary_does_not_name_the_evidence_of_a_withdrawn_unit() -> None:
    node = b.node(gpus=7, units={"GPU-a": 0.25}, withdrawn=frozenset({"GPU-a"}))
    demand = Demand(INFERENCE, units=(Units(b.RESOURCE, 1),))
    answer = judge(demand, node, Acceptance(demand.policy.placement), Allocator(lambda *_: MATCH))
    resolved = Policies().resolve({}, {}, {}, {})
    value = explain_pod("ns/p", resolved, demand, {"n": answer}, b.view(node))["nodes"]["n"]
    assert summary(value) == (
        f"{b.RESOURCE}: 1 of 8 withdrawn by the device plugin: GPU-a; preferred: its other devices "
        f"cannot serve pods that need all of its {b.RESOURCE}: GPU-a is withdrawn"
    )
    (unit,) = value["units"]
    assert unit["about"] == "withdrawn by the device plugin"
    printed: list[str] = []
    print_evidence(SimpleNamespace(print=printed.append), {"n": value})
    unit_line, evidence_line = printed
    assert unit_line.endswith("GPU-a on n (withdrawn by the device plugin): Unhealthy 0.25")
    assert "a fault" in evidence_line


@pytest.mark.parametrize(
    ("holders", "held"),
    [
        ({"holder": ["GPU-a"]}, "held by default/holder, and"),
        ({"holder": ["GPU-b"]}, ""),
        ({"two": ["GPU-a", "GPU-b"]}, "held by default/two, and"),
        ({"one": [], "other": []}, "held by one of default/one, default/other, and"),
    ],
    ids=["certain", "another unit", "both units", "one of two"],
)
def test_where_units_are_lacking_it_is_said_who_still_holds_a_withdrawn_one(
    holders: dict[str, list[str]], held: str
) -> None:
    """As in kubernetes/kubernetes#92592: a sound unit is idle, and the scheduler counts none."""
    node = b.node(gpus=1, units={"GPU-a": 0.25}, withdrawn=frozenset({"GPU-a"}))
    pods = [holder_of(name, gpus) for name, gpus in holders.items()]
    demand = Demand(INFERENCE, units=(Units(b.RESOURCE, 1),))
    answer = judge(demand, node, Acceptance(demand.policy.placement), Allocator(lambda *_: MATCH))
    view = b.view(node, pods={pod.metadata.key: pod for pod in pods})
    resolved = Policies().resolve({}, {}, {}, {})
    value = explain_pod("ns/p", resolved, demand, {"n": answer}, view)["nodes"]["n"]
    assert result_word(value) == "no fit"
    notes = [note for note in value["notes"] if "the withdrawn GPU-a is still" in note]
    assert [held in note for note in notes] == [True] * bool(held)


def holder_of(name: str, gpus: list[str]) -> core.Pod:
    """A running pod with one GPU, or with those that the kubelet names."""
    raw = b.gpu_pod(len(gpus) or 1, name=name)
    raw["spec"]["nodeName"] = "n"
    said = [{"name": b.RESOURCE, "resources": [{"resourceID": gpu} for gpu in gpus]}]
    status = [{"allocatedResourcesStatus": said}] if gpus else []
    raw["status"] = {"phase": "Running", "containerStatuses": status}
    return b.pod(raw)


def test_units_that_a_plugin_no_longer_counts_are_not_counted_as_its_capacity() -> None:
    """A plugin that restarted without a lost GPU has withdrawn none of those it has."""
    before = b.node(gpus=7, units={"GPU-a": 0.25}, withdrawn=frozenset({"GPU-a"}))
    plugin = msgspec.structs.replace(before.plugins[b.RESOURCE], capacity=7)
    node = msgspec.structs.replace(before, plugins={b.RESOURCE: plugin})
    demand = Demand(INFERENCE, units=(Units(b.RESOURCE, 1),))
    note = f"{b.RESOURCE}: no longer offered by the device plugin, which has 7: GPU-a"
    assert answer_to(demand, node)["notes"][0] == note
    (listed,) = list_nodes(b.view(node))
    (unit,) = listed["resources"][0]["units"]
    assert unit["about"] == "no longer offered by the device plugin"


DWELLING = Health(1.0, State.UNHEALTHY, 50_000.0, kept=Kept(State.HEALTHY, until=50_601.0))
BETWEEN = Health(0.85, State.DEGRADED, 50_000.0, kept=Kept(State.HEALTHY, score=0.9))


@pytest.mark.parametrize(
    ("health", "why"),
    [
        (SOUND, None),
        (b.health(0.5), None),
        (BETWEEN, "Healthy again from 0.90"),
        (DWELLING, "held by the minimum dwell until 14:04 UTC"),
        (
            msgspec.structs.replace(DWELLING, kept=Kept(State.HEALTHY, until=200_000.0)),
            "held by the minimum dwell until 1970-01-03 07:34 UTC",
        ),
        (
            msgspec.structs.replace(DWELLING, kept=Kept(State.HEALTHY, until=1e18)),
            "held by the minimum dwell",
        ),
    ],
)
def test_health_says_why_a_state_is_worse_than_its_score(health: Health, why: str) -> None:
    assert plain_health(health)["kept"] == why


def test_a_node_that_fits_says_what_keeps_it_in_a_worse_state_than_its_score() -> None:
    value = answer_to(Demand(INFERENCE, units=(Units(b.RESOURCE, 1),)), b.node(own=BETWEEN, gpus=8))
    assert result_word(value) == "fits"
    assert summary(value) == "Degraded (Healthy again from 0.90)"


def test_unhealthy_units_of_a_demand_are_listed_even_without_evidence() -> None:
    plugin = PluginView(b.RESOURCE, 8, 8, (UnitView("GPU-a", DWELLING),))
    node = msgspec.structs.replace(b.node(own=BETWEEN), plugins={b.RESOURCE: plugin})
    demand = Demand(INFERENCE, units=(Units(b.RESOURCE, 8),))
    answer = judge(demand, node, Acceptance(demand.policy.placement), Allocator(lambda *_: MATCH))
    resolved = Policies().resolve({}, {}, {}, {})
    value = explain_pod("ns/p", resolved, demand, {"n": answer}, b.view(node))["nodes"]["n"]
    printed: list[str] = []
    print_evidence(SimpleNamespace(print=printed.append), {"n": value})
    assert printed == [
        f"\n{b.RESOURCE} GPU-a on n: Unhealthy 1.00; held by the minimum dwell until 14:04 UTC",
        "\nn: Degraded 0.85; Healthy again from 0.90",
    ]


def test_evidence_about_a_node_or_a_shared_device_is_printed_once() -> None:
    said = plain_health(b.health(0.5, text="shared fault"))
    own = plain_health(b.health(0.6, text="node fault"))
    row = {"health": own, "units": [{"resource": "r", "unit": "u", **own}], "devices": []}
    fabric = {"device": "fabric/p/d", **said}
    printed: list[str] = []
    print_evidence(
        SimpleNamespace(print=printed.append), {n: {**row, "devices": [fabric]} for n in "ab"}
    )
    text = "\n".join(printed)
    assert (text.count("shared fault"), text.count("node fault")) == (1, 2)


def test_evidence_from_a_tenant_is_printed_as_such_beside_the_proven_score() -> None:
    (fault,) = b.health(0.65, text="pod refused").evidence
    said = msgspec.structs.replace(fault.evidence, reporting_namespace="team-a")
    word = Health(0.65, State.HEALTHY, evidence=(Weighed(said, 0.35),), tenant_caused=0.35)
    value = plain_health(word)
    assert (value["score"], value["proven"]) == (0.65, 1.0)
    (line,) = evidence_lines(value["evidence"])
    assert "pod refused" in line
    assert "reported only by namespace team-a: lowers the score, refuses nothing" in line
    assert "reported only by" not in evidence_lines(plain_health(b.health(0.5))["evidence"])[0]


@pytest.mark.parametrize(
    ("wanted", "allowed", "note"),
    [
        ("None", None, ""),
        ("Mark", None, "has no effect: the setting deviceFailures.allow is not set"),
        ("Evict", None, "has no effect: the setting deviceFailures.allow is not set"),
        ("Mark", "Mark", ""),
        ("Evict", "Mark", "pods are only marked: the setting deviceFailures.allow is Mark"),
        ("Mark", "Evict", ""),
        ("Evict", "Evict", ""),
    ],
)
def test_a_policy_says_what_the_settings_leave_of_what_it_asks_for(
    wanted: str, allowed: str | None, note: str
) -> None:
    failure = msgspec.structs.replace(INFERENCE.failure, on_device_failure=OnDeviceFailure(wanted))
    policy = msgspec.structs.replace(INFERENCE, failure=failure)
    assert _noted(Resolved(policy, ""), allowed) == note


@pytest.mark.parametrize(
    ("allowed", "note"),
    [
        (None, "has no effect: the setting deviceFailures.allow is not set"),
        ("Mark", "has no effect: the setting deviceFailures.allow is Mark"),
        ("Evict", None),
    ],
)
def test_a_policy_says_what_the_settings_leave_of_its_start_deadline(
    allowed: str | None, note: str | None
) -> None:
    failure = msgspec.structs.replace(INFERENCE.failure, start_deadline="10m")
    resolved = Resolved(msgspec.structs.replace(INFERENCE, failure=failure), "")
    values = explain_policy(resolved, (), Stewardship(allowed))["values"]
    assert [v["note"] for v in values if v["field"] == "failure.startDeadline"] == [note]


def _noted(
    resolved: Resolved,
    allowed: str | None,
    *,
    dry_run: bool = False,
    is_steward: bool = True,
) -> str:
    values = explain_policy(resolved, (), Stewardship(allowed, dry_run, is_steward))["values"]
    noted = {value["field"]: value["note"] for value in values if value["note"]}
    assert noted.keys() <= {"failure.onDeviceFailure"}
    return str(noted.get("failure.onDeviceFailure", ""))


def test_a_policy_says_that_nothing_is_written_where_that_is_so() -> None:
    failure = msgspec.structs.replace(INFERENCE.failure, on_device_failure=OnDeviceFailure.EVICT)
    policy = msgspec.structs.replace(INFERENCE, failure=failure)
    observed = Resolved(policy, "", mode=ModeOf(Mode.OBSERVE, ""))
    assert _noted(observed, "Mark") == "nothing is written in mode observe"
    assert _noted(observed, None).startswith("has no effect")
    dry = _noted(Resolved(policy, ""), "Evict", dry_run=True)
    assert dry == "nothing is written: the setting steward.dryRun is set"


@pytest.mark.parametrize(
    ("allowed", "said"),
    [(None, "has no effect: the setting deviceFailures.allow is not set"), ("Evict", "has effect")],
)
def test_a_process_that_is_no_steward_says_whose_settings_count(
    allowed: str | None, said: str
) -> None:
    failure = msgspec.structs.replace(INFERENCE.failure, on_device_failure=OnDeviceFailure.EVICT)
    resolved = Resolved(msgspec.structs.replace(INFERENCE, failure=failure), "")
    noted = _noted(resolved, allowed, is_steward=False)
    assert noted == f"{said}; so say this process's settings, but the steward goes by its own"


def test_of_very_many_reasons_the_first_are_told_and_how_many_more_there_are() -> None:
    demand = Demand(INFERENCE, units=tuple(Units(f"a.b/r{i}", 1) for i in range(1000)))
    value = answer_to(demand, NODE)
    assert len(value["rejected"]) == len(value["reasons"]["rejected"]) == 17
    assert value["rejected"][-1] == "and 984 more"
    assert summary(value).endswith(" (+999 more)")


@pytest.mark.long
def test_what_is_told_of_very_many_nodes_is_no_more_than_can_be_sent() -> None:
    demand = Demand(INFERENCE, units=tuple(Units(f"a.b/r{i}", 1) for i in range(1000)))
    answer = judge(demand, NODE, Acceptance(INFERENCE.placement), Allocator(lambda *_: MATCH))
    names = [f"n{i}" for i in range(5000)]
    view = b.view(*(msgspec.structs.replace(NODE, name=name) for name in names))
    resolved = Policies().resolve({}, {}, {})
    told = explain_pod("ns/p", resolved, demand, dict.fromkeys(names, answer), view)
    assert len(msgspec.json.encode(told)) < 32_000_000
