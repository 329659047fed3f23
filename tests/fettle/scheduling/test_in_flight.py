from typing import Any

import msgspec
import pytest

from fettle.api import core, resource
from fettle.cluster import View
from fettle.dra import Alternative, Claim, Request
from fettle.dra.claims import Constraint
from fettle.model import BUILT_IN, Policies
from fettle.scheduling.demand import Demand, Units, demand_of
from fettle.scheduling.in_flight import InFlight
from tests.fettle import building as b

DEMAND = Demand(
    BUILT_IN["training"],
    claims=(Claim("gpu", (Request("r", (Alternative("r", b.DRIVER),)),)),),
)


TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "gpu"}


def pod(
    name: str, *claims: dict[str, Any], node: str | None = None, statuses: tuple[Any, ...] = ()
) -> core.Pod:
    metadata = {"name": name, "namespace": "default"}
    spec = {"nodeName": node, "resourceClaims": claims or (TEMPLATE,)}
    return b.pod(
        {"metadata": metadata, "spec": spec, "status": {"resourceClaimStatuses": statuses}}
    )


def naming(claim: str) -> dict[str, Any]:
    return {"name": "gpu", "resourceClaimName": claim}


def number(
    in_flight: InFlight, view: View | None = None, *, at: float = 0.5, demand: Demand = DEMAND
) -> int:
    return in_flight.count(demand, pod("me"), view or b.view(), at)


def noted(*names: str, at: float = 0.0) -> InFlight:
    in_flight = InFlight()
    for name in names:
        in_flight.note_nodes_given(DEMAND, pod(name), at)
    return in_flight


def test_pods_answered_a_moment_ago_count_but_not_the_pod_itself() -> None:
    assert number(noted("me", "a", "b")) == 2


def test_counts_are_rounded_up_to_a_few_steps() -> None:
    assert number(noted("a", "b", "c")) == 4
    assert number(noted(*map(str, range(50)))) == 8


def test_a_pod_is_in_flight_for_at_most_a_second() -> None:
    assert number(noted("a"), at=1.5) == 0


def test_a_bound_pod_is_no_longer_in_flight() -> None:
    view = b.view(pods={"default/a": pod("a", node="n")})
    assert number(noted("a", "b"), view) == 1


