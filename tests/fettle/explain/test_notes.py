"""Notes about a pod: where it is, what it holds, and what keeps it off every node."""

from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.cel import Outcome
from fettle.cel.runtime import protocol
from fettle.cel.runtime.protocol import MATCH
from fettle.dra import Alternative, Claim, DeviceView, Request
from fettle.explain.pods import explain_pod
from fettle.model import BUILT_IN, Policies
from fettle.scheduling import Demand
from fettle.scheduling.demand import demand_of
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.verdicts import judge
from tests.fettle import building as b

ILL = {"state": "Unhealthy", "proven": 0.2, "evidence": "a fault"}
WELL = {"state": "Healthy", "proven": 1.0}


def values_of(explained: dict[str, Any]) -> list[Any]:
    """The code and fields of each note. Its words are in `test_wording.py`."""
    return [
        {name: value for name, value in note.items() if name != "text"}
        for note in explained["reasons"]["notes"]
    ]


def test_a_pod_that_is_not_in_the_view_is_explained_as_last_seen() -> None:
    resolved = Policies().resolve({}, {}, {}, {})
    gone = explain_pod("ns/p", resolved, None, {}, b.view())
    assert "deleted" in gone["notes"][0]
    there = explain_pod("ns/p", resolved, None, {}, b.view(pods={"ns/p": b.pod(b.gpu_pod())}))
    assert there["notes"] == []


def test_a_note_names_the_scheduling_gates_that_hold_a_pod_back() -> None:
    raw = b.gpu_pod()
    raw["spec"]["schedulingGates"] = [{"name": "a.example/x"}, {"name": "y"}]
    resolved = Policies().resolve({}, {}, {}, {})
    view = b.view(pods={"ns/p": b.pod(raw)})
    (note,) = values_of(explain_pod("ns/p", resolved, None, {}, view))
    assert note == {"code": "PodGated", "gates": ["a.example/x", "y"]}


def test_a_pod_without_gates_is_not_held_back_by_an_old_condition() -> None:
    """Until the scheduler has tried to place it once, the condition stays as it was."""
    said = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    pod = b.pod({**b.gpu_pod(), "status": {"conditions": [said]}})
    resolved = Policies().resolve({}, {}, {}, {})
    assert explain_pod("ns/p", resolved, None, {}, b.view(pods={"ns/p": pod}))["notes"] == []


def test_a_note_names_claims_that_are_not_created_yet() -> None:
    entries = [
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "gpu", "resourceClaimTemplateName": "t"},
        {"name": "own", "resourceClaimName": "c"},
    ]
    made = [{"name": "made", "resourceClaimName": "p-made"}]
    spec = {"containers": [], "resourceClaims": entries}
    status = {"resourceClaimStatuses": made}
    pod = b.pod({"metadata": {"name": "p"}, "spec": spec, "status": status})
    resolved = Policies().resolve({}, {}, {}, {})
    (note,) = values_of(explain_pod("ns/p", resolved, None, {}, b.view(pods={"ns/p": pod})))
    assert note == {"code": "ClaimsNotCreated", "claims": ["gpu"]}


@pytest.mark.parametrize(
    ("phase", "where"),
    [
        ("Running", "the pod runs on n1: "),
        ("Pending", "the pod is bound to n1 and does not run yet: "),
        ("", "the pod is bound to n1 and does not run yet: "),
    ],
)
def test_a_note_names_the_node_of_a_placed_pod(phase: str, where: str) -> None:
    raw = b.gpu_pod()
    raw["spec"]["nodeName"] = "n1"
    bound = b.pod({**raw, "status": {"phase": phase}})
    resolved = Policies().resolve({}, {}, {}, {})
    view = b.view(b.node("n1", gpus=1), pods={"ns/p": bound})
    (note,) = explain_pod("ns/p", resolved, None, {}, view)["notes"]
    assert note == f"{where}the verdicts are for another pod like it"


