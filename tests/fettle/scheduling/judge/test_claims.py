"""The verdict on one node for a pod with DRA claims."""

import msgspec
import pytest

from fettle.api import core, resource
from fettle.api.resource import DeviceTaint, DeviceToleration
from fettle.cel import Outcome
from fettle.cel.runtime import outcomes
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


def test_the_first_device_in_order_is_the_one_that_is_judged() -> None:
    node = b.node(pools=(b.pool(b.device("a", 0.5), b.device("b")),))
    answer = verdict(request(TRAINING), node)
    assert not answer.fits
    assert tuple(texts(answer.refusals)) == (
        "gpu/r would get gpu.example.com/n/a, which is Degraded (0.50): a fault; acceptable "
        "devices exist here, but the scheduler would not take them: a DeviceTaintRule with effect "
        "NoSchedule keeps it off those that are refused",
    )


@pytest.mark.parametrize(
    ("profile", "toleration"),
    [
        (Profile(Features(device_taint_rules=False)), DeviceToleration(key="k", operator="Exists")),
        (Profile(), DeviceToleration(operator="Exists")),
    ],
    ids=["no DeviceTaintRule counts", "every taint is tolerated"],
)
def test_a_taint_that_would_not_help_is_not_advised(
    profile: Profile, toleration: DeviceToleration
) -> None:
    node = b.node(pools=(b.pool(b.device("a", 0.5), b.device("b")),))
    demand = request(TRAINING, tolerations=(toleration,))
    answer = judge(demand, node, Acceptance(TRAINING.placement), Allocator(every_device, profile))
    assert text(answer.refusals[0]).endswith("but the scheduler would not take them")


def test_a_tainted_device_is_skipped_as_the_allocator_skips_it() -> None:
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
def test_devices_that_just_suffice_suffice_together(count: int) -> None:
    """Three times 0.7, divided by three, is a hair less than 0.7."""
    placement = msgspec.structs.replace(INFERENCE.placement, min_score=0.7)
    policy = msgspec.structs.replace(INFERENCE, placement=placement)
    node = b.node(pools=(b.pool(*(b.device(name, 0.7) for name in "abcdef")),))
    assert verdict(request(policy, count), node).refusals == ()


def test_two_requests_never_share_a_device() -> None:
    node = b.node(pools=(b.pool(b.device("a"), b.device("b")),))
    answer = verdict(Demand(TRAINING, claims=(Claim("c", (wanted("x"), wanted("y"))),)), node)
    assert [c.device.device for c in answer.devices] == ["a", "b"]


def test_all_takes_every_device_and_one_in_use_leaves_no_allocation() -> None:
    whole = b.node(pools=(b.pool(b.device("a"), b.device("b")),))
    assert len(verdict(request(TRAINING, None), whole).devices) == 2
    part = b.node(pools=(b.pool(b.device("a"), b.device("b", allocated=True)),))
    answer = verdict(request(TRAINING, None), part)
    assert answer.fits  # the scheduler's own plugin refuses it; we only say what we see
    assert "no allocation is possible" in text(answer.rejected[0])


def test_an_unreadable_device_is_undecided_allowed_and_scored_low() -> None:
    unreadable = b.device("a", 0.0, unclear="its capacity cannot be read")
    node = b.node(pools=(b.pool(unreadable),))
    answer = verdict(request(TRAINING), node)
    assert answer.fits
    assert answer.undecided
    assert answer.score == 5


def test_a_selector_that_cannot_be_decided_leaves_the_node_undecided() -> None:
    def undecided(_expression: str, _device: DeviceView) -> Outcome:
        return outcomes.undecided("uses optional types")

    demand = request(TRAINING)
    node = b.node(pools=(b.pool(b.device("a", 0.0)),))
    answer = judge(demand, node, Acceptance(TRAINING.placement), Allocator(undecided))
    assert answer.fits
    assert "optional types" in text(answer.undecided[0])


