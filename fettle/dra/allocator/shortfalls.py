"""Why nothing can be allocated on a node, in words: for explanations only, never for an answer.

A search that found nothing knows only that. Here each request is checked against every device by
itself, with the checks of `taking`, and the causes that rule devices out are counted; what keeps
requests from being met together, `conflicts` knows.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from fettle.dra.allocator import capacities, conflicts, offers
from fettle.dra.allocator import plans as planning
from fettle.dra.allocator.abilities import selection_key
from fettle.dra.allocator.conflicts import Reach, Shortage, counted
from fettle.dra.allocator.counters import Counters
from fettle.dra.allocator.outcomes import AMPLE, NOTHING, Aborted, Budget, Unclear
from fettle.dra.allocator.plans import RequestData
from fettle.dra.allocator.profiles import CURRENT, Profile
from fettle.dra.allocator.taking import Books, Match
from fettle.dra.allocator.tolerating import tolerated
from fettle.dra.claims import ALL, Alternative, Claim
from fettle.dra.pools import DeviceView, PoolView
from fettle.dra.slices import PublishedDevice
from fettle.model import reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause, within


def shortfall(
    claims: Sequence[Claim],
    pools: Sequence[PoolView],
    match: Match,
    profile: Profile = CURRENT,
    *,
    budget: Budget = AMPLE,
) -> tuple[Reason, ...]:
    """What keeps these claims, for which nothing was found, from being allocated on a node.

    The first request that cannot be met even alone, else what does not go together; only that there
    is nothing, where finding out takes longer than the budget has seconds.
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
        self._books = Books(claims, pools, match, profile)
        self._plans = planning.lay_out(claims)
        self._counters = Counters(profile.quirks)
        self._looked_at: dict[Alternative, tuple[Mapping[int, Reason | None], int]] = {}

    def find(self) -> tuple[Reason, ...]:
        """The reasons, in the time that it takes."""
        claims, plans, books, profile = self._claims, self._plans, self._books, self._profile
        reaches: list[list[list[Reach]]] = []
        try:
            books.open()
            for requests in plans:
                reaches.append([])
                for alternatives in requests:
                    alone = [*map(self._alone, alternatives)]
                    if all(reach.reason for reach in alone):
                        return (*_by_reason(alone), *_lacking(alternatives, self._pools))
                    reaches[-1].append([reach for reach in alone if not reach.reason])
            conflict = conflicts.find_conflict(claims, plans, reaches, books, profile)
            return (conflict,)
        except (Aborted, Unclear) as error:
            return (error.reason,)

    def _alone(self, plan: RequestData) -> Reach:
        books = self._books
        pause()
        obstacles, in_use = self._obstacles(plan)
        if plan.alternative.mode == ALL:
            plan.everything = []
            for at in obstacles:
                if books.could_fit(plan, at):
                    plan.everything.append(at)
                pause()
            plan.count = len(plan.everything)
            obstacles = {at: obstacles[at] for at in plan.everything or obstacles}
        reach = Reach(plan, obstacles, [at for at, why in obstacles.items() if why is None])
        if len(reach.free) >= plan.count and plan.everything != []:
            return reach
        return reach._replace(reason=_too_few(reach, in_use, books))

    def _obstacles(self, plan: RequestData) -> tuple[Mapping[int, Reason | None], int]:
        """What keeps each candidate away that matches, and how many allocated ones cannot be told
        to match or not. Alternatives that are alike share it."""
        books, kind = self._books, selection_key(plan)
        if kind in self._looked_at:
            pause()
            return self._looked_at[kind]
        obstacles: dict[int, Reason | None] = {}
        in_use = 0
        for at in range(len(books.candidates)):
            try:
                if books.selectable(plan, at):
                    obstacles[at] = self._obstacle(plan, at)
            except (Aborted, Unclear):
                if plan.admin or not books.candidates[at].device.allocated:
                    raise
                in_use += 1  # the scheduler does not look at it either
            pause()
        books.exhaust()
        self._looked_at[kind] = obstacles, in_use
        return obstacles, in_use

    def _obstacle(self, plan: RequestData, at: int) -> Reason | None:
        """Why a device that matches cannot be taken, None if it can."""
        books, features = self._books, self._profile.features
        pool, device = books.candidates[at]
        published = device.published
        if device.allocated and not plan.admin:
            return reasons.DeviceAllocated()
        if features.consumable_capacity:
            if absent := sorted(set(plan.capacity) - set(published.capacities)):
                return reasons.CapacityMissing(absent[0])
            if not books.could_fit(plan, at):
                return _too_small(plan, published, fractional=features.fractional_capacity_range)
            fractional = features.fractional_capacity_range
            if device.consumed and not capacities.fits(
                plan.capacity, published.capacities, device.consumed, {}, fractional=fractional
            ):
                return reasons.CapacityUsedUp()
        if published.device.consumes_counters and not (published.multiple and device.shares):
            if not features.partitionable_devices:
                return reasons.PartitionableDevicesOff()
            if not self._counters.reserve(pool, device):
                return reasons.CountersExhausted(pool.ref)
            self._counters.release(pool, device)
        return self._taint(plan, device)

    def _taint(self, plan: RequestData, device: DeviceView) -> Reason | None:
        """The taints that the request does not tolerate: those of the slice come before those of
        DeviceTaintRules."""
        features, tolerations = self._profile.features, plan.alternative.tolerations
        of_slice = len(device.published.device.taints or ())
        taints = device.taints if features.device_taints else ()
        if not features.device_taint_rules:
            taints = taints[:of_slice]
        found = [
            (at, taint.key)
            for at, taint in enumerate(taints)
            if not tolerated((taint,), tolerations)
        ]
        if not found:
            return None
        by_rule = all(at >= of_slice for at, _ in found)
        of = reasons.TaintedByRule if by_rule else reasons.Tainted
        return of(tuple(dict.fromkeys(key for _, key in found)))


