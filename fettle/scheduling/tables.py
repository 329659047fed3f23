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
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from functools import partial
from itertools import compress, filterfalse, islice
from math import inf
from typing import NamedTuple

from fettle.cel import Outcome, SelectorEngine, rows, undecided
from fettle.cluster import EVERYTHING, Attribute, NodeView, View, attribute_digests, attributes_read
from fettle.dra import AMPLE, CURRENT, Budget, DeviceView, Profile, equality_pattern
from fettle.model import UNKNOWN_SCORE
from fettle.model.reasons import Reason
from fettle.pacing import pause
from fettle.scheduling.demand import Bound, Demand
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claims import Allocator, is_usable
from fettle.scheduling.judge.requirements import Requirements
from fettle.scheduling.judge.scores import HIGHEST_SCORE, host_score
from fettle.scheduling.judge.verdicts import Verdict, judge

MAX_FINGERPRINTS = 4096
DEMAND_SECONDS = 1.0
"""After this much work on one demand its further searches are kept short, until it has rested."""
REST = 0.2
"""The share of the time that may go into one demand for good."""
SHORT = Budget(steps=200)
MANY = 100
"""To look up more names than this, the names of all nodes are collected first."""
FEW = 32
"""Up to this many changed nodes may wait for a request that names them."""
FINGERPRINT_NODES = 1000
"""How many nodes are fingerprinted before one node of each fingerprint is judged."""
NODES_PER_PAUSE = 16
"""How many nodes are fingerprinted between two pauses: one takes only a few times as long."""
BATCH = 200
"""How many nodes take over a verdict between two pauses."""
NOT_EVALUATED = undecided("its selector is not evaluated yet")


def budget_after(spent_s: float) -> Budget:
    """How far the next search for a demand may go, after this much work on it."""
    return AMPLE if spent_s < DEMAND_SECONDS else SHORT


# Fingerprints

Fingerprinter = Callable[[NodeView], Hashable | None]
"""Returns the same for nodes that are the same to a demand but for names.

None for a node that must be judged by itself.
"""


def fingerprinter_for(
    demand: Demand,
    requirements: Requirements,
    profile: Profile,
    attributes: Callable[[], tuple[Attribute, ...]],
) -> Fingerprinter:
    """The function that fingerprints nodes for this demand.

    `attributes` returns those of devices that its selectors and its policy read.
    """
    # What is the same for all nodes is found out here, once.
    allocates_always = bool(demand.claims)
    resources = [(units.resource, bool(units.backing)) for units in demand.units]
    read = attributes() if allocates_always or any(backed for _, backed in resources) else ()
    compared = tuple(_compared_attributes(demand, read))
    by_pool_name = profile.quirks.counters_by_pool_name

    def fingerprint(node: NodeView) -> Hashable:
        allocates = allocates_always
        seen: list[Hashable] = [
            node.health,
            node.quarantined,
            node.unread,
            requirements.labels(node),
        ]
        for resource, backed in resources:
            plugin = node.plugins.get(resource)
            if backed and (plugin is None or plugin.allocatable == 0):
                allocates = True
            seen.append(plugin)
        for bound in demand.bound:
            if _has_pool_of(bound, node):
                return None  # that very claim's devices are judged here
            seen.append(is_usable(bound, node))
        if not allocates:
            return tuple(seen)
        seen.append(node.malformed)
        for pool in node.pools:
            if not pool.fingerprint:
                return None
            seen.append(pool.fingerprint)
            if read:
                seen += attribute_digests(pool, read)
        seen += [_pattern_of(name, node) for name in compared]
        if by_pool_name and len(node.pools) > 1:
            names = [pool.name for pool in node.pools]
            seen += map(names.index, names)
        return tuple(seen)

    return fingerprint


def _compared_attributes(demand: Demand, read: Collection[Attribute]) -> Iterator[str]:
    """The attributes that constraints compare, except those whose values are `read` anyway."""
    if EVERYTHING in read:
        return
    for name in dict.fromkeys(c.attribute for claim in demand.claims for c in claim.constraints):
        if name and rows.split_name(name, "") not in read:
            yield name


def _pattern_of(name: str, node: NodeView) -> Hashable:
    """Which of the node's devices have equal values of an attribute.

    The values are left out: a GPU's UUID is the same on no other node.
    """
    having = [any(attribute_digests(pool, [rows.split_name(name, "")])) for pool in node.pools]
    devices = (device for pool in compress(node.pools, having) for device in pool.devices)
    return tuple(having), equality_pattern(name, devices)


