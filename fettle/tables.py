"""One table per ask: its verdict on every node, in the forms that requests need.

Nodes that look alike to an ask share a verdict. A request of the scheduler is answered by looking
its names up in few and small sets, since between two requests other processes have had the
processor's caches. Pure; what goes in and out of date is decided in `answering`.
"""

from collections.abc import Collection, Hashable, Iterable
from itertools import filterfalse
from typing import NamedTuple

from fettle.asks import Ask
from fettle.model import UNKNOWN_SCORE
from fettle.ranking import host_score
from fettle.selectors.engine import SelectorEngine
from fettle.selectors.outcomes import Outcome, undecided
from fettle.verdicts import Acceptance, Verdict, judge
from fettle.view import DeviceView, NodeView
from fettle.wire.extender import host_priority

MAX_ALIKE = 4096
NOT_EVALUATED = undecided("its selector is not evaluated yet")


class Narrowed(NamedTuple):
    """The names of a request: those that may go on, in their order, and those refused."""

    passed: list[str]
    refused: list[str]


class Table:
    """All verdicts on one ask, by node name, and what the hot path needs of them.

    `provisional` verdicts wait for a selector; `entries` are the elements of a HostPriorityList,
    encoded.
    """

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.basis = -1
        self.acceptance = Acceptance(ask.policy.placement)
        self.verdicts: dict[str, Verdict] = {}
        self.provisional: set[str] = set()
        self.refused: set[str] = set()
        self.undecided: set[str] = set()
        self.entries: dict[str, bytes] = {}
        self._alike: dict[Hashable, Verdict] = {}

    def clear(self) -> None:
        for kept in (self.verdicts, self.entries, self._alike):
            kept.clear()
        for names in (self.provisional, self.refused, self.undecided):
            names.clear()

    def drop(self, names: frozenset[str]) -> None:
        for name in names:
            self.verdicts.pop(name, None)
            self.entries.pop(name, None)
        for kept in (self.provisional, self.refused, self.undecided):
            kept.difference_update(names)

    def judge(self, node: NodeView, match: "Matching") -> None:
        """Judge one node; provisional where a selector has not been evaluated yet."""
        match.missing = False
        shape = self._shape(node)
        verdict = self._alike.get(shape) if shape is not None else None
        if verdict is None:
            verdict = judge(self.ask, node, self.acceptance, match)
            if shape is not None:
                if len(self._alike) > MAX_ALIKE:
                    self._alike.clear()
                self._alike[shape] = verdict
        self.verdicts[node.name] = verdict
        self.entries[node.name] = host_priority(node.name, verdict.score)
        for kept, belongs in (
            (self.refused, not verdict.fits),
            (self.undecided, bool(verdict.undecided)),
            (self.provisional, match.missing),
        ):
            (kept.add if belongs else kept.discard)(node.name)

    def complete(self, nodes: Collection[str]) -> bool:
        """Whether each of the view's nodes has a settled verdict."""
        return len(self.verdicts) == len(nodes) and not self.provisional

    def open_among(self, names: Iterable[str], nodes: Collection[str]) -> list[str]:
        """Those of the names that the view knows and that have no settled verdict yet."""
        if self.complete(nodes):  # there are verdicts on nodes of the view only
            return []
        unjudged = [n for n in filterfalse(self.verdicts.__contains__, names) if n in nodes]
        return unjudged + list(filter(self.provisional.__contains__, names))

    def narrow(self, names: list[str]) -> Narrowed:
        """Split names by their verdicts; names without one pass."""
        refused = self.refused.intersection(names)
        if not refused:
            return Narrowed(names, [])
        return Narrowed(list(filterfalse(refused.__contains__, names)), list(refused))

    def score(self, names: list[str]) -> list[bytes]:
        """The names' entries in their order; names without a verdict have the score of Unknown."""
        try:
            return list(map(self.entries.__getitem__, names))
        except KeyError:
            unknown = host_score(UNKNOWN_SCORE, self.ask.policy.placement.degraded)
            return [self.entries.get(name) or host_priority(name, unknown) for name in names]

    def _shape(self, node: NodeView) -> Hashable | None:
        """What this ask sees of a node, where that is only device plugins; else None."""
        if self.ask.requests or self.ask.held:
            return None
        seen = []
        for units in self.ask.units:
            plugin = node.plugins.get(units.resource)
            if units.backing is not None and (plugin is None or plugin.allocatable == 0):
                return None
            seen.append((plugin.allocatable, plugin.units) if plugin is not None else None)
        return (node.health, tuple(seen), node.quarantined)


class Matching:
    """Looks selector outcomes up; `missing` is set when one has not been evaluated yet."""

    def __init__(self, engine: SelectorEngine) -> None:
        self._engine = engine
        self.missing = False

    def __call__(self, expression: str, device: DeviceView) -> Outcome:
        outcome = self._engine.outcome(expression, device.id.driver, device.device)
        if outcome is None:
            self.missing = True
            return NOT_EVALUATED
        return outcome
