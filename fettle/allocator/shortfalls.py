"""Why nothing can be allocated on a node, in words: for explanations only, never for an answer.

A search that found nothing knows only that. Here each request is checked against every device by
itself, with the checks of `taking`, and the causes that rule devices out are counted.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence

from fettle.allocator import capacities
from fettle.allocator import plans as planning
from fettle.allocator.constraints import attribute
from fettle.allocator.counters import Counters
from fettle.allocator.outcomes import Aborted, Unclear
from fettle.allocator.plans import Plan, Plans
from fettle.allocator.profiles import CURRENT, Profile
from fettle.allocator.pruning import hopeless
from fettle.allocator.searching import PAUSE
from fettle.allocator.taking import Books, Match
from fettle.allocator.tolerating import tolerated
from fettle.asks.claims import ALL, Claim
from fettle.view import PoolView


def shortfall(
    claims: Sequence[Claim], pools: Sequence[PoolView], match: Match, profile: Profile = CURRENT
) -> Generator[None, None, str]:
    """What keeps these claims, for which nothing was found, from being allocated on a node.

    The first request that cannot be met even alone, else what does not go together.
    """
    books = Books(claims, pools, match, profile)
    plans = planning.lay_out(claims, len(books.candidates))
    try:
        for requests in plans:
            for alternatives in requests:
                reasons: dict[str, list[Plan]] = {}
                for plan in alternatives:
                    reason = yield from _alone(plan, books, profile)
                    reasons.setdefault(reason, []).append(plan)
                if "" not in reasons:
                    return "; ".join((*_told(reasons), *_lacking(alternatives, pools)))
        known = yield from hopeless(claims, plans, books, profile)
    except (Aborted, Unclear) as error:
        return str(error)
    return _without_attribute(claims, plans, books) or known or _together(claims, plans, books)


def _told(reasons: Mapping[str, Sequence[Plan]]) -> Iterator[str]:
    for reason, plans in reasons.items():
        yield f"{', '.join(plan.told for plan in plans)}: {reason}"


def _alone(plan: Plan, books: Books, profile: Profile) -> Generator[None, None, str]:
    """Why an alternative cannot be met even if nothing else is asked for; "" if it can."""
    obstacles: Counter[str] = Counter()
    matching: list[int] = []
    in_use = 0
    for at in range(len(books.candidates)):
        try:
            if books.selectable(plan, at):
                matching.append(at)
                obstacles[_obstacle(plan, at, books, profile)] += 1
        except (Aborted, Unclear):
            if plan.admin or not books.candidates[at].device.allocated:
                raise
            in_use += 1  # the scheduler does not look at it either
        if at % PAUSE == PAUSE - 1:
            yield
    books.exhaust()
    free = obstacles.pop("", 0)
    everything = plan.alternative.mode == ALL
    if everything:
        plan.everything = matching
        plan.count = len(matching)
    if matching and free >= plan.count:
        return ""
    if not matching and in_use:
        held = f"{in_use} {'device is' if in_use == 1 else 'devices are'} allocated"
        return f"{held}, and no other device on this node matches"
    if not matching:
        return "no device on this node matches" if books.candidates else "there are no devices here"
    asked = "all" if everything else plan.count
    counted = ", ".join(f"{number} {why}" for why, number in obstacles.most_common())
    match = f"{len(matching)} {'device matches' if len(matching) == 1 else 'devices match'}"
    return f"{asked} requested, {match}" + (f": {counted}" if counted else "")


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
            return "with too little capacity"
        fractional = features.fractional_capacity_range
        if device.consumed and not capacities.fits(
            plan.capacity, published.capacities, device.consumed, {}, fractional=fractional
        ):
            return "with too little capacity left"
    if published.device.consumes_counters and not (published.multiple and device.shared):
        if not features.partitionable_devices:
            return "of a kind that is disabled (DRAPartitionableDevices)"
        if not Counters(profile.quirks).reserve(pool, device):
            return f"for which the counters of pool {pool.name} do not suffice"
    if features.device_taints and not tolerated(device.taints, plan.alternative.tolerations):
        keys = dict.fromkeys(
            taint.key
            for taint in device.taints
            if not tolerated((taint,), plan.alternative.tolerations)
        )
        return f"tainted ({', '.join(keys)})"
    return ""


def _lacking(alternatives: Sequence[Plan], pools: Sequence[PoolView]) -> list[str]:
    """Pools that may be meant but whose devices cannot be allocated at present.

    Selectors can only be asked about devices. So a pool is not meant where they name drivers, and
    not this one's.
    """
    text = " ".join(e for plan in alternatives for e in plan.alternative.selectors)
    named = any(pool.driver in text for pool in pools) or "device.driver" in text
    return [
        f"pool {pool.name} is {_state(pool)}"
        for pool in pools
        if (pool.incomplete or pool.invalid) and (pool.driver in text or not named)
    ]


def _state(pool: PoolView) -> str:
    if pool.invalid:
        return f"invalid: {pool.invalid}"
    seen, wanted = pool.slices
    return f"incomplete: {seen} of {wanted} slices"


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


def _together(claims: Sequence[Claim], plans: Plans, books: Books) -> str:
    """Of requests that could each be met alone: what it may be that they do not share."""
    every = [plan for requests in plans for alternatives in requests for plan in alternatives]
    meant = [
        candidate
        for at, candidate in enumerate(books.candidates)
        if any(plan.matches[at] for plan in every)
    ]
    causes = dict.fromkeys(
        (
            *(
                f"{'distinctAttribute' if c.distinct else 'matchAttribute'} {c.attribute}"
                for claim in claims
                for c in claim.constraints
            ),
            *(f"counters of pool {p.name}" for p, d in meant if d.published.consumes),
            *(f"capacity of {d.id}" for _, d in meant if d.published.multiple),
        )
    )
    single = sum(len(requests) for requests in plans) == 1
    subject = "too few devices fit together" if single else "not all requests can be met together"
    return f"{subject} ({', '.join(causes) or 'they compete for the same devices'})"
