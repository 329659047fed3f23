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
from fettle.dra.allocator.matching import Need, can_serve_all, most_served
from fettle.dra.allocator.results import Aborted, DeviceIndices, Unclear
from fettle.dra.claims import Alternative, Claim, Constraint
from fettle.dra.pools import CounterId
from fettle.model import PoolRef, reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause

# Candidates of each request

ByValue = Mapping[object, Sequence[int]]
"""Candidates by the value of an attribute; under None those with a list. Candidates without the
attribute are left out."""


class Candidates:
    """The candidates that an alternative could get, in order. Alternatives that differ only in name
    and count share it."""

    def __init__(self, indices: Sequence[int], allocator: DeviceAllocator) -> None:
        self.indices = indices
        self._candidates = allocator.candidates
        self._by_value: dict[str | None, ByValue] = {}

    def by_value(self, name: str | None) -> ByValue:
        """By the value of the attribute of this name."""
        if name not in self._by_value:
            table: dict[object, list[int]] = {}
            for at in self.indices:
                found = lookup_attribute(name, self._candidates[at].device)
                if found is not None:
                    table.setdefault(value_of(found), []).append(at)
                pause()
            self._by_value[name] = table
        return self._by_value[name]


AllCandidates = Mapping[RequestData, Candidates]


def find_candidates(
    request_data: AllRequestData, allocator: DeviceAllocator
) -> AllCandidates | None:
    """What each alternative could get if no other request existed.

    None if a candidate raises an error or is undecided: only a full search tells what follows.
    """
    by_kind: dict[Alternative, Candidates] = {}
    found: dict[RequestData, Candidates] = {}
    try:
        for data in all_alternatives(request_data):
            kind = selection_key(data)
            if kind not in by_kind:
                by_kind[kind] = Candidates(allocator.allocatable(data), allocator)
            found[data] = by_kind[kind]
    except (Aborted, Unclear):
        return None
    return found


def selection_key(data: RequestData) -> Alternative:
    """All of an alternative that decides which candidates it could get."""
    return msgspec.structs.replace(data.alternative, name="", count=0)


# Interchangeable devices


def interchangeable(
    claims: Sequence[Claim], all_candidates: AllCandidates, allocator: DeviceAllocator
) -> list[int]:
    """The class of each candidate. Candidates of one class can be exchanged in every allocation,
    if the search may skip anything at all (see `may_skip`)."""
    kinds = [frozenset(candidates.indices) for candidates in dict.fromkeys(all_candidates.values())]
    compared = dict.fromkeys(c.attribute for claim in claims for c in claim.constraints)
    classes: dict[Hashable, int] = {}
    of: list[int] = []
    for at in range(len(allocator.candidates)):
        seen = _class_of(at, kinds, compared, allocator)
        of.append(classes.setdefault(seen, len(classes)))
        pause()
    return of


def _class_of(
    at: int,
    indices: Collection[Collection[int]],
    compared: Collection[str | None],
    allocator: DeviceAllocator,
) -> Hashable:
    """All that matters of a candidate; one that can be shared is in a class of its own."""
    pool, device = allocator.candidates[at]
    if device.published.multiple or device.consumed:
        return at
    consumes = device.published.consumes
    return (
        tuple(at in of_kind for of_kind in indices),
        device.allocated,
        (pool.driver, pool.name, consumes) if device.published.device.consumes_counters else None,
        device.published.skips,
        tuple(lookup_attribute(name, device) for name in compared),
    )


# Groups that compete for values

LOOK_AHEADS = 64
"""After so many look-aheads in a row without effect there are no more: each costs several steps."""


class Member(NamedTuple):
    """A request of a group; `request` is its index in the claim."""

    request: int
    data: RequestData
    candidates: Candidates


class Group(NamedTuple):
    """Requests that a matchAttribute binds together, such as a GPU and a NIC on one PCIe root.

    Groups compete with each other for devices. `constraint` is the index of the constraint.
    """

    claim: int
    constraint: int
    members: Sequence[Member]


Numbers = tuple[tuple[Candidates, tuple[int, ...]], ...]
"""How many devices each request needs, by the candidates that it could get."""


class GroupDemand(NamedTuple):
    """What a group still needs. `value` is the one that its devices must have; None: any."""

    numbers: Numbers
    value: object = None


class DevicesLeft(NamedTuple):
    """Devices with one value: how many serve one request each, and how many can be shared."""

    alone: int = 0
    shared: int = 0

    def suffice(self, numbers: Sequence[int]) -> bool:
        """Whether they are enough for requests of so many devices each."""
        return sum(max(0, number - self.shared) for number in numbers) <= self.alone


