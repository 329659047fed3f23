"""Which candidates are alike to a search, so that it need not try each of them in vain. Pure."""

from collections.abc import Collection, Hashable, Sequence

from fettle.dra.allocator.abilities import Abilities
from fettle.dra.allocator.constraints import attribute
from fettle.dra.allocator.taking import Books
from fettle.dra.claims import Claim
from fettle.pacing import pause


def interchangeable(claims: Sequence[Claim], able: Abilities, books: Books) -> list[int]:
    """The class of each candidate: those of a class could be exchanged in every allocation, as far
    as a search may skip anything."""
    kinds = [frozenset(ability.able) for ability in dict.fromkeys(able.values())]
    compared = dict.fromkeys(c.attribute for claim in claims for c in claim.constraints)
    classes: dict[Hashable, int] = {}
    of: list[int] = []
    for at in range(len(books.candidates)):
        seen = _seen(at, kinds, compared, books)
        of.append(classes.setdefault(seen, len(classes)))
        pause()
    return of


def _seen(
    at: int, able: Collection[Collection[int]], compared: Collection[str | None], books: Books
) -> Hashable:
    """All that a search sees of a candidate; one that can be shared is like no other."""
    pool, device = books.candidates[at]
    if device.published.multiple or device.consumed:
        return at
    consumes = device.published.consumes
    return (
        tuple(at in of_kind for of_kind in able),
        device.allocated,
        (pool.driver, pool.name, consumes) if device.published.device.consumes_counters else None,
        device.published.skips,
        tuple(attribute(name, device) for name in compared),
    )
