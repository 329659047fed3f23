"""How many units of a resource a node should have: as many as most nodes of its kind have.

A device plugin that starts anew counts the GPUs that still answer, and the Node then says nothing
of the one that is lost. Nodes of one instance type or machine are built alike, so that the others
tell. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

KINDS = ("node.kubernetes.io/instance-type", "nvidia.com/gpu.machine")
"""Labels that say of what kind a node is; the first that it has counts."""

_Kind = tuple[str, str]
"""A label and its value."""
_NONE: Mapping[str, int] = {}


class Peers:
    """The capacities of all nodes, by kind."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[_Kind, Mapping[str, int]]] = {}
        self._names: dict[_Kind, set[str]] = defaultdict(set)
        self._counts: dict[tuple[_Kind, str], Counter[int]] = defaultdict(Counter)

    def put(self, name: str, labels: Mapping[str, str], capacities: Mapping[str, int]) -> set[str]:
        """A node as it is now, without capacities if it is gone; returns the nodes of which other
        capacities are to be expected now."""
        before = self._of.pop(name, None)
        key = next((key for key in KINDS if key in labels), None)
        after = ((key, labels[key]), capacities) if key is not None and capacities else None
        if before == after:
            if after is not None:
                self._of[name] = after
            return set()
        concerned = {
            (kind, resource)
            for kind, counted in filter(None, (before, after))
            for resource in counted
        }
        expected = {one: self._usual(*one) for one in concerned}
        if before is not None:
            self._count(name, *before, -1)
        if after is not None:
            self._of[name] = after
            self._count(name, *after, 1)
        return {
            peer
            for kind, resource in concerned
            if self._usual(kind, resource) != expected[kind, resource]
            for peer in self._names.get(kind, ())
        }

    def missing(self, name: str) -> Mapping[str, int]:
        """By resource, how many units fewer a node has than most of its kind, if fewer."""
        if name not in self._of:
            return _NONE
        kind, capacities = self._of[name]
        short = {resource: self._usual(kind, resource) - n for resource, n in capacities.items()}
        return {resource: number for resource, number in short.items() if number > 0}

    def _usual(self, kind: _Kind, resource: str) -> int:
        """Of several numbers that are as frequent, the largest."""
        counts = self._counts.get((kind, resource))
        return max(counts, key=lambda number: (counts[number], number)) if counts else 0

    def _count(self, name: str, kind: _Kind, capacities: Mapping[str, int], change: int) -> None:
        names = self._names[kind]
        (names.add if change > 0 else names.discard)(name)
        if not names:
            del self._names[kind]
        for resource, number in capacities.items():
            counts = self._counts[kind, resource]
            counts[number] += change
            if not counts[number]:
                del counts[number]
            if not counts:
                del self._counts[kind, resource]