class CompetingGroups:
    """All groups whose constraint is about one attribute: they compete for its values.

    Each value of the attribute has places: as many as groups would find enough devices with it. Not
    all groups can be met if not each of them gets a place. That is sound, not complete; it is exact
    for groups that need the same and whose devices no other request could get.
    """

    def __init__(self, attribute: str, groups: Sequence[Group], allocator: DeviceAllocator) -> None:
        self.attribute = attribute
        self.groups = groups
        self._allocator = allocator
        self._devices: dict[object, dict[Candidates, tuple[Sequence[int], int]]] = {}
        """By value and candidates: those that serve one request, and how many can be shared."""

    def sort_devices(self) -> bool:
        """To be called first; false if some device has a list of values."""
        shareable = self._allocator.shareable
        for candidates in dict.fromkeys(
            m.candidates for group in self.groups for m in group.members
        ):
            table = candidates.by_value(self.attribute)
            if None in table:
                return False
            for value, indices in table.items():
                alone = [at for at in indices if at not in shareable] if shareable else indices
                of_value = self._devices.setdefault(value, {})
                of_value[candidates] = alone, len(indices) - len(alone)
                pause()
        return True

    def met(self) -> int:
        """How many of the groups can be met at once, at most, if nothing is allocated yet."""
        wanted = Counter(map(_whole_demand, self.groups))
        return most_served(self._needs(wanted, _is_free), ())

    def values_for(self, members: Sequence[Member]) -> int:
        """How many values have enough devices for all of these requests together."""
        numbers = _numbers(members)
        return sum(_suffice(left, numbers) for _, left in self._devices_left(_is_free))

    def can_succeed(self, call: DeviceIndices) -> bool:
        """Whether all groups can still be met, beside what the search has allocated."""
        left = [self._demand_left(group, call) for group in self.groups]
        wanted = Counter(each for each in left if each.numbers)
        needs = self._needs(wanted, self._allocator.is_untouched)
        return can_serve_all(needs, ())

    def _demand_left(self, group: Group, call: DeviceIndices) -> GroupDemand:
        numbers: dict[Candidates, tuple[int, ...]] = {}
        for request, data, candidates in group.members:
            place = group.claim, request
            now = call.claim, call.request
            number = data.count - (call.nth if place == now else 0)
            if place >= now and number > 0:
                numbers[candidates] = (*numbers.get(candidates, ()), number)
        agreed = self._allocator.common_value(group.claim, group.constraint)
        return GroupDemand(tuple(numbers.items()), None if agreed is None else value_of(agreed))

    def _needs(self, wanted: Counter[GroupDemand], is_free: Callable[[int], bool]) -> list[Need]:
        """A need for each kind of group: as many places as there are groups of that kind."""
        places_of: dict[GroupDemand, list[int]] = {each: [] for each in wanted}
        by_value: dict[object, list[GroupDemand]] = {}
        for each in wanted:
            by_value.setdefault(each.value, []).append(each)
        places = 0
        for value, left in self._devices_left(is_free):
            here = [
                each
                for each in (*by_value.get(None, ()), *by_value.get(value, ()))
                if _suffice(left, each.numbers)
            ]
            room = _places({each: wanted[each] for each in here}, left)
            for each in here:
                places_of[each] += range(places, places + room)
            places += room
            pause()
        return [Need(number, places_of[each]) for each, number in wanted.items()]

    def _devices_left(
        self, is_free: Callable[[int], bool]
    ) -> Iterator[tuple[object, Mapping[Candidates, DevicesLeft]]]:
        """The devices that are left, by value and candidates."""
        for value, devices in self._devices.items():
            yield (
                value,
                {
                    candidates: DevicesLeft(sum(map(is_free, alone)), shared)
                    for candidates, (alone, shared) in devices.items()
                },
            )


def find_competing_groups(
    claims: Sequence[Claim],
    request_data: AllRequestData,
    all_candidates: AllCandidates,
    allocator: DeviceAllocator,
    profile: Profile,
) -> list[CompetingGroups]:
    """The groups of all claims, by attribute."""
    found: list[CompetingGroups] = []
    if profile.features.list_type_attributes:
        return found
    for attribute, groups in _groups_by_attribute(claims, request_data, all_candidates).items():
        family = CompetingGroups(attribute, groups, allocator)
        if family.sort_devices():
            found.append(family)
    return found


class LookAhead:
    """Checks before each call of a search whether it can succeed, as long as that helps."""

    def __init__(self, found: Sequence[CompetingGroups]) -> None:
        self._families = found
        self._remaining = LOOK_AHEADS if found else 0

    def can_succeed(self, call: DeviceIndices) -> bool:
        """False if nothing can be found with this call."""
        if self._remaining:
            self._remaining -= 1
            for family in self._families:
                if not family.can_succeed(call):
                    self._remaining = LOOK_AHEADS
                    return False
        return True


