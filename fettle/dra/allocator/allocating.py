"""One allocation from beginning to end: the checks, the search in turns, what it comes to.

A port of `Allocate` of k8s.io/dynamic-resource-allocation/structured (incubating), bounded by steps
and by time. Read-only and pure: profile and what the node looks like are arguments.
"""

from collections.abc import Sequence

from fettle.api.resource import MAX_RESULTS
from fettle.dra.allocator import chance
from fettle.dra.allocator import plans as planning
from fettle.dra.allocator.abilities import abilities
from fettle.dra.allocator.doubts import doubt
from fettle.dra.allocator.likeness import interchangeable
from fettle.dra.allocator.outcomes import (
    AMPLE,
    NOTHING,
    Aborted,
    Allocated,
    AllocationStatus,
    Budget,
    Taken,
    Unclear,
    Unfinished,
)
from fettle.dra.allocator.pairing import Lookout, families
from fettle.dra.allocator.plans import RequestData
from fettle.dra.allocator.profiles import CURRENT, Profile
from fettle.dra.allocator.pruning import find_infeasible, may_skip
from fettle.dra.allocator.searching import Search
from fettle.dra.allocator.taking import Acceptable, Books, Match
from fettle.dra.claims import ALL, Claim
from fettle.dra.pools import PoolView
from fettle.model import reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause, within

SHARE = 0.25
"""Of the time that a search may take, so much is for finding out how to end it early."""


def allocate(
    claims: Sequence[Claim],
    pools: Sequence[PoolView],
    match: Match,
    profile: Profile = CURRENT,
    *,
    acceptable: Acceptable | None = None,
    budget: Budget = AMPLE,
) -> Allocated:
    """The first allocation that satisfies all claims, as the scheduler would find it.

    With `acceptable`, devices it turns down are never taken: is there *any* allocation then?
    """
    attempt = _Attempt(claims, pools, match, profile, acceptable, budget)
    try:
        return within(budget.seconds, attempt.outcome)
    except Unfinished as error:
        return attempt.unfinished(error.reason)
    except TimeoutError:
        return attempt.unfinished(reasons.SearchTookTooLong(seconds=budget.seconds))


