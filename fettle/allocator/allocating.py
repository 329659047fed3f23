"""One allocation from beginning to end: the checks, the search in turns, what it comes to.

A port of `Allocate` of k8s.io/dynamic-resource-allocation/structured (incubating), bounded by steps
and by time. Read-only and pure: clock, profile and what the node looks like are arguments.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

import msgspec

from fettle.allocator import chance
from fettle.allocator import plans as planning
from fettle.allocator.doubts import doubt
from fettle.allocator.likeness import alike
from fettle.allocator.outcomes import Aborted, Allocated, Found, Taken, Unclear, Unfinished
from fettle.allocator.plans import Plan, Plans
from fettle.allocator.profiles import CURRENT, Profile
from fettle.allocator.pruning import hopeless
from fettle.allocator.searching import PAUSE, Search
from fettle.allocator.taking import Acceptable, Books, Match
from fettle.asks.claims import ALL, Claim
from fettle.view import PoolView
from fettle.wire.resource import MAX_RESULTS

Clock = Callable[[], float]
T = TypeVar("T")


class Budget(msgspec.Struct, frozen=True):
    """How far one search may go: steps as upstream counts them, and seconds of its own work.

    `prune_after` steps it is asked whether going on is of any use; None: never.
    """

    steps: int = 20_000
    seconds: float = 0.25
    prune_after: int | None = 24


AMPLE = Budget()


def allocate(
    claims: Sequence[Claim],
    pools: Sequence[PoolView],
    match: Match,
    profile: Profile = CURRENT,
    *,
    acceptable: Acceptable | None = None,
    budget: Budget = AMPLE,
    clock: Clock = time.perf_counter,
) -> Allocated:
    """The first allocation that satisfies all claims, as the scheduler would find it.

    With `acceptable`, devices it turns down are never taken: is there *any* allocation then?
    """
    return run(
        allocating(claims, pools, match, profile, acceptable=acceptable, budget=budget, clock=clock)
    )


def run(work: Generator[None, None, T]) -> T:
    """What a generator returns, without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            returned: T = end.value
            return returned


def allocating(
    claims: Sequence[Claim],
    pools: Sequence[PoolView],
    match: Match,
    profile: Profile = CURRENT,
    *,
    acceptable: Acceptable | None = None,
    budget: Budget = AMPLE,
    clock: Clock = time.perf_counter,
) -> Generator[None, None, Allocated]:
    """As `allocate`, with a chance to do something else at each `next`."""
    books = Books(claims, pools, match, profile, acceptable)
    plans = planning.lay_out(claims, len(books.candidates))
    search = Search(plans, books)
    ask_again = budget.prune_after
    spent = 0.0
    try:
        yield from _prepare(claims, plans, books, pools, profile)
        since = clock()
        for _ in search.run():
            spent += clock() - since
            yield
            since = clock()
            if search.steps > budget.steps or spent > budget.seconds:
                raise Unfinished(f"no result within {search.steps} search steps")
            if ask_again is not None and search.steps >= ask_again:
                ask_again = None
                if why := (yield from hopeless(claims, plans, books, profile)):
                    return _none(pools, profile, why, search.steps)
                search.alike = alike(claims, plans, books, profile)
                since = clock()
    except Aborted as error:
        if not profile.ordered and (
            why := chance.which(plans, books) or chance.why_error(claims, plans, books)
        ):
            return Allocated(Found.UNDECIDED, reason=why, steps=search.steps)
        return Allocated(Found.ERROR, reason=str(error), steps=search.steps)
    except Unclear as reason:
        return Allocated(
            Found.UNDECIDED,
            reason=str(reason),
            steps=search.steps,
            bounded=isinstance(reason, Unfinished) and not books.beyond,
        )
    if search.result is None:
        known = ""
        if not profile.ordered and (why := chance.why_nothing(claims, plans, books, profile)):
            known = yield from hopeless(claims, plans, books, profile)
            if not known:
                return Allocated(Found.UNDECIDED, reason=why, steps=search.steps)
        known = known or "no combination of devices satisfies all requests"
        return _none(pools, profile, known, search.steps)
    if not profile.ordered and (why := chance.which(plans, books)):
        return Allocated(Found.UNDECIDED, reason=why, steps=search.steps, bounded=not books.beyond)
    if why := _unwritable(search.result):
        return Allocated(Found.ERROR, reason=why, steps=search.steps)
    return Allocated(Found.FITS, search.result, steps=search.steps)


def _unwritable(taken: Sequence[Taken]) -> str:
    """Why the node selector of an allocation cannot be written, "" if it can."""
    pinned: set[int] = set()
    for one in taken:
        published = one.device.published
        if published.pins:
            pinned.add(one.claim)
        elif one.claim not in pinned and published.terms > 1:
            return f"{published.id}: its node selector has {published.terms} terms"
    return ""


def _none(pools: Sequence[PoolView], profile: Profile, why: str, steps: int) -> Allocated:
    """Nothing fits; where a pool is invalid, the scheduler calls that an error of this node."""
    for pool in pools:
        if doubted := doubt(pool, profile):
            return Allocated(Found.UNDECIDED, reason=doubted, steps=steps)
    for pool in pools:
        if pool.invalid:
            why = f"{why}; {pool.told} is invalid: {pool.invalid}"
            return Allocated(Found.ERROR, reason=why, on_node=True, steps=steps)
    return Allocated(Found.NONE, reason=why, steps=steps)


def _prepare(
    claims: Sequence[Claim],
    plans: Plans,
    books: Books,
    pools: Sequence[PoolView],
    profile: Profile,
) -> Iterator[None]:
    """What upstream checks claim by claim before it searches."""
    for claim, requests in zip(claims, plans, strict=True):
        total = 0
        for request, alternatives in zip(claim.requests, requests, strict=True):
            planning.check_gates(request, claim.name, profile.features)
            for plan in alternatives:
                planning.check(plan, profile.features)
                if plan.alternative.mode == ALL:
                    yield from _everything(plan, books, pools, profile)
            total = planning.add_to_limit(total, request, alternatives, claim.name, MAX_RESULTS)
        for unknown in planning.unknown_constraints(claim):
            raise Aborted(unknown)


def _everything(
    plan: Plan, books: Books, pools: Sequence[PoolView], profile: Profile
) -> Iterator[None]:
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
            raise Aborted(f"{plan.told}: all devices are requested, but {pool.told} is {state}")
        for _ in pool.devices:
            if books.selectable(plan, at) and books.could_fit(plan, at):
                plan.everything.append(at)
            at += 1
            if at % PAUSE == 0:
                yield
    plan.count = len(plan.everything)