def _groups_by_attribute(
    claims: Sequence[Claim], request_data: AllRequestData, all_candidates: AllCandidates
) -> Mapping[str, Sequence[Group]]:
    """Groups by attribute. A request is in one group only: the needs of two cannot be added up."""
    grouped: dict[str, list[Group]] = {}
    bound: set[tuple[str, RequestData]] = set()
    for claim, requests in zip(claims, request_data, strict=True):
        for place, constraint in enumerate(claim.constraints):
            if constraint.distinct or constraint.attribute is None:
                continue
            members = [
                Member(request, data, all_candidates[data])
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


def _whole_demand(group: Group) -> GroupDemand:
    return GroupDemand(_numbers(group.members))


def _numbers(members: Sequence[Member]) -> Numbers:
    numbers: dict[Candidates, tuple[int, ...]] = {}
    for member in members:
        numbers[member.candidates] = (*numbers.get(member.candidates, ()), member.data.count)
    return tuple(numbers.items())


def _suffice(left: Mapping[Candidates, DevicesLeft], numbers: Numbers) -> bool:
    """Whether the devices of one value are enough."""
    return all(
        candidates in left and left[candidates].suffice(each) for candidates, each in numbers
    )


def _places(wanted: Mapping[GroupDemand, int], left: Mapping[Candidates, DevicesLeft]) -> int:
    """How many of these groups find devices of one value at once, at most, if each could alone.

    As many as the scarcest devices are enough for, and those that need none of them.
    """
    room = sum(wanted.values())
    least: dict[Candidates, int] = {}
    wanting: Counter[Candidates] = Counter()
    for each, groups in wanted.items():
        for candidates, numbers in each.numbers:
            wanting[candidates] += groups
            least[candidates] = min(sum(numbers), least.get(candidates, sum(numbers)))
    everyone = room
    for candidates, groups in wanting.items():
        if not left[candidates].shared:
            room = min(room, left[candidates].alone // least[candidates] + everyone - groups)
    return room


def _is_free(_at: int) -> bool:
    return True


# Searches that cannot succeed


def find_infeasible(
    claims: Sequence[Claim],
    request_data: AllRequestData,
    all_candidates: AllCandidates,
    allocator: DeviceAllocator,
    profile: Profile,
) -> Reason | None:
    """Why no search can succeed; None if one may."""
    for claim, requests in zip(claims, request_data, strict=True):
        if claim.constraints and any(
            p.everything is not None for p in all_alternatives([requests])
        ):
            return None  # with mode All, a constraint that forbids a device is an error
    for claim, requests in zip(claims, request_data, strict=True):
        if why := _too_few_for_a_claim(claim, requests, all_candidates, profile):
            return why
    if why := _too_few_for_all_claims(claims, request_data, all_candidates, allocator, profile):
        return why
    for family in find_competing_groups(claims, request_data, all_candidates, allocator, profile):
        if family.met() < len(family.groups):
            return reasons.GroupsDisagree(family.attribute)
    return None


def may_skip(claims: Sequence[Claim], request_data: AllRequestData, profile: Profile) -> bool:
    """Whether a search may skip what is sure to fail.

    Only if a failed attempt leaves no traces, and cannot end in an error or in too many devices,
    which would end the search.
    """
    if profile.quirks != Quirks() or profile.features.list_type_attributes:
        return False
    for claim, requests in zip(claims, request_data, strict=True):
        if claim.constraints and any(
            p.everything is not None for p in all_alternatives([requests])
        ):
            return False  # with mode All, a constraint that forbids a device is an error
        if sum(max(data.count for data in a) for a in requests) > MAX_RESULTS:
            return False
    return True


def _too_few_for_a_claim(
    claim: Claim,
    requests: Sequence[Sequence[RequestData]],
    all_candidates: AllCandidates,
    profile: Profile,
) -> Reason | None:
    for alternatives in requests:
        if all(len(all_candidates[data].indices) < data.count for data in alternatives):
            return reasons.TooFewCandidates(alternatives[0].path)
        pause()
    if profile.quirks.distinct_by_request:
        return None
    single = [alternatives[0] for alternatives in requests if len(alternatives) == 1]
    for constraint in claim.constraints:
        bound = [p for p in single if constraint.concerns(p.request.name, p.name) and p.count]
        if _unsatisfiable(constraint, bound, all_candidates):
            return reasons.ConstraintTooNarrow(claim.name, constraint.attribute or "")
        pause()
    return None


def _too_few_for_all_claims(
    claims: Sequence[Claim],
    request_data: AllRequestData,
    all_candidates: AllCandidates,
    allocator: DeviceAllocator,
    profile: Profile,
) -> Reason | None:
    """Why the requests of all claims cannot be met together; None if they may.

    A list counts as one request: with the smallest count of its alternatives, and with whatever
    candidates any of them could get.
    """
    alternatives = [a for requests in request_data for a in requests if not a[0].admin]
    needs = []
    for of_request in alternatives:
        needs.append(
            Need(min(p.count for p in of_request), _candidates_of_any(of_request, all_candidates))
        )
        pause()
    if not can_serve_all(needs, allocator.shareable):
        return reasons.RequestsDoNotFit()
    quirks = profile.quirks
    exact = not (quirks.counters_by_pool_name or quirks.shares_uncharged)
    if exact and (drained := _exhausted_pool(needs, allocator)):
        return reasons.RequestsDoNotFit((reasons.SharedCounters(drained),), single=True)
    for number, claim in enumerate(claims):
        for constraint in claim.constraints:
            concerned = {
                place: all_candidates[a[0]]
                for place, a in enumerate(alternatives)
                if len(a) == 1 and a[0].claim == number and constraint.concerns(a[0].name, "")
            }
            if not constraint.distinct and not (
                _can_be_met(constraint, needs, concerned, allocator)
            ):
                return reasons.ConstraintTooNarrow(claim.name, constraint.attribute or "")
            pause()
    return None


def _candidates_of_any(
    alternatives: Sequence[RequestData], all_candidates: AllCandidates
) -> Sequence[int]:
    """The candidates that any of the alternatives could get."""
    if len(alternatives) == 1:
        return all_candidates[alternatives[0]].indices
    return sorted({at for data in alternatives for at in all_candidates[data].indices})


def _exhausted_pool(needs: Sequence[Need], allocator: DeviceAllocator) -> PoolRef | None:
    """A pool with too little left of a counter, even for the devices that consume least."""
    pools = {id(pool): pool for pool in allocator.pools if pool.counters}
    if not pools:
        return None
    consumed: defaultdict[tuple[int, CounterId], int] = defaultdict(int)
    for need in needs:
        consumption = _consumption(need, allocator)
        for of_pool, amounts in consumption.items():
            none = min(need.number, len(need.candidates) - len(amounts))
            consumed[of_pool] += sum(sorted([*amounts, *[0] * none])[: need.number])
            pause()
    for of, pool in pools.items():
        for counter, left in pool.counters.items():
            if consumed[of, counter] > max(left, 0):
                return pool.ref
    return None


def _consumption(
    need: Need, allocator: DeviceAllocator
) -> Mapping[tuple[int, CounterId], Sequence[int]]:
    """How much the candidates consume, by pool and counter. Shareable ones are left out: another
    share of them may have consumed it already."""
    consumption: defaultdict[tuple[int, CounterId], list[int]] = defaultdict(list)
    for at in need.candidates:
        pool, device = allocator.candidates[at]
        if at not in allocator.shareable:
            of_device: defaultdict[CounterId, int] = defaultdict(int)
            for counter, amount in device.published.consumes:
                of_device[counter] += amount
            for counter, amount in of_device.items():
                consumption[id(pool), counter].append(amount)
        pause()
    return consumption


def _can_be_met(
    constraint: Constraint,
    needs: Sequence[Need],
    concerned: Mapping[int, Candidates],
    allocator: DeviceAllocator,
) -> bool:
    """Whether all needs can be met with some value of a matchAttribute. `concerned` are the indices
    of the needs that it binds."""
    found = [a.by_value(constraint.attribute) for a in concerned.values()]
    tables = dict(zip(concerned, found, strict=True))
    values: dict[object, None] = {}
    for table in found:
        values |= dict.fromkeys(table)
    if not values or None in values:
        return True
    for value in values:
        of_value = {place: table.get(value, ()) for place, table in tables.items()}
        if all(len(indices) >= needs[place].number for place, indices in of_value.items()):
            narrowed = [
                Need(need.number, of_value.get(place, need.candidates))
                for place, need in enumerate(needs)
            ]
            if can_serve_all(narrowed, allocator.shareable):
                return True
        pause()
    return False


def _unsatisfiable(
    constraint: Constraint, request_data: Sequence[RequestData], all_candidates: AllCandidates
) -> bool:
    """Whether no value of the attribute has enough devices for all these requests."""
    total = sum(data.count for data in request_data)
    if total < 2:
        return False
    tables = [all_candidates[data].by_value(constraint.attribute) for data in request_data]
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
