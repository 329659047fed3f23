"""Why nothing can be allocated on a node, in words: for explanations only, never for an answer.

A search that found nothing knows only that. Here each request is checked against every device by
itself, with the checks of `taking`, and the causes that rule devices out are counted; then each
constraint, against the devices that its requests could have.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fettle.allocator import capacities, offers
from fettle.allocator import plans as planning
from fettle.allocator.agreeing import Value, most, values_of
from fettle.allocator.constraints import attribute
from fettle.allocator.contending import Need
from fettle.allocator.counters import Counters
from fettle.allocator.outcomes import Aborted, Unclear
from fettle.allocator.plans import Plan, Plans
from fettle.allocator.profiles import CURRENT, Profile
from fettle.allocator.pruning import hopeless
from fettle.allocator.searching import PAUSE
from fettle.allocator.taking import Books, Match
from fettle.allocator.tolerating import tolerated
from fettle.asks.claims import ALL, Claim, Constraint
from fettle.published import Published
from fettle.view import PoolView


class _Reach(NamedTuple):
    """What an alternative could have if nothing else were asked for.

    `obstacles` says by candidate, of those that match, what keeps it away, "" where nothing does;
    `reason`, why too few of them are left, "" where enough are.
    """

    plan: Plan
    obstacles: Mapping[int, str]
    reason: str = ""

    @property
    def free(self) -> list[int]:
        return [at for at, obstacle in self.obstacles.items() if not obstacle]


def shortfall(
    claims: Sequence[Claim], pools: Sequence[PoolView], match: Match, profile: Profile = CURRENT
) -> Generator[None, None, str]:
    """What keeps these claims, for which nothing was found, from being allocated on a node.

    The first request that cannot be met even alone, else what does not go together.
    """
    books = Books(claims, pools, match, profile)
    plans = planning.lay_out(claims, len(books.candidates))
    reaches: list[list[list[_Reach]]] = []
    try:
        for requests in plans:
            reaches.append([])
            for alternatives in requests:
                alone = []
                for plan in alternatives:
                    reach = yield from _alone(plan, books, profile)
                    alone.append(reach)
                if all(reach.reason for reach in alone):
                    return "; ".join((*_told(alone), *_lacking(alternatives, pools)))
                reaches[-1].append([reach for reach in alone if not reach.reason])
        known = yield from hopeless(claims, plans, books, profile)
    except (Aborted, Unclear) as error:
        return str(error)
    return (
        _without_attribute(claims, plans, books)
        or (yield from _constrained(claims, reaches, books, profile))
        or known
        or _together(claims, reaches, books)
    )


def _told(reaches: Sequence[_Reach]) -> Iterator[str]:
    by_reason: dict[str, list[Plan]] = {}
    for plan, _, reason in reaches:
        by_reason.setdefault(reason, []).append(plan)
    for reason, plans in by_reason.items():
        yield f"{', '.join(plan.told for plan in plans)}: {reason}"


def _alone(plan: Plan, books: Books, profile: Profile) -> Generator[None, None, _Reach]:
    obstacles: dict[int, str] = {}
    in_use = 0
    for at in range(len(books.candidates)):
        try:
            if books.selectable(plan, at):
                obstacles[at] = _obstacle(plan, at, books, profile)
        except (Aborted, Unclear):
            if plan.admin or not books.candidates[at].device.allocated:
                raise
            in_use += 1  # the scheduler does not look at it either
        if at % PAUSE == PAUSE - 1:
            yield
    books.exhaust()
    if plan.alternative.mode == ALL:
        plan.everything = [at for at in obstacles if books.could_fit(plan, at)]
        plan.count = len(plan.everything)
        obstacles = {at: obstacles[at] for at in plan.everything or obstacles}
    reach = _Reach(plan, obstacles)
    if len(reach.free) >= plan.count and plan.everything != []:
        return reach
    return reach._replace(reason=_too_few(reach, in_use, books))


def _too_few(reach: _Reach, in_use: int, books: Books) -> str:
    """`in_use` are the allocated devices that cannot be told to match or not."""
    plan, obstacles, _ = reach
    if not obstacles and in_use:
        held = f"{in_use} {'device is' if in_use == 1 else 'devices are'} allocated"
        return f"{held}, and no other device on this node matches"
    if not obstacles:
        return "no device on this node matches" if books.candidates else "there are no devices here"
    everything = plan.alternative.mode == ALL
    asked = "all" if everything else plan.count
    match = f"{len(obstacles)} {'device matches' if len(obstacles) == 1 else 'devices match'}"
    counted = _counted(filter(None, obstacles.values()))
    once = not everything and not books.shareable().isdisjoint(reach.free)
    return (
        f"{asked} requested, {match}"
        + (f": {counted}" if counted else "")
        + (" (a request takes at most one share of each device)" if once else "")
    )


def _obstacle(plan: Plan, at: int, books: Books, profile: Profile) -> str:
    """Why a device that matches cannot be taken, "" if it can."""
    pool, device = books.candidates[at]
    published, features = device.published, profile.features
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
        if not Counters(profile.quirks).reserve(pool, device):
            return f"for which the counters of {pool.told} do not suffice"
    taints = device.taints if features.device_taints else ()
    if not features.device_taint_rules:
        taints = taints[: len(published.device.taints or ())]  # the slice's own
    if not tolerated(taints, plan.alternative.tolerations):
        keys = dict.fromkeys(
            taint.key for taint in taints if not tolerated((taint,), plan.alternative.tolerations)
        )
        return f"tainted ({', '.join(keys)})"
    return ""


def _too_small(plan: Plan, device: Published, *, fractional: bool) -> str:
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


def _lacking(alternatives: Sequence[Plan], pools: Sequence[PoolView]) -> list[str]:
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


def _without_attribute(claims: Sequence[Claim], plans: Plans, books: Books) -> str:
    """A constraint about an attribute that no device of one of its requests has; "" if none is."""
    for claim, requests in zip(claims, plans, strict=True):
        for constraint in claim.constraints:
            for plan in (alternatives[0] for alternatives in requests if len(alternatives) == 1):
                matching = [at for at, matches in enumerate(plan.matches) if matches]
                if constraint.concerns(plan.request.name, plan.name) and not any(
                    attribute(constraint.attribute, books.candidates[at].device) for at in matching
                ):
                    return (
                        f"{plan.told}: no matching device has the attribute "
                        f"{constraint.attribute}, which a constraint compares"
                    )
    return ""


def _constrained(
    claims: Sequence[Claim],
    reaches: Sequence[Sequence[Sequence[_Reach]]],
    books: Books,
    profile: Profile,
) -> Generator[None, None, str]:
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
            lists = profile.features.list_type_attributes
            if why := (yield from _short_of(constraint, concerned, books, lists=lists)):
                return why
    return ""


def _short_of(
    constraint: Constraint, concerned: Sequence[Sequence[_Reach]], books: Books, *, lists: bool
) -> Generator[None, None, str]:
    """How few devices go together by a constraint of the requests `concerned`, "" if enough do.

    Of a list of alternatives, the one that needs least may have whatever any of them may have.
    """
    needs = [
        Need(min(r.plan.count for r in a), sorted({at for r in a for at in r.free}))
        for a in concerned
    ]
    reaches = [reach for alternatives in concerned for reach in alternatives]
    obstacles = {at: why for reach in reaches for at, why in reach.obstacles.items()}
    obstacles |= {at: "" for need in needs for at in need.able}
    values: dict[int, Collection[Value]] = {}
    for looked, at in enumerate(obstacles):
        if looked % PAUSE == PAUSE - 1:
            yield
        found = values_of(constraint, books.candidates[at].device, lists=lists)
        if found is None:
            return ""
        values[at] = found
    best = yield from most(constraint, needs, values, books.shareable())
    requested = sum(need.number for need in needs)
    if best.number >= requested:
        return ""
    causes = [why for at, why in obstacles.items() if why and best.wanted & set(values[at])]
    causes += ["without the attribute" for at, why in obstacles.items() if not (why or values[at])]
    details = [] if best.value is None else [f"value {best.value}"]
    details += [_counted(causes, more=best.number > 0)] if causes else []
    varied = requested < sum(max(r.plan.count for r in a) for a in concerned)
    return (
        f"{', '.join(reach.plan.told for reach in reaches)}: "
        f"{'at least ' if varied else ''}{requested} requested with "
        f"{'different values' if constraint.distinct else 'a common value'} of "
        f"{constraint.attribute}, {f'at most {best.number}' if best.number else 'none'} available"
        + (f" ({'; '.join(details)})" if details else "")
    )


def _counted(obstacles: Iterable[str], *, more: bool = False) -> str:
    counts = Counter(obstacles).most_common()
    return ", ".join(f"{number} {'more ' if more else ''}{why}" for why, number in counts)


def _together(
    claims: Sequence[Claim], reaches: Sequence[Sequence[Sequence[_Reach]]], books: Books
) -> str:
    """Of requests that could each be met alone: what it may be that they do not share."""
    every = [reach for requests in reaches for alternatives in requests for reach in alternatives]
    meant = [books.candidates[at] for at in sorted({at for reach in every for at in reach.free})]
    causes = dict.fromkeys(
        (
            *(
                f"{'distinctAttribute' if c.distinct else 'matchAttribute'} {c.attribute} "
                f"of claim {claim.name}"
                for claim in claims
                for c in claim.constraints
            ),
            *(f"counters of {p.told}" for p, d in meant if d.published.consumes),
            *(f"capacity of {d.id}" for _, d in meant if d.published.multiple),
        )
    )
    single = sum(len(requests) for requests in reaches) == 1
    subject = "too few devices fit together" if single else "not all requests can be met together"
    return f"{subject} ({', '.join(causes) or 'they compete for the same devices'})"
