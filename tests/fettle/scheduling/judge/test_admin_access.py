"""Requests with admin access get devices that others use, whatever is wrong with them."""

import msgspec
import pytest

from fettle.api.resource import DeviceTaint
from fettle.cluster import NodeView
from fettle.dra import AllocatedDevice, DeviceView, Profile
from fettle.dra.claims import allocated_devices
from fettle.explain.conclusions import summary
from fettle.explain.pods import plain_health, plain_verdict
from fettle.model import Health, Policy, State, Unknown
from fettle.scheduling.demand import Bound, Demand
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.verdicts import Verdict, judge
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

HELD = b.health(0.0, held=True)
WARY = msgspec.structs.replace(
    TRAINING, placement=msgspec.structs.replace(TRAINING.placement, unknown=Unknown.REFUSE)
)


def monitoring(policy: Policy) -> Demand:
    """A monitor: all devices, with admin access."""
    return request(policy, None, admin_access=True)


def of_health(name: str, health: Health) -> DeviceView:
    return msgspec.structs.replace(b.device(name), health=health)


@pytest.mark.parametrize(
    ("policy", "health"),
    [
        (INFERENCE, b.health(0.0)),
        (TRAINING, b.health(0.5)),
        (TRAINING, HELD),
        (WARY, b.UNKNOWN),
    ],
    ids=["Unhealthy", "below the minimum", "held", "Unknown"],
)
def test_admin_access_is_not_refused_whatever_the_devices_health(
    policy: Policy, health: Health
) -> None:
    node = b.node(pools=(b.pool(of_health("a", health), b.device("b", allocated=True)),))
    assert not verdict(request(policy), node).fits
    answer = verdict(monitoring(policy), node)
    assert (answer.fits, answer.score) == (True, 10)
    assert [choice.device.device for choice in answer.devices] == ["a", "b"]
    assert summary(explained(answer, node)).startswith(
        "would have admin access to gpu.example.com/n/a, gpu.example.com/n/b, whatever their health"
    )


def explained(answer: Verdict, node: NodeView) -> dict[str, object]:
    return {**plain_verdict(answer), "health": plain_health(node.health)}


def test_an_allocated_claim_with_admin_access_is_not_refused_even_if_its_device_left() -> None:
    dead = b.device("a", 0.0)
    held = (
        AllocatedDevice(dead.id, admin_access=True),
        AllocatedDevice(b.device("gone").id, admin_access=True),
    )
    node = b.node(pools=(b.pool(dead),))
    answer = verdict(Demand(WARY, bound=(Bound("x", held),)), node)
    assert (answer.fits, answer.score) == (True, 10)
    assert summary(explained(answer, node)).startswith(
        "has admin access to gpu.example.com/n/a, gpu.example.com/n/gone, whatever their health"
    )


def test_admin_access_is_read_from_the_claims_allocation() -> None:
    result = {"request": "r", "driver": b.DRIVER, "pool": "n", "device": "a", "adminAccess": True}
    metadata = {"name": "c", "namespace": "ns"}
    status = {"allocation": {"devices": {"results": [result]}}}
    claim = b.claim({"metadata": metadata, "spec": {}, "status": status})
    assert allocated_devices(claim) == (AllocatedDevice(b.device("a").id, admin_access=True),)


def test_a_pod_with_only_admin_access_may_run_on_a_held_or_unhealthy_node() -> None:
    for own in (HELD, b.health(0.1)):
        node = b.node(own=own, pools=(b.pool(b.device("a")),))
        assert not verdict(request(INFERENCE), node).fits
        answer = verdict(monitoring(INFERENCE), node)
        assert (answer.fits, answer.value) == (True, own.score)


def test_devices_that_a_pod_requests_besides_admin_access_are_judged_as_usual() -> None:
    own, all_ = request(TRAINING).claims[0], monitoring(TRAINING).claims[0]
    demand = Demand(TRAINING, claims=(own, msgspec.structs.replace(all_, name="all")))
    dead = b.device("z", 0.0)
    beside = b.node(pools=(b.pool(b.device("a", 0.9), dead),))
    answer = verdict(demand, beside)
    assert (answer.fits, answer.value) == (True, 0.9)
    assert verdict(demand, b.node(pools=(b.pool(b.device("a", 0.0), b.device("b")),))).refusals
    held = b.node(own=HELD, pools=(b.pool(b.device("a")),))
    assert not verdict(demand, held).fits
    with_units = msgspec.structs.replace(monitoring(TRAINING), units=units(TRAINING).units)
    assert not verdict(with_units, b.node(own=HELD, gpus=8, pools=held.pools)).fits
    unsettled = msgspec.structs.replace(monitoring(TRAINING), unsettled=("claim y: not known",))
    assert not verdict(unsettled, held).fits


def test_a_taint_that_the_request_does_not_tolerate_keeps_admin_access_off() -> None:
    taint = (DeviceTaint(key="k", effect="NoSchedule"),)
    node = b.node(pools=(b.pool(b.device("a", taints=taint), b.device("b")),))
    assert verdict(monitoring(INFERENCE), node).rejected


def test_evidence_from_tenants_about_an_admin_access_device_lowers_no_preference() -> None:
    tenant_caused = Health(0.5, State.HEALTHY, tenant_caused=0.5)
    node = b.node(pools=(b.pool(of_health("a", tenant_caused)),))
    assert verdict(monitoring(SCAVENGER), node).score == 1


def test_undecided_admin_access_refuses_nothing() -> None:
    pool = msgspec.structs.replace(b.pool(b.device("a", 0.0), b.device("b", 0.0)), slices=(2, 2))
    demand = request(TRAINING, 1, admin_access=True)
    allocator = Allocator(every_device, Profile(ordered=False))
    node = b.node(pools=(pool,))
    answer = judge(demand, node, Acceptance(TRAINING.placement), allocator)
    assert answer.undecided
    assert answer.fits


def test_pods_in_flight_do_not_lower_the_value_of_admin_access() -> None:
    node = b.node(pools=(b.pool(b.device("a", 0.0), b.device("b", 0.5)),))
    in_flight = msgspec.structs.replace(request(INFERENCE, 1, admin_access=True), in_flight=4)
    answer = verdict(in_flight, node)
    assert (answer.score, answer.notes) == (10, ())
