"""How many units of a resource to expect of a GPU, and of a node among its peers."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.cluster.inventory.unit_counts import (
    KIND_LABELS,
    MOST_RESOURCES,
    Peers,
    candidate_resources,
    expected_units,
    shown_replicas,
    whole_device,
)
from fettle.scheduling.judge.units import Draw, allocatable_units
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.cluster.inventory.test_units import MIG, holding, node, withdrawn

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
def test_a_gpu_counts_as_its_share_of_the_units_of_all_resources_it_may_belong_to(
    capacities: dict[str, int], labels: dict[str, str], each: dict[str, int]
) -> None:
    homes = candidate_resources(GPU, capacities)
    assert {r: expected_units("GPU-1", r, homes, capacities, labels) for r in homes} == each


def test_a_gpu_may_provide_units_of_any_resource_of_its_vendor_that_the_node_has() -> None:
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
    assert expected_units("GPU-1", GPU, (GPU,), {GPU: 32}, {}, shown_replicas(seen)) == count


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
            count = expected_units(
                device, resource, homes, capacities, labels, shown_replicas(seen)
            )
            assert 1 <= count <= capacities[resource]


NAMES = st.sampled_from("abcdef")
NODE_LABELS = st.dictionaries(st.sampled_from(KIND_LABELS), st.sampled_from("xy"))
CAPACITIES = st.dictionaries(st.sampled_from(("gpu", "mig")), st.integers(1, 3))


class Nodes:
    """What `Peers` was told, and what follows from it, counted anew each time."""

    def __init__(self) -> None:
        self.all: dict[str, tuple[tuple[str, str], Mapping[str, int]]] = {}

    def put(self, name: str, labels: Mapping[str, str], capacities: Mapping[str, int]) -> None:
        self.all.pop(name, None)
        kinds = [(key, labels[key]) for key in KIND_LABELS if key in labels]
        if kinds and capacities:
            self.all[name] = kinds[0], capacities

    def missing(self) -> dict[str, Mapping[str, int]]:
        return {name: self._missing(*counted) for name, counted in self.all.items()}

    def _missing(self, kind: tuple[str, str], capacities: Mapping[str, int]) -> Mapping[str, int]:
        short = {}
        for resource, number in capacities.items():
            others = [of for same, of in self.all.values() if same == kind]
            counts = Counter(of[resource] for of in others if resource in of)
            usual = next((n for n in counts if 2 * counts[n] > counts.total()), 0)
            if usual > number:
                short[resource] = usual - number
        return short


@given(st.lists(st.tuples(NAMES, NODE_LABELS, CAPACITIES), max_size=30))
def test_missing_units_are_those_that_a_full_count_finds_and_nodes_with_a_new_count_are_named(
    changes: list[tuple[str, dict[str, str], dict[str, int]]],
) -> None:
    peers, nodes = Peers(), Nodes()
    for name, labels, capacities in changes:
        before = nodes.missing()
        told = peers.put(name, labels, capacities)
        nodes.put(name, labels, capacities)
        after = nodes.missing()
        assert {n: peers.missing(n) for n in after} == after
        others = after.keys() - {name}
        assert {n for n in others if after[n] != before.get(n)} <= told


@given(st.lists(st.tuples(NAMES, NODE_LABELS, CAPACITIES | st.just({})), max_size=30))
def test_nodes_of_whose_peers_something_else_is_to_be_expected_are_named(
    changes: list[tuple[str, dict[str, str], dict[str, int]]],
) -> None:
    peers, labels_of = Peers(), dict[str, dict[str, str]]()

    def usual() -> dict[str, object]:
        return {
            name: {what: (n, min(nodes, 3), common) for what, (n, nodes, common) in found.items()}
            for name, found in ((name, peers.usual(of)) for name, of in labels_of.items())
        }

    for name, labels, capacities in changes:
        before = usual()
        told = peers.put(name, labels, capacities)
        labels_of[name] = labels
        after = usual()
        assert {n for n in before.keys() - {name} if after[n] != before[n]} <= told


def test_a_node_that_names_thousands_of_resources_costs_its_peers_little() -> None:
    peers, labels = Peers(), {KIND_LABELS[0]: "x"}
    peers.put("rogue", labels, {f"example.com/{n}": 8 for n in range(5000)})
    assert len(peers.usual(labels)) == MOST_RESOURCES
    peers.put("a", labels, {GPU: 8})
    peers.put("b", labels, {GPU: 8})
    assert peers.put("c", labels, {GPU: 8}) == {"rogue", "a", "b", "c"}
    assert peers.usual(labels)[GPU] == (8, 3, True)


P5 = {"node.kubernetes.io/instance-type": "p5.48xlarge"}


def put_peers(fleet: Fleet, *capacities: int, labels: Mapping[str, str] = P5) -> None:
    for number, capacity in enumerate(capacities):
        peer = node(capacity={GPU: capacity}, labels=labels)
        peer["metadata"]["name"] = f"peer-{number}"
        fleet.put(kinds.NODE, peer)


def test_a_plugin_that_started_anew_without_a_lost_gpu_has_withdrawn_it(fleet: Fleet) -> None:
    put_peers(fleet, 8, 8)
    fleet.put(kinds.NODE, node("GPU-4", left={GPU: 7}, labels=P5))
    assert withdrawn(fleet) == {"GPU-4": 1}
    fleet.put(kinds.NODE, node("GPU-4", capacity={GPU: 7}, labels=P5))
    assert withdrawn(fleet) == {"GPU-4": 1}
    assert allocatable_units(fleet.view.nodes["n"].plugins[GPU]) == Draw((), 7)
    fleet.put(kinds.NODE, node("GPU-4", "GPU-5", capacity={GPU: 7}, left={GPU: 6}, labels=P5))
    assert withdrawn(fleet) == {"GPU-4": 1, "GPU-5": 1}


def test_a_lost_gpu_counts_as_withdrawn_once_most_nodes_of_its_kind_have_more(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-4", capacity={GPU: 7}, labels=P5))
    assert withdrawn(fleet) == {"GPU-4": 0}
    put_peers(fleet, 8, 8)
    assert withdrawn(fleet) == {"GPU-4": 1}
    fleet.inventory.remove(kinds.NODE, "peer-0", fleet.now)
    assert withdrawn(fleet) == {"GPU-4": 0}


@pytest.mark.parametrize(
    ("peers", "labels", "more"),
    [
        ([8, 8], {"node.kubernetes.io/instance-type": "other"}, {}),
        ([8, 8], {}, {}),
        ([7, 7, 8], P5, {}),  # most are built so
        ([8], P5, {}),  # one node decides nothing about another one
        ([7, 8, 8], P5, {}),
        ([8, 8], P5, {"capacity": {GPU: 4, MIG: 28}}),  # more are missing than are in trouble
        ([80, 80], P5, {}),  # the others share each GPU
    ],
)
def test_without_peers_that_have_more_nothing_counts_as_withdrawn(
    fleet: Fleet, peers: list[int], labels: Mapping[str, str], more: dict[str, Any]
) -> None:
    put_peers(fleet, *peers)
    of_node = {"capacity": {GPU: 7}, "labels": labels} | more
    fleet.put(kinds.NODE, node("GPU-4", **of_node))
    assert withdrawn(fleet) == {"GPU-4": 0}


def test_a_faulty_gpu_that_the_kubelet_calls_healthy_is_not_the_missing_one(
    fleet: Fleet,
) -> None:
    put_peers(fleet, 8, 8)
    fleet.put(kinds.NODE, node("GPU-4", capacity={GPU: 7}, labels=P5))
    fleet.put(kinds.POD, holding("p", GPU_4="Healthy"))
    assert withdrawn(fleet) == {"GPU-4": 0}