def test_a_pod_whose_claims_are_allocated_is_no_longer_in_flight() -> None:
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]
    claim = {
        "metadata": {"name": "a-gpu", "namespace": "default"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    claims = {"default/a-gpu": b.claim(claim)}
    for known in (pod("a", naming("a-gpu")), pod("a", statuses=(naming("a-gpu"),))):
        pods = {"default/a": known}
        assert number(noted("a"), b.view(pods=pods)) == 1
        assert number(noted("a"), b.view(pods=pods, claims=claims)) == 0


def test_pods_that_share_a_claim_take_its_devices_once_and_nothing_from_each_other() -> None:
    in_flight = InFlight()
    for name in ("a", "b", "c"):
        in_flight.note_nodes_given(DEMAND, pod(name, naming("shared")), 0.0)
    assert in_flight.count(DEMAND, pod("me", naming("shared")), b.view(), 0.5) == 0
    assert in_flight.count(DEMAND, pod("me", naming("mine")), b.view(), 0.5) == 1


def test_a_pod_whose_claim_is_not_created_yet_is_in_flight() -> None:
    view = b.view(pods={"default/a": pod("a")})
    assert number(noted("a"), view) == 1


def member(name: str, group: str = "gang", refused_at: str = "") -> core.Pod:
    """A pod of a PodGroup, that the scheduler could not place at that time."""
    raw = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resourceClaims": (TEMPLATE,), "schedulingGroup": {"podGroupName": group}},
    }
    if refused_at:
        condition = {"type": "PodScheduled", "status": "False", "lastTransitionTime": refused_at}
        raw["status"] = {"conditions": [condition]}
    return b.pod(raw)


def ask(in_flight: InFlight, pod: core.Pod, at: float = 0.0) -> int:
    """As filter does: how many others are in flight when the scheduler asks about a pod."""
    in_flight.note_attempt(pod)
    others = in_flight.count(DEMAND, pod, b.view(), at)
    in_flight.note_nodes_given(DEMAND, pod, at)
    in_flight.count(DEMAND, pod, b.view(), at)  # as prioritize does, which ends nothing
    return others


def test_the_pods_of_a_pod_group_count_for_each_other_in_each_placement_that_is_tried() -> None:
    in_flight = InFlight()
    for _ in range(3):  # placements, or cycles that came to nothing
        assert [ask(in_flight, member(name)) for name in "abc"] == [0, 1, 2]
    assert number(in_flight) == 4


def test_when_a_pod_group_is_tried_anew_only_its_own_earlier_answers_end() -> None:
    in_flight = noted("alone")
    for name in "xyz":
        ask(in_flight, member(name, "other"))
    assert [ask(in_flight, member(name)) for name in "abc"] == [4, 8, 8]
    assert ask(in_flight, member("a")) == 4
    assert ask(in_flight, member("new")) == 8


def test_a_pod_that_the_scheduler_could_not_place_after_the_answer_is_not_in_flight() -> None:
    first, later = "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"
    view = b.view(pods={"default/a": member("a", refused_at=later)})
    for before in (member("a"), member("a", refused_at=first)):
        in_flight = InFlight()
        in_flight.note_nodes_given(DEMAND, before, 0.0)
        assert number(in_flight, view) == 0
    in_flight = InFlight()
    in_flight.note_nodes_given(DEMAND, member("a", refused_at=later), 0.0)  # it is tried again
    assert number(in_flight, view) == 1


def test_pods_with_other_needs_do_not_count() -> None:
    other = Demand(BUILT_IN["training"], claims=(Claim("nic"),))
    assert number(noted("a"), demand=other) == 0


def needing(*claims: Claim) -> Demand:
    return Demand(BUILT_IN["training"], claims=claims)


def gpus(name: str = "r", **fields: Any) -> Request:
    return Request(name, (Alternative(name, b.DRIVER, ("device.driver == 'a'",), **fields),))


def same_numa(*requests: str) -> Constraint:
    return Constraint("numa", requests=frozenset(requests))


@pytest.mark.parametrize(
    ("demand", "other"),
    [
        (needing(Claim("gpu", (gpus(),))), needing(Claim("accelerator", (gpus(),)))),
        (needing(Claim("gpu", (gpus("a"),))), needing(Claim("gpu", (gpus("b"),)))),
        (
            needing(Claim("a", (gpus(),)), Claim("b", (gpus(count=2),))),
            needing(Claim("a", (gpus(count=2),)), Claim("b", (gpus(),))),
        ),
        (
            needing(Claim("gpu", (gpus("a"), gpus("b"), gpus("c")), (same_numa("a", "b"),))),
            needing(Claim("gpu", (gpus("x"), gpus("y"), gpus("z")), (same_numa("x", "y"),))),
        ),
        (
            needing(Claim("gpu", (gpus("a"), gpus("b")), (same_numa(),))),
            needing(Claim("gpu", (gpus("a"), gpus("b")), (same_numa("a", "b"),))),
        ),
        (
            needing(Claim("gpu", (Request("a", (Alternative("a/x"), Alternative("a/y"))),))),
            needing(Claim("gpu", (Request("b", (Alternative("b/1"), Alternative("b/2"))),))),
        ),
    ],
)
def test_pods_with_the_same_needs_count_whatever_their_requests_are_called(
    demand: Demand, other: Demand
) -> None:
    in_flight = InFlight()
    in_flight.note_nodes_given(other, pod("a"), 0.0)
    assert number(in_flight, demand=demand) == 1


@pytest.mark.parametrize(
    "other",
    [
        Claim("gpu", (gpus(count=2), gpus("s"))),
        Claim("gpu", (gpus(), gpus("s"))),
        Claim("gpu", (gpus(), gpus("s")), (same_numa("r"),)),
        Claim("gpu", (gpus(), gpus("s")), (Constraint("numa", distinct=True),)),
        Claim("gpu", (gpus(mode="All"), gpus("s")), (same_numa(),)),
        Claim("gpu", (gpus(tolerations=(resource.DeviceToleration(),)), gpus("s")), (same_numa(),)),
        Claim("gpu", (Request("r", (Alternative("r", b.DRIVER),)), gpus("s")), (same_numa(),)),
        Claim("gpu", (Request("r", (Alternative("r", "class"),)), gpus("s")), (same_numa(),)),
        Claim("gpu", (msgspec.structs.replace(gpus(), listed=True), gpus("s")), (same_numa(),)),
    ],
)
def test_pods_whose_requests_differ_do_not_count(other: Claim) -> None:
    in_flight = InFlight()
    in_flight.note_nodes_given(needing(other), pod("a"), 0.0)
    assert number(in_flight, demand=needing(Claim("gpu", (gpus(), gpus("s")), (same_numa(),)))) == 0


def test_pods_with_more_claims_do_not_count() -> None:
    in_flight = InFlight()
    in_flight.note_nodes_given(needing(Claim("a", (gpus(),)), Claim("b", (gpus(),))), pod("a"), 0.0)
    assert number(in_flight, demand=needing(Claim("a", (gpus(),)))) == 0


BACKED = {"gpu": b.device_class("gpu", "device.driver == 'a'", extendedResourceName=b.RESOURCE)}


def of_units(name: str, units: int, **other: str) -> tuple[Demand, core.Pod]:
    """A pod that needs an extended resource of a device class."""
    limits = {b.RESOURCE: str(units), **other}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    metadata = {"name": name, "namespace": "default"}
    made = b.pod({"metadata": metadata, "spec": {"containers": [container]}})
    demand = demand_of(made, b.view(classes=BACKED), Policies())
    assert demand is not None
    return demand, made


def test_pods_with_as_many_units_of_a_device_class_count() -> None:
    in_flight = InFlight()
    in_flight.note_nodes_given(*of_units("a", 3, cpu="1"), 0.0)
    three, one = of_units("x", 3), of_units("y", 1)
    assert in_flight.count(*three, b.view(), 0.5) == 1
    assert in_flight.count(*one, b.view(), 0.5) == 0


def test_devices_by_a_claim_and_units_of_their_device_class_are_the_same_needs() -> None:
    in_flight = InFlight()
    wanted = Request("r", (Alternative("r", "gpu", ("device.driver == 'a'",), count=2),))
    in_flight.note_nodes_given(needing(Claim("gpu", (wanted,))), pod("a"), 0.0)
    assert in_flight.count(*of_units("x", 2), b.view(), 0.5) == 1


def test_units_of_device_plugins_are_not_counted_in_flight() -> None:
    units = Demand(BUILT_IN["training"], units=(Units(b.RESOURCE, 1),))
    in_flight = InFlight()
    in_flight.note_nodes_given(units, pod("a"), 0.0)
    assert number(in_flight, demand=units) == 0


def test_a_claim_that_no_container_uses_does_not_matter_for_pods_in_flight() -> None:
    both = ({"name": "gpu", "resourceClaimName": "shared"}, {**TEMPLATE, "name": "nic"})
    skipped = ({"name": "nic"},)
    in_flight = InFlight()
    in_flight.note_nodes_given(DEMAND, pod("a", *both, statuses=skipped), 0.0)
    assert in_flight.count(DEMAND, pod("me", *both, statuses=skipped), b.view(), 0.5) == 0
    assert in_flight.count(DEMAND, pod("me", naming("mine")), b.view(), 0.5) == 1

    results = [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]
    claim = {
        "metadata": {"name": "shared", "namespace": "default"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    view = b.view(
        pods={"default/a": pod("a", *both, statuses=skipped)},
        claims={"default/shared": b.claim(claim)},
    )
    assert in_flight.count(DEMAND, pod("me", naming("mine")), view, 0.5) == 0