def test_a_claim_allocated_on_a_device_that_has_failed_since_is_refused_there() -> None:
    bad = b.device("a", 0.1)
    demand = Demand(INFERENCE, bound=(Bound("gpu", (AllocatedDevice(bad.id),)),))
    answer = verdict(demand, b.node(pools=(b.pool(bad),)))
    assert not answer.fits
    assert "gpu is allocated" in text(answer.refusals[0])


def test_a_claim_that_is_allocated_elsewhere_says_so() -> None:
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


def test_a_device_that_left_under_its_claim_is_named() -> None:
    demand = Demand(INFERENCE, bound=(Bound("gpu", (AllocatedDevice(b.device("gone").id),)),))
    answer = verdict(demand, b.node(pools=(b.pool(b.device("a")),)))
    assert answer.fits
    assert "n/gone, which is not published" in text(answer.notes[0])
    assert [c.health.state for c in answer.devices] == [State.UNKNOWN]
    assert answer.value == 0.75


def test_a_policy_that_refuses_what_is_unknown_refuses_a_device_that_left() -> None:
    wary = msgspec.structs.replace(INFERENCE.placement, unknown=Unknown.REFUSE)
    demand = Demand(INFERENCE, bound=(Bound("gpu", (AllocatedDevice(b.device("gone").id),)),))
    node = b.node(pools=(b.pool(b.device("a")),))
    answer = judge(demand, node, Acceptance(wary), Allocator(every_device))
    assert "is allocated gpu.example.com/n/gone, which is Unknown" in text(answer.refusals[0])


def test_what_bars_a_pod_is_why_no_node_is_fit_for_it() -> None:
    demand = Demand(INFERENCE, barred=(reasons.ClaimBeingDeleted("gpu"),))
    answer = verdict(demand, b.node(pools=(b.pool(b.device("a", 0.1)),)))
    assert answer.fits
    assert tuple(texts(answer.rejected)) == ("claim gpu is being deleted",)
    assert tuple(texts(answer.undecided)) == ()
    assert answer.score == 5


def test_what_bars_a_pod_bars_it_where_something_cannot_be_read_too() -> None:
    demand = Demand(INFERENCE, barred=(reasons.ClaimBeingDeleted("gpu"),))
    node = msgspec.structs.replace(b.node(), quarantined=("slice s: wrong",))
    assert tuple(texts(verdict(demand, node).rejected)) == ("claim gpu is being deleted",)


def test_what_an_allocated_claim_still_waits_for_is_told() -> None:
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


def test_what_a_claim_would_wait_for_once_it_is_allocated_is_told_where_that_is_asked_for() -> None:
    devices = (*(binding(name, "Ready") for name in "abcd"), binding("e", "Ready", "Up"))
    pool = b.pool(*devices, b.device("f"))
    demand = Demand(INFERENCE, claims=(Claim("gpu", (wanted("x", 6),)), Claim("c")))
    node = b.node(pools=(pool,))
    acceptance = Acceptance(INFERENCE.placement)
    explaining = Allocator(every_device, explains=True)
    assert tuple(texts(judge(demand, node, acceptance, explaining).notes)) == (
        "claim gpu would wait for condition Ready of "
        "gpu.example.com/n/a, gpu.example.com/n/b, gpu.example.com/n/c, …",
        "claim gpu would wait for conditions Ready, Up of gpu.example.com/n/e",
    )
    assert judge(demand, node, acceptance, Allocator(every_device)).notes == ()


def test_where_binding_conditions_are_off_no_claim_would_wait_for_any() -> None:
    off = Profile(Features(device_binding_and_status=False))
    node = b.node(pools=(b.pool(binding("a", "Ready"), b.device("b")),))
    allocator = Allocator(every_device, off, explains=True)
    answer = judge(request(INFERENCE), node, Acceptance(INFERENCE.placement), allocator)
    assert [choice.device.device for choice in answer.devices] == ["b"]
    assert answer.notes == ()


