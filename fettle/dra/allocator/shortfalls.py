"""Why nothing can be allocated on a node, in words: for explanations only, never for an answer.

A search that found nothing knows only that. Here each request is checked against every device by
itself, with the checks of `taking`, and the causes that rule devices out are counted; what keeps
requests from being met together, `conflicts` knows.
"""

from collections.abc import Iterator, Mapping, Sequence

from fettle.dra.allocator import capacities, conflicts, offers
from fettle.dra.allocator import plans as planning
from fettle.dra.allocator.abilities import selection_key
from fettle.dra.allocator.conflicts import Reach, counted
from fettle.dra.allocator.counters import Counters
from fettle.dra.allocator.outcomes import AMPLE, NOTHING, Aborted, Budget, Unclear
from fettle.dra.allocator.plans import RequestData
from fettle.dra.allocator.profiles import CURRENT, Profile
from fettle.dra.allocator.taking import Books, Match
from fettle.dra.allocator.tolerating import tolerated
from fettle.dra.claims import ALL, Alternative, Claim
from fettle.dra.pools import PoolView
from fettle.dra.slices import PublishedDevice
from fettle.pacing import pause, within


def shortfall(
    claims: Sequence[Claim],
    pools: Sequence[PoolView],
    match: Match,
    profile: Profile = CURRENT,
    *,
    budget: Budget = AMPLE,
) -> str:
    """What keeps these claims, for which nothing was found, from being allocated on a node.

    The first request that cannot be met even alone, else what does not go together; only that there
    is nothing, where finding out takes longer than the budget has seconds.
    """
    work = _Shortfall(claims, pools, match, profile)
    try:
        return within(budget.seconds, work.told)
    except TimeoutError:
        return NOTHING


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
        self._looked_at: dict[Alternative, tuple[Mapping[int, str], int]] = {}

    def told(self) -> str:
        """The words."""
        claims, plans, books, profile = self._claims, self._plans, self._books, self._profile
        reaches: list[list[list[Reach]]] = []
        try:
            books.open()
            for requests in plans:
                reaches.append([])
                for alternatives in requests:
                    alone = list(map(self._alone, alternatives))
                    if all(reach.reason for reach in alone):
                        return "; ".join((*_told(alone), *_lacking(alternatives, self._pools)))
                    reaches[-1].append([reach for reach in alone if not reach.reason])
            return conflicts.find_conflict(claims, plans, reaches, books, profile)
        except (Aborted, Unclear) as error:
            return str(error)

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
        reach = Reach(plan, obstacles, [at for at, why in obstacles.items() if not why])
        if len(reach.free) >= plan.count and plan.everything != []:
            return reach
        return reach._replace(reason=_too_few(reach, in_use, books))

    def _obstacles(self, plan: RequestData) -> tuple[Mapping[int, str], int]:
        """What keeps each candidate away that matches, and how many allocated ones cannot be told
        to match or not. Alternatives that are alike share it."""
        books, kind = self._books, selection_key(plan)
        if kind in self._looked_at:
            return self._looked_at[kind]
        obstacles: dict[int, str] = {}
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

    def _obstacle(self, plan: RequestData, at: int) -> str:
        """Why a device that matches cannot be taken, "" if it can."""
        books, features = self._books, self._profile.features
        pool, device = books.candidates[at]
        published = device.published
        if device.allocated and not plan.admin:
            return "allocated"
        if features.consumable_capacity:
            if absent := sorted(set(plan.capacity) - set(published.capacities)):
                return f"without capacity {absent[0]}"
            if not books.could_fit(plan, at):
                return _too_small(plan, published, fractional=features.fractional_capacity_range)
            fractional = features.fractional_capacity_range
            if device.consumed and not capacities.fits(
                plan.capacity, published.capacities, device.consumed, {}, fractional=fractional
            ):
                return "with too little capacity left"
        if published.device.consumes_counters and not (published.multiple and device.shares):
            if not features.partitionable_devices:
                return "of a kind that is disabled (DRAPartitionableDevices)"
            if not self._counters.reserve(pool, device):
                return f"for which the counters of {pool.told} do not suffice"
            self._counters.release(pool, device)
        taints = device.taints if features.device_taints else ()
        if not features.device_taint_rules:
            taints = taints[: len(published.device.taints or ())]  # the slice's own
        if not tolerated(taints, plan.alternative.tolerations):
            keys = dict.fromkeys(
                taint.key
                for taint in taints
                if not tolerated((taint,), plan.alternative.tolerations)
            )
            return f"tainted ({', '.join(keys)})"
        return ""


def _told(reaches: Sequence[Reach]) -> Iterator[str]:
    by_reason: dict[str, list[RequestData]] = {}
    for reach in reaches:
        by_reason.setdefault(reach.reason, []).append(reach.plan)
    for reason, plans in by_reason.items():
        yield f"{', '.join(plan.told for plan in plans)}: {reason}"


def _too_few(reach: Reach, in_use: int, books: Books) -> str:
    """`in_use` are the allocated devices that cannot be told to match or not."""
    plan, obstacles, free, _ = reach
    if not obstacles and in_use:
        held = f"{in_use} {'device is' if in_use == 1 else 'devices are'} allocated"
        return f"{held}, and no other device on this node matches"
    if not obstacles:
        return "no device on this node matches" if books.candidates else "there are no devices here"
    everything = plan.alternative.mode == ALL
    asked = "all" if everything else plan.count
    match = f"{len(obstacles)} {'device matches' if len(obstacles) == 1 else 'devices match'}"
    causes = counted(filter(None, obstacles.values()))
    once = not everything and any(at in books.shareable for at in free)
    return (
        f"{asked} requested, {match}"
        + (f": {causes}" if causes else "")
        + (" (a request takes at most one share of each device)" if once else "")
    )


def _too_small(plan: RequestData, device: PublishedDevice, *, fractional: bool) -> str:
    """Why a device's capacities do not suffice even while nobody uses them: where there is enough,
    it is the policy that gives a request less, or would have it take more."""
    steps = (fractional,)
    for name, wanted in plan.capacity.items():
        offer = offers.offer(device, name)
        if offer is None or wanted.nano > offer.read.value.nano or offer.gives(wanted, steps):
            continue
        if largest := offers.most((offer,), steps):
            return f"whose requestPolicy gives a request at most {largest} of {name}"
        return f"whose requestPolicy rounds the request up to more of {name} than it gives"
    return "with too little capacity"


def _lacking(alternatives: Sequence[RequestData], pools: Sequence[PoolView]) -> list[str]:
    """Pools that may be meant but whose devices cannot be allocated at present.

    Selectors can only be asked about devices. So a pool is not meant where they name drivers, and
    not this one's.
    """
    text = " ".join(e for plan in alternatives for e in plan.alternative.selectors)
    named = any(pool.driver in text for pool in pools) or "device.driver" in text
    return [
        f"{pool.told} is {pool.flaw}"
        for pool in pools
        if pool.flaw and (pool.driver in text or not named)
    ]
