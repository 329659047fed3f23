"""What older versions of Kubernetes take, where they err."""

from typing import Any

import pytest

from fettle.dra.allocator import AllocationStatus, allocate
from fettle.dra.allocator.features import CURRENT, Features, Profile, Quirks, profile_of_version
from tests.conformance.allocation import match, seen, wanted
from tests.fettle.dra.allocator.cases import (
    DRIVER,
    Raw,
    case,
    claim,
    device,
    everything,
    request,
    selecting,
    slice_,
)

OLD = Profile(quirks=profile_of_version("v1.35.0").quirks)
LISTS = Features(list_type_attributes=True)


def given(asked: Raw, profile: Profile) -> str:
    found = allocate(wanted(asked), seen(asked), match(), profile)
    if found.found is not AllocationStatus.FITS:
        return found.found
    return " ".join(one.device.id.device for one in found.devices)


def counted(name: str, amount: int, **more: Any) -> Raw:
    takes = [{"counterSet": "gpu", "counters": {"slices": {"value": str(amount)}}}]
    return device(name, consumesCounters=takes, **more)


def partitioned(*devices: Raw, pool: str = "p", driver: str = DRIVER, total: int = 4) -> list[Raw]:
    sets = [{"name": "gpu", "counters": {"slices": {"value": str(total)}}}]
    return [
        slice_(name=f"{driver}-0", pool=pool, of=2, driver=driver, sharedCounters=sets),
        slice_(*devices, name=f"{driver}-1", pool=pool, of=2, driver=driver),
    ]


TAINTED: Raw = {"taints": [{"key": "k", "effect": "NoSchedule"}]}


def test_a_tainted_partition_kept_its_counters() -> None:
    asked = case([claim(request())], partitioned(counted("a", 3, **TAINTED), counted("b", 3)))
    assert given(asked, CURRENT) == "b"
    assert given(asked, OLD) == "none"
    assert given(asked, profile_of_version("v1.36.3")) == "b"


def test_two_drivers_with_pools_of_one_name_shared_their_counters() -> None:
    slices = [
        *partitioned(counted("a", 3), driver="a.example.com"),
        *partitioned(counted("b", 3), driver="b.example.com"),
    ]
    asked = case([claim(request(count=2))], slices)
    assert given(asked, CURRENT) == "a b"
    assert given(asked, profile_of_version("v1.36.3")) == "none"


def test_rolling_back_did_not_widen_the_common_values_of_lists() -> None:
    lists = {"a": ["p", "q"], "b": ["q"], "c": ["p"], "d": ["p"]}
    devices = [device(name, {"x": {"strings": values}}) for name, values in lists.items()]
    constraint = {"matchAttribute": f"{DRIVER}/x"}
    asked = case([claim(request(count=3), constraints=(constraint,))], [slice_(*devices)])
    assert given(asked, Profile(LISTS)) == "a c d"
    assert given(asked, Profile(LISTS, Quirks(intersection_kept=True))) == "none"


def test_distinct_devices_of_one_request_were_compared_with_the_last_one_only() -> None:
    devices = [device("a", {"x": 1}), device("b", {"x": 2}), device("c", {"x": 1})]
    constraint = {"distinctAttribute": f"{DRIVER}/x"}
    asked = case([claim(request(count=3), constraints=(constraint,))], [slice_(*devices)])
    assert given(asked, CURRENT) == "none"
    assert given(asked, OLD) == "a b c"


def test_a_search_is_not_pruned_for_values_that_an_old_allocator_forgets() -> None:
    ones = [device(f"d{i:02}", {"x": 1}) for i in range(40)]
    late = {"late": True}
    devices = [*ones, device("e", {"x": 2}), device("f", {"x": 1, **late}), device("g", late)]
    constraint = {"requests": ["three"], "distinctAttribute": f"{DRIVER}/x"}
    one = request("one", selectors=selecting(f'"late" in device.attributes["{DRIVER}"]'))
    three = request("three", count=3)
    asked = case([claim(one, three, constraints=(constraint,))], [slice_(*devices)])
    assert given(asked, CURRENT) == "none"
    assert given(asked, OLD) == "g d00 e f"


def test_a_share_without_capacity_consumed_counters_twice() -> None:
    slices = partitioned(counted("a", 3, allowMultipleAllocations=True))
    shares = [[DRIVER, "p", "a", "other"]]
    asked = case([claim(request())], slices, allocatedSharedDeviceIDs=shares)
    assert given(asked, CURRENT) == "a"
    assert given(asked, profile_of_version("v1.36.3")) == "none"


def test_mode_all_ignored_devices_with_too_little_capacity_left() -> None:
    memory: Raw = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4"}}}
    used = [{"id": [DRIVER, "p", "a"], "capacity": {"memory": "3"}}]
    wants = everything(capacity={"requests": {"memory": "2"}})
    slices = [slice_(device("a", **memory), device("b", **memory))]
    asked = case([claim(wants)], slices, allocatedCapacity=used)
    assert given(asked, CURRENT) == "none"
    assert given(asked, OLD) == "b"


STEPS: Raw = {"requestPolicy": {"default": "1", "validRange": {"min": "0", "step": "1"}}}


@pytest.mark.parametrize(("amount", "more"), [("-1", {}), ("10000000000000000000", STEPS)])
def test_amounts_that_were_not_checked_are_undecided(amount: str, more: Raw) -> None:
    memory = {"memory": {"value": "8", **more}}
    shared = device("a", allowMultipleAllocations=True, capacity=memory)
    asked = case([claim(request(capacity={"requests": {"memory": amount}}))], [slice_(shared)])
    assert given(asked, CURRENT) == "error"
    assert given(asked, OLD) == "undecided"


@pytest.mark.parametrize("version", ["v1.37.1", "v1.38.0-alpha.1", "v2.0.0", "unheard of", ""])
def test_newer_and_unknown_versions_are_without_defects(version: str) -> None:
    assert profile_of_version(version) == CURRENT


def test_what_is_feasible_is_judged_without_defects() -> None:
    assert OLD.correct == CURRENT
