"""What nodes of one kind have more than one of them, as nodes come, change and go."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fettle.inventory.peers import KINDS, Peers

NAMES = st.sampled_from("abcdef")
LABELS = st.dictionaries(st.sampled_from(KINDS), st.sampled_from("xy"))
CAPACITIES = st.dictionaries(st.sampled_from(("gpu", "mig")), st.integers(1, 3))


class Nodes:
    """What `Peers` was told, and what follows from it, counted anew each time."""

    def __init__(self) -> None:
        self.all: dict[str, tuple[tuple[str, str], Mapping[str, int]]] = {}

    def put(self, name: str, labels: Mapping[str, str], capacities: Mapping[str, int]) -> None:
        self.all.pop(name, None)
        kinds = [(key, labels[key]) for key in KINDS if key in labels]
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
