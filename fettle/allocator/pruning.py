"""Whether it is clear without a search that nothing can be found: too few devices match.

An exhaustive search would come to the same, only later: exponentially, at worst. So nothing is said
here where the search could end in an error instead. Sound, not complete; `taking` knows the rules.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

from fettle.allocator.constraints import attribute
from fettle.allocator.contending import Need, served
from fettle.allocator.outcomes import Aborted, Unclear
from fettle.allocator.plans import Plan, Plans
from fettle.allocator.profiles import Profile
from fettle.allocator.searching import PAUSE
from fettle.allocator.taking import Books
from fettle.asks.claims import Claim, Constraint
from fettle.published import CounterId
from fettle.view import PoolView

MOST_COMPARED = 256
"""Candidates beyond which their attributes are not compared, since that is done without a pause."""


def hopeless(
    claims: Sequence[Claim], plans: Plans, books: Books, profile: Profile
) -> Generator[None, None, str]:
    """Why no search can succeed, "" where that is not plain; pauses often."""
    able: dict[int, list[int]] = {}
    try:
        for plan in _all(plans):  # of all claims, so that what would end in an error comes to light
            found = able[id(plan)] = []
            for looked, at in enumerate(books.able(plan)):
                if looked % PAUSE == PAUSE - 1:
                    yield
                if at is not None:
                    found.append(at)
    except (Aborted, Unclear):
        return ""
    for claim, requests in zip(claims, plans, strict=True):
        if claim.constraints and any(p.everything is not None for p in _all([requests])):
            return ""  # a constraint against what mode All needs is an error
    reasons = (
        _hopeless(claim, requests, able, books, profile)
        for claim, requests in zip(claims, plans, strict=True)
    )
    return next(filter(None, reasons), "") or _contended(claims, plans, able, books, profile)


def _all(plans: Plans) -> Iterator[Plan]:
    return (plan for requests in plans for alternatives in requests for plan in alternatives)


def _hopeless(
    claim: Claim,
    requests: Sequence[Sequence[Plan]],
    able: Mapping[int, Sequence[int]],
    books: Books,
    profile: Profile,
) -> str:
    for alternatives in requests:
        if all(len(able[id(plan)]) < plan.count for plan in alternatives):
            return f"{alternatives[0].told}: too few devices can be allocated"
    if profile.features.list_type_attributes or profile.quirks.distinct_by_request:
        return ""
    if len(books.candidates) > MOST_COMPARED:
        return ""
    single = [alternatives[0] for alternatives in requests if len(alternatives) == 1]
    for constraint in claim.constraints:
        bound = [p for p in single if constraint.concerns(p.request.name, p.name) and p.count]
        if _unsatisfiable(constraint, [(p.count, able[id(p)]) for p in bound], books):
            return f"claim {claim.name}: {_too_few(constraint)}"
    return ""


def _contended(
    claims: Sequence[Claim],
    plans: Plans,
    able: Mapping[int, Sequence[int]],
    books: Books,
    profile: Profile,
) -> str:
    """Why the requests of all claims together cannot be served, "" where that is not plain.

    Of a list of alternatives, the one that needs least may have whatever any of them may have.
    """
    if len(books.candidates) > MOST_COMPARED:
        return ""
    shared = books.shareable()
    alternatives = [a for requests in plans for a in requests if not a[0].admin]
    needs = [
        Need(min(p.count for p in a), sorted({at for p in a for at in able[id(p)]}))
        for a in alternatives
    ]
    if not served(needs, shared):
        return "not all requests can be met together (they compete for the same devices)"
    quirks = profile.quirks
    exact = not (quirks.counters_by_pool_name or quirks.shares_uncharged)
    if exact and (drained := _drained(needs, shared, books)):
        return f"too few devices fit together (counters of {drained})"
    if profile.features.list_type_attributes:
        return ""
    for number, claim in enumerate(claims):
        for constraint in claim.constraints:
            concerned = [
                len(a) == 1 and a[0].claim == number and constraint.concerns(a[0].request.name, "")
                for a in alternatives
            ]
            if not constraint.distinct and not _servable(
                constraint, needs, concerned, shared, books
            ):
                return f"claim {claim.name}: {_too_few(constraint)}"
    return ""


def _too_few(constraint: Constraint) -> str:
    return f"too few devices satisfy the constraint on {constraint.attribute}"


def _drained(needs: Sequence[Need], shared: frozenset[int], books: Books) -> str:
    """A pool where even the devices that draw least on a counter need more than is left."""
    for pool in {id(c.pool): c.pool for c in books.candidates if c.pool.counters}.values():
        for counter, left in pool.counters.items():
            drawn = sum(
                sum(sorted(_draws(need, counter, pool, shared, books))[: need.number])
                for need in needs
            )
            if drawn > max(left, 0):
                return pool.told
    return ""


def _draws(
    need: Need, counter: CounterId, pool: PoolView, shared: frozenset[int], books: Books
) -> Iterator[int]:
    """What each device that a request may have draws on a counter; shares may be paid already."""
    for at in need.able:
        candidate = books.candidates[at]
        if candidate.pool is not pool or at in shared:
            yield 0
        else:
            yield sum(v for c, v in candidate.device.published.consumes if c == counter)


def _servable(
    constraint: Constraint,
    needs: Sequence[Need],
    concerned: Sequence[bool],
    shared: frozenset[int],
    books: Books,
) -> bool:
    """Whether some value of a matchAttribute leaves enough for all."""
    bound = {at for need, is_ in zip(needs, concerned, strict=True) if is_ for at in need.able}
    table = _by_value(constraint, sorted(bound), books)
    if not table or None in table:
        return True
    return any(
        served(
            [
                Need(need.number, [at for at in need.able if at in having]) if is_ else need
                for need, is_ in zip(needs, concerned, strict=True)
            ],
            shared,
        )
        for having in map(frozenset, table.values())
    )


def _unsatisfiable(
    constraint: Constraint, needs: Sequence[tuple[int, Iterable[int]]], books: Books
) -> bool:
    """Whether no value of the attribute can serve all these requests.

    `needs` are counts with the candidates that each may come from.
    """
    total = sum(count for count, _ in needs)
    if total < 2:
        return False
    tables = [_by_value(constraint, able, books) for _, able in needs]
    if any(None in table for table in tables):
        return False
    if constraint.distinct:
        return len({value for table in tables for value in table}) < total
    return not any(
        all(
            len(table.get(value, ())) >= count
            for table, (count, _) in zip(tables, needs, strict=True)
        )
        for value in tables[0]
    )


def _by_value(constraint: Constraint, able: Iterable[int], books: Books) -> dict[object, list[int]]:
    """Candidates by the value they have; under None those whose value compares in other ways."""
    table: dict[object, list[int]] = {}
    for at in able:
        found = attribute(constraint.attribute, books.candidates[at].device)
        if found is None:
            continue
        values = [
            (kind, value)
            for kind, value in enumerate((found.string, found.int_, found.bool_, found.version))
            if value is not None
        ]
        table.setdefault(values[0] if len(values) == 1 else None, []).append(at)
    return table
