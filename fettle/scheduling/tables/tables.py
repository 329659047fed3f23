"""One table per ask: its verdict on every node, in the forms that requests need.

Nodes that look alike to an ask share a verdict. A request of the scheduler is answered by looking
its names up in few and small sets, since between two requests other processes have had the
processor's caches. Pure; what goes in and out of date is decided in `answering`.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Set
from functools import partial
from itertools import filterfalse
from math import inf
from typing import NamedTuple

from fettle.cel import Outcome, SelectorEngine, undecided
from fettle.cluster import Attribute, NodeView, View, attributes_read
from fettle.dra import AMPLE, CURRENT, Budget, DeviceView, Profile
from fettle.model import UNKNOWN_SCORE
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claimed import Allocator
from fettle.scheduling.judge.ranking import MAX_SCORE, host_score
from fettle.scheduling.judge.requirements import Requirements
from fettle.scheduling.judge.verdicts import Verdict, judge
from fettle.scheduling.tables.looking import Fingerprint, fingerprint_for

MAX_ALIKE = 4096
DEMAND_SECONDS = 1.0
"""Work on one ask after which its further searches are kept short, until it has rested."""
REST = 0.2
"""So much of the time may go into one ask for good."""
SHORT = Budget(steps=200)
MANY = 100
"""To look up more names than this, the names of all nodes are gathered first."""
FEW = 32
"""So many nodes that changed may wait for a request that names them."""
NOT_EVALUATED = undecided("its selector is not evaluated yet")


def budget_after(spent_s: float) -> Budget:
    """How far the next search for an ask may go, after so much work on it."""
    return AMPLE if spent_s < DEMAND_SECONDS else SHORT


class Narrowed(NamedTuple):
    """The names of a request, and those of them that may go on, in their order: the same list
    where all may."""

    names: list[str]
    passed: list[str]

    @property
    def refused(self) -> list[str]:
        """The others, each once."""
        if self.passed is self.names:
            return []
        return list(dict.fromkeys(filterfalse(set(self.passed).__contains__, self.names)))


class Table:
    """All verdicts on one ask, by node name, and what the hot path needs of them.

    `provisional` verdicts wait for a selector; on `rejected` nodes the scheduler's checks refuse
    the pod, so they are never `undecided`; `near_refusal` as in a verdict. Nodes alike share the
    verdict of one of them, with the names of that one's devices. `cut_short` are nodes
    left undecided by a search that was kept short; `given_up_until`, on the selectors' clock, is
    when the first selector that verdicts do without is tried again.
    """

    def __init__(self, demand: Demand, acceptance: Acceptance, profile: Profile = CURRENT) -> None:
        self.demand = demand
        self.kinds = ", ".join(demand.kinds)
        self.profile = profile
        self.basis = -1
        self.failed_on = -1
        """The basis of a view that it could not be completed on: the same would fail again."""
        self.acceptance = acceptance
        self.pods = 0
        """How many times a pod was told of nodes by it."""
        self.verdicts: dict[str, Verdict] = {}
        self._unjudged: set[str] | None = None
        """Names dropped since all nodes had a verdict; None before they had."""
        self.provisional: set[str] = set()
        self.refused: set[str] = set()
        self._refusing: frozenset[str] | None = None
        self.undecided: set[str] = set()
        self.rejected: set[str] = set()
        self.near_refusal: set[str] = set()
        self.cut_short: set[str] = set()
        self.given_up_until = inf
        self._entries: dict[str, bytes] = {}
        """Scores as they were encoded, of nodes that were asked about."""
        self._scored: tuple[set[str], ...] = tuple(set() for _ in range(MAX_SCORE + 1))
        """By score, the names that have it."""
        self.spent_s = 0.0
        """What was spent on this ask lately, less what it has rested since."""
        self._rested_at = 0.0
        self._alike: dict[Hashable, Verdict] = {}
        self._alike_cut_short: dict[Hashable, Verdict] = {}
        self._alike_open: tuple[Matching | None, dict[Hashable, Verdict]] = (None, {})

    def clear(self) -> None:
        self.spent_s = 0.0
        self.given_up_until = inf
        self._unjudged = None
        for kept in (self.verdicts, self._entries, self._alike, self._alike_cut_short):
            kept.clear()
        self._alike_open = (None, {})
        for names in self._sets():
            names.clear()
        self._refusing = None

    def _sets(self) -> tuple[set[str], ...]:
        kinds = self.provisional, self.refused, self.undecided, self.rejected
        return (*kinds, self.near_refusal, self.cut_short, *self._scored)

    @property
    def size(self) -> int:
        """How many verdicts it keeps, of nodes and of what nodes look like."""
        kept = self.verdicts, self._alike, self._alike_cut_short, self._alike_open[1]
        return sum(len(each) for each in kept)

    def rest(self, now: float) -> None:
        """Pay off, for the time since the last call. To be called at each look, also where nothing
        is owed: else an ask would be credited for time before it cost anything."""
        self.spent_s = max(0.0, self.spent_s - REST * (now - self._rested_at))
        self._rested_at = now

    @property
    def may_try_again(self) -> bool:
        """Whether what was cut short can be searched for longer by now."""
        return bool(self.cut_short) and self.spent_s < DEMAND_SECONDS / 2

    def try_again(self) -> list[str]:
        """The nodes to judge again; their verdicts stand until then."""
        self._alike_cut_short.clear()
        return list(self.cut_short)

    def lapse(self) -> None:
        """A selector that was given up is tried again: verdicts stand until that is done."""
        self.given_up_until = inf
        self._alike.clear()
        self._alike_cut_short.clear()
        self.provisional.update(self.verdicts)

    def drop(self, names: frozenset[str]) -> None:
        if self._unjudged is not None:
            self._unjudged |= names
        self._forget(names)
        for name in names:
            self.verdicts.pop(name, None)

    def _forget(self, names: Set[str]) -> None:
        """What is kept beside the verdicts of these nodes."""
        for name in names:
            self._entries.pop(name, None)
        for kept in self._sets():
            kept.difference_update(kept & names)  # which goes over the smaller one of them
        self._refusing = None

    def settled(self, name: str) -> Verdict | None:
        """The node's verdict, if that waits for nothing."""
        return None if name in self.provisional else self.verdicts.get(name)

    def look(self, match: "Matching") -> Fingerprint:
        """How the ask looks at nodes."""
        requirements = self.acceptance.requirements
        read = partial(match.attributes, self.demand, requirements)
        return fingerprint_for(self.demand, requirements, self.profile, read)

    def follow(self, first: str, others: Collection[str]) -> None:
        """Give nodes the verdict of one which looks like them."""
        if before := self.verdicts.keys() & others:
            self._forget(before)
        self.verdicts.update(dict.fromkeys(others, self.verdicts[first]))
        for kept in self._sets():
            if first in kept:
                kept.update(others)
        self._refusing = None

    def judge(self, node: NodeView, match: "Matching", look: Fingerprint | None = None) -> None:
        """Judge one node; provisional where a selector has not been evaluated yet. `look` is how
        the ask looks at nodes, where that is known already."""
        match.missing = False
        missed = self.acceptance.requirements.missed
        shape = (look or self.look(match))(node)
        budget = budget_after(self.spent_s)
        verdict = self._known(shape, budget)
        if verdict is None and (verdict := self._open(match).get(shape)) is not None:
            match.missing = True
        if verdict is None:
            allocator, began = match.allocator(self.profile, budget), match.now()
            verdict = judge(self.demand, node, self.acceptance, allocator)
            match.missing = match.missing or missed != self.acceptance.requirements.missed
            until = match.given_up_until(self.demand, self.acceptance.requirements, began)
            self.given_up_until = min(self.given_up_until, until)
            if shape is not None:
                self._remember(shape, verdict, match, budget)
        if (before := self.verdicts.get(node.name)) is not None:
            self._scored[before.score].discard(node.name)
        self._scored[verdict.score].add(node.name)
        self.verdicts[node.name] = verdict
        self._entries.pop(node.name, None)
        for kept, belongs in (
            (self.refused, not verdict.fits),
            (self.undecided, bool(verdict.undecided) and not verdict.rejected),
            (self.rejected, bool(verdict.rejected)),
            (self.near_refusal, verdict.near_refusal),
            (self.provisional, match.missing),
            (self.cut_short, _is_cut_short(verdict, budget)),
        ):
            (kept.add if belongs else kept.discard)(node.name)
        self._refusing = None

    def _remember(
        self, shape: Hashable, verdict: Verdict, match: "Matching", budget: Budget
    ) -> None:
        if match.missing:
            alike = self._open(match)
        else:
            alike = self._alike_cut_short if _is_cut_short(verdict, budget) else self._alike
        if len(alike) > MAX_ALIKE:
            alike.clear()
        alike[shape] = verdict

    def _open(self, match: "Matching") -> dict[Hashable, Verdict]:
        """Verdicts that wait for a selector, by look: whoever asks next may know more."""
        if self._alike_open[0] is not match:
            self._alike_open = (match, {})
        return self._alike_open[1]

    def _known(self, shape: Hashable | None, budget: Budget) -> Verdict | None:
        """The verdict of a node that looks alike, where no longer search is allowed by now."""
        if shape is None:
            return None
        verdict = self._alike.get(shape)
        return self._alike_cut_short.get(shape) if not verdict and budget is SHORT else verdict

    def complete(self, view: View) -> bool:
        """Whether each of the nodes has a settled verdict. The view is the one that the table was
        brought up to date with: there are verdicts on its nodes only."""
        assert self.basis == view.basis
        if len(self.verdicts) < len(view.nodes):
            return False
        if self._unjudged is None or self._unjudged:
            self._unjudged = set()
        return not self.provisional

    def needs_completion(self, view: View) -> bool:
        """Whether more is open than the requests that it concerns may well do themselves. Not in
        a view that is newer than the table, of which the next request finds out."""
        if self.basis != view.basis or self.complete(view):
            return False
        return bool(self.provisional) or self._unjudged is None or len(self._unjudged) > FEW

    def open_among(self, names: Iterable[str], view: View) -> list[str]:
        """Those of the names that the view knows and that have no settled verdict yet."""
        if self.complete(view):
            return []
        nodes = view.nodes
        without: Iterable[str]
        if self._unjudged is None:
            without = filterfalse(self.verdicts.__contains__, names)
        else:
            without = self._unjudged if names is nodes else self._unjudged.intersection(names)
        unjudged = [n for n in without if n not in self.verdicts]
        # The names of all nodes, once many are to be looked up in them.
        known = nodes.keys() if len(unjudged) > MANY else nodes
        unjudged = [n for n in unjudged if n in known]
        if self.provisional:
            unjudged += filter(self.provisional.__contains__, names)
        return unjudged

    def narrow(self, names: list[str]) -> Narrowed:
        """Split names by their verdicts; names without one pass."""
        if not self.refusing:
            return Narrowed(names, names)
        passed = list(filterfalse(self.refusing.__contains__, names))
        return Narrowed(names, passed if len(passed) < len(names) else names)

    @property
    def refusing(self) -> frozenset[str]:
        """`refused` as it is now, in half the memory: a set that grew is mostly empty."""
        if self._refusing is None:
            self._refusing = frozenset(self.refused)
        return self._refusing

    @property
    def usual_score(self) -> int:
        """The score that most nodes have."""
        return max(range(MAX_SCORE + 1), key=lambda score: len(self._scored[score]))

    def scored_otherwise(self, names: Iterable[str], score: int) -> list[str]:
        """Those of the names that do not have this score, in their order."""
        return list(filterfalse(self._scored[score].__contains__, names))

    def scores_as(self, names: list[str], encode: Callable[[str, int], bytes]) -> list[bytes]:
        """Each name with its score, in their order, as `encode` writes them. What it wrote is kept
        until the verdict changes, so it must be the same function each time."""
        try:
            return list(map(self._entries.__getitem__, names))
        except KeyError:
            return [self._entries.get(name) or self._entry(name, encode) for name in names]

    def _entry(self, name: str, encode: Callable[[str, int], bytes]) -> bytes:
        entry = encode(name, self.score_of(name))
        if name in self.verdicts:
            self._entries[name] = entry
        return entry

    def score_of(self, name: str) -> int:
        """That of its verdict; that of Unknown where it has none."""
        verdict = self.verdicts.get(name)
        if verdict is not None:
            return verdict.score
        return host_score(UNKNOWN_SCORE, self.demand.policy.placement.degraded)


