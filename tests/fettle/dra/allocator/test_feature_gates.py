"""Feature gates: as kube-scheduler's flag has them, over the defaults of a version."""

import pytest

from fettle.api import resource
from fettle.dra.allocator import allocate
from fettle.dra.allocator.features import (
    CURRENT,
    Profile,
    describe_allocator,
    parse_feature_gates,
    profile_of_version,
)
from fettle.dra.allocator.results import AllocationStatus
from tests.conformance import allocation
from tests.fettle import building as b
from tests.fettle.dra.allocator.cases import (
    DRIVER,
    Raw,
    case,
    claim,
    device,
    request,
    selecting,
    slice_,
)


def test_gates_are_parsed_as_kube_scheduler_does() -> None:
    assert parse_feature_gates("DRAPrioritizedList=false, DRADeviceTaints=T,") == {
        "DRAPrioritizedList": False,
        "DRADeviceTaints": True,
    }
    assert parse_feature_gates("") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "DRAPriorityList=false",
            "'DRAPriorityList' is not a DRA feature gate.*DRAPrioritizedList",
        ),
        ("AllAlpha=true", "'AllAlpha' is not a DRA feature gate"),
        ("DRADeviceTaints", "write DRADeviceTaints=true or DRADeviceTaints=false"),
        ("DRADeviceTaints=off", "not 'DRADeviceTaints=off'"),
    ],
)
def test_an_unknown_gate_is_refused_with_the_known_ones(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_feature_gates(text)


def test_the_newest_version_without_gates_is_the_current_profile() -> None:
    assert profile_of_version("v1.37.1") == CURRENT


def test_a_gate_overrides_the_default_of_the_version() -> None:
    off = profile_of_version("v1.37.1", {"DRAPrioritizedList": False}).features
    assert not off.prioritized_list
    assert not profile_of_version("v1.35.2").features.consumable_capacity
    assert profile_of_version(
        "v1.35.2", {"DRAConsumableCapacity": True}
    ).features.consumable_capacity


def test_binding_conditions_need_both_of_their_gates() -> None:
    for name in ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"):
        assert not profile_of_version("v1.37.1", {name: False}).features.device_binding_and_status


def test_in_1_36_the_gate_for_lists_does_not_reach_the_allocator() -> None:
    lists = {"DRAListTypeAttributes": True}
    assert profile_of_version("v1.37.1", lists).features.list_type_attributes
    assert not profile_of_version("v1.36.3", lists).features.list_type_attributes


def test_gates_that_are_set_and_gates_that_are_not_modelled_are_described() -> None:
    given = {"DRAWorkloadResourceClaims": True, "DRADeviceTaints": False}
    first, second = describe_allocator("v1.37.1", given, profile_of_version("v1.37.1", given))
    assert "v1.37.1 with the feature gates DRADeviceTaints=false,DRAWorkload" in first
    assert second == "the feature gate DRAWorkloadResourceClaims is on, but not modelled"
    assert "no fixed order" in describe_allocator("v1.35.0", {}, profile_of_version("v1.35.0"))[-1]


STABLE = {"DRAConsumableCapacity": False, "DRADeviceBindingConditions": False}


def found(asked: Raw, profile: Profile) -> AllocationStatus:
    return allocate(
        allocation.wanted(asked), allocation.seen(asked), allocation.match(), profile
    ).found


GPU = {f"{DRIVER}/kind": "gpu"}
NIC = {f"{DRIVER}/kind": "nic"}
IS_GPU = selecting(f'device.attributes["{DRIVER}"].kind == "gpu"')


def in_two_pools(one: Raw, other: Raw, wanted: Raw) -> Raw:
    return case([claim(wanted)], [slice_(one), slice_(other, name="t", pool="q")])


def test_without_an_order_of_pools_a_device_of_one_of_several_is_undecided() -> None:
    asked = in_two_pools(device("a"), device("b"), request())
    assert found(asked, CURRENT) is AllocationStatus.FITS
    unordered = profile_of_version("v1.37.1", STABLE)
    assert not unordered.ordered
    assert found(asked, unordered) is AllocationStatus.UNDECIDED


def test_without_an_order_of_slices_a_device_of_one_of_several_is_undecided() -> None:
    slices = [slice_(device("a"), of=2), slice_(device("b"), name="t", of=2)]
    assert (
        found(case([claim(request())], slices), profile_of_version("v1.35.4"))
        is AllocationStatus.UNDECIDED
    )


def test_without_an_order_of_pools_the_only_pool_with_such_devices_is_decided() -> None:
    asked = in_two_pools(device("a", GPU), device("z", NIC), request(selectors=IS_GPU))
    assert found(asked, profile_of_version("v1.37.1", STABLE)) is AllocationStatus.FITS


def test_without_an_order_of_pools_an_error_on_one_device_is_undecided() -> None:
    asked = in_two_pools(device("a", GPU), device("z"), request(selectors=IS_GPU))
    assert found(asked, CURRENT) is AllocationStatus.FITS
    assert found(asked, profile_of_version("v1.37.1", STABLE)) is AllocationStatus.UNDECIDED


def test_what_is_impossible_in_any_order_is_decided_without_one() -> None:
    asked = in_two_pools(device("a"), device("b"), request(count=3))
    assert found(asked, profile_of_version("v1.37.1", STABLE)) is AllocationStatus.NONE


def test_without_their_gate_taint_rules_have_no_effect_but_taints_of_slices_have() -> None:
    taint = resource.DeviceTaint(key="k", effect="NoSchedule")
    by_rule = b.device("a", taints=(taint,))
    pools, wanted = (b.pool(by_rule),), allocation.wanted(case([claim(request())], []))
    off = profile_of_version("v1.37.1", {"DRADeviceTaintRules": False})
    answers = [allocate(wanted, pools, allocation.match(), p).found for p in (CURRENT, off)]
    assert answers == [AllocationStatus.NONE, AllocationStatus.FITS]
    tainted = device("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    assert found(case([claim(request())], [slice_(tainted)]), off) is AllocationStatus.NONE
