"""The verdict on one node for a pod with DRA claims."""

import msgspec
import pytest

from fettle.api import core, resource
from fettle.api.resource import DeviceTaint, DeviceToleration
from fettle.cel import Outcome
from fettle.cel.runtime import protocol
from fettle.cluster import NodeView
from fettle.dra import (
    AllocatedDevice,
    Alternative,
    Budget,
    Claim,
    DeviceView,
    Features,
    Profile,
    Request,
)
from fettle.dra.claims import Constraint
from fettle.explain.wording import text, texts
from fettle.model import Policy, State, Unknown, reasons
from fettle.model.reasons import Complaint
from fettle.scheduling.demand import Bound, Demand, Units
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
    verdict,
    wanted,
)


def test_the_first_device_in_the_allocators_order_is_judged() -> None:
    node = b.node(pools=(b.pool(b.device("a", 0.5), b.device("b")),))
    answer = verdict(request(TRAINING), node)
    assert not answer.fits
    (refusal,) = answer.refusals
    assert isinstance(refusal, reasons.DeviceDegraded)
    assert (refusal.request, refusal.device) == ("gpu/r", b.device("a").id)
    assert (refusal.passed_over, refusal.taint_would_help) == (True, True)


@pytest.mark.parametrize(
    ("profile", "toleration"),
    [
        (Profile(Features(device_taint_rules=False)), DeviceToleration(key="k", operator="Exists")),
        (Profile(), DeviceToleration(operator="Exists")),
    ],
    ids=["no DeviceTaintRule counts", "every taint is tolerated"],
)
def test_a_taint_is_advised_only_if_it_would_help(
    profile: Profile, toleration: DeviceToleration
) -> None:
    node = b.node(pools=(b.pool(b.device("a", 0.5), b.device("b")),))
    demand = request(TRAINING, tolerations=(toleration,))
    answer = judge(demand, node, Acceptance(TRAINING.placement), Allocator(every_device, profile))
    assert text(answer.refusals[0]).endswith("but the scheduler would not take them")


def test_a_tainted_device_is_skipped_like_in_the_allocator() -> None:
    taint = (DeviceTaint(key="k", effect="NoSchedule"),)
    node = b.node(pools=(b.pool(b.device("a", 0.0, taints=taint), b.device("b")),))
    answer = verdict(request(TRAINING), node)
    assert answer.fits
    assert [c.device.device for c in answer.devices] == ["b"]
    tolerant = request(TRAINING, tolerations=(DeviceToleration(key="k", operator="Exists"),))
    assert not verdict(tolerant, node).fits


def test_inference_takes_the_mean_of_the_devices_it_would_get() -> None:
    node = b.node(pools=(b.pool(b.device("a", 0.5), b.device("b")),))
    answer = verdict(request(INFERENCE, 2), node)
    assert answer.fits
    assert answer.value == pytest.approx(0.75)


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_devices_that_each_just_meet_the_minimum_meet_it_together(count: int) -> None:
    """Three times 0.7, divided by three, is a hair less than 0.7."""
    placement = msgspec.structs.replace(INFERENCE.placement, min_score=0.7)
    policy = msgspec.structs.replace(INFERENCE, placement=placement)
    node = b.node(pools=(b.pool(*(b.device(name, 0.7) for name in "abcdef")),))
    assert verdict(request(policy, count), node).refusals == ()


def test_two_requests_never_share_a_device() -> None:
    node = b.node(pools=(b.pool(b.device("a"), b.device("b")),))
    answer = verdict(Demand(TRAINING, claims=(Claim("c", (wanted("x"), wanted("y"))),)), node)
    assert [c.device.device for c in answer.devices] == ["a", "b"]


def test_a_request_for_all_devices_fails_if_one_is_in_use() -> None:
    whole = b.node(pools=(b.pool(b.device("a"), b.device("b")),))
    assert len(verdict(request(TRAINING, None), whole).devices) == 2
    part = b.node(pools=(b.pool(b.device("a"), b.device("b", allocated=True)),))
    answer = verdict(request(TRAINING, None), part)
    assert answer.fits  # the scheduler's own plugin refuses it; we only say what we see
    assert "no allocation is possible" in text(answer.rejected[0])


