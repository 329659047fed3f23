"""What each version of Kubernetes takes, where it differs from the newest, and what people are told
of it."""

from typing import Any

import pytest

from fettle.dra.allocator import AllocationOutcome, AllocationStatus, allocate
from fettle.dra.allocator.features import CURRENT, describe_allocator, profile_of_version
from tests.conformance.allocation import match, seen, wanted
from tests.fettle.building import as_text
from tests.fettle.dra.allocator.cases import (
    DRIVER,
    Raw,
    case,
    claim,
    device,
    everything,
    first_available,
    request,
    slice_,
)
from tests.fettle.dra.allocator.cases import wanted as several

ALPHAS = {
    "DRAConsumableCapacity": True,
    "DRADeviceTaints": True,
    "DRAPartitionableDevices": True,
}


def answered(asked: Raw, version: str, **gates: bool) -> AllocationOutcome:
    return allocate(wanted(asked), seen(asked), match(), profile_of_version(version, gates))


def given(asked: Raw, version: str, **gates: bool) -> str:
    """The devices that this version takes, or what else comes of it."""
    found = answered(asked, version, **gates)
    if found.found is not AllocationStatus.FITS:
        return found.found
    return " ".join(one.device.id.device for one in found.devices)


def counted(name: str, amount: int, **more: Any) -> Raw:
    takes = [{"counterSet": "gpu", "counters": {"slices": {"value": str(amount)}}}]
    return device(name, consumesCounters=takes, **more)


def partitioned(*devices: Raw, total: int, driver: str = DRIVER, of: int = 2) -> list[Raw]:
    sets = [{"name": "gpu", "counters": {"slices": {"value": str(total)}}}]
    return [
        slice_(name=f"{driver}-0", of=of, driver=driver, sharedCounters=sets),
        slice_(*devices, name=f"{driver}-1", of=of, driver=driver),
    ]


def elsewhere(*devices: Raw, of: int = 2) -> Raw:
    return slice_(*devices, name="z", of=of) | {"spec": _on_another_node(devices, of)}


def _on_another_node(devices: tuple[Raw, ...], of: int) -> Raw:
    spec: Raw = slice_(*devices, of=of)["spec"]
    return spec | {"nodeName": "another"}


# -- counters


TWO_DRIVERS = case(
    [claim(request(count=2))],
    [
        *partitioned(counted("a", 3), total=4, driver="a.example.com"),
        *partitioned(counted("b", 3), total=4, driver="b.example.com"),
    ],
)


@pytest.mark.parametrize("version", ["v1.36.4", "v1.36.4-eks-5ca49cb", "v1.36.6+k3s1", "v1.37.0"])
def test_from_1_36_4_on_two_drivers_with_pools_of_one_name_have_their_own_counters(
    version: str,
) -> None:
    assert given(TWO_DRIVERS, version) == "a b"


@pytest.mark.parametrize("version", ["v1.36.0", "v1.36.3", "v1.36.3-gke.1001000", "v1.36.3+k3s1"])
def test_before_1_36_4_they_shared_counters(version: str) -> None:
    assert given(TWO_DRIVERS, version) == "none"


SHARED: Raw = {
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "10", "requestPolicy": {"default": "2"}}},
}
IN_SHARED_USE: Raw = {
    "allocatedSharedDeviceIDs": [[DRIVER, "p", "shared", "other"]],
    "allocatedCapacity": [{"id": [DRIVER, "p", "shared"], "capacity": {"memory": "2"}}],
}
WHOLE_AND_SHARED = (counted("whole", 4), counted("shared", 2, **SHARED))


def test_before_1_36_2_a_device_in_shared_use_consumed_no_counters() -> None:
    slices = partitioned(*WHOLE_AND_SHARED, total=5)
    asked = case([claim(request())], slices, **IN_SHARED_USE)
    assert [given(asked, f"v1.36.{patch}") for patch in range(5)] == [
        "whole",
        "whole",
        "shared",
        "shared",
        "shared",
    ]


def test_a_device_in_shared_and_whole_use_consumes_counters_once() -> None:
    slices = partitioned(*WHOLE_AND_SHARED, total=5)
    whole = {"allocatedDevices": [[DRIVER, "p", "shared"]]}
    asked = case([claim(request())], slices, **IN_SHARED_USE, **whole)
    assert given(asked, "v1.36.1") == "none"