def _is_cut_short(verdict: Verdict, budget: Budget) -> bool:
    return budget is SHORT and bool(verdict.undecided)


class Matching:
    """Looks selector outcomes up; `missing` is set when one has not been evaluated yet."""

    def __init__(self, engine: SelectorEngine) -> None:
        self._engine = engine
        self._attributes: tuple[Demand, tuple[Attribute, ...]] | None = None
        self.missing = False

    def attributes(self, demand: Demand, requirements: Requirements) -> tuple[Attribute, ...]:
        """The attributes of devices that selectors of the ask and its policy can see."""
        if self._attributes is None or self._attributes[0] is not demand:
            reads = [self._engine.reads(expression) for expression in demand.selectors]
            reads += requirements.reads()
            self._attributes = (demand, attributes_read(reads))
        return self._attributes[1]

    def allocator(self, profile: Profile, budget: Budget, *, explains: bool = False) -> Allocator:
        """Allocates by these outcomes."""
        return Allocator(self, profile, budget, self.driver, explains)

    def driver(self, expression: str) -> str:
        """The driver whose devices alone an expression can match; "": any, as far as is known."""
        driver = self._engine.driver(expression)
        if driver is None:
            self.missing = True
        return driver or ""

    def now(self) -> float:
        """Seconds on the selectors' clock."""
        return self._engine.now()

    def given_up_until(self, demand: Demand, requirements: Requirements, since: float) -> float:
        """When the first selector that was given up is tried again, if that is after `since`."""
        of_ask = self._engine.given_up_until(demand.selectors, since)
        return min(of_ask, requirements.given_up_until(since))

    def __call__(self, expression: str, device: DeviceView) -> Outcome:
        outcome = self._engine.outcome(expression, device.id.driver, device.device)
        if outcome is None:
            self.missing = True
            return NOT_EVALUATED
        return outcome