def _by_reason(reaches: Sequence[Reach]) -> Iterator[Reason]:
    """The reasons of all alternatives; those that say the same are one."""
    by_reason: dict[Shortage, list[str]] = {}
    for reach in reaches:
        assert reach.reason is not None
        by_reason.setdefault(reach.reason, []).append(reach.plan.told)
    for reason, requests in by_reason.items():
        yield msgspec.structs.replace(reason, requests=tuple(requests))


def _too_few(reach: Reach, in_use: int, books: Books) -> Shortage:
    """`in_use` are the allocated devices that cannot be told to match or not."""
    plan, obstacles, free, _ = reach
    if not obstacles:
        if in_use or books.candidates:
            return reasons.NoDeviceMatches((), in_use)
        return reasons.NoDevices(())
    everything = plan.alternative.mode == ALL
    return reasons.TooFewDevices(
        (),
        None if everything else plan.count,
        len(obstacles),
        counted(obstacles.values()),
        not everything and any(at in books.shareable for at in free),
    )


def _too_small(plan: RequestData, device: PublishedDevice, *, fractional: bool) -> Reason:
    """Why a device's capacities do not suffice even while nobody uses them: where there is enough,
    it is the policy that gives a request less, or would have it take more."""
    steps = (fractional,)
    for name, wanted in plan.capacity.items():
        offer = offers.offer(device, name)
        if offer is None or wanted.nano > offer.read.value.nano or offer.gives(wanted, steps):
            continue
        if largest := offers.most((offer,), steps):
            return reasons.RequestPolicyGivesLess(name, str(largest))
        return reasons.RequestPolicyRoundsUp(name)
    return reasons.CapacityTooSmall()


def _lacking(alternatives: Sequence[RequestData], pools: Sequence[PoolView]) -> list[Reason]:
    """Pools that may be meant but whose devices cannot be allocated at present.

    Selectors can only be asked about devices. So a pool is not meant where they name drivers, and
    not this one's.
    """
    text = " ".join(e for plan in alternatives for e in plan.alternative.selectors)
    named = any(pool.driver in text for pool in pools) or "device.driver" in text
    return [
        reasons.PoolNotWhole(pool.ref, pool.flaw)
        for pool in pools
        if pool.flaw and (pool.driver in text or not named)
    ]