def _has_pool_of(bound: Bound, node: NodeView) -> bool:
    """Whether an allocated claim holds devices of a pool that is available on this node."""
    pools = {(held.device.driver, held.device.pool) for held in bound.held}
    return any((pool.driver, pool.name) in pools for pool in node.pools)


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


class Table:
    """All verdicts on one demand, by node name, and what the hot path needs of them.

    - `provisional` verdicts wait for a selector.
    - On `rejected` nodes the scheduler's own checks reject the pod; these are never `undecided`.
    - `near_refusal` is as in a verdict.
    - `cut_short` are nodes left undecided by a search that was kept short.
    - `given_up_until`, on the selectors' clock, is when the first selector that could not be
      evaluated for these verdicts is tried again.

    Nodes with the same fingerprint share one verdict, so its devices have one node's names.
    """

    def __init__(self, demand: Demand, acceptance: Acceptance, profile: Profile = CURRENT) -> None:
        self.demand = demand
        self.kinds = ", ".join(demand.kinds)
        self.profile = profile
        self.basis = -1
        self.failed_on = -1
        """The basis of the view on which completing it failed: there it would fail again."""
        self.acceptance = acceptance
        self.pods = 0
        """How many pods were answered by it."""
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
        """The encoded scores of nodes that were asked about."""
        self._scored: tuple[set[str], ...] = tuple(set() for _ in range(HIGHEST_SCORE + 1))
        """The names that have each score."""
        self.spent_s = 0.0
        """The work spent on this demand lately, less what it has rested since."""
        self._rested_at = 0.0
        self._by_fingerprint: dict[Hashable, Verdict] = {}
        self._cut_short_by_fingerprint: dict[Hashable, Verdict] = {}
        self._open_by_fingerprint: tuple[SelectorOutcomes | None, dict[Hashable, Verdict]] = (
            None,
            {},
        )

    def clear(self) -> None:
        self.spent_s = 0.0
        self.given_up_until = inf
        self._unjudged = None
        self.verdicts.clear()
        self._entries.clear()
        self._by_fingerprint.clear()
        self._cut_short_by_fingerprint.clear()
        self._open_by_fingerprint = (None, {})
        for names in self._sets():
            names.clear()
        self._refusing = None

    def _sets(self) -> tuple[set[str], ...]:
        kinds = self.provisional, self.refused, self.undecided, self.rejected
        return (*kinds, self.near_refusal, self.cut_short, *self._scored)

    @property
    def size(self) -> int:
        """How many verdicts it keeps, by node and by fingerprint."""
        by_fingerprint = (
            self._by_fingerprint,
            self._cut_short_by_fingerprint,
            self._open_by_fingerprint[1],
        )
        return len(self.verdicts) + sum(map(len, by_fingerprint))

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
        self._cut_short_by_fingerprint.clear()
        return list(self.cut_short)

    def make_provisional(self) -> None:
        """Make all verdicts provisional: a selector that was given up can be tried again."""
        self.given_up_until = inf
        self._by_fingerprint.clear()
        self._cut_short_by_fingerprint.clear()
        self.provisional.update(self.verdicts)

    def drop(self, names: frozenset[str]) -> None:
        """Forget the verdicts of these nodes."""
        if self._unjudged is not None:
            self._unjudged |= names
        self._forget(names)
        for name in names:
            self.verdicts.pop(name, None)

    def _forget(self, names: Set[str]) -> None:
        """Forget what is kept besides the verdicts of these nodes."""
        for name in names:
            self._entries.pop(name, None)
        for kept in self._sets():
            kept.difference_update(kept & names)  # which goes over the smaller one of them
        self._refusing = None

    def settled(self, name: str) -> Verdict | None:
        """The node's verdict, if that waits for nothing."""
        return None if name in self.provisional else self.verdicts.get(name)

    def fingerprinter(self, outcomes: SelectorOutcomes) -> Fingerprinter:
        """The function that fingerprints nodes for this table's demand."""
        requirements = self.acceptance.requirements
        read = partial(outcomes.attributes, self.demand, requirements)
        return fingerprinter_for(self.demand, requirements, self.profile, read)

    def take_over(self, first: str, others: Collection[str]) -> None:
        """Give nodes the verdict of the first node, which has the same fingerprint."""
        if before := self.verdicts.keys() & others:
            self._forget(before)
        self.verdicts.update(dict.fromkeys(others, self.verdicts[first]))
        for kept in self._sets():
            if first in kept:
                kept.update(others)
        self._refusing = None

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
        verdict = self._known(fingerprint, budget)
        if verdict is None and (verdict := self._open(outcomes).get(fingerprint)) is not None:
            outcomes.missing = True
        if verdict is None:
            allocator, began = outcomes.allocator(self.profile, budget), outcomes.now()
            verdict = judge(self.demand, node, self.acceptance, allocator)
            outcomes.missing = outcomes.missing or missed != self.acceptance.requirements.missed
            until = outcomes.given_up_until(self.demand, self.acceptance.requirements, began)
            self.given_up_until = min(self.given_up_until, until)
            if fingerprint is not None:
                self._remember(fingerprint, verdict, outcomes, budget)
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
            (self.provisional, outcomes.missing),
            (self.cut_short, _is_cut_short(verdict, budget)),
        ):
            (kept.add if belongs else kept.discard)(node.name)
        self._refusing = None

    def _remember(
        self, fingerprint: Hashable, verdict: Verdict, outcomes: SelectorOutcomes, budget: Budget
    ) -> None:
        if outcomes.missing:
            known = self._open(outcomes)
        else:
            known = (
                self._cut_short_by_fingerprint
                if _is_cut_short(verdict, budget)
                else self._by_fingerprint
            )
        if len(known) > MAX_FINGERPRINTS:
            known.clear()
        known[fingerprint] = verdict

    def _open(self, outcomes: SelectorOutcomes) -> dict[Hashable, Verdict]:
        """Verdicts that wait for a selector, by fingerprint, for these outcomes only."""
        # Whoever asks next, with newer outcomes, may know more.
        if self._open_by_fingerprint[0] is not outcomes:
            self._open_by_fingerprint = (outcomes, {})
        return self._open_by_fingerprint[1]

    def _known(self, fingerprint: Hashable | None, budget: Budget) -> Verdict | None:
        """The verdict known for this fingerprint, unless a longer search is allowed by now."""
        if fingerprint is None:
            return None
        verdict = self._by_fingerprint.get(fingerprint)
        return (
            self._cut_short_by_fingerprint.get(fingerprint)
            if not verdict and budget is SHORT
            else verdict
        )

    def complete(self, view: View) -> bool:
        """Whether each node has a settled verdict; `view` is what the table is up to date with."""
        assert self.basis == view.basis
        # There are verdicts on this view's nodes only, so their number is enough to compare.
        if len(self.verdicts) < len(view.nodes):
            return False
        if self._unjudged is None or self._unjudged:
            self._unjudged = set()
        return not self.provisional

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
        nodes = view.nodes
        without: Iterable[str]
        if self._unjudged is None:
            without = filterfalse(self.verdicts.__contains__, names)
        else:
            without = self._unjudged if names is nodes else self._unjudged.intersection(names)
        unjudged = [n for n in without if n not in self.verdicts]
        # The view's key view is the faster one to ask about many names.
        known = nodes.keys() if len(unjudged) > MANY else nodes
        unjudged = [n for n in unjudged if n in known]
        if self.provisional:
            unjudged += filter(self.provisional.__contains__, names)
        return unjudged

    def narrow(self, names: list[str]) -> Narrowed:
        """Leave out the names of refused nodes; names without a verdict pass."""
        if not self.refusing:
            return Narrowed(names, names)
        passed = list(filterfalse(self.refusing.__contains__, names))
        return Narrowed(names, passed if len(passed) < len(names) else names)

    @property
    def refusing(self) -> frozenset[str]:
        """`refused` as it is now."""
        if self._refusing is None:
            # A set that grew is mostly empty; this copy takes half the memory.
            self._refusing = frozenset(self.refused)
        return self._refusing

    @property
    def usual_score(self) -> int:
        """The score that the most nodes have."""
        return max(range(HIGHEST_SCORE + 1), key=lambda score: len(self._scored[score]))

    def best_among(self, names: Sequence[str], most: int) -> dict[str, int]:
        """Some of the names that have the best score of all of them, with that score."""
        for score in range(HIGHEST_SCORE, -1, -1):
            # One set is asked at a time, and mostly the first one that is not empty has them.
            if has := self._scored[score]:
                best = list(islice(filter(has.__contains__, names), most))
                if best:
                    return dict.fromkeys(best, score)
        return {}

    def scored_otherwise(self, names: Iterable[str], score: int) -> list[str]:
        """The names that do not have this score, in their order."""
        return list(filterfalse(self._scored[score].__contains__, names))

    def scores_as(self, names: list[str], encode: Callable[[str, int], bytes]) -> list[bytes]:
        """Each name with its score, as `encode` writes them, in their order.

        `encode` must be the same function each time: what it wrote is kept until the verdict
        changes.
        """
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
        """The score of its verdict; without one, that of unknown health."""
        verdict = self.verdicts.get(name)
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