def test_counters_that_devices_of_other_nodes_consume_are_undecided() -> None:
    slices = partitioned(*WHOLE_AND_SHARED, total=5, of=3)
    asked = case([claim(request())], [*slices, elsewhere(counted("far", 1), of=3)])
    assert given(asked, "v1.36.1") == "undecided"
    assert "1.36.2" in as_text(answered(asked, "v1.36.1").reasons)
    assert given(asked, "v1.36.2") == "whole"


@pytest.mark.parametrize(
    ("crashing", "mended"), [("v1.35.5", "v1.35.6"), ("v1.36.0", "v1.36.2"), ("v1.36.1", "v1.37.0")]
)
def test_mode_all_crashed_schedulers_if_the_devices_consume_counters(
    crashing: str, mended: str
) -> None:
    asked = case([claim(everything())], partitioned(counted("a", 1), total=4))
    gates = {"DRAPartitionableDevices": True}
    assert given(asked, crashing, **gates) == "error"
    assert "crashes" in as_text(answered(asked, crashing, **gates).reasons)
    assert given(asked, mended, **gates) == "a"


def test_with_defects_and_no_order_even_finding_nothing_is_undecided() -> None:
    gates = {"DRAPartitionableDevices": True}
    several = [*TWO_DRIVERS["slices"], slice_(device("c"), name="c", pool="c")]
    assert given(case([claim(request(count=4))], several), "v1.35.8", **gates) == "none"
    assert given(case([claim(request(count=3))], several), "v1.35.8", **gates) == "undecided"


def test_without_an_order_of_slices_mode_all_under_a_constraint_may_be_an_error() -> None:
    slices = [slice_(device("a"), name="s", pool="p"), slice_(device("b"), name="t", pool="q")]
    alike = {"matchAttribute": f"{DRIVER}/model"}
    for held in ("p", "q"):
        used = [[DRIVER, held, "a" if held == "p" else "b"]]
        asked = case([claim(everything(), constraints=(alike,))], slices, allocatedDevices=used)
        assert given(asked, "v1.35.10") == "undecided"
        assert given(asked, "v1.36.0") == ("none" if held == "p" else "error")


@pytest.mark.parametrize("version", ["v1.34.13", "v1.35.10"])
def test_before_1_36_mode_all_in_a_later_alternative_is_undecided(version: str) -> None:
    every = {"deviceClassName": "any", "allocationMode": "All"}
    later = case([claim(first_available(two=several(2), all=every))], [slice_(device("a"))])
    first = case([claim(first_available(all=every, two=several(2)))], [slice_(device("a"))])
    assert [given(later, v) for v in (version, "v1.36.0")] == ["undecided", "a"]
    assert [given(first, v) for v in (version, "v1.36.0")] == ["a", "a"]
    counted = case([claim(first_available(two=several(2), one=several(1)))], [slice_(device("a"))])
    assert [given(counted, v) for v in (version, "v1.36.0")] == ["a", "a"]


# -- pools of 1.34


def test_1_34_allocates_from_an_incomplete_pool_so_it_is_undecided() -> None:
    asked = case([claim(request())], [slice_(device("a"), of=2)])
    assert [given(asked, v) for v in ("v1.34.13", "v1.35.0")] == ["undecided", "none"]
    assert as_text(answered(asked, "v1.34.13").reasons).startswith(
        "pool gpu.example.com/p: it is incomplete: 1 of 2 slices"
    )


def test_1_34_allocates_from_an_incomplete_generation_so_it_is_undecided() -> None:
    newer = slice_(device("b"), name="newer", of=2)
    newer["spec"]["pool"]["generation"] = 2
    asked = case([claim(request())], [slice_(device("a")), newer])
    assert [given(asked, v) for v in ("v1.34.13", "v1.35.0")] == ["undecided", "none"]


def test_1_34_allocates_from_a_generation_that_is_being_replaced_so_it_is_undecided() -> None:
    newer = elsewhere(device("c"))
    newer["spec"]["pool"]["generation"] = 2
    asked = case([claim(request())], [slice_(device("a"), of=2), elsewhere(device("b")), newer])
    assert [given(asked, v) for v in ("v1.34.13", "v1.35.0")] == ["undecided", "none"]


SPREAD = [slice_(device("a"), of=2), elsewhere(device("b"))]


