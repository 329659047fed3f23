"""What nodes of one kind have more than one of them, as nodes come, change and go; and which lost
GPU that tells to be gone."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.cluster.inventory.unit_counts import KIND_LABELS, Peers
from fettle.scheduling import draws
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.cluster.inventory.test_units import GPU, MIG, holding, node, withdrawn

NAMES = st.sampled_from("abcdef")
LABELS = st.dictionaries(st.sampled_from(KIND_LABELS), st.sampled_from("xy"))
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
            usual = max(counts.items(), key=lambda item: item[::-1])[0]
            if usual > number:
                short[resource] = usual - number
        return short


@given(st.lists(st.tuples(NAMES, LABELS, CAPACITIES), max_size=30))
def test_what_is_missing_is_what_counting_all_nodes_anew_tells_and_who_changed_is_told(
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
    assert draws.allocatable(fleet.view.nodes["n"].plugins[GPU]) == draws.Draw((), 7)
    fleet.put(kinds.NODE, node("GPU-4", "GPU-5", capacity={GPU: 7}, left={GPU: 6}, labels=P5))
    assert withdrawn(fleet) == {"GPU-4": 1, "GPU-5": 1}


def test_a_lost_gpu_is_known_to_be_gone_as_soon_as_a_peer_tells(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, node("GPU-4", capacity={GPU: 7}, labels=P5))
    assert withdrawn(fleet) == {"GPU-4": 0}
    put_peers(fleet, 8)
    assert withdrawn(fleet) == {"GPU-4": 1}
    fleet.inventory.remove(kinds.NODE, "peer-0", fleet.now)
    assert withdrawn(fleet) == {"GPU-4": 0}


@pytest.mark.parametrize(
    ("peers", "labels", "more"),
    [
        ([8, 8], {"node.kubernetes.io/instance-type": "other"}, {}),
        ([8, 8], {}, {}),
        ([7, 7, 8], P5, {}),  # most are built so
        ([8, 8], P5, {"capacity": {GPU: 4, MIG: 28}}),  # more are missing than are in trouble
        ([80, 80], P5, {}),  # the others share each GPU
    ],
)
def test_what_peers_do_not_tell_is_not_taken_for_withdrawn(
    fleet: Fleet, peers: list[int], labels: Mapping[str, str], more: dict[str, Any]
) -> None:
    put_peers(fleet, *peers)
    of_node = {"capacity": {GPU: 7}, "labels": labels} | more
    fleet.put(kinds.NODE, node("GPU-4", **of_node))
    assert withdrawn(fleet) == {"GPU-4": 0}


def test_no_gpu_in_trouble_is_taken_for_a_missing_one_against_the_kubelets_word(
    fleet: Fleet,
) -> None:
    put_peers(fleet, 8, 8)
    fleet.put(kinds.NODE, node("GPU-4", capacity={GPU: 7}, labels=P5))
    fleet.put(kinds.POD, holding("p", GPU_4="Healthy"))
    assert withdrawn(fleet) == {"GPU-4": 0}