def test_the_alternative_that_would_be_taken_is_named() -> None:
    first = Alternative("r/first", b.DRIVER, ("any",), count=3)
    second = Alternative("r/second", b.DRIVER, ("any",), count=1)
    listed = Request("r", (first, second), listed=True)
    node = b.node(pools=(b.pool(b.device("a"), b.device("b")),))
    answer = verdict(Demand(TRAINING, claims=(Claim("gpu", (listed,)),)), node)
    assert [c.request for c in answer.devices] == ["gpu/r/second"]


def test_an_error_of_the_allocator_refuses_nothing_and_is_shown() -> None:
    def aborts(_expression: str, _device: DeviceView) -> Outcome:
        return outcomes.would_abort("no such key: model")

    node = b.node(pools=(b.pool(b.device("a", 0.0)),))
    answer = judge(request(TRAINING), node, Acceptance(TRAINING.placement), Allocator(aborts))
    assert answer.fits
    assert "would end in an error" in text(answer.rejected[0])
    assert "no such key: model" in text(answer.rejected[0])


def test_pools_that_cannot_be_gathered_are_an_error_too() -> None:
    node = msgspec.structs.replace(b.node(), malformed="unknown operator Near")
    assert "Near" in text(verdict(request(TRAINING), node).rejected[0])


def test_devices_of_an_extended_resource_are_judged_where_claims_provide_it() -> None:
    units_ = Units(b.RESOURCE, 1, (wanted("container-0-request-0"),))
    node = b.node(pools=(b.pool(b.device("a", 0.1)),))
    answer = verdict(Demand(TRAINING, units=(units_,)), node)
    assert not answer.fits
    assert "<extended-resources>/container-0-request-0 would get" in text(answer.refusals[0])
    plugin = b.node(gpus=8, pools=(b.pool(b.device("a", 0.1)),))
    assert verdict(Demand(TRAINING, units=(units_,)), plugin).fits


def test_where_pods_on_their_way_fill_the_node_its_score_stays() -> None:
    node = b.node(pools=(b.pool(b.device("a")),))
    waiting = msgspec.structs.replace(request(TRAINING), in_flight=4)
    assert verdict(waiting, node).score == verdict(request(TRAINING), node).score == 10


def test_which_device_a_pod_gets_after_others_is_told_only_where_it_is_explained() -> None:
    node = b.node(pools=(b.pool(b.device("a"), b.device("b", 0.85)),))
    waiting = msgspec.structs.replace(request(TRAINING), in_flight=1)
    answer = verdict(waiting, node)
    assert answer.value == pytest.approx(0.85)
    assert tuple(texts(answer.notes)) == ("1 pod with the same needs may be placed here first",)


def in_two_slices(*devices: DeviceView) -> NodeView:
    pool = msgspec.structs.replace(b.pool(*devices), slices=(2, 2))
    return b.node(pools=(pool,))


def of_series(score: float) -> list[DeviceView]:
    """Forty, of which the last two have a value in common."""
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
def test_where_it_is_undecided_which_devices_a_pod_gets_there_must_be_acceptable_ones(
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
    assert tuple(texts(closed.refusals)) == (
        "which devices it would get is not decided, and there are not enough acceptable ones: "
        "gpu.example.com/n/0-0 is Unhealthy (0.00): a fault",
    )


def test_an_unclear_pool_may_hold_acceptable_devices_whatever_the_others_are() -> None:
    unclear = msgspec.structs.replace(b.pool(name="z"), unclear="a field of the future")
    dead = msgspec.structs.replace(b.pool(b.device("a", 0.0), b.device("b", 0.0)), slices=(2, 2))
    node = b.node(pools=(dead, unclear))
    answer = judge(request(TRAINING), node, Acceptance(TRAINING.placement), UNORDERED)
    assert answer.fits
    assert answer.undecided
