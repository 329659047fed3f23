"""How many units of a device plugin's resources one GPU is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.cluster.inventory.unit_counts import candidate_resources, expected_units, whole_device

GPU, RENAMED, SMALL = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
BY_FOUR = {"nvidia.com/gpu.replicas": "4"}


@pytest.mark.parametrize(
    ("capacities", "labels", "each"),
    [
        ({GPU: 8}, {}, {GPU: 1}),
        ({GPU: 8}, {"nvidia.com/gpu.replicas": "1"}, {GPU: 1}),
        # time slicing and MPS, whether the resource is renamed for it or not
        ({GPU: 8}, BY_FOUR, {GPU: 4}),
        ({RENAMED: 8}, BY_FOUR, {RENAMED: 4}),
        ({SMALL: 28}, {f"{SMALL}.replicas": "2"}, {SMALL: 14}),
        # labels that cannot be about these units
        ({GPU: 7}, BY_FOUR, {GPU: 1}),
        ({GPU: 8}, {"nvidia.com/gpu.replicas": "0"}, {GPU: 1}),
        ({GPU: 8}, {"nvidia.com/gpu.replicas": "four"}, {GPU: 1}),
        # all GPUs are in MIG mode
        ({SMALL: 7}, {}, {SMALL: 7}),
        ({SMALL: 56}, {}, {SMALL: 7}),
        ({"nvidia.com/mig-3g.40gb": 16}, {}, {"nvidia.com/mig-3g.40gb": 2}),
        ({"nvidia.com/mig-7g.80gb": 8}, {}, {"nvidia.com/mig-7g.80gb": 1}),
        ({"nvidia.com/mig-1c.3g.40gb": 42}, {}, {"nvidia.com/mig-1c.3g.40gb": 7}),
        # and all MIG devices are called GPUs
        ({GPU: 56}, {"nvidia.com/gpu.slices.ci": "1"}, {GPU: 7}),
        # each of eight is divided into one of three slices and two of two
        (
            {"nvidia.com/mig-3g.40gb": 8, "nvidia.com/mig-2g.20gb": 16},
            {},
            {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-2g.20gb": 2},
        ),
        # a GPU has no room for three of three slices, though two of them leave one over
        (
            {"nvidia.com/mig-3g.40gb": 15, "nvidia.com/mig-4g.40gb": 1},
            {},
            {"nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-4g.40gb": 1},
        ),
        # some are in MIG mode: one GPU of eight holds an eighth of each resource
        ({GPU: 7, SMALL: 7}, {}, {GPU: 1, SMALL: 1}),
        ({GPU: 6, SMALL: 14}, {}, {GPU: 1, SMALL: 2}),
        ({GPU: 4, SMALL: 28}, {}, {GPU: 1, SMALL: 4}),
        ({GPU: 16, SMALL: 28}, BY_FOUR, {GPU: 2, SMALL: 4}),
    ],
)
def test_a_gpu_is_its_share_of_the_units_that_it_may_be(
    capacities: dict[str, int], labels: dict[str, str], each: dict[str, int]
) -> None:
    homes = candidate_resources(GPU, capacities)
    assert {r: expected_units("GPU-1", r, homes, capacities, labels) for r in homes} == each


def test_what_a_gpu_may_be_of_is_told_by_the_names_of_its_vendors_resources() -> None:
    there = [GPU, RENAMED, SMALL, "amd.com/gpu", "nvidia.com/GA102GL_A10", "example.com/mig-1g.x"]
    assert candidate_resources(GPU, there) == (GPU, RENAMED, SMALL)
    assert candidate_resources(SMALL, there) == (SMALL,)
    assert candidate_resources("amd.com/gpu", there) == ("amd.com/gpu",)
    assert candidate_resources("amd.com/gpu", ["amd.com/gpu.shared"]) == ()


@pytest.mark.parametrize(
    ("id_", "device"),
    [
        ("GPU-1::0", "GPU-1"),
        ("MIG-1::12", "MIG-1"),
        ("GPU-1", "GPU-1"),
        ("pci:0000:c0:00.0", "pci:0000:c0:00.0"),
        ("index:3", "index:3"),
        ("a::b", "a::b"),
        ("::3", "::3"),
    ],
)
def test_a_replica_is_known_by_its_number(id_: str, device: str) -> None:
    assert whole_device(id_) == device


@pytest.mark.parametrize(
    ("resource", "labels"), [(SMALL, {}), (GPU, {"nvidia.com/gpu.slices.ci": "1"})]
)
def test_a_mig_device_is_one_unit(resource: str, labels: dict[str, str]) -> None:
    capacities = {resource: 14}
    assert expected_units("MIG-1", resource, (resource,), capacities, labels) == 1
    by_two = {**labels, f"{resource}.replicas": "2"}
    assert expected_units("MIG-1", resource, (resource,), capacities, by_two) == 2


@pytest.mark.parametrize(("seen", "count"), [({"GPU-1::0"}, 2), ({"GPU-1::3"}, 4), ({"GPU-1"}, 1)])
def test_without_a_label_there_are_at_least_as_many_replicas_as_were_seen(
    seen: set[str], count: int
) -> None:
    assert expected_units("GPU-1", GPU, (GPU,), {GPU: 32}, {}, seen) == count


RESOURCES = st.sampled_from(
    [GPU, RENAMED, SMALL, "nvidia.com/mig-0g.0gb", "nvidia.com/mig-9g.1gb", "nvidia.com/mig-2g.x"]
)
LABELS = st.dictionaries(
    st.builds("{}.{}".format, RESOURCES, st.sampled_from(["replicas", "slices.ci", "count"])),
    st.text(max_size=8) | st.integers(0, 10**7).map(str),
)


@given(
    st.dictionaries(RESOURCES, st.integers(1, 2**63 - 1), min_size=1),
    LABELS,
    st.sets(st.text(max_size=9) | st.integers(0, 10**10).map("GPU-1::{}".format)),
)
def test_whatever_a_node_says_a_gpu_is_at_least_one_unit_and_at_most_all(
    capacities: dict[str, int], labels: dict[str, str], seen: set[str]
) -> None:
    homes = candidate_resources(GPU, capacities)
    for resource in homes:
        for device in ("GPU-1", "MIG-1"):
            count = expected_units(device, resource, homes, capacities, labels, seen)
            assert 1 <= count <= capacities[resource]