def test_a_note_names_the_devices_for_extended_resources_with_their_health() -> None:
    raw = b.gpu_pod()
    raw["spec"]["nodeName"] = "n"
    pod = b.pod(raw)
    devices = [b.device("a"), b.device("b", 0.2)]
    given = [
        {"request": "r", "driver": b.DRIVER, "pool": "n", "device": name}
        for name in ("b", "a", "z")
    ]
    metadata = {"name": "made", "namespace": "ns"}
    status = {"allocation": {"devices": {"results": given}}}
    claim = b.claim({"metadata": metadata, "spec": {}, "status": status})
    view = b.view(
        b.node("n", pools=(b.pool(*devices),)),
        pods={"ns/p": pod},
        extended_claims={pod.metadata.identity: claim},
    )
    resolved = Policies().resolve({}, {}, {}, {})
    _, note = values_of(explain_pod("ns/p", resolved, None, {}, view))
    assert (note["code"], note["claim"], note["adminAccess"]) == ("PodHolds", "", False)
    assert {held["device"]: held["health"] for held in note["devices"]} == {
        f"{b.DRIVER}/n/b": ILL,
        f"{b.DRIVER}/n/a": WELL,
        f"{b.DRIVER}/n/z": None,
    }


def given(request: str, device: str, **more: object) -> dict[str, object]:
    return {"request": request, "driver": b.DRIVER, "pool": "n", "device": device, **more}


def test_a_note_names_the_devices_of_a_pods_own_claims_with_their_health() -> None:
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("gpu", "old", "none")]
    shared = {"name": "shared", "resourceClaimName": "s"}
    made = [{"name": name, "resourceClaimName": f"p-{name}"} for name in ("gpu", "old")]
    pod = b.pod(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "nodeName": "n", "resourceClaims": [*entries, shared]},
            "status": {"phase": "Running", "resourceClaimStatuses": made},
        }
    )
    results = [given("r", "b"), given("look", "a", adminAccess=True), given("r", "b")]
    status = {"allocation": {"devices": {"results": results}}}
    whose = {"gpu": "u", "old": "another pod"}
    claims = {
        f"ns/p-{name}": b.claim(
            {
                "metadata": {
                    "name": f"p-{name}",
                    "namespace": "ns",
                    "ownerReferences": [{"kind": "Pod", "uid": uid, "controller": True}],
                },
                "spec": {},
                "status": status,
            }
        )
        for name, uid in whose.items()
    }
    claims["ns/s"] = claims["ns/p-gpu"]
    node = b.node("n", pools=(b.pool(b.device("a"), b.device("b", 0.2)),))
    view = b.view(node, pods={"ns/p": pod}, claims=claims)
    resolved = Policies().resolve({}, {}, {}, {})
    of_claim: dict[str, Any] = {"code": "PodHolds", "claim": "gpu"}
    ill = {"device": f"{b.DRIVER}/n/b", "health": ILL}
    well = {"device": f"{b.DRIVER}/n/a", "health": WELL}
    assert values_of(explain_pod("ns/p", resolved, None, {}, view)) == [
        {"code": "PodPlaced", "node": "n", "running": True, "ownClaims": True},
        {**of_claim, "devices": [ill], "adminAccess": False},
        {**of_claim, "devices": [well], "adminAccess": True},
    ]


def unused(
    entry: dict[str, str],
    *,
    reserved: tuple[str, ...] = (),
    cordoned: str = "",
    device: float = 0.1,
) -> list[Any]:
    """The notes about a pod whose claim is allocated on node `n`, with a device of this score.

    The claim cannot be used on node `m`.
    """
    field = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    here = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    at = "2026-01-01T00:00:00Z"
    allocation = {
        "allocationTimestamp": at,
        "devices": {"results": [given("r", "a")]},
        "nodeSelector": here,
    }
    owner = {"kind": "Pod", "name": "p", "uid": "u", "controller": True}
    metadata = {"name": "c", "namespace": "ns", "ownerReferences": [owner]}
    users = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]
    status = {"allocation": allocation, "reservedFor": users}
    claim = b.claim({"metadata": metadata, "spec": {}, "status": status})
    pod = b.pod(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "resourceClaims": [{"name": "gpu", **entry}]},
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]},
        }
    )
    nodes = [b.node("n", pools=(b.pool(b.device("a", device)),)), b.node("m")]
    cordon = core.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    nodes = [
        msgspec.structs.replace(node, taints=(cordon,) if node.name == cordoned else ())
        for node in nodes
    ]
    view = b.view(*nodes, pods={"ns/p": pod}, claims={"ns/c": claim})
    policies = Policies()
    demand = demand_of(pod, view, policies)
    assert demand is not None
    demand = msgspec.structs.replace(demand, policy=BUILT_IN["training"])
    acceptance, allocator = Acceptance(demand.policy.placement), Allocator(lambda *_: MATCH)
    verdicts = {node.name: judge(demand, node, acceptance, allocator) for node in nodes}
    resolved = policies.resolve({}, {}, {}, {})
    return values_of(explain_pod("ns/p", resolved, demand, verdicts, view))


