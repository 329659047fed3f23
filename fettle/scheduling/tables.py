"""One table per demand: its verdict on every node, in the forms that requests need.

Nodes with the same fingerprint share a verdict: one of them is judged, and the others take over its
verdict. A request looks its names up in a few small sets, because between two requests other
processes have emptied the processor's caches. Pure; `answers` decides which verdicts are stale.
"""

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
    Set,
)
from functools import partial
from itertools import filterfalse, islice
from math import inf
from sys import maxsize
from typing import NamedTuple

import msgspec

from fettle.cel import Outcome, SelectorEngine, undecided
from fettle.cluster import Attribute, NodeView, View, attributes_read
from fettle.dra import AMPLE, CURRENT, Budget, DeviceView, Profile
from fettle.model import UNKNOWN_SCORE
from fettle.model.reasons import Reason
from fettle.pacing import pause
from fettle.scheduling.demand import Demand
from fettle.scheduling.fingerprints import Fingerprinter, fingerprinter_for
from fettle.scheduling.judge.acceptance import Acceptance, SetAside
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.requirements import Requirements
from fettle.scheduling.judge.scores import HIGHEST_SCORE, host_score
from fettle.scheduling.judge.verdicts import Verdict, judge

MAX_FINGERPRINTS = 4096  # with more kinds of node, all are judged anew now and then
DEMAND_SECONDS = 1.0
"""After this much work on one demand its further searches are kept short, until it has rested."""
REST = 0.2
"""The share of the time that may go into one demand for good."""
SHORT = Budget(steps=200)
MANY = 100
"""To look up more names than this, the names of all nodes are collected first."""
FEW = 32
"""Up to this many changed nodes may wait for a request that names them."""
FINGERPRINT_NODES = 2500
"""How many nodes are fingerprinted before one node of each fingerprint is judged. With fewer, nodes
of one fingerprint are gone through more often; with more, a newer view makes more work useless."""
NODES_PER_PAUSE = 16
"""How many nodes are fingerprinted between two pauses: one takes only a few times as long."""
BATCH = 200
"""How many nodes take over a verdict between two pauses."""
NOT_EVALUATED = undecided("its selector is not evaluated yet")


def budget_after(spent_s: float) -> Budget:
    """How far the next search for a demand may go, after this much work on it."""
    return AMPLE if spent_s < DEMAND_SECONDS else SHORT


# Outcomes of selectors


class SelectorOutcomes:
    """The engine's outcomes of selectors; `missing`: one of them has not been evaluated yet."""

    def __init__(self, engine: SelectorEngine) -> None:
        self._engine = engine
        self._attributes: tuple[Demand, tuple[Attribute, ...]] | None = None
        self.missing = False

    def attributes(self, demand: Demand, requirements: Requirements) -> tuple[Attribute, ...]:
        """The attributes of devices that selectors of the demand and its policy read."""
        if self._attributes is None or self._attributes[0] is not demand:
            reads = [self._engine.reads(expression) for expression in demand.selectors]
            reads += requirements.reads()
            self._attributes = (demand, attributes_read(reads))
        return self._attributes[1]

    def allocator(self, profile: Profile, budget: Budget, *, explains: bool = False) -> Allocator:
        """An allocator that matches by these outcomes."""
        return Allocator(self, profile, budget, self.driver, explains)

    def driver(self, expression: str) -> str:
        """The only driver whose devices an expression can match; "" if it may be any."""
        driver = self._engine.driver(expression)
        if driver is None:
            self.missing = True
        return driver or ""

    def now(self) -> float:
        """Seconds on the selectors' clock."""
        return self._engine.now()

    def given_up_until(self, demand: Demand, requirements: Requirements, since: float) -> float:
        """When the first selector that was given up is tried again, if that is after `since`."""
        of_demand = self._engine.given_up_until(demand.selectors, since)
        return min(of_demand, requirements.given_up_until(since))

    def __call__(self, expression: str, device: DeviceView) -> Outcome:
        outcome = self._engine.outcome(expression, device.id.driver, device.device)
        if outcome is None:
            self.missing = True
            return NOT_EVALUATED
        return outcome


# Tables


