"""Why requests that could each be met alone are not met together, in words: for explanations.

Each constraint is held against the devices that its requests could have. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from fettle.pacing import pause

MOST_NAMED = 3
"""Groups of requests that are named."""


class Reach(NamedTuple):
    """What an alternative could have if nothing else were asked for.

    `obstacles` says by candidate, of those that match, what keeps it away, "" where nothing does:
    those are `free`; `reason`, why too few of them are, "" where enough are.
    """

    plan: RequestData
    obstacles: Mapping[int, str]
    free: Sequence[int]
    reason: str = ""


Reaches = Sequence[Sequence[Sequence[Reach]]]
"""Of alternatives that could be met alone, by claim and request."""


def find_conflict(
    claims: Sequence[Claim],
    plans: AllRequestData,
    reaches: Reaches,
    books: Books,
    profile: Profile,
) -> str:
    """The first conflict that is plain; else what it may be."""
    able = abilities(plans, books)
    return (
        (_without_attribute(claims, plans, books))
        or _constrained(claims, reaches, books, profile)
        or (able and _paired(claims, plans, able, reaches, books, profile))
        or (able and find_infeasible(claims, plans, able, books, profile))
        or _together(claims, reaches, books)
    )


def _without_attribute(claims: Sequence[Claim], plans: AllRequestData, books: Books) -> str:
    """A constraint about an attribute that no device of one of its requests has; "" if none is."""
    for claim, requests in zip(claims, plans, strict=True):
        for constraint in claim.constraints:
            for plan in (alternatives[0] for alternatives in requests if len(alternatives) == 1):
                if constraint.concerns(plan.request.name, plan.name) and not (
                    _has(constraint, plan, books)
                ):
                    return (
                        f"{plan.told}: no matching device has the attribute "
                        f"{constraint.attribute}, which a constraint compares"
                    )
                pause()
    return ""


def _has(constraint: Constraint, plan: RequestData, books: Books) -> bool:
    """Whether some device that matches has the attribute."""
    for at, matches in plan.matches.items():
        if matches and attribute(constraint.attribute, books.candidates[at].device):
            return True
        pause()
    return False


def _constrained(claims: Sequence[Claim], reaches: Reaches, books: Books, profile: Profile) -> str:
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
    return ""


def _short_of(
    constraint: Constraint, concerned: Sequence[Sequence[Reach]], books: Books, *, lists: bool
) -> str:
    """How few devices go together by a constraint of the requests `concerned`, "" if enough do.

    Of a list of alternatives, the one that needs least may have whatever any of them may have.
    """
    free = list(map(_free, concerned))
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
            return ""
        values[at] = found
        pause()
    best = most(constraint, needs, values, books.shareable)
    if best.number >= requested:
        return ""
    causes = _causes(obstacles, values, best)
    details = [] if best.value is None else [f"value {best.value}"]
    details += [counted(causes, more=best.number > 0)] if causes else []
    varied = requested < sum(max(r.plan.count for r in a) for a in concerned)
    names = ", ".join(reach.plan.told for alternatives in concerned for reach in alternatives)
    return (
        f"{names}: {'at least ' if varied else ''}{requested} requested with "
        f"{'different values' if constraint.distinct else 'a common value'} of "
        f"{constraint.attribute}, {f'at most {best.number}' if best.number else 'none'} available"
        + (f" ({'; '.join(details)})" if details else "")
    )


def _paired(
    claims: Sequence[Claim],
    plans: AllRequestData,
    able: Abilities,
    reaches: Reaches,
    books: Books,
    profile: Profile,
) -> str:
    """How few groups of requests agree on a value each, "" if all of them do."""
    for family in families(claims, plans, able, books, profile):
        number, met = len(family.groups), (family.met())
        if met == number:
            continue
        members = [[member.plan for member in group.members] for group in family.groups]
        pairs = all([plan.count for plan in group] == [1, 1] for group in members)
        named = [" and ".join(plan.told for plan in group) for group in members]
        details = [*_values_with_devices(family)]
        causes = _away(members, family.attribute, reaches, books)
        details += [counted(causes, more=True)] if causes else []
        return (
            f"{', '.join(named[:MOST_NAMED])}{', …' if number > MOST_NAMED else ''}: "
            f"{number} {'pairs' if pairs else 'groups'} requested, each with a common value of "
            f"{family.attribute}, {f'at most {met}' if met else 'none'} available"
            + (f" ({'; '.join(details)})" if details else "")
        )
    return ""


def _values_with_devices(family: CompetingGroups) -> Iterator[str]:
    """How many values have devices for the first group, where all of them are alike."""
    first, *others = ([(m.ability, m.plan.count) for m in g.members] for g in family.groups)
    if len(first) < 2 or any(other != first for other in others):
        return
    of_each = [family.values_for([member]) for member in family.groups[0].members]
    told = [
        f"{number} for {member.plan.told}"
        for number, member in zip(of_each, family.groups[0].members, strict=True)
    ]
    told.append(f"{family.values_for(family.groups[0].members)} for {_all(first)}")
    yield f"values with free devices: {', '.join(told)}"


def _all(members: Sequence[object]) -> str:
    return "both" if len(members) == 2 else "all of these"


def _away(
    members: Sequence[Sequence[RequestData]], name: str, reaches: Reaches, books: Books
) -> list[str]:
    """What keeps devices away that match some of these requests and have the attribute."""
    plans = {plan for group in members for plan in group}
    of_plans = {
        id(reach.obstacles): reach.obstacles
        for requests in reaches
        for alternatives in requests
        for reach in alternatives
        if reach.plan in plans
    }
    away: dict[int, str] = {}
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


def _merged(concerned: Sequence[Sequence[Reach]]) -> Mapping[int, str]:
    """What keeps each candidate away from all these requests, "" where one may have it; requests
    that are alike say the same."""
    reaches = {id(reach.obstacles): reach for each in concerned for reach in each}
    merged: dict[int, str] = {}
    for reach in reaches.values():
        merged |= reach.obstacles
        pause()
    for reach in reaches.values():
        merged |= dict.fromkeys(reach.free, "")
        pause()
    return merged


def _causes(
    obstacles: Mapping[int, str], values: Mapping[int, Collection[Value]], best: Most
) -> list[str]:
    """What keeps devices away with which there could be more."""
    away: list[str] = []
    bare: list[str] = []
    for at, why in obstacles.items():
        if why and not best.wanted.isdisjoint(values[at]):
            away.append(why)
        elif not why and not values[at]:
            bare.append("without the attribute")
        pause()
    return away + bare


def counted(obstacles: Iterable[str], *, more: bool = False) -> str:
    counts = Counter(obstacles).most_common()
    return ", ".join(f"{number} {'more ' if more else ''}{why}" for why, number in counts)


def _together(claims: Sequence[Claim], reaches: Reaches, books: Books) -> str:
    """Of requests that could each be met alone: what it may be that they do not share."""
    reach_of = {
        id(reach.obstacles): reach
        for requests in reaches
        for alternatives in requests
        for reach in alternatives
    }
    counters: dict[int, str] = {}
    shares: dict[int, str] = {}
    for reach in reach_of.values():
        for at in reach.free:
            pool, device = books.candidates[at]
            if device.published.consumes:
                counters[at] = f"counters of {pool.told}"
            if device.published.multiple:
                shares[at] = f"capacity of {device.id}"
            pause()
    causes = dict.fromkeys(
        (
            *(
                f"{'distinctAttribute' if c.distinct else 'matchAttribute'} {c.attribute} "
                f"of claim {claim.name}"
                for claim in claims
                for c in claim.constraints
            ),
            *(counters[at] for at in sorted(counters)),
            *(shares[at] for at in sorted(shares)),
        )
    )
    single = sum(len(requests) for requests in reaches) == 1
    subject = "too few devices fit together" if single else "not all requests can be met together"
    return f"{subject} ({', '.join(causes) or 'they compete for the same devices'})"
