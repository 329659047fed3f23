"""What is left to chance where the scheduler visits slices in no fixed order. Pure.

Each of these says why another order may come to something else; None if none can.
"""

from collections.abc import Mapping, Sequence

from fettle.dra.allocator.outcomes import Aborted, Unclear
from fettle.dra.allocator.plans import AllRequestData, every
from fettle.dra.allocator.profiles import Profile
from fettle.dra.allocator.taking import Books
from fettle.dra.claims import Claim
from fettle.model.reasons import SliceOrderCause, SliceOrderMatters
from fettle.pacing import pause


def order_matters(plans: AllRequestData, books: Books) -> SliceOrderMatters | None:
    """Why other devices may be taken than those that were."""
    choosing = [plan for plan in every(plans) if plan.everything is None and plan.count]
    if choosing and books.beyond:
        return SliceOrderMatters(SliceOrderCause.POOL_UNCLEAR, books.beyond)
    slices = _slices(books)
    if sum(slices.values()) < 2:
        return None
    concerned = set()
    try:
        for plan in choosing:
            for at, (pool, _) in enumerate(books.candidates):
                if books.selectable(plan, at):
                    concerned.add((pool.driver, pool.name))
                pause()
    except (Aborted, Unclear) as error:
        return SliceOrderMatters(SliceOrderCause.ERROR_ON_A_DEVICE, error.reason)
    if sum(slices[pool] for pool in concerned) < 2:
        return None
    return SliceOrderMatters(SliceOrderCause.SEVERAL_SLICES)


def why_nothing(
    claims: Sequence[Claim], plans: AllRequestData, books: Books, profile: Profile
) -> SliceOrderMatters | None:
    """Why something may be taken, or the attempt may end in an error, where nothing was found."""
    if why := why_error(claims, plans, books):
        return why
    if not _depends_on_what_was_seen(claims, books, profile):
        return None
    return order_matters(plans, books)


def why_error(
    claims: Sequence[Claim], plans: AllRequestData, books: Books
) -> SliceOrderMatters | None:
    """Why a request for all devices may end in an error, or else in nothing: a constraint against
    one of them is an error, one of them in use is not, and the first that is met counts."""
    constrained = any(
        claim.constraints and any(p.everything for alternatives in requests for p in alternatives)
        for claim, requests in zip(claims, plans, strict=True)
    )
    if not constrained or sum(_slices(books).values()) < 2:
        return None
    return SliceOrderMatters(SliceOrderCause.ALL_UNDER_CONSTRAINT)


def _slices(books: Books) -> Mapping[tuple[str, str], int]:
    """How many slices for this node there are, by pool."""
    return {(c.pool.driver, c.pool.name): c.pool.slices[0] for c in books.candidates}


def _depends_on_what_was_seen(claims: Sequence[Claim], books: Books, profile: Profile) -> bool:
    """Whether defects make it matter what the search looked at before."""
    quirks = profile.quirks
    if quirks.distinct_by_request and any(c.distinct for each in claims for c in each.constraints):
        return True
    keeps = quirks.undoes_in_part or quirks.counters_by_pool_name
    counts = profile.features.partitionable_devices and any(
        c.pool.counters for c in books.candidates
    )
    return keeps and counts