class Narrowed(NamedTuple):
    """The names of a request, and those that are not refused, in their order.

    `passed` is the same list as `names` if none is refused. `besides` are those refused that the
    table's verdicts do not refuse, and why.
    """

    names: list[str]
    passed: list[str]
    besides: Mapping[str, Reason] = {}

    @property
    def refused(self) -> list[str]:
        """The others, each once."""
        if self.passed is self.names:
            return []
        return list(dict.fromkeys(filterfalse(set(self.passed).__contains__, self.names)))

    def without(self, refused: Mapping[str, Reason]) -> "Narrowed":
        """With these refused, too."""
        if not refused:
            return self
        more = {name: refused[name] for name in self.passed if name in refused}
        if not more:
            return self
        kept = [name for name in self.passed if name not in more]
        return Narrowed(self.names, kept, {**self.besides, **more})

    def avoiding(self, avoided: Mapping[str, Reason]) -> "Narrowed":
        """Without these, if others are left."""
        fewer = self.without(avoided)
        return fewer if fewer.passed else self


class _NodeVerdicts:
    """The verdict on each node that has one, by name, and all that is derived from these: what
    changes a verdict changes the rest with it.

    - `provisional` verdicts wait for a selector.
    - On `rejected` nodes the scheduler's own checks reject the pod; these are never `undecided`.
    - `near_refusal` is as in a verdict.
    - `cut_short` are nodes left undecided by a search that was kept short.
    - `by_score` has the names that have each score.
    - `entries` are the encoded scores of nodes that were asked about.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, Verdict] = {}
        self.provisional: set[str] = set()
        self.refused: set[str] = set()
        self.undecided: set[str] = set()
        self.rejected: set[str] = set()
        self.near_refusal: set[str] = set()
        self.cut_short: set[str] = set()
        self.by_score: tuple[set[str], ...] = tuple(set() for _ in range(HIGHEST_SCORE + 1))
        self.entries: dict[str, bytes] = {}
        self._refusing: frozenset[str] | None = None

    def _sets(self) -> tuple[set[str], ...]:
        kinds = self.provisional, self.refused, self.undecided, self.rejected
        return (*kinds, self.near_refusal, self.cut_short, *self.by_score)

    @property
    def refusing(self) -> frozenset[str]:
        """`refused` as it is now."""
        if self._refusing is None:
            # A set that grew is mostly empty; this copy takes half the memory.
            self._refusing = frozenset(self.refused)
        return self._refusing

    def give(self, name: str, verdict: Verdict, *, provisional: bool, cut_short: bool) -> None:
        """Give one node a verdict, in place of any that it had."""
        if (before := self.by_name.get(name)) is not None:
            self.by_score[before.score].discard(name)
        self.by_score[verdict.score].add(name)
        self.by_name[name] = verdict
        self.entries.pop(name, None)
        for kept, belongs in (
            (self.refused, not verdict.fits),
            (self.undecided, bool(verdict.undecided) and not verdict.rejected),
            (self.rejected, bool(verdict.rejected)),
            (self.near_refusal, verdict.near_refusal),
            (self.provisional, provisional),
            (self.cut_short, cut_short),
        ):
            (kept.add if belongs else kept.discard)(name)
        self._refusing = None

    def copy(self, first: str, others: Collection[str]) -> None:
        """Give these nodes the verdict of the first one."""
        if before := self.by_name.keys() & others:
            self._forget(before)
        self.by_name.update(dict.fromkeys(others, self.by_name[first]))
        for kept in self._sets():
            if first in kept:
                kept.update(others)
        self._refusing = None

    def drop(self, names: frozenset[str]) -> None:
        """Forget the verdicts of these nodes."""
        self._forget(names)
        for name in names:
            self.by_name.pop(name, None)

    def _forget(self, names: Set[str]) -> None:
        """Forget what is kept besides the verdicts of these nodes."""
        for name in names:
            self.entries.pop(name, None)
        for kept in self._sets():
            kept.difference_update(kept & names)  # which goes over the smaller one of them
        self._refusing = None

    def make_provisional(self) -> None:
        self.provisional.update(self.by_name)


class _KnownVerdicts:
    """Verdicts by fingerprint: those that are settled, those by searches that were kept short, and
    those that wait for a selector."""

    def __init__(self) -> None:
        self._settled: dict[Hashable, Verdict] = {}
        self._cut_short: dict[Hashable, Verdict] = {}
        self._open: tuple[SelectorOutcomes | None, dict[Hashable, Verdict]] = (None, {})

    def __len__(self) -> int:
        return len(self._settled) + len(self._cut_short) + len(self._open[1])

    def settled(self, fingerprint: Hashable | None, budget: Budget) -> Verdict | None:
        """The verdict known for this fingerprint, unless a longer search is allowed by now."""
        if fingerprint is None:
            return None
        verdict = self._settled.get(fingerprint)
        return self._cut_short.get(fingerprint) if not verdict and budget is SHORT else verdict

    def open_by(self, outcomes: SelectorOutcomes) -> dict[Hashable, Verdict]:
        """Verdicts that wait for a selector, for these outcomes only."""
        # Whoever asks next, with newer outcomes, may know more.
        if self._open[0] is not outcomes:
            self._open = (outcomes, {})
        return self._open[1]

    def remember(
        self, fingerprint: Hashable, verdict: Verdict, outcomes: SelectorOutcomes, budget: Budget
    ) -> None:
        """Keep what was found by these outcomes, within this budget."""
        if outcomes.missing:
            known = self.open_by(outcomes)
        else:
            known = self._cut_short if _is_cut_short(verdict, budget) else self._settled
        if len(known) > MAX_FINGERPRINTS:
            known.clear()
        known[fingerprint] = verdict

    def forget_cut_short(self) -> None:
        self._cut_short.clear()

    def forget_settled(self) -> None:
        """All but those that wait for a selector."""
        self._settled.clear()
        self._cut_short.clear()


class Table:
    """All verdicts on one demand, and what the hot path needs of them.

    - `verdicts` are by node name, and `refused`, `undecided`, `rejected`, `near_refusal`,
      `provisional` and `cut_short` the names that these say so of.
    - `given_up_until`, on the selectors' clock, is when the first selector that could not be
      evaluated for these verdicts is tried again.

    Nodes with the same fingerprint share one verdict, so its devices have one node's names.
    """

    def __init__(self, demand: Demand, acceptance: Acceptance, profile: Profile = CURRENT) -> None:
        self.demand = demand
        self.kinds = ", ".join(demand.kinds)
        self.profile = profile
        self.basis = -1
        self._nodes_in_view = maxsize
        """How many nodes the view of this basis has."""
        self.failed_on = -1
        """The basis of the view on which completing it failed: there it would fail again."""
        self.acceptance = acceptance
        self.pods = 0
        """How many pods were given nodes by it."""
        self.given_up_until = inf
        self._nodes = _NodeVerdicts()
        self._known = _KnownVerdicts()
        self._unjudged: set[str] | None = None
        """Names dropped since all nodes had a verdict; None before they had."""
        self.spent_s = 0.0
        """The work spent on this demand lately, less what it has rested since."""
        self._rested_at = 0.0

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        return self._nodes.by_name

    @property
    def refused(self) -> set[str]:
        return self._nodes.refused

    @property
    def refusing(self) -> frozenset[str]:
        """`refused` as it is now."""
        return self._nodes.refusing

    @property
    def undecided(self) -> set[str]:
        return self._nodes.undecided

    @property
    def rejected(self) -> set[str]:
        return self._nodes.rejected

    @property
    def near_refusal(self) -> set[str]:
        return self._nodes.near_refusal

    @property
    def provisional(self) -> set[str]:
        return self._nodes.provisional

    @property
    def cut_short(self) -> set[str]:
        return self._nodes.cut_short

    @property
    def size(self) -> int:
        """How many verdicts it keeps, by node and by fingerprint."""
        return len(self._nodes.by_name) + len(self._known)

    # Up to date

    def update(self, view: View, changed: frozenset[str] | None, set_aside: SetAside) -> None:
        """Forget what does not hold in this view: `changed` are the nodes that changed since the
        basis, None if any may have."""
        if changed is None:
            self.clear()
        else:
            self.drop(changed)
        # Verdicts go by what is set aside, so a change of it makes all of them stale.
        if set_aside != self.acceptance.set_aside:
            self.acceptance = msgspec.structs.replace(self.acceptance, set_aside=set_aside)
            self.clear()
        self.basis, self._nodes_in_view = view.basis, len(view.nodes)
        self._note_all_judged()

    def clear(self) -> None:
        self.spent_s = 0.0
        self.given_up_until = inf
        self._unjudged = None
        self._nodes = _NodeVerdicts()
        self._known = _KnownVerdicts()

    def drop(self, names: frozenset[str]) -> None:
        """Forget the verdicts of these nodes."""
        if self._unjudged is not None:
            self._unjudged |= names
        self._nodes.drop(names)

    def make_provisional(self) -> None:
        """Make all verdicts provisional: a selector that was given up can be tried again."""
        self.given_up_until = inf
        self._known.forget_settled()
        self._nodes.make_provisional()

    def rest(self, now: float) -> None:
        """Pay off spent work by the time since the last call."""
        # Called at each use, also if nothing is owed: a demand must get no credit for the time
        # before it cost anything.
        self.spent_s = max(0.0, self.spent_s - REST * (now - self._rested_at))
        self._rested_at = now

    @property
    def may_try_again(self) -> bool:
        """Whether searches that were cut short may take longer by now."""
        return bool(self.cut_short) and self.spent_s < DEMAND_SECONDS / 2

    def try_again(self) -> list[str]:
        """The nodes to judge again; their verdicts stand until then."""
        self._known.forget_cut_short()
        return list(self.cut_short)

    # Judging

    def settled(self, name: str) -> Verdict | None:
        """The node's verdict, if that waits for nothing."""
        return None if name in self._nodes.provisional else self._nodes.by_name.get(name)

    def fingerprinter(self, outcomes: SelectorOutcomes) -> Fingerprinter:
        """The function that fingerprints nodes for this table's demand."""
        requirements = self.acceptance.requirements
        read = partial(outcomes.attributes, self.demand, requirements)
        return fingerprinter_for(self.demand, requirements, self.profile, read)

    def take_over(self, first: str, others: Collection[str]) -> None:
        """Give nodes the verdict of the first node, which has the same fingerprint."""
        self._nodes.copy(first, others)
        self._note_all_judged()

    def judge(
        self,
        node: NodeView,
        outcomes: SelectorOutcomes,
        fingerprinter: Fingerprinter | None = None,
    ) -> None:
        """Judge one node; the verdict is provisional if a selector is not evaluated yet.

        `fingerprinter`: this table's, if the caller has it already.
        """
        outcomes.missing = False
        missed = self.acceptance.requirements.missed
        fingerprint = (fingerprinter or self.fingerprinter(outcomes))(node)
        budget = budget_after(self.spent_s)
        verdict = self._known.settled(fingerprint, budget)
        if verdict is None:
            verdict = self._known.open_by(outcomes).get(fingerprint)
            outcomes.missing = outcomes.missing or verdict is not None
        if verdict is None:
            verdict = self._judge(node, outcomes, budget)
            if missed != self.acceptance.requirements.missed:
                outcomes.missing = True
            if fingerprint is not None:
                self._known.remember(fingerprint, verdict, outcomes, budget)
        cut_short = _is_cut_short(verdict, budget)
        self._nodes.give(node.name, verdict, provisional=outcomes.missing, cut_short=cut_short)
        self._note_all_judged()

    def _judge(self, node: NodeView, outcomes: SelectorOutcomes, budget: Budget) -> Verdict:
        allocator, began = outcomes.allocator(self.profile, budget), outcomes.now()
        verdict = judge(self.demand, node, self.acceptance, allocator)
        until = outcomes.given_up_until(self.demand, self.acceptance.requirements, began)
        self.given_up_until = min(self.given_up_until, until)
        return verdict

    # Complete

    def _note_all_judged(self) -> None:
        # There are verdicts on the view's nodes only, so their number is enough to compare.
        is_new = self._unjudged is None or self._unjudged
        if is_new and len(self._nodes.by_name) >= self._nodes_in_view:
            self._unjudged = set()

    def complete(self, view: View) -> bool:
        """Whether each node has a settled verdict; `view` is what the table is up to date with."""
        assert self.basis == view.basis
        return len(self._nodes.by_name) >= len(view.nodes) and not self._nodes.provisional

    def needs_completion(self, view: View) -> bool:
        """Whether more is open than requests should do themselves.

        False in a view that is newer than the table: the next request finds that out.
        """
        if self.basis != view.basis or self.complete(view):
            return False
        return bool(self.provisional) or self._unjudged is None or len(self._unjudged) > FEW

    def open_among(self, names: Iterable[str], view: View) -> list[str]:
        """The names of known nodes that have no settled verdict yet."""
        if self.complete(view):
            return []
        nodes, verdicts, provisional = view.nodes, self._nodes.by_name, self._nodes.provisional
        without: Iterable[str]
        if self._unjudged is None:
            without = filterfalse(verdicts.__contains__, names)
        else:
            without = self._unjudged if names is nodes else self._unjudged.intersection(names)
        unjudged = [n for n in without if n not in verdicts]
        # The view's key view is the faster one to ask about many names.
        known = nodes.keys() if len(unjudged) > MANY else nodes
        unjudged = [n for n in unjudged if n in known]
        if provisional:
            unjudged += filter(provisional.__contains__, names)
        return unjudged

    # What requests ask

    def narrow(self, names: list[str]) -> Narrowed:
        """Leave out the names of refused nodes; names without a verdict pass."""
        if not (refusing := self.refusing):
            return Narrowed(names, names)
        passed = list(filterfalse(refusing.__contains__, names))
        return Narrowed(names, passed if len(passed) < len(names) else names)

    @property
    def usual_score(self) -> int:
        """The score that the most nodes have."""
        return max(range(HIGHEST_SCORE + 1), key=lambda score: len(self._nodes.by_score[score]))

    def best_among(self, names: Sequence[str], most: int) -> dict[str, int]:
        """Some of the names that have the best score of all of them, with that score."""
        for score in range(HIGHEST_SCORE, -1, -1):
            # One set is asked at a time, and mostly the first one that is not empty has them.
            if has := self._nodes.by_score[score]:
                best = list(islice(filter(has.__contains__, names), most))
                if best:
                    return dict.fromkeys(best, score)
        return {}

    def scored_otherwise(self, names: Iterable[str], score: int) -> list[str]:
        """The names that do not have this score, in their order."""
        return list(filterfalse(self._nodes.by_score[score].__contains__, names))

    def scores_as(self, names: list[str], encode: Callable[[str, int], bytes]) -> list[bytes]:
        """Each name with its score, as `encode` writes them, in their order.

        `encode` must be the same function each time: what it wrote is kept until the verdict
        changes.
        """
        entries = self._nodes.entries
        try:
            return list(map(entries.__getitem__, names))
        except KeyError:
            return [entries.get(name) or self._entry(name, encode) for name in names]

    def _entry(self, name: str, encode: Callable[[str, int], bytes]) -> bytes:
        entry = encode(name, self.score_of(name))
        if name in self._nodes.by_name:
            self._nodes.entries[name] = entry
        return entry

    def score_of(self, name: str) -> int:
        """The score of its verdict; without one, that of unknown health."""
        verdict = self._nodes.by_name.get(name)
        if verdict is not None:
            return verdict.score
        return host_score(UNKNOWN_SCORE, self.demand.policy.placement.degraded)