def test_an_unreadable_device_leaves_the_node_undecided_allowed_and_scored_low() -> None:
    unreadable = b.device("a", 0.0, unclear="its capacity cannot be read")
    node = b.node(pools=(b.pool(unreadable),))
    answer = verdict(request(TRAINING), node)
    assert answer.fits
    assert answer.undecided
    assert answer.score == 5


def test_a_selector_that_cannot_be_decided_leaves_the_node_undecided() -> None:
    def undecided(_expression: str, _device: DeviceView) -> Outcome:
        return protocol.undecided("uses optional types")

    demand = request(TRAINING)
    node = b.node(pools=(b.pool(b.device("a", 0.0)),))
    answer = judge(demand, node, Acceptance(TRAINING.placement), Allocator(undecided))
    assert answer.fits
    assert "optional types" in text(answer.undecided[0])


def test_a_claim_is_refused_where_its_allocated_device_has_failed_since() -> None:
    bad = b.device("a", 0.1)
    demand = Demand(INFERENCE, bound=(Bound("gpu", (AllocatedDevice(bad.id),)),))
    answer = verdict(demand, b.node(pools=(b.pool(bad),)))
    assert not answer.fits
    assert "gpu is allocated" in text(answer.refusals[0])


def test_a_claim_allocated_to_other_nodes_is_rejected_with_that_reason() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["other"]}
    raw = msgspec.json.encode({"nodeSelectorTerms": [{"matchFields": [field]}]})
    nodes = msgspec.json.decode(raw, type=core.NodeSelector)
    device = b.device("a", 0.1)
    demand = Demand(INFERENCE, bound=(Bound("gpu", (AllocatedDevice(device.id),), nodes),))
    answer = verdict(demand, b.node(pools=(b.pool(device),)))
    assert answer.fits
    assert tuple(texts(answer.rejected)) == (
        f"claim gpu is allocated to other nodes (it holds {b.DRIVER}/n/a)",
    )
    assert answer.score == 5


def test_a_device_that_is_no_longer_published_is_named_in_a_note() -> None:
    demand = Demand(INFERENCE, bound=(Bound("gpu", (AllocatedDevice(b.device("gone").id),)),))
    answer = verdict(demand, b.node(pools=(b.pool(b.device("a")),)))
    assert answer.fits
    assert "n/gone, which is not published" in text(answer.notes[0])
    assert [c.health.state for c in answer.devices] == [State.UNKNOWN]
    assert answer.value == 0.75


def test_a_policy_that_refuses_unknown_health_refuses_an_unpublished_device() -> None:
    wary = msgspec.structs.replace(INFERENCE.placement, unknown=Unknown.REFUSE)
    demand = Demand(INFERENCE, bound=(Bound("gpu", (AllocatedDevice(b.device("gone").id),)),))
    node = b.node(pools=(b.pool(b.device("a")),))
    answer = judge(demand, node, Acceptance(wary), Allocator(every_device))
    assert "is allocated gpu.example.com/n/gone, which is Unknown" in text(answer.refusals[0])


def test_a_reason_that_bars_the_pod_rejects_every_node() -> None:
    demand = Demand(INFERENCE, barred=(reasons.ClaimBeingDeleted("gpu"),))
    answer = verdict(demand, b.node(pools=(b.pool(b.device("a", 0.1)),)))
    assert answer.fits
    assert tuple(texts(answer.rejected)) == ("claim gpu is being deleted",)
    assert tuple(texts(answer.undecided)) == ()
    assert answer.score == 5