NAMED, MADE = {"resourceClaimName": "c"}, {"resourceClaimTemplateName": "t"}
REVOKED = {"code": "ClaimWillBeReallocated", "claim": "gpu"}


@pytest.mark.parametrize("reserved", [(), ("u",)], ids=["for nobody", "for the pod itself"])
def test_a_note_says_that_an_unused_allocation_is_revoked_if_no_node_fits(
    reserved: tuple[str, ...],
) -> None:
    assert unused(NAMED, reserved=reserved) == [REVOKED]


@pytest.mark.parametrize(
    ("entry", "claim"), [(NAMED, "ns/c"), (MADE, "")], ids=["named", "its own"]
)
def test_a_note_says_that_an_allocation_stays_if_no_other_node_is_tried(
    entry: dict[str, str], claim: str
) -> None:
    assert unused(entry, cordoned="m") == [
        {"code": "ClaimStaysAllocated", "claim": "gpu", "resourceClaim": claim}
    ]


def test_a_note_says_that_an_allocation_is_revoked_if_the_node_that_fits_is_cordoned() -> None:
    assert unused(NAMED, cordoned="n", device=1.0) == [REVOKED]


def test_there_is_no_note_about_an_allocation_that_fits_or_that_another_pod_uses() -> None:
    assert unused(NAMED, reserved=("u", "other")) == []
    assert unused(NAMED, device=1.0) == []


# A node on which the scheduler's attempt ends in an error

POLICY = BUILT_IN["inference"]
DEMAND = Demand(
    POLICY, claims=(Claim("k", (Request("r", (Alternative("r", b.DRIVER, ("any",)),)),)),)
)


def odd(_expression: str, device: DeviceView) -> Outcome:
    return protocol.would_abort("no such key: model") if device.id.device == "odd" else MATCH


def notes(**devices: str) -> list[Any]:
    """The notes about a pod, by the device of each node."""
    nodes = {name: b.node(name, pools=(b.pool(b.device(d)),)) for name, d in devices.items()}
    acceptance, allocator = Acceptance(POLICY.placement), Allocator(odd)
    verdicts = {name: judge(DEMAND, node, acceptance, allocator) for name, node in nodes.items()}
    view = b.view(*nodes.values(), pods={"ns/p": b.pod(b.gpu_pod())})
    resolved = Policies().resolve({}, {}, {}, {})
    return values_of(explain_pod("ns/p", resolved, DEMAND, verdicts, view))


def test_a_note_names_the_node_whose_error_keeps_the_pod_off_all_others() -> None:
    (note,) = notes(n1="a", n2="odd", n3="b")
    assert (note["code"], note["node"], note["others"]) == ("NodeEndsAttempt", "n2", 0)
    assert note["cause"]["code"] == "SelectorFailed"
    assert note["cause"]["device"] == f"{b.DRIVER}/n/odd"


def test_the_note_names_the_first_of_several_nodes_with_errors() -> None:
    (note,) = notes(n1="a", n2="odd", n3="odd")
    assert (note["code"], note["node"], note["others"]) == ("NodeEndsAttempt", "n2", 1)


def test_there_is_no_note_if_every_node_ends_in_an_error() -> None:
    assert notes(n1="odd", n2="odd") == []


def test_there_is_no_note_if_no_node_ends_in_an_error() -> None:
    assert notes(n1="a", n2="b") == []


def test_a_note_says_that_the_pod_is_marked_as_one_whose_device_failed() -> None:
    since, message = "2026-01-01T00:00:00Z", "fettle: on node n: holds gpu GPU-1"
    said = {"type": "fettle.dev/DeviceFailed", "reason": "DeviceUnhealthy", "message": message}
    for status, marked in (("True", True), ("False", False)):
        one = {**said, "status": status, "lastTransitionTime": since}
        pod = b.pod({**b.gpu_pod(), "status": {"phase": "Running", "conditions": [one]}})
        resolved = Policies().resolve({}, {}, {}, {})
        notes = explain_pod("ns/p", resolved, None, {}, b.view(pods={"ns/p": pod}))["notes"]
        told = (
            f"has the condition fettle.dev/DeviceFailed since {since} (DeviceUnhealthy): {message}"
        )
        assert (told in notes) is marked
