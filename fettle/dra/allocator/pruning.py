"""Whether it is clear without a search that nothing can be found: too few devices match.

An exhaustive search would come to the same, only later: exponentially, at worst. So nothing is said
here where the search could end in an error instead. Sound, not complete; `taking` knows the rules.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from fettle.api.resource import MAX_RESULTS
from fettle.dra.allocator.abilities import Abilities, Ability
from fettle.dra.allocator.contending import Need, served
from fettle.dra.allocator.pairing import families
from fettle.dra.allocator.plans import AllRequestData, RequestData, every
from fettle.dra.allocator.profiles import Profile, Quirks
from fettle.dra.allocator.taking import Books
from fettle.dra.claims import Claim, Constraint
from fettle.dra.slices import CounterId
from fettle.model import reasons
from fettle.model.reasons import PoolRef, Reason
from fettle.pacing import pause


def find_infeasible(
    claims: Sequence[Claim], plans: AllRequestData, able: Abilities, books: Books, profile: Profile
) -> Reason | None:
    """Why no search can succeed, None where that is not plain."""
    for claim, requests in zip(claims, plans, strict=True):
        if claim.constraints and any(p.everything is not None for p in every([requests])):
            return None  # a constraint against what mode All needs is an error
    for claim, requests in zip(claims, plans, strict=True):
        if why := _hopeless(claim, requests, able, profile):
            return why
    if why := _contended(claims, plans, able, books, profile):
        return why
    for family in families(claims, plans, able, books, profile):
        if family.met() < len(family.groups):
            return reasons.GroupsDisagree(family.attribute)
    return None


def may_skip(claims: Sequence[Claim], plans: AllRequestData, profile: Profile) -> bool:
    """Whether a search may leave out what is sure to come to nothing: nothing is left of what was
    tried in vain, and it ends neither in an error nor in too many devices, which end more."""
    if profile.quirks != Quirks() or profile.features.list_type_attributes:
        return False
    for claim, requests in zip(claims, plans, strict=True):
        if claim.constraints and any(p.everything is not None for p in every([requests])):
            return False  # a constraint against what mode All needs is an error
        if sum(max(plan.count for plan in a) for a in requests) > MAX_RESULTS:
            return False
    return True


def _hopeless(
    claim: Claim,
    requests: Sequence[Sequence[RequestData]],
    able: Abilities,
    profile: Profile,
) -> Reason | None:
    for alternatives in requests:
        if all(len(able[plan].able) < plan.count for plan in alternatives):
            return reasons.TooFewCandidates(alternatives[0].told)
        pause()
    if profile.quirks.distinct_by_request:
        return None
    single = [alternatives[0] for alternatives in requests if len(alternatives) == 1]
    for constraint in claim.constraints:
        bound = [p for p in single if constraint.concerns(p.request.name, p.name) and p.count]
        if _unsatisfiable(constraint, bound, able):
            return reasons.ConstraintTooNarrow(claim.name, constraint.attribute or "")
        pause()
    return None


def _contended(
    claims: Sequence[Claim], plans: AllRequestData, able: Abilities, books: Books, profile: Profile
) -> Reason | None:
    """Why the requests of all claims together cannot be served, None where that is not plain.

    Of a list of alternatives, the one that needs least may have whatever any of them may have.
    """
    alternatives = [a for requests in plans for a in requests if not a[0].admin]
    needs = []
    for of_request in alternatives:
        needs.append(Need(min(p.count for p in of_request), _of_any(of_request, able)))
        pause()
    if not served(needs, books.shareable):
        return reasons.RequestsDoNotFit()
    quirks = profile.quirks
    exact = not (quirks.counters_by_pool_name or quirks.shares_uncharged)
    if exact and (drained := _drained(needs, books)):
        return reasons.RequestsDoNotFit((reasons.SharedCounters(drained),), single=True)
    for number, claim in enumerate(claims):
        for constraint in claim.constraints:
            concerned = {
                place: able[a[0]]
                for place, a in enumerate(alternatives)
                if len(a) == 1 and a[0].claim == number and constraint.concerns(a[0].name, "")
            }
            if not constraint.distinct and not (_servable(constraint, needs, concerned, books)):
                return reasons.ConstraintTooNarrow(claim.name, constraint.attribute or "")
            pause()
    return None


def _of_any(alternatives: Sequence[RequestData], able: Abilities) -> Sequence[int]:
    """The candidates that one of the alternatives may have."""
    if len(alternatives) == 1:
        return able[alternatives[0]].able
    return sorted({at for plan in alternatives for at in able[plan].able})


def _drained(needs: Sequence[Need], books: Books) -> PoolRef | None:
    """A pool where even the devices that draw least on a counter need more than is left."""
    pools = {id(pool): pool for pool in books.pools if pool.counters}
    if not pools:
        return None
    drawn: defaultdict[tuple[int, CounterId], int] = defaultdict(int)
    for need in needs:
        draws = _draws(need, books)
        for of_pool, amounts in draws.items():
            none = min(need.number, len(need.able) - len(amounts))
            drawn[of_pool] += sum(sorted([*amounts, *[0] * none])[: need.number])
            pause()
    for of, pool in pools.items():
        for counter, left in pool.counters.items():
            if drawn[of, counter] > max(left, 0):
                return pool.ref
    return None


def _draws(need: Need, books: Books) -> Mapping[tuple[int, CounterId], Sequence[int]]:
    """What those devices that a request may have and that draw on a counter draw on it, by pool and
    counter; shares may be paid already."""
    draws: defaultdict[tuple[int, CounterId], list[int]] = defaultdict(list)
    for at in need.able:
        pool, device = books.candidates[at]
        if at not in books.shareable:
            of_device: defaultdict[CounterId, int] = defaultdict(int)
            for counter, amount in device.published.consumes:
                of_device[counter] += amount
            for counter, amount in of_device.items():
                draws[id(pool), counter].append(amount)
        pause()
    return draws


def _servable(
    constraint: Constraint, needs: Sequence[Need], concerned: Mapping[int, Ability], books: Books
) -> bool:
    """Whether some value of a matchAttribute leaves enough for all; `concerned` are the places of
    the needs that have to agree."""
    found = [a.by_value(constraint.attribute) for a in concerned.values()]
    tables = dict(zip(concerned, found, strict=True))
    values: dict[object, None] = {}
    for table in found:
        values |= dict.fromkeys(table)
    if not values or None in values:
        return True
    for value in values:
        of_value = {place: table.get(value, ()) for place, table in tables.items()}
        if all(len(able) >= needs[place].number for place, able in of_value.items()):
            narrowed = [
                Need(need.number, of_value.get(place, need.able))
                for place, need in enumerate(needs)
            ]
            if served(narrowed, books.shareable):
                return True
        pause()
    return False


def _unsatisfiable(constraint: Constraint, plans: Sequence[RequestData], able: Abilities) -> bool:
    """Whether no value of the attribute can serve all these requests."""
    total = sum(plan.count for plan in plans)
    if total < 2:
        return False
    tables = [able[plan].by_value(constraint.attribute) for plan in plans]
    if any(None in table for table in tables):
        return False
    if constraint.distinct:
        return len(set().union(*tables)) < total
    for value in tables[0]:
        of_value = (len(table.get(value, ())) for table in tables)
        if all(number >= plan.count for number, plan in zip(of_value, plans, strict=True)):
            return False
        pause()
    return True