def test_a_reason_that_bars_the_pod_rejects_nodes_with_unreadable_objects_too() -> None:
    demand = Demand(INFERENCE, barred=(reasons.ClaimBeingDeleted("gpu"),))
    node = msgspec.structs.replace(b.node(), quarantined=("slice s: wrong",))
    assert tuple(texts(verdict(demand, node).rejected)) == ("claim gpu is being deleted",)


def test_a_note_names_the_binding_condition_that_an_allocated_claim_waits_for() -> None:
    device = b.device("a")
    awaits = reasons.BindingAwaited("gpu", "Ready", device.id)
    bound = Bound("gpu", (AllocatedDevice(device.id),), awaits=awaits)
    answer = verdict(Demand(INFERENCE, bound=(bound,)), b.node(pools=(b.pool(device),)))
    assert answer.fits
    assert answer.rejected == ()
    assert answer.notes == (awaits,)


def binding(name: str, *conditions: str) -> DeviceView:
    view = b.device(name)
    raw = msgspec.structs.replace(view.device, binding_conditions=conditions)
    return msgspec.structs.replace(
        view, published=msgspec.structs.replace(view.published, device=raw)
    )


def test_explanations_name_the_binding_conditions_a_claim_would_wait_for() -> None:
    devices = (*(binding(name, "Ready") for name in "abcd"), binding("e", "Ready", "Up"))
    pool = b.pool(*devices, b.device("f"))
    demand = Demand(INFERENCE, claims=(Claim("gpu", (wanted("x", 6),)), Claim("c")))
    node = b.node(pools=(pool,))
    acceptance = Acceptance(INFERENCE.placement)
    explaining = Allocator(every_device, explains=True)
    ready, both = tuple(b.device(name).id for name in "abcd"), (b.device("e").id,)
    assert judge(demand, node, acceptance, explaining).notes == (
        reasons.BindingWouldBeAwaited("gpu", ("Ready",), ready),
        reasons.BindingWouldBeAwaited("gpu", ("Ready", "Up"), both),
    )
    assert judge(demand, node, acceptance, Allocator(every_device)).notes == ()


def test_without_the_feature_gate_no_claim_waits_for_binding_conditions() -> None:
    off = Profile(Features(device_binding_and_status=False))
    node = b.node(pools=(b.pool(binding("a", "Ready"), b.device("b")),))
    allocator = Allocator(every_device, off, explains=True)
    answer = judge(request(INFERENCE), node, Acceptance(INFERENCE.placement), allocator)
    assert [choice.device.device for choice in answer.devices] == ["b"]
    assert answer.notes == ()


def test_the_verdict_names_the_first_available_alternative_that_fits() -> None:
    first = Alternative("r/first", b.DRIVER, ("any",), count=3)
    second = Alternative("r/second", b.DRIVER, ("any",), count=1)
    listed = Request("r", (first, second), listed=True)
    node = b.node(pools=(b.pool(b.device("a"), b.device("b")),))
    answer = verdict(Demand(TRAINING, claims=(Claim("gpu", (listed,)),)), node)
    assert [c.request for c in answer.devices] == ["gpu/r/second"]


def test_an_error_of_the_allocator_is_shown_and_refuses_nothing() -> None:
    def aborts(_expression: str, _device: DeviceView) -> Outcome:
        return protocol.would_abort("no such key: model")

    node = b.node(pools=(b.pool(b.device("a", 0.0)),))
    answer = judge(request(TRAINING), node, Acceptance(TRAINING.placement), Allocator(aborts))
    assert answer.fits
    assert "would end in an error" in text(answer.rejected[0])
    assert "no such key: model" in text(answer.rejected[0])


def test_a_malformed_node_selector_of_a_slice_is_an_error_on_the_node() -> None:
    node = msgspec.structs.replace(b.node(), malformed="unknown operator Near")
    assert "Near" in text(verdict(request(TRAINING), node).rejected[0])