def test_1_34_allocates_from_a_pool_spread_over_nodes_but_not_in_mode_all() -> None:
    one, every = (case([claim(r)], SPREAD) for r in (request(), everything()))
    assert [given(one, v) for v in ("v1.34.13", "v1.35.0")] == ["a", "a"]
    assert [given(every, v) for v in ("v1.34.13", "v1.35.0")] == ["error", "a"]
    assert "being updated" in as_text(answered(every, "v1.34.13").reasons)


def test_1_34_fails_sooner_on_invalid_pools_so_they_are_undecided() -> None:
    asked = case([claim(request())], [slice_(device("a"), device("a"))])
    assert [given(asked, v) for v in ("v1.34.13", "v1.35.0")] == ["undecided", "error"]


def test_1_34_keeps_counters_by_slice_so_they_are_undecided() -> None:
    asked = case([claim(request())], partitioned(counted("a", 1), total=4))
    gates = {"DRAPartitionableDevices": True}
    assert [given(asked, v, **gates) for v in ("v1.34.13", "v1.35.0")] == ["undecided"] * 2
    why = [as_text(answered(asked, v, **gates).reasons) for v in ("v1.34.13", "v1.35.0")]
    assert [
        reason.startswith("pool gpu.example.com/p: it has shared counters") for reason in why
    ] == [True, False]


def test_what_is_possible_in_1_34_follows_its_own_rules() -> None:
    asked = case([claim(request())], [slice_(device("a"), of=2)])
    profile = profile_of_version("v1.34.13").correct
    assert (
        allocate(wanted(asked), seen(asked), match(), profile).found is AllocationStatus.UNDECIDED
    )


# -- shares before 1.36


SHAREABLE = case([claim(request(count=2))], [slice_(device("a", **SHARED))])


@pytest.mark.parametrize("version", ["v1.34.13", "v1.35.10"])
def test_before_1_36_a_request_may_get_several_shares_of_a_device_so_it_is_undecided(
    version: str,
) -> None:
    assert given(SHAREABLE, version, **ALPHAS) == "undecided"
    assert f"{DRIVER}/p/a" in as_text(answered(SHAREABLE, version, **ALPHAS).reasons)
    assert given(SHAREABLE, "v1.36.0") == "none"
    profile = profile_of_version(version, ALPHAS).correct
    assert (
        allocate(wanted(SHAREABLE), seen(SHAREABLE), match(), profile).found
        is AllocationStatus.UNDECIDED
    )


def test_a_device_that_cannot_be_shared_is_decided_next_to_one_that_can() -> None:
    asked = case([claim(request())], [slice_(device("a"), device("b", **SHARED))])
    assert given(asked, "v1.35.10", **ALPHAS) == "a"


def test_without_the_gate_a_shareable_device_is_like_any_other() -> None:
    asked = case([claim(request())], [slice_(device("a", **SHARED))])
    assert given(asked, "v1.35.10") == "a"
    assert given(SHAREABLE, "v1.35.10") == "none"


# -- what people are told


@pytest.mark.parametrize(
    ("version", "first"),
    [
        ("v1.36.3+k3s1", "allocations are predicted as of Kubernetes v1.36.3+k3s1"),
        (
            "",
            "allocations are predicted as of Kubernetes 1.37 (the cluster's version is unknown)",
        ),
        (
            "garbage",
            "allocations are predicted as of Kubernetes 1.37, the newest that is known here, since "
            "the cluster's version 'garbage' cannot be read; set scheduler.version",
        ),
        (
            "v1.39.2",
            "allocations are predicted as of Kubernetes 1.37, the newest that is known here, "
            "for v1.39.2",
        ),
    ],
)
def test_the_description_names_the_predicted_version_and_why(version: str, first: str) -> None:
    assert describe_allocator(version, {}, profile_of_version(version)) == [first]


def test_a_version_that_cannot_be_parsed_is_predicted_as_the_newest() -> None:
    assert profile_of_version("garbage") == profile_of_version("v1.37") == CURRENT


def test_the_description_names_what_is_undecided_in_older_versions() -> None:
    notes = describe_allocator("v1.34.2", {}, profile_of_version("v1.34.2"))
    assert "pools that are incomplete, invalid or being replaced are undecided" in notes[-1]
    gates = {"DRAConsumableCapacity": True}
    notes = describe_allocator("v1.35.2", gates, profile_of_version("v1.35.2", gates))
    assert "allowMultipleAllocations" in notes[-1]
