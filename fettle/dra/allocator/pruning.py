"""Ends searches early that cannot succeed; Kubernetes has nothing of the kind.

An exhaustive search finds the same, but may take exponentially long. Each check here is sound, not
complete: "nothing fits" is only said where no order of candidates can succeed, and never where the
search could end in an error instead. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fettle.api.resource import MAX_RESULTS
from fettle.dra.allocator.allocate_device import (
    AllRequestData,
    DeviceAllocator,
    RequestData,
    all_alternatives,
)
from fettle.dra.allocator.constraint import lookup_attribute, value_of
from fettle.dra.allocator.features import Profile, Quirks
from fettle.dra.allocator.results import Aborted, DeviceIndices, Unclear
from fettle.dra.claims import Alternative, Claim, Constraint
from fettle.dra.slices import CounterId
from fettle.model import reasons
from fettle.model.reasons import PoolRef, Reason
from fettle.pacing import pause

# Matching requests and devices


class Need(NamedTuple):
    """`number` different candidates of `able`."""

    number: int
    able: Collection[int]


def served(needs: Sequence[Need], shared: Collection[int]) -> bool:
    """Whether each need can be met while no candidate serves two, unless it is `shared`."""
    own = _apart(needs, shared)
    holder: dict[int, int] = {}
    for number in _units(own):
        if not _one_more(number, own, holder):
            return False
        pause()
    return True


def most_served(needs: Sequence[Need], shared: Collection[int]) -> int:
    """How much of the needs can be met at once.

    What can be met together is a matroid: meeting one after the other, while that is possible,
    meets the most.
    """
    own = _apart(needs, shared)
    holder: dict[int, int] = {}
    met = sum(need.number for need in needs) - sum(1 for _ in _units(own))
    for number in _units(own):
        met += _one_more(number, own, holder)
        pause()
    return met


def _apart(needs: Sequence[Need], shared: Collection[int]) -> Sequence[Need]:
    """What is left to be met by candidates that serve one need alone."""
    if not shared:
        return needs
    own = []
    for number, able in needs:
        alone = []
        for at in able:
            if at not in shared:
                alone.append(at)
            pause()
        own.append(Need(number - (len(able) - len(alone)), alone))
        pause()
    return own


def _units(needs: Sequence[Need]) -> Iterator[int]:
    """The place of each need, as often as what it counts."""
    return (place for place, need in enumerate(needs) for _ in range(need.number))


def _one_more(start: int, needs: Sequence[Need], holder: dict[int, int]) -> bool:
    """Give a need one more candidate, where others have to give way to others still: breadth first
    along what they hold."""
    wanted_by: dict[int, int] = {}
    given_up: dict[int, int] = {}
    asking = [start]
    for need in asking:
        for at in needs[need].able:
            pause()
            if at in wanted_by:
                continue
            wanted_by[at] = need
            other = holder.get(at)
            if other is None:
                _pass_on(at, start, wanted_by, given_up, holder)
                return True
            if other != start and other not in given_up:
                given_up[other] = at
                asking.append(other)
        pause()
    return False


def _pass_on(
    at: int,
    start: int,
    wanted_by: dict[int, int],
    given_up: dict[int, int],
    holder: dict[int, int],
) -> None:
    """Each need takes the candidate that it asked for, and gives up the one it was asked by."""
    while True:
        need = holder[at] = wanted_by[at]
        if need == start:
            return
        at = given_up[need]


# Candidates of each request

ByValue = Mapping[object, Sequence[int]]
"""Candidates by the value of an attribute; under None those whose value compares in other ways.
Those that have none are left out."""


class Ability:
    """The candidates that an alternative could have, in order; others that differ from it in
    nothing but name and number share it."""

    def __init__(self, able: Sequence[int], allocator: DeviceAllocator) -> None:
        self.able = able
        self._candidates = allocator.candidates
        self._by_value: dict[str | None, ByValue] = {}

    def by_value(self, name: str | None) -> ByValue:
        """By the value of the attribute of this name."""
        if name not in self._by_value:
            table: dict[object, list[int]] = {}
            for at in self.able:
                found = lookup_attribute(name, self._candidates[at].device)
                if found is not None:
                    table.setdefault(value_of(found), []).append(at)
                pause()
            self._by_value[name] = table
        return self._by_value[name]


Abilities = Mapping[RequestData, Ability]


def find_abilities(request_data: AllRequestData, allocator: DeviceAllocator) -> Abilities | None:
    """None where looking at some candidate ends in an error, or cannot be told: that a search would
    come to the same, whatever it may be spared."""
    by_kind: dict[Alternative, Ability] = {}
    found: dict[RequestData, Ability] = {}
    try:
        for data in all_alternatives(request_data):
            kind = selection_key(data)
            if kind not in by_kind:
                by_kind[kind] = Ability(allocator.allocatable(data), allocator)
            found[data] = by_kind[kind]
    except (Aborted, Unclear):
        return None
    return found


def selection_key(data: RequestData) -> Alternative:
    """All that matters to whether a candidate can be had."""
    return msgspec.structs.replace(data.alternative, name="", count=0)


# Interchangeable devices


def interchangeable(
    claims: Sequence[Claim], able: Abilities, allocator: DeviceAllocator
) -> list[int]:
    """The class of each candidate: those of a class could be exchanged in every allocation, as far
    as a search may skip anything."""
    kinds = [frozenset(ability.able) for ability in dict.fromkeys(able.values())]
    compared = dict.fromkeys(c.attribute for claim in claims for c in claim.constraints)
    classes: dict[Hashable, int] = {}
    of: list[int] = []
    for at in range(len(allocator.candidates)):
        seen = _seen(at, kinds, compared, allocator)
        of.append(classes.setdefault(seen, len(classes)))
        pause()
    return of


def _seen(
    at: int,
    able: Collection[Collection[int]],
    compared: Collection[str | None],
    allocator: DeviceAllocator,
) -> Hashable:
    """All that a search sees of a candidate; one that can be shared is like no other."""
    pool, device = allocator.candidates[at]
    if device.published.multiple or device.consumed:
        return at
    consumes = device.published.consumes
    return (
        tuple(at in of_kind for of_kind in able),
        device.allocated,
        (pool.driver, pool.name, consumes) if device.published.device.consumes_counters else None,
        device.published.skips,
        tuple(lookup_attribute(name, device) for name in compared),
    )


# Groups that compete for values

PATIENCE = 64
"""So many looks ahead in a row may show nothing; one takes the time of several steps."""


class Member(NamedTuple):
    """A request of a group; `request` is its place in the claim."""

    request: int
    data: RequestData
    ability: Ability


class Group(NamedTuple):
    """What a matchAttribute binds together and competes with others for devices; `constraint` is
    its place in the claim."""

    claim: int
    constraint: int
    members: Sequence[Member]


Numbers = tuple[tuple[Ability, tuple[int, ...]], ...]
"""Of each ability, how many devices are wanted for each of its requests."""


class GroupDemand(NamedTuple):
    """What a group still wants; `value` is what all its devices have to have, None while it may be
    any."""

    numbers: Numbers
    value: object = None


class DevicesLeft(NamedTuple):
    """Devices of one value: those that serve one request, and those that several may share."""

    alone: int = 0
    shared: int = 0

    def suffice(self, numbers: Sequence[int]) -> bool:
        """For requests of so many devices each."""
        return sum(max(0, number - self.shared) for number in numbers) <= self.alone


class CompetingGroups:
    """All groups that are about one attribute: they compete for its values."""

    def __init__(self, attribute: str, groups: Sequence[Group], allocator: DeviceAllocator) -> None:
        self.attribute = attribute
        self.groups = groups
        self._allocator = allocator
        self._devices: dict[object, dict[Ability, tuple[Sequence[int], int]]] = {}
        """By value and ability, those that serve one request, and how many may be shared."""

    def compare(self) -> bool:
        """To be called first; false where some value compares in ways of its own."""
        shareable = self._allocator.shareable
        for ability in dict.fromkeys(m.ability for group in self.groups for m in group.members):
            table = ability.by_value(self.attribute)
            if None in table:
                return False
            for value, able in table.items():
                alone = [at for at in able if at not in shareable] if shareable else able
                of_value = self._devices.setdefault(value, {})
                of_value[ability] = alone, len(able) - len(alone)
                pause()
        return True

    def met(self) -> int:
        """How many of the groups can be met at once, at most, if nothing else is taken."""
        wanted = Counter(map(_all_of, self.groups))
        return most_served(self._needs(wanted, _is_free), ())

    def values_for(self, members: Sequence[Member]) -> int:
        """With how many values there are devices enough for all of these, beside each other."""
        numbers = _numbers(members)
        return sum(_suffice(left, numbers) for _, left in self._left(_is_free))

    def possible(self, call: DeviceIndices) -> bool:
        """Whether all can be met beside what a search holds that makes this call."""
        left = [self._left_of(group, call) for group in self.groups]
        wanted = Counter(each for each in left if each.numbers)
        needs = self._needs(wanted, self._allocator.is_untouched)
        return served(needs, ())

    def _left_of(self, group: Group, call: DeviceIndices) -> GroupDemand:
        numbers: dict[Ability, tuple[int, ...]] = {}
        for request, data, ability in group.members:
            place = group.claim, request
            now = call.claim, call.request
            number = data.count - (call.nth if place == now else 0)
            if place >= now and number > 0:
                numbers[ability] = (*numbers.get(ability, ()), number)
        agreed = self._allocator.common_value(group.claim, group.constraint)
        return GroupDemand(tuple(numbers.items()), None if agreed is None else value_of(agreed))

    def _needs(self, wanted: Counter[GroupDemand], is_free: Callable[[int], bool]) -> list[Need]:
        """Of groups that want the same, so many places as there are of them."""
        able: dict[GroupDemand, list[int]] = {each: [] for each in wanted}
        by_value: dict[object, list[GroupDemand]] = {}
        for each in wanted:
            by_value.setdefault(each.value, []).append(each)
        places = 0
        for value, left in self._left(is_free):
            here = [
                each
                for each in (*by_value.get(None, ()), *by_value.get(value, ()))
                if _suffice(left, each.numbers)
            ]
            room = _room({each: wanted[each] for each in here}, left)
            for each in here:
                able[each] += range(places, places + room)
            places += room
            pause()
        return [Need(number, able[each]) for each, number in wanted.items()]

    def _left(
        self, is_free: Callable[[int], bool]
    ) -> Iterator[tuple[object, Mapping[Ability, DevicesLeft]]]:
        """By value, the devices that are left for each ability."""
        for value, devices in self._devices.items():
            yield (
                value,
                {
                    ability: DevicesLeft(sum(map(is_free, alone)), shared)
                    for ability, (alone, shared) in devices.items()
                },
            )


def families(
    claims: Sequence[Claim],
    request_data: AllRequestData,
    able: Abilities,
    allocator: DeviceAllocator,
    profile: Profile,
) -> list[CompetingGroups]:
    """The groups of all claims, by attribute."""
    found: list[CompetingGroups] = []
    if profile.features.list_type_attributes:
        return found
    for attribute, groups in _grouped(claims, request_data, able).items():
        family = CompetingGroups(attribute, groups, allocator)
        if family.compare():
            found.append(family)
    return found


class Lookout:
    """Looks ahead from each call of a search, as long as that spares it anything."""

    def __init__(self, found: Sequence[CompetingGroups]) -> None:
        self._families = found
        self._patience = PATIENCE if found else 0

    def possible(self, call: DeviceIndices) -> bool:
        """False where nothing can be found with this call."""
        if self._patience:
            self._patience -= 1
            for family in self._families:
                if not family.possible(call):
                    self._patience = PATIENCE
                    return False
        return True


def _grouped(
    claims: Sequence[Claim], request_data: AllRequestData, able: Abilities
) -> Mapping[str, Sequence[Group]]:
    """Requests of one group only, since what two want of a request cannot be added up."""
    grouped: dict[str, list[Group]] = {}
    bound: set[tuple[str, RequestData]] = set()
    for claim, requests in zip(claims, request_data, strict=True):
        for place, constraint in enumerate(claim.constraints):
            if constraint.distinct or constraint.attribute is None:
                continue
            members = [
                Member(request, data, able[data])
                for request, (data, *others) in enumerate(requests)
                if not others and constraint.concerns(data.request.name, data.name)
                if data.count and not data.admin and data.everything is None
            ]
            names = {(constraint.attribute, member.data) for member in members}
            if sum(member.data.count for member in members) > 1 and bound.isdisjoint(names):
                bound |= names
                group = Group(members[0].data.claim, place, members)
                grouped.setdefault(constraint.attribute, []).append(group)
            pause()
    return grouped


def _all_of(group: Group) -> GroupDemand:
    return GroupDemand(_numbers(group.members))


def _numbers(members: Sequence[Member]) -> Numbers:
    numbers: dict[Ability, tuple[int, ...]] = {}
    for member in members:
        numbers[member.ability] = (*numbers.get(member.ability, ()), member.data.count)
    return tuple(numbers.items())


def _suffice(left: Mapping[Ability, DevicesLeft], numbers: Numbers) -> bool:
    """Whether devices of one value do."""
    return all(ability in left and left[ability].suffice(each) for ability, each in numbers)


def _room(wanted: Mapping[GroupDemand, int], left: Mapping[Ability, DevicesLeft]) -> int:
    """How many of these groups find devices beside each other, at most, where each could alone:
    as many as the scarcest devices are enough for, and those that want none of them."""
    room = sum(wanted.values())
    least: dict[Ability, int] = {}
    wanting: Counter[Ability] = Counter()
    for each, groups in wanted.items():
        for ability, numbers in each.numbers:
            wanting[ability] += groups
            least[ability] = min(sum(numbers), least.get(ability, sum(numbers)))
    everyone = room
    for ability, groups in wanting.items():
        if not left[ability].shared:
            room = min(room, left[ability].alone // least[ability] + everyone - groups)
    return room


def _is_free(_at: int) -> bool:
    return True


# Searches that cannot succeed


def find_infeasible(
    claims: Sequence[Claim],
    request_data: AllRequestData,
    able: Abilities,
    allocator: DeviceAllocator,
    profile: Profile,
) -> Reason | None:
    """Why no search can succeed, None where that is not plain."""
    for claim, requests in zip(claims, request_data, strict=True):
        if claim.constraints and any(
            p.everything is not None for p in all_alternatives([requests])
        ):
            return None  # a constraint against what mode All needs is an error
    for claim, requests in zip(claims, request_data, strict=True):
        if why := _too_few_for_a_claim(claim, requests, able, profile):
            return why
    if why := _too_few_for_all_claims(claims, request_data, able, allocator, profile):
        return why
    for family in families(claims, request_data, able, allocator, profile):
        if family.met() < len(family.groups):
            return reasons.GroupsDisagree(family.attribute)
    return None


def may_skip(claims: Sequence[Claim], request_data: AllRequestData, profile: Profile) -> bool:
    """Whether a search may leave out what is sure to come to nothing: nothing is left of what was
    tried in vain, and it ends neither in an error nor in too many devices, which end more."""
    if profile.quirks != Quirks() or profile.features.list_type_attributes:
        return False
    for claim, requests in zip(claims, request_data, strict=True):
        if claim.constraints and any(
            p.everything is not None for p in all_alternatives([requests])
        ):
            return False  # a constraint against what mode All needs is an error
        if sum(max(data.count for data in a) for a in requests) > MAX_RESULTS:
            return False
    return True


def _too_few_for_a_claim(
    claim: Claim,
    requests: Sequence[Sequence[RequestData]],
    able: Abilities,
    profile: Profile,
) -> Reason | None:
    for alternatives in requests:
        if all(len(able[data].able) < data.count for data in alternatives):
            return reasons.TooFewCandidates(alternatives[0].path)
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


def _too_few_for_all_claims(
    claims: Sequence[Claim],
    request_data: AllRequestData,
    able: Abilities,
    allocator: DeviceAllocator,
    profile: Profile,
) -> Reason | None:
    """Why the requests of all claims together cannot be served, None where that is not plain.

    Of a list of alternatives, the one that needs least may have whatever any of them may have.
    """
    alternatives = [a for requests in request_data for a in requests if not a[0].admin]
    needs = []
    for of_request in alternatives:
        needs.append(Need(min(p.count for p in of_request), _of_any(of_request, able)))
        pause()
    if not served(needs, allocator.shareable):
        return reasons.RequestsDoNotFit()
    quirks = profile.quirks
    exact = not (quirks.counters_by_pool_name or quirks.shares_uncharged)
    if exact and (drained := _drained(needs, allocator)):
        return reasons.RequestsDoNotFit((reasons.SharedCounters(drained),), single=True)
    for number, claim in enumerate(claims):
        for constraint in claim.constraints:
            concerned = {
                place: able[a[0]]
                for place, a in enumerate(alternatives)
                if len(a) == 1 and a[0].claim == number and constraint.concerns(a[0].name, "")
            }
            if not constraint.distinct and not (_servable(constraint, needs, concerned, allocator)):
                return reasons.ConstraintTooNarrow(claim.name, constraint.attribute or "")
            pause()
    return None


def _of_any(alternatives: Sequence[RequestData], able: Abilities) -> Sequence[int]:
    """The candidates that one of the alternatives may have."""
    if len(alternatives) == 1:
        return able[alternatives[0]].able
    return sorted({at for data in alternatives for at in able[data].able})


def _drained(needs: Sequence[Need], allocator: DeviceAllocator) -> PoolRef | None:
    """A pool where even the devices that draw least on a counter need more than is left."""
    pools = {id(pool): pool for pool in allocator.pools if pool.counters}
    if not pools:
        return None
    drawn: defaultdict[tuple[int, CounterId], int] = defaultdict(int)
    for need in needs:
        draws = _draws(need, allocator)
        for of_pool, amounts in draws.items():
            none = min(need.number, len(need.able) - len(amounts))
            drawn[of_pool] += sum(sorted([*amounts, *[0] * none])[: need.number])
            pause()
    for of, pool in pools.items():
        for counter, left in pool.counters.items():
            if drawn[of, counter] > max(left, 0):
                return pool.ref
    return None


def _draws(need: Need, allocator: DeviceAllocator) -> Mapping[tuple[int, CounterId], Sequence[int]]:
    """What those devices that a request may have and that draw on a counter draw on it, by pool and
    counter; shares may be paid already."""
    draws: defaultdict[tuple[int, CounterId], list[int]] = defaultdict(list)
    for at in need.able:
        pool, device = allocator.candidates[at]
        if at not in allocator.shareable:
            of_device: defaultdict[CounterId, int] = defaultdict(int)
            for counter, amount in device.published.consumes:
                of_device[counter] += amount
            for counter, amount in of_device.items():
                draws[id(pool), counter].append(amount)
        pause()
    return draws


def _servable(
    constraint: Constraint,
    needs: Sequence[Need],
    concerned: Mapping[int, Ability],
    allocator: DeviceAllocator,
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
            if served(narrowed, allocator.shareable):
                return True
        pause()
    return False


def _unsatisfiable(
    constraint: Constraint, request_data: Sequence[RequestData], able: Abilities
) -> bool:
    """Whether no value of the attribute can serve all these requests."""
    total = sum(data.count for data in request_data)
    if total < 2:
        return False
    tables = [able[data].by_value(constraint.attribute) for data in request_data]
    if any(None in table for table in tables):
        return False
    if constraint.distinct:
        return len(set().union(*tables)) < total
    for value in tables[0]:
        of_value = (len(table.get(value, ())) for table in tables)
        if all(number >= data.count for number, data in zip(of_value, request_data, strict=True)):
            return False
        pause()
    return True