def _is_cut_short(verdict: Verdict, budget: Budget) -> bool:
    return budget is SHORT and bool(verdict.undecided)


def fill(
    table: Table,
    names: Sequence[str],
    nodes: Mapping[str, NodeView],
    outcomes: SelectorOutcomes,
    sibling: Table | None = None,
    on_judged: Callable[[Collection[str]], None] = lambda names: None,
) -> None:
    """Judge these nodes: one of each fingerprint, whose verdict the others take over.

    `on_judged` gets the names of nodes that are judged, some at a time. The `sibling` is a table
    with the same fingerprints, as new as this one. Abandon this work once the table is brought up
    to date with another view.
    """
    if len(names) > MANY:
        nodes = dict(nodes.items())  # a plain dict is the faster one to ask for many names
    for start in range(0, len(names), FINGERPRINT_NODES):
        fingerprinter = table.fingerprinter(outcomes)
        some = names[start : start + FINGERPRINT_NODES]
        # Grouped first: to judge a node, only to find its fingerprint known, costs some
        # microseconds for each of thousands of nodes; the fingerprint alone costs one or two.
        for first, *others in _by_fingerprint(some, nodes, fingerprinter, sibling):
            table.judge(nodes[first], outcomes, fingerprinter)
            on_judged((first,))
            pause()
            for at in range(0, len(others), BATCH):
                table.take_over(first, batch := others[at : at + BATCH])
                on_judged(batch)
                pause()


def _by_fingerprint(
    names: Iterable[str],
    nodes: Mapping[str, NodeView],
    fingerprinter: Fingerprinter,
    sibling: Table | None,
) -> Collection[list[str]]:
    """The names in groups of nodes with the same fingerprint."""
    groups: dict[Hashable, list[str]] = {}
    fingerprinted = 0
    for name in names:
        # Nodes that share a verdict in the sibling have the same fingerprint: it need not be made.
        verdict = sibling.settled(name) if sibling is not None else None
        if verdict is not None:
            groups.setdefault(id(verdict), []).append(name)
            continue
        fingerprint = fingerprinter(nodes[name])
        groups.setdefault(name if fingerprint is None else fingerprint, []).append(name)
        fingerprinted += 1
        if not fingerprinted % NODES_PER_PAUSE:
            pause()
    return groups.values()
