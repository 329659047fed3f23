"""Which candidates are alike to a search, so that it need not try each of them in vain. Pure."""

from collections.abc import Hashable, Sequence

from fettle.allocator.constraints import attribute
from fettle.allocator.outcomes import Aborted, Unclear
from fettle.allocator.plans import Plans
from fettle.allocator.profiles import Profile, Quirks
from fettle.allocator.taking import Books
from fettle.asks.claims import ALL, Claim, Constraint

MOST_COMPARED = 256
"""Candidates beyond which they are not compared, since that is done without a pause."""


def alike(
    claims: Sequence[Claim], plans: Plans, books: Books, profile: Profile
) -> list[int] | None:
    """The class of each candidate: those of a class could be exchanged in every allocation.

    None where that cannot be told, or where looking at one of them ends in an error.
    """
    if len(books.candidates) > MOST_COMPARED or profile.quirks != Quirks():
        return None
    if profile.features.list_type_attributes:
        return None
    if any(
        claim.constraints and any(p.alternative.mode == ALL for a in requests for p in a)
        for claim, requests in zip(claims, plans, strict=True)
    ):
        return None  # a constraint against what mode All needs is an error, here or there
    every = [p for requests in plans for alternatives in requests for p in alternatives]
    try:
        able = [[at is not None for at in books.able(plan)] for plan in every]
    except (Aborted, Unclear):
        return None
    constraints = [constraint for claim in claims for constraint in claim.constraints]
    classes: dict[Hashable, int] = {}
    return [
        classes.setdefault(_seen(at, able, constraints, books), len(classes))
        for at in range(len(books.candidates))
    ]


def _seen(
    at: int, able: Sequence[Sequence[bool]], constraints: Sequence[Constraint], books: Books
) -> Hashable:
    """All that a search sees of a candidate; one that can be shared is like no other."""
    pool, device = books.candidates[at]
    if device.published.multiple or device.consumed:
        return at
    consumes = device.published.consumes
    return (
        tuple(of_plan[at] for of_plan in able),
        device.allocated,
        (pool.driver, pool.name, consumes) if device.published.device.consumes_counters else None,
        device.published.skips,
        tuple(attribute(constraint.attribute, device) for constraint in constraints),
    )
