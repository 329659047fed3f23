"""Why nothing can be allocated on a node: for explanations only, never for an answer.

A search that found nothing knows only that. Here each request is checked against each device by
itself, and the obstacles are counted. If each request could be met alone, the constraints and
groups are checked that keep them from being met together.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fettle.dra.allocator.allocate_device import (
    AllRequestData,
    DeviceAllocator,
    Match,
    RequestData,
    are_tolerated,
    request_data_of,
)
from fettle.dra.allocator.constraint import Most, Value, lookup_attribute, most_agreeing, values_of
from fettle.dra.allocator.consumable_capacity import capacity_offer, fits_capacities, largest_amount
from fettle.dra.allocator.counters import Counters
from fettle.dra.allocator.features import CURRENT, Profile
from fettle.dra.allocator.matching import Need
from fettle.dra.allocator.pruning import (
    AllCandidates,
    CompetingGroups,
    find_candidates,
    find_competing_groups,
    find_infeasible,
    selection_key,
)
from fettle.dra.allocator.results import AMPLE, NOTHING, Aborted, Budget, Unclear
from fettle.dra.claims import ALL, Alternative, Claim, Constraint
from fettle.dra.pools import DeviceView, PoolView, PublishedDevice
from fettle.model import reasons
from fettle.model.reasons import Obstacles, Reason
from fettle.pacing import pause, within

# Requests that cannot be met together

Shortage = reasons.TooFewDevices | reasons.NoDeviceMatches | reasons.NoDevices


class Reach(NamedTuple):
    """What an alternative could get if no other request existed.

    `obstacles` are by candidate that matches: why it cannot be allocated, None if it can. Those are
    `free`. `reason` is why too few of them are free; None if enough are.
    """

    data: RequestData
    obstacles: Mapping[int, Reason | None]
    free: Sequence[int]
    reason: Shortage | None = None


Reaches = Sequence[Sequence[Sequence[Reach]]]
"""By claim and request, for alternatives that could be met alone."""


def find_conflict(
    claims: Sequence[Claim],
    request_data: AllRequestData,
    reaches: Reaches,
    allocator: DeviceAllocator,
    profile: Profile,
) -> Reason:
    """The first conflict that is certain; otherwise what the cause may be."""
    all_candidates = find_candidates(request_data, allocator)
    return (
        _missing_attribute(claims, request_data, allocator)
        or _unsatisfied_constraint(claims, reaches, allocator, profile)
        or (
            all_candidates
            and _groups_without_a_value(
                claims, request_data, all_candidates, reaches, allocator, profile
            )
        )
        or (
            all_candidates
            and find_infeasible(claims, request_data, all_candidates, allocator, profile)
        )
        or _possible_causes(claims, reaches, allocator)
    )


def _missing_attribute(
    claims: Sequence[Claim], request_data: AllRequestData, allocator: DeviceAllocator
) -> Reason | None:
    """A constraint on an attribute that no device has that matches one of its requests."""
    for claim, requests in zip(claims, request_data, strict=True):
        for constraint in claim.constraints:
            for data in (alternatives[0] for alternatives in requests if len(alternatives) == 1):
                if constraint.concerns(data.request.name, data.name) and not (
                    _some_device_has(constraint, data, allocator)
                ):
                    return reasons.AttributeMissing(data.path, constraint.attribute or "")
                pause()
    return None


def _some_device_has(constraint: Constraint, data: RequestData, allocator: DeviceAllocator) -> bool:
    """Whether some device that matches has the attribute."""
    for at, matches in data.matches.items():
        if matches and lookup_attribute(constraint.attribute, allocator.candidates[at].device):
            return True
        pause()
    return False


def _unsatisfied_constraint(
    claims: Sequence[Claim], reaches: Reaches, allocator: DeviceAllocator, profile: Profile
) -> Reason | None:
    """A constraint that cannot be met even if it were the only one."""
    for claim, requests in zip(claims, reaches, strict=True):
        for constraint in claim.constraints:
            if constraint.distinct and profile.quirks.distinct_by_request:
                continue  # with this defect a value may occur twice
            concerned = [
                alternatives
                for alternatives in requests
                if all(constraint.concerns(r.data.request.name, r.data.name) for r in alternatives)
            ]
            pause()
            lists = profile.features.list_type_attributes
            if why := _too_few_for_constraint(constraint, concerned, allocator, lists=lists):
                return why
    return None


def _too_few_for_constraint(
    constraint: Constraint,
    concerned: Sequence[Sequence[Reach]],
    allocator: DeviceAllocator,
    *,
    lists: bool,
) -> Reason | None:
    """Why a constraint leaves too few devices for the requests `concerned`; None if it does not.

    A list counts as one request: with the smallest count of its alternatives, and with whatever
    candidates any of them could get.
    """
    free = [*map(_free_candidates, concerned)]
    needs = [
        Need(min(r.data.count for r in alternatives), indices)
        for alternatives, indices in zip(concerned, free, strict=True)
    ]
    requested = sum(need.number for need in needs)
    obstacles = _merged_obstacles(concerned)
    values: dict[int, Collection[Value]] = {}
    for at in obstacles:
        found = values_of(constraint, allocator.candidates[at].device, lists=lists)
        if found is None:
            return None
        values[at] = found
        pause()
    best = most_agreeing(constraint, needs, values, allocator.shareable)
    if best.number >= requested:
        return None
    causes = _causes(obstacles, values, best)
    return reasons.ConstraintNotMet(
        tuple(reach.data.path for alternatives in concerned for reach in alternatives),
        constraint.attribute or "",
        constraint.distinct,
        requested,
        best.number,
        at_least=requested < sum(max(r.data.count for r in a) for a in concerned),
        value="" if best.value is None else str(best.value),
        obstacles=count_obstacles(causes),
    )


def _groups_without_a_value(
    claims: Sequence[Claim],
    request_data: AllRequestData,
    all_candidates: AllCandidates,
    reaches: Reaches,
    allocator: DeviceAllocator,
    profile: Profile,
) -> Reason | None:
    """Why not all groups of requests find a common value each; None if all do."""
    for family in find_competing_groups(claims, request_data, all_candidates, allocator, profile):
        number, met = len(family.groups), family.met()
        if met == number:
            continue
        members = [[member.data for member in group.members] for group in family.groups]
        causes = _obstacles_of(members, family.attribute, reaches, allocator)
        return reasons.GroupsNotMet(
            tuple(tuple(data.path for data in group) for group in members),
            family.attribute,
            met,
            pairs=all([data.count for data in group] == [1, 1] for group in members),
            values=_values_with_devices(family),
            obstacles=count_obstacles(causes),
        )
    return None


def _values_with_devices(family: CompetingGroups) -> reasons.ValuesWithDevices | None:
    """How many values have devices for the first group, if all groups need the same."""
    first, *others = ([(m.candidates, m.data.count) for m in g.members] for g in family.groups)
    if len(first) < 2 or any(other != first for other in others):
        return None
    members = family.groups[0].members
    by_request = tuple((member.data.path, family.values_for([member])) for member in members)
    return reasons.ValuesWithDevices(by_request, family.values_for(members))


def _obstacles_of(
    members: Sequence[Sequence[RequestData]],
    name: str,
    reaches: Reaches,
    allocator: DeviceAllocator,
) -> list[Reason]:
    """The obstacles of devices that match some of these requests and have the attribute."""
    request_data = {data for group in members for data in group}
    of_plans = {
        id(reach.obstacles): reach.obstacles
        for requests in reaches
        for alternatives in requests
        for reach in alternatives
        if reach.data in request_data
    }
    away: dict[int, Reason] = {}
    for obstacles in of_plans.values():
        for at, why in obstacles.items():
            if why and lookup_attribute(name, allocator.candidates[at].device) is not None:
                away[at] = why
            pause()
    return list(away.values())


def _free_candidates(alternatives: Sequence[Reach]) -> Sequence[int]:
    """The candidates that any of the alternatives could get."""
    if len(alternatives) == 1:
        return alternatives[0].free
    free: set[int] = set()
    for reach in alternatives:
        free.update(reach.free)
        pause()
    return sorted(free)


def _merged_obstacles(concerned: Sequence[Sequence[Reach]]) -> Mapping[int, Reason | None]:
    """The obstacle of each candidate; None if one of these requests could get it."""
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
    """The obstacles of devices that would raise the number."""
    away: list[Reason] = []
    bare: list[Reason] = []
    for at, why in obstacles.items():
        if why and not best.wanted.isdisjoint(values[at]):
            away.append(why)
        elif not why and not values[at]:
            bare.append(reasons.AttributeAbsent())
        pause()
    return away + bare


def count_obstacles(found: Iterable[Reason | None]) -> tuple[Obstacles, ...]:
    """How often each obstacle occurs, the most frequent first."""
    counts = Counter(each for each in found if each is not None).most_common()
    return tuple(Obstacles(obstacle, number) for obstacle, number in counts)


def _possible_causes(
    claims: Sequence[Claim], reaches: Reaches, allocator: DeviceAllocator
) -> Reason:
    """What may keep requests from being met together that could each be met alone."""
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
            pool, device = allocator.candidates[at]
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


# Requests that cannot be met


def explain_shortfall(
    claims: Sequence[Claim],
    pools: Sequence[PoolView],
    match: Match,
    profile: Profile = CURRENT,
    *,
    budget: Budget = AMPLE,
) -> tuple[Reason, ...]:
    """Why these claims, for which nothing was found, cannot be allocated on a node.

    The first request that cannot be met even alone, otherwise what cannot be met together. If that
    takes longer than the budget allows, only that nothing fits.
    """
    work = _Shortfall(claims, pools, match, profile)
    try:
        return within(budget.seconds, work.find)
    except TimeoutError:
        return (NOTHING,)


class _Shortfall:
    def __init__(
        self, claims: Sequence[Claim], pools: Sequence[PoolView], match: Match, profile: Profile
    ) -> None:
        self._claims = claims
        self._pools = pools
        self._profile = profile
        self._allocator = DeviceAllocator(claims, pools, match, profile)
        self._request_data = request_data_of(claims)
        self._counters = Counters(profile.quirks)
        self._known_obstacles: dict[Alternative, tuple[Mapping[int, Reason | None], int]] = {}

    def find(self) -> tuple[Reason, ...]:
        """The reasons, however long that takes."""
        claims, request_data, allocator, profile = (
            self._claims,
            self._request_data,
            self._allocator,
            self._profile,
        )
        reaches: list[list[list[Reach]]] = []
        try:
            allocator.gather_candidates()
            for requests in request_data:
                reaches.append([])
                for alternatives in requests:
                    alone = [*map(self._if_alone, alternatives)]
                    if all(reach.reason for reach in alone):
                        return (*_by_reason(alone), *_ignored_pools(alternatives, self._pools))
                    reaches[-1].append([reach for reach in alone if not reach.reason])
            conflict = find_conflict(claims, request_data, reaches, allocator, profile)
            return (conflict,)
        except (Aborted, Unclear) as error:
            return (error.reason,)

    def _if_alone(self, data: RequestData) -> Reach:
        allocator = self._allocator
        pause()
        obstacles, in_use = self._obstacles(data)
        if data.alternative.mode == ALL:
            data.everything = []
            for at in obstacles:
                if allocator.fits_if_unused(data, at):
                    data.everything.append(at)
                pause()
            data.count = len(data.everything)
            obstacles = {at: obstacles[at] for at in data.everything or obstacles}
        reach = Reach(data, obstacles, [at for at, why in obstacles.items() if why is None])
        if len(reach.free) >= data.count and data.everything != []:
            return reach
        return reach._replace(reason=_too_few(reach, in_use, allocator))

    def _obstacles(self, data: RequestData) -> tuple[Mapping[int, Reason | None], int]:
        """The obstacle of each candidate that matches, and how many allocated candidates have
        undecided selectors. Alternatives that differ only in name and count share both."""
        allocator, kind = self._allocator, selection_key(data)
        if kind in self._known_obstacles:
            pause()
            return self._known_obstacles[kind]
        obstacles: dict[int, Reason | None] = {}
        in_use = 0
        for at in range(len(allocator.candidates)):
            try:
                if allocator.is_selectable(data, at):
                    obstacles[at] = self._obstacle(data, at)
            except (Aborted, Unclear):
                if data.admin or not allocator.candidates[at].device.allocated:
                    raise
                in_use += 1  # the scheduler skips it before its selectors
            pause()
        allocator.check_for_more()
        self._known_obstacles[kind] = obstacles, in_use
        return obstacles, in_use

    def _obstacle(self, data: RequestData, at: int) -> Reason | None:
        """Why a device that matches cannot be allocated; None if it can."""
        allocator, features = self._allocator, self._profile.features
        pool, device = allocator.candidates[at]
        published = device.published
        if device.allocated and not data.admin:
            return reasons.DeviceAllocated()
        if features.consumable_capacity:
            if absent := sorted(set(data.capacity) - set(published.capacities)):
                return reasons.CapacityMissing(absent[0])
            if not allocator.fits_if_unused(data, at):
                return _too_small(data, published, fractional=features.fractional_capacity_range)
            fractional = features.fractional_capacity_range
            if device.consumed and not fits_capacities(
                data.capacity, published.capacities, device.consumed, {}, fractional=fractional
            ):
                return reasons.CapacityUsedUp()
        if published.device.consumes_counters and not (published.multiple and device.shares):
            if not features.partitionable_devices:
                return reasons.PartitionableDevicesOff()
            if not self._counters.reserve(pool, device):
                return reasons.CountersExhausted(pool.ref)
            self._counters.release(pool, device)
        return self._taint(data, device)

    def _taint(self, data: RequestData, device: DeviceView) -> Reason | None:
        """The taints that the request does not tolerate; those of the slice come first."""
        features, tolerations = self._profile.features, data.alternative.tolerations
        of_slice = len(device.published.device.taints or ())
        taints = device.taints if features.device_taints else ()
        if not features.device_taint_rules:
            taints = taints[:of_slice]
        found = [
            (at, taint.key)
            for at, taint in enumerate(taints)
            if not are_tolerated((taint,), tolerations)
        ]
        if not found:
            return None
        by_rule = all(at >= of_slice for at, _ in found)
        of = reasons.TaintedByRule if by_rule else reasons.Tainted
        return of(tuple(dict.fromkeys(key for _, key in found)))


def _by_reason(reaches: Sequence[Reach]) -> Iterator[Reason]:
    """The reasons of all alternatives; equal ones are merged."""
    by_reason: dict[Shortage, list[str]] = {}
    for reach in reaches:
        assert reach.reason is not None
        by_reason.setdefault(reach.reason, []).append(reach.data.path)
    for reason, requests in by_reason.items():
        yield msgspec.structs.replace(reason, requests=tuple(requests))


def _too_few(reach: Reach, in_use: int, allocator: DeviceAllocator) -> Shortage:
    """`in_use` is how many allocated devices have undecided selectors."""
    data, obstacles, free, _ = reach
    if not obstacles:
        if in_use or allocator.candidates:
            return reasons.NoDeviceMatches((), in_use)
        return reasons.NoDevices(())
    everything = data.alternative.mode == ALL
    return reasons.TooFewDevices(
        (),
        None if everything else data.count,
        len(obstacles),
        count_obstacles(obstacles.values()),
        not everything and any(at in allocator.shareable for at in free),
    )


def _too_small(data: RequestData, device: PublishedDevice, *, fractional: bool) -> Reason:
    """Why a device's capacities do not suffice even if nobody uses them. If the device has enough,
    its requestPolicy allows a request less, or rounds it up to more."""
    steps = (fractional,)
    for name, wanted in data.capacity.items():
        offer = capacity_offer(device, name)
        if offer is None or wanted.nano > offer.read.value.nano or offer.gives(wanted, steps):
            continue
        if largest := largest_amount((offer,), steps):
            return reasons.RequestPolicyGivesLess(name, str(largest))
        return reasons.RequestPolicyRoundsUp(name)
    return reasons.CapacityTooSmall()


def _ignored_pools(alternatives: Sequence[RequestData], pools: Sequence[PoolView]) -> list[Reason]:
    """Pools that the request may mean but whose devices cannot be allocated at present.

    Selectors cannot be evaluated on pools. So a pool is left out if the selectors name drivers, but
    not its own.
    """
    text = " ".join(e for data in alternatives for e in data.alternative.selectors)
    named = any(pool.driver in text for pool in pools) or "device.driver" in text
    return [
        reasons.PoolNotWhole(pool.ref, pool.flaw)
        for pool in pools
        if pool.flaw and (pool.driver in text or not named)
    ]