def test_devices_behind_an_extended_resource_are_judged_where_a_device_class_provides_it() -> None:
    units_ = Units(b.RESOURCE, 1, (wanted("container-0-request-0"),))
    node = b.node(pools=(b.pool(b.device("a", 0.1)),))
    answer = verdict(Demand(TRAINING, units=(units_,)), node)
    assert not answer.fits
    assert "<extended-resources>/container-0-request-0 would get" in text(answer.refusals[0])
    plugin = b.node(gpus=8, pools=(b.pool(b.device("a", 0.1)),))
    assert verdict(Demand(TRAINING, units=(units_,)), plugin).fits


def test_pods_in_flight_that_fill_the_node_do_not_lower_its_score() -> None:
    node = b.node(pools=(b.pool(b.device("a")),))
    waiting = msgspec.structs.replace(request(TRAINING), in_flight=4)
    assert verdict(waiting, node).score == verdict(request(TRAINING), node).score == 10


def test_only_explanations_say_which_device_a_pod_gets_after_pods_in_flight() -> None:
    node = b.node(pools=(b.pool(b.device("a"), b.device("b", 0.85)),))
    waiting = msgspec.structs.replace(request(TRAINING), in_flight=1)
    answer = verdict(waiting, node)
    assert answer.value == pytest.approx(0.85)
    assert tuple(texts(answer.notes)) == ("1 pod with the same needs may be placed here first",)


def test_where_a_pod_fits_nothing_is_said_of_pods_in_flight() -> None:
    waiting = msgspec.structs.replace(request(TRAINING), in_flight=4)
    answer = verdict(waiting, b.node())
    assert answer.rejected
    assert answer.notes == ()


def in_two_slices(*devices: DeviceView) -> NodeView:
    pool = msgspec.structs.replace(b.pool(*devices), slices=(2, 2))
    return b.node(pools=(pool,))


def of_series(score: float) -> list[DeviceView]:
    """Forty devices, of which the last two have a value in common."""
    return [
        b.device(
            f"{score:g}-{number}",
            score,
            attributes={
                "series": resource.DeviceAttribute(int_=min(number, 38) + int(100 * score))
            },
        )
        for number in range(40)
    ]


UNORDERED = Allocator(every_device, Profile(ordered=False))
SHORT = Allocator(every_device, budget=Budget(steps=20, prune_after=None))
LIKE_ONES = Claim("gpu", (wanted("r", 2),), (Constraint(f"{b.DRIVER}/series"),))


@pytest.mark.parametrize(
    ("allocator", "claim", "why"),
    [
        (UNORDERED, Claim("gpu", (wanted("r"),)), "visits slices in no fixed order"),
        (SHORT, LIKE_ONES, "no result within"),
    ],
)
def test_an_undecided_allocation_is_refused_unless_enough_devices_are_acceptable(
    allocator: Allocator, claim: Claim, why: str
) -> None:
    dead, sound = of_series(0.0), of_series(1.0)

    def judged(policy: Policy, *devices: DeviceView) -> Verdict:
        demand = Demand(policy, claims=(claim,))
        return judge(demand, in_two_slices(*devices), Acceptance(policy.placement), allocator)

    for open_ in (judged(TRAINING, *dead, *sound), judged(SCAVENGER, *sound)):
        assert open_.fits
        assert why in text(open_.undecided[0])
    closed = judged(TRAINING, *dead)
    assert not closed.fits
    assert why in text(closed.undecided[0])
    (refusal,) = closed.refusals
    assert isinstance(refusal, reasons.TooFewAcceptableDevices)
    assert (refusal.device.device, refusal.complaint) == ("0-0", Complaint.UNHEALTHY)


def test_a_node_with_an_unclear_pool_is_not_refused_for_its_other_devices() -> None:
    unclear = msgspec.structs.replace(b.pool(name="z"), unclear="a field of the future")
    dead = msgspec.structs.replace(b.pool(b.device("a", 0.0), b.device("b", 0.0)), slices=(2, 2))
    node = b.node(pools=(dead, unclear))
    answer = judge(request(TRAINING), node, Acceptance(TRAINING.placement), UNORDERED)
    assert answer.fits
    assert answer.undecided