class _Attempt:
    """One allocation: what is asked for, and what is known of it so far."""

    def __init__(
        self,
        claims: Sequence[Claim],
        pools: Sequence[PoolView],
        match: Match,
        profile: Profile,
        acceptable: Acceptable | None,
        budget: Budget,
    ) -> None:
        self._claims = claims
        self._pools = pools
        self._profile = profile
        self._budget = budget
        self._plans = planning.lay_out(claims)
        self.books = Books(claims, pools, match, profile, acceptable)
        self.search = Search(self._plans, self.books)

    def outcome(self) -> Allocated:
        """Raises Unfinished."""
        claims, plans, books = self._claims, self._plans, self.books
        ordered = self._profile.ordered
        try:
            books.open()
            self._prepare()
            if why := self._searched():
                return self._none(why)
        except Aborted as error:
            if not ordered and (
                why := chance.order_matters(plans, books) or chance.why_error(claims, plans, books)
            ):
                return self._undecided(why)
            return self._error(error.reason)
        except Unclear as error:
            return self._undecided(error.reason)
        if self.search.result is None:
            return self._nothing()
        if not ordered and (why := chance.order_matters(plans, books)):
            return self._undecided(why, bounded=not books.beyond)
        if why := _unwritable(self.search.result):
            return self._error(why)
        return Allocated(AllocationStatus.FITS, self.search.result, steps=self.search.steps)

    def unfinished(self, why: Reason) -> Allocated:
        """The search was ended."""
        return self._undecided(why, bounded=not self.books.beyond)

    def _prepare(self) -> None:
        """What upstream checks claim by claim before it searches."""
        features = self._profile.features
        for claim, requests in zip(self._claims, self._plans, strict=True):
            total = 0
            for request, alternatives in zip(claim.requests, requests, strict=True):
                planning.check_gates(request, claim.name, features)
                for plan in alternatives:
                    planning.check(plan, features)
                    if plan.alternative.mode == ALL:
                        _everything(plan, self.books, self._pools, self._profile)
                    pause()
                total = planning.add_to_limit(total, request, alternatives, claim.name, MAX_RESULTS)
            for unknown in planning.unknown_constraints(claim):
                raise Aborted(unknown)

    def _searched(self) -> Reason | None:
        """Search to the end; or why that is of no use, found out on the way."""
        search, ask_again = self.search, self._budget.prune_after
        search.begin()
        while search.under_way:
            if search.steps > self._budget.steps:
                raise Unfinished(reasons.SearchTookTooLong(steps=search.steps))
            if ask_again is not None and search.in_vain >= ask_again:
                ask_again = None
                try:
                    if why := within(self._budget.seconds * SHARE, self._pruned):
                        return why
                except TimeoutError:
                    pass  # the search may be at its end before that
            search.step()
            pause()
        search.end()
        return None

    def _pruned(self) -> Reason | None:
        """Why going on is of no use; else from now on less is tried in vain."""
        claims, plans, books, profile = self._claims, self._plans, self.books, self._profile
        able = abilities(plans, books)
        if able is None:
            return None
        if why := find_infeasible(claims, plans, able, books, profile):
            return why
        if may_skip(claims, plans, profile):
            self.search.alike = interchangeable(claims, able, books)
            lookout = Lookout(families(claims, plans, able, books, profile))
            self.search.ahead = lookout.possible
        return None

    def _nothing(self) -> Allocated:
        """What it means that the search found nothing."""
        claims, plans, books, profile = self._claims, self._plans, self.books, self._profile
        if profile.ordered:
            return self._none(NOTHING)
        why = chance.why_nothing(claims, plans, books, profile)
        if not why:
            return self._none(NOTHING)
        able = abilities(plans, books)
        if able and (known := find_infeasible(claims, plans, able, books, profile)):
            return self._none(known)
        return self._undecided(why)

    def _none(self, why: Reason) -> Allocated:
        """Nothing fits; where a pool is invalid, the scheduler calls that an error of this node."""
        for pool in self._pools:
            if doubted := doubt(pool, self._profile):
                return self._undecided(doubted)
        for pool in self._pools:
            if pool.invalid:
                invalid = reasons.PoolInvalid(pool.ref, pool.invalid)
                return self._error(why, invalid, on_node=True)
        return Allocated(AllocationStatus.NONE, reasons=(why,), steps=self.search.steps)

    def _error(self, *why: Reason, on_node: bool = False) -> Allocated:
        return Allocated(
            AllocationStatus.ERROR, reasons=why, on_node=on_node, steps=self.search.steps
        )

    def _undecided(self, why: Reason, *, bounded: bool = False) -> Allocated:
        return Allocated(
            AllocationStatus.UNDECIDED, reasons=(why,), steps=self.search.steps, bounded=bounded
        )


def _unwritable(taken: Sequence[Taken]) -> reasons.NodeSelectorTooComplex | None:
    """Why the node selector of an allocation cannot be written, None if it can."""
    pinned: set[int] = set()
    for one in taken:
        published = one.device.published
        if published.pins:
            pinned.add(one.claim)
        elif one.claim not in pinned and published.terms > 1:
            return reasons.NodeSelectorTooComplex(published.id, published.terms)
    return None


def _everything(
    plan: RequestData, books: Books, pools: Sequence[PoolView], profile: Profile
) -> None:
    """Mode All: the devices that match, if every pool of the node is whole."""
    plan.everything = []
    at = 0
    for pool in pools:
        if doubted := doubt(pool, profile):
            raise Unclear(doubted)
        here, whole = pool.slices
        parted = here != whole and profile.rules.pools_by_node
        updated = "being updated" if pool.incomplete or parted else ""
        state = updated or (pool.invalid and f"invalid: {pool.invalid}")
        if state:
            raise Aborted(reasons.PoolUnusable(plan.told, pool.ref, state))
        for _ in pool.devices:
            if books.selectable(plan, at) and books.could_fit(plan, at):
                plan.everything.append(at)
            at += 1
            pause()
    plan.count = len(plan.everything)
