"""Why requests that could each be met alone are not met together, in words: for explanations.

Each constraint is held against the devices that its requests could have. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from fettle.dra.allocator.abilities import Abilities, abilities
from fettle.dra.allocator.agreeing import Most, Value, most, values_of
from fettle.dra.allocator.constraints import attribute
from fettle.dra.allocator.contending import Need
from fettle.dra.allocator.pairing import CompetingGroups, families
from fettle.dra.allocator.plans import AllRequestData, RequestData
from fettle.dra.allocator.profiles import Profile
from fettle.dra.allocator.pruning import find_infeasible
from fettle.dra.allocator.taking import Books
from fettle.dra.claims import Claim, Constraint
from fettle.model import reasons
from fettle.model.reasons import Obstacles, Reason
from fettle.pacing import pause

Shortage = reasons.TooFewDevices | reasons.NoDeviceMatches | reasons.NoDevices


class Reach(NamedTuple):
    """What an alternative could have if nothing else were asked for.

    `obstacles` says by candidate, of those that match, what keeps it away, None where nothing does:
    those are `free`; `reason`, why too few of them are, None where enough are.
    """

    plan: RequestData
    obstacles: Mapping[int, Reason | None]
    free: Sequence[int]
    reason: Shortage | None = None


Reaches = Sequence[Sequence[Sequence[Reach]]]
"""Of alternatives that could be met alone, by claim and request."""


def find_conflict(
    claims: Sequence[Claim],
    plans: AllRequestData,
    reaches: Reaches,
    books: Books,
    profile: Profile,
) -> Reason:
    """The first conflict that is plain; else what it may be."""
    able = abilities(plans, books)
    return (
        _without_attribute(claims, plans, books)
        or _constrained(claims, reaches, books, profile)
        or (able and _paired(claims, plans, able, reaches, books, profile))
        or (able and find_infeasible(claims, plans, able, books, profile))
        or _together(claims, reaches, books)
    )


def _without_attribute(
    claims: Sequence[Claim], plans: AllRequestData, books: Books
) -> Reason | None:
    """A constraint about an attribute that no device of one of its requests has; "" if none is."""
    for claim, requests in zip(claims, plans, strict=True):
        for constraint in claim.constraints:
            for plan in (alternatives[0] for alternatives in requests if len(alternatives) == 1):
                if constraint.concerns(plan.request.name, plan.name) and not (
                    _has(constraint, plan, books)
                ):
                    return reasons.AttributeMissing(plan.told, constraint.attribute or "")
                pause()
    return None


def _has(constraint: Constraint, plan: RequestData, books: Books) -> bool:
    """Whether some device that matches has the attribute."""
    for at, matches in plan.matches.items():
        if matches and attribute(constraint.attribute, books.candidates[at].device):
            return True
        pause()
    return False


def _constrained(
    claims: Sequence[Claim], reaches: Reaches, books: Books, profile: Profile
) -> Reason | None:
    """A constraint that cannot be met even if nothing else were asked for; "" if none is plain."""
    for claim, requests in zip(claims, reaches, strict=True):
        for constraint in claim.constraints:
            if constraint.distinct and profile.quirks.distinct_by_request:
                continue  # then some values may come twice
            concerned = [
                alternatives
                for alternatives in requests
                if all(constraint.concerns(r.plan.request.name, r.plan.name) for r in alternatives)
            ]
            pause()
            lists = profile.features.list_type_attributes
            if why := _short_of(constraint, concerned, books, lists=lists):
                return why
    return None


def _short_of(
    constraint: Constraint, concerned: Sequence[Sequence[Reach]], books: Books, *, lists: bool
) -> Reason | None:
    """How few devices go together by a constraint of the requests `concerned`, "" if enough do.

    Of a list of alternatives, the one that needs least may have whatever any of them may have.
    """
    free = [*map(_free, concerned)]
    needs = [
        Need(min(r.plan.count for r in alternatives), able)
        for alternatives, able in zip(concerned, free, strict=True)
    ]
    requested = sum(need.number for need in needs)
    obstacles = _merged(concerned)
    values: dict[int, Collection[Value]] = {}
    for at in obstacles:
        found = values_of(constraint, books.candidates[at].device, lists=lists)
        if found is None:
            return None
        values[at] = found
        pause()
    best = most(constraint, needs, values, books.shareable)
    if best.number >= requested:
        return None
    causes = _causes(obstacles, values, best)
    return reasons.ConstraintNotMet(
        tuple(reach.plan.told for alternatives in concerned for reach in alternatives),
        constraint.attribute or "",
        constraint.distinct,
        requested,
        best.number,
        at_least=requested < sum(max(r.plan.count for r in a) for a in concerned),
        value="" if best.value is None else str(best.value),
        obstacles=counted(causes),
    )


def _paired(
    claims: Sequence[Claim],
    plans: AllRequestData,
    able: Abilities,
    reaches: Reaches,
    books: Books,
    profile: Profile,
) -> Reason | None:
    """How few groups of requests agree on a value each, "" if all of them do."""
    for family in families(claims, plans, able, books, profile):
        number, met = len(family.groups), family.met()
        if met == number:
            continue
        members = [[member.plan for member in group.members] for group in family.groups]
        causes = _away(members, family.attribute, reaches, books)
        return reasons.GroupsNotMet(
            tuple(tuple(plan.told for plan in group) for group in members),
            family.attribute,
            met,
            pairs=all([plan.count for plan in group] == [1, 1] for group in members),
            values=_values_with_devices(family),
            obstacles=counted(causes),
        )
    return None


def _values_with_devices(family: CompetingGroups) -> reasons.ValuesWithDevices | None:
    """How many values have devices for the first group, where all of them are alike."""
    first, *others = ([(m.ability, m.plan.count) for m in g.members] for g in family.groups)
    if len(first) < 2 or any(other != first for other in others):
        return None
    members = family.groups[0].members
    by_request = tuple((member.plan.told, family.values_for([member])) for member in members)
    return reasons.ValuesWithDevices(by_request, family.values_for(members))


def _away(
    members: Sequence[Sequence[RequestData]], name: str, reaches: Reaches, books: Books
) -> list[Reason]:
    """What keeps devices away that match some of these requests and have the attribute."""
    plans = {plan for group in members for plan in group}
    of_plans = {
        id(reach.obstacles): reach.obstacles
        for requests in reaches
        for alternatives in requests
        for reach in alternatives
        if reach.plan in plans
    }
    away: dict[int, Reason] = {}
    for obstacles in of_plans.values():
        for at, why in obstacles.items():
            if why and attribute(name, books.candidates[at].device) is not None:
                away[at] = why
            pause()
    return list(away.values())


def _free(alternatives: Sequence[Reach]) -> Sequence[int]:
    """The candidates that one of the alternatives may have."""
    if len(alternatives) == 1:
        return alternatives[0].free
    free: set[int] = set()
    for reach in alternatives:
        free.update(reach.free)
        pause()
    return sorted(free)


def _merged(concerned: Sequence[Sequence[Reach]]) -> Mapping[int, Reason | None]:
    """What keeps each candidate away from all these requests, None where one may have it; requests
    that are alike say the same."""
    reaches = {id(reach.obstacles): reach for each in concerned for reach in each}
    merged: dict[int, Reason | None] = {}
    for reach in reaches.values():
        merged |= reach.obstacles
        pause()
    for reach in reaches.values():
        merged |= dict.fromkeys(reach.free, None)
        pause()
    return merged


def _causes(
    obstacles: Mapping[int, Reason | None], values: Mapping[int, Collection[Value]], best: Most
) -> list[Reason]:
    """What keeps devices away with which there could be more."""
    away: list[Reason] = []
    bare: list[Reason] = []
    for at, why in obstacles.items():
        if why and not best.wanted.isdisjoint(values[at]):
            away.append(why)
        elif not why and not values[at]:
            bare.append(reasons.AttributeAbsent())
        pause()
    return away + bare


def counted(found: Iterable[Reason | None]) -> tuple[Obstacles, ...]:
    """How often there is each obstacle, the most frequent first."""
    counts = Counter(each for each in found if each is not None).most_common()
    return tuple(Obstacles(obstacle, number) for obstacle, number in counts)


def _together(claims: Sequence[Claim], reaches: Reaches, books: Books) -> Reason:
    """Of requests that could each be met alone: what it may be that they do not share."""
    reach_of = {
        id(reach.obstacles): reach
        for requests in reaches
        for alternatives in requests
        for reach in alternatives
    }
    counters: dict[int, Reason] = {}
    shares: dict[int, Reason] = {}
    for reach in reach_of.values():
        for at in reach.free:
            pool, device = books.candidates[at]
            if device.published.consumes:
                counters[at] = reasons.SharedCounters(pool.ref)
            if device.published.multiple:
                shares[at] = reasons.SharedCapacity(device.id)
            pause()
    causes = dict.fromkeys(
        (
            *(
                reasons.SharedConstraint(claim.name, c.attribute or "", c.distinct)
                for claim in claims
                for c in claim.constraints
            ),
            *(counters[at] for at in sorted(counters)),
            *(shares[at] for at in sorted(shares)),
        )
    )
    single = sum(len(requests) for requests in reaches) == 1
    return reasons.RequestsDoNotFit(tuple(causes), single=single)
