"""Which devices the scheduler's allocator takes on a node for the claims of a pod.

A port of `Allocate`, `validateDeviceRequest` and `allocateOne` of
k8s.io/dynamic-resource-allocation/structured (incubating): the first fit in Kubernetes' order, step
for step. The recursion is an explicit stack here, since claims may be large. A search is bounded by
steps and by time. Pure: it reads pools and changes nothing but its own state.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum

from fettle.api.resource import MAX_RESULTS
from fettle.dra.allocator.allocate_device import (
    Acceptable,
    AllRequestData,
    DeviceAllocator,
    DeviceRollbackState,
    Match,
    RequestData,
    all_alternatives,
    request_data_of,
)
from fettle.dra.allocator.features import CURRENT, Features, Profile, why_unclear
from fettle.dra.allocator.pruning import (
    Lookout,
    families,
    find_abilities,
    find_infeasible,
    interchangeable,
    may_skip,
)
from fettle.dra.allocator.results import (
    AMPLE,
    NOTHING,
    Aborted,
    Allocated,
    AllocationStatus,
    Budget,
    DeviceIndices,
    Taken,
    Unclear,
    Unfinished,
)
from fettle.dra.claims import ALL, EXACT_COUNT, Claim, Request
from fettle.dra.pools import PoolView
from fettle.model import reasons
from fettle.model.reasons import Reason, SliceOrderCause, SliceOrderMatters, Unmodelled
from fettle.pacing import pause, within

# Allocate

SHARE = 0.25
"""Of the time that a search may take, so much is for finding out how to end it early."""


def allocate(
    claims: Sequence[Claim],
    pools: Sequence[PoolView],
    match: Match,
    profile: Profile = CURRENT,
    *,
    acceptable: Acceptable | None = None,
    budget: Budget = AMPLE,
) -> Allocated:
    """The first allocation that satisfies all claims, as the scheduler would find it.

    With `acceptable`, devices it turns down are never taken: is there *any* allocation then?
    """
    attempt = _Attempt(claims, pools, match, profile, acceptable, budget)
    try:
        return within(budget.seconds, attempt.outcome)
    except Unfinished as error:
        return attempt.unfinished(error.reason)
    except TimeoutError:
        return attempt.unfinished(reasons.SearchTookTooLong(seconds=budget.seconds))


class _Attempt:
    """One allocation: what is asked for, and what is known of it so far."""

    def __init__(
        self,
        claims: Sequence[Claim],
        pools: Sequence[PoolView],
        match: Match,
        profile: Profile,
        acceptable: Acceptable | None,
        budget: Budget,
    ) -> None:
        self._claims = claims
        self._pools = pools
        self._profile = profile
        self._budget = budget
        self._request_data = request_data_of(claims)
        self.allocator = DeviceAllocator(claims, pools, match, profile, acceptable)
        self.search = Search(self._request_data, self.allocator)

    def outcome(self) -> Allocated:
        """Raises Unfinished."""
        claims, request_data, allocator = self._claims, self._request_data, self.allocator
        ordered = self._profile.ordered
        try:
            allocator.gather_candidates()
            self._prepare()
            if why := self._searched():
                return self._none(why)
        except Aborted as error:
            if not ordered and (
                why := why_order_matters(request_data, allocator)
                or why_maybe_error(claims, request_data, allocator)
            ):
                return self._undecided(why)
            return self._error(error.reason)
        except Unclear as error:
            return self._undecided(error.reason)
        if self.search.result is None:
            return self._nothing()
        if not ordered and (why := why_order_matters(request_data, allocator)):
            return self._undecided(why, bounded=not allocator.beyond)
        if why := _unwritable(self.search.result):
            return self._error(why)
        return Allocated(AllocationStatus.FITS, self.search.result, steps=self.search.steps)

    def unfinished(self, why: Reason) -> Allocated:
        """The search was ended."""
        return self._undecided(why, bounded=not self.allocator.beyond)

    def _prepare(self) -> None:
        """What upstream checks claim by claim before it searches."""
        features = self._profile.features
        for claim, requests in zip(self._claims, self._request_data, strict=True):
            total = 0
            for request, alternatives in zip(claim.requests, requests, strict=True):
                check_gates(request, claim.name, features)
                for data in alternatives:
                    validate_request(data, features)
                    if data.alternative.mode == ALL:
                        _everything(data, self.allocator, self._pools, self._profile)
                    pause()
                total = add_to_total(total, request, alternatives, claim.name, MAX_RESULTS)
            for unknown in unknown_constraints(claim):
                raise Aborted(unknown)

    def _searched(self) -> Reason | None:
        """Search to the end; or why that is of no use, found out on the way."""
        search, prune_after = self.search, self._budget.prune_after
        search.begin()
        while search.under_way:
            if search.steps > self._budget.steps:
                raise Unfinished(reasons.SearchTookTooLong(steps=search.steps))
            if prune_after is not None and search.in_vain >= prune_after:
                prune_after = None
                try:
                    if why := within(self._budget.seconds * SHARE, self._pruned):
                        return why
                except TimeoutError:
                    pass  # the search may be at its end before that
            search.step()
            pause()
        search.end()
        return None

    def _pruned(self) -> Reason | None:
        """Why going on is of no use; else from now on less is tried in vain."""
        claims, request_data, allocator, profile = (
            self._claims,
            self._request_data,
            self.allocator,
            self._profile,
        )
        able = find_abilities(request_data, allocator)
        if able is None:
            return None
        if why := find_infeasible(claims, request_data, able, allocator, profile):
            return why
        if may_skip(claims, request_data, profile):
            self.search.classes = interchangeable(claims, able, allocator)
            lookout = Lookout(families(claims, request_data, able, allocator, profile))
            self.search.can_succeed = lookout.possible
        return None

    def _nothing(self) -> Allocated:
        """What it means that the search found nothing."""
        claims, request_data, allocator, profile = (
            self._claims,
            self._request_data,
            self.allocator,
            self._profile,
        )
        if profile.ordered:
            return self._none(NOTHING)
        why = why_not_nothing(claims, request_data, allocator, profile)
        if not why:
            return self._none(NOTHING)
        able = find_abilities(request_data, allocator)
        if able and (known := find_infeasible(claims, request_data, able, allocator, profile)):
            return self._none(known)
        return self._undecided(why)

    def _none(self, why: Reason) -> Allocated:
        """Nothing fits; where a pool is invalid, the scheduler calls that an error of this node."""
        for pool in self._pools:
            if doubted := why_unclear(pool, self._profile):
                return self._undecided(doubted)
        for pool in self._pools:
            if pool.invalid:
                invalid = reasons.PoolInvalid(pool.ref, pool.invalid)
                return self._error(why, invalid, on_node=True)
        return Allocated(AllocationStatus.NONE, reasons=(why,), steps=self.search.steps)

    def _error(self, *why: Reason, on_node: bool = False) -> Allocated:
        return Allocated(
            AllocationStatus.ERROR, reasons=why, on_node=on_node, steps=self.search.steps
        )

    def _undecided(self, why: Reason, *, bounded: bool = False) -> Allocated:
        return Allocated(
            AllocationStatus.UNDECIDED, reasons=(why,), steps=self.search.steps, bounded=bounded
        )


def _unwritable(taken: Sequence[Taken]) -> reasons.NodeSelectorTooComplex | None:
    """Why the node selector of an allocation cannot be written, None if it can."""
    pinned: set[int] = set()
    for one in taken:
        published = one.device.published
        if published.pins:
            pinned.add(one.claim)
        elif one.claim not in pinned and published.terms > 1:
            return reasons.NodeSelectorTooComplex(published.id, published.terms)
    return None


def _everything(
    data: RequestData, allocator: DeviceAllocator, pools: Sequence[PoolView], profile: Profile
) -> None:
    """Mode All: the devices that match, if every pool of the node is whole."""
    data.everything = []
    at = 0
    for pool in pools:
        if doubted := why_unclear(pool, profile):
            raise Unclear(doubted)
        here, whole = pool.slices
        parted = here != whole and profile.rules.pools_by_node
        updated = "being updated" if pool.incomplete or parted else ""
        state = updated or (pool.invalid and f"invalid: {pool.invalid}")
        if state:
            raise Aborted(reasons.PoolUnusable(data.path, pool.ref, state))
        for _ in pool.devices:
            if allocator.is_selectable(data, at) and allocator.fits_if_unused(data, at):
                data.everything.append(at)
            at += 1
            pause()
    data.count = len(data.everything)


# validateDeviceRequest


def check_gates(request: Request, claim: str, features: Features) -> None:
    """Raises Aborted where a request needs a gate that is off."""
    if request.listed and not features.prioritized_list:
        raise Aborted(reasons.FeatureGateOff(f"{claim}/{request.name}", "DRAPrioritizedList"))
    if features.consumable_capacity:
        return
    for alternative in request.alternatives:
        if alternative.capacity is not None:
            raise Aborted(
                reasons.FeatureGateOff(f"{claim}/{alternative.name}", "DRAConsumableCapacity")
            )


def validate_request(data: RequestData, features: Features) -> None:
    """Raises Aborted or Unclear for what no device could satisfy."""
    alternative, name = data.alternative, data.path
    if alternative.derived:
        if features.derived_attributes:
            raise Unclear(reasons.NotModelled(Unmodelled.DERIVED_ATTRIBUTES, name))
        raise Aborted(reasons.FeatureGateOff(name, "DRADerivedAttributes"))
    if alternative.unclear:
        raise Unclear(reasons.RequestUnclear(name, alternative.unclear))
    if alternative.class_missing:
        raise Aborted(reasons.DeviceClassNotFound(name, alternative.class_name))
    if alternative.error:
        raise Aborted(reasons.RequestInvalid(name, alternative.error))
    if alternative.admin_access is not None and not features.admin_access:
        raise Aborted(reasons.FeatureGateOff(name, "DRAAdminAccess"))
    if alternative.mode not in (EXACT_COUNT, ALL):
        detail = f"unknown allocation mode {alternative.mode!r}"
        raise Aborted(reasons.RequestInvalid(name, detail))


def add_to_total(
    total: int, request: Request, alternatives: Sequence[RequestData], claim: str, limit: int
) -> int:
    """The fewest devices that a claim needs, with one request more; raises Aborted."""
    fewest = min(data.count for data in alternatives)
    if fewest > limit - total:
        raise Aborted(reasons.ClaimTooLarge(claim, request.name, fewest, limit, total))
    return total + fewest


def unknown_constraints(claim: Claim) -> Iterator[Reason]:
    for number, constraint in enumerate(claim.constraints):
        if constraint.attribute is None:
            yield reasons.ConstraintInvalid(claim.name, number)


# allocateOne


class Came(IntEnum):
    """What a call came to."""

    NONE = 0
    ALL = 1
    TOO_MANY = 2


class Search:
    """One search: `begin`, `step` while it is `under_way`, `end`, then read `result`.

    `steps` counts as upstream does.
    `request_data` are the alternatives by claim and request.
    """

    def __init__(
        self, request_data: Sequence[Sequence[Sequence[RequestData]]], allocator: DeviceAllocator
    ) -> None:
        self.request_data = request_data
        self.allocator = allocator
        self.steps = 0
        self.in_vain = 0
        """How many devices were given back, since nothing was found with them."""
        self.classes: Sequence[int] | None = None
        """The class of each candidate, where it is known; of a class, one failure tells of all."""
        self.can_succeed: Callable[[DeviceIndices], bool] | None = None
        """Whether anything can be found with a call, where that may be asked beforehand."""
        self.result: tuple[Taken, ...] | None = None
        self._waiting: list[_EndOfClaim | _Choice | _Taking] = []
        self._came = Came.NONE

    def begin(self) -> None:
        self._came = self._enter(DeviceIndices(0, 0))

    @property
    def under_way(self) -> bool:
        return bool(self._waiting)

    def step(self) -> None:
        """Take one device or give it back; raises Aborted or Unclear."""
        answer = self._waiting[-1].resume(self._came)
        if isinstance(answer, Came):
            self._waiting.pop()
            self._came = answer
        elif self.can_succeed is not None and not self.can_succeed(answer):
            self._came = Came.NONE
        else:
            self._came = self._enter(answer)

    def end(self) -> None:
        """`result` stays None without one; raises Aborted."""
        if self._came is Came.TOO_MANY:
            raise Aborted(reasons.ResultsTooMany(MAX_RESULTS))
        if self._came is Came.ALL:
            self.result = self.allocator.results()

    def _enter(self, call: DeviceIndices) -> Came:
        """Make a call, and those that only pass on what the next one comes to."""
        while True:
            self.steps += 1
            claim, request, chosen, nth, _ = call
            if claim >= len(self.request_data):
                return Came.ALL
            requests = self.request_data[claim]
            if request >= len(requests):
                self._waiting.append(_EndOfClaim())
                call = DeviceIndices(claim + 1, 0)
                continue
            alternatives = requests[request]
            if chosen is None and alternatives[0].request.listed:
                self._waiting.append(_Choice(call, len(alternatives)))
                call = DeviceIndices(claim, request, 0)
                continue
            data = alternatives[chosen or 0]
            if data.everything is not None and not data.everything:
                return Came.NONE
            if nth >= data.count:
                call = DeviceIndices(claim, request + 1)
                continue
            if data.count - nth > MAX_RESULTS - self.allocator.allocated_number(claim):
                return Came.TOO_MANY
            self._waiting.append(_Taking(call, data, self))
            return Came.NONE  # as if a device had failed: the next one is the first


class _EndOfClaim:
    """Waits for the claims after this one; if one of them is too large, that is just a failure."""

    def resume(self, came: Came) -> Came:
        return Came.NONE if came is Came.TOO_MANY else came


class _Choice:
    """Tries the alternatives of a list in order.

    Where all of them need too many devices, no other choice before them can help.
    """

    def __init__(self, call: DeviceIndices, size: int) -> None:
        self._call = call
        self._size = size
        self._at = 0
        self._too_many = True

    def resume(self, came: Came) -> Came | DeviceIndices:
        if came is Came.ALL:
            return came
        if came is Came.NONE:
            self._too_many = False
        self._at += 1
        if self._at < self._size:
            return DeviceIndices(self._call.claim, self._call.request, self._at)
        return Came.TOO_MANY if self._too_many else Came.NONE


class _Taking:
    """Takes one device, and the next one whenever what follows comes to nothing.

    What comes to nothing with one device does so with another of its class: whatever could be found
    with the other could be found, the two exchanged, with the first.
    """

    __slots__ = ("_allocator", "_at", "_call", "_data", "_failed", "_search", "_undo")

    def __init__(self, call: DeviceIndices, data: RequestData, search: Search) -> None:
        self._call = call
        self._data = data
        self._search = search
        self._allocator = search.allocator
        self._at = call.start
        self._undo: DeviceRollbackState | None = None
        self._failed: set[int] = set()

    def resume(self, came: Came) -> Came | DeviceIndices:
        everything = self._data.everything
        if came is Came.ALL:
            return came
        if self._undo is not None:
            self._search.in_vain += 1
            self._allocator.roll_back(self._data, self._undo)
            if self._search.classes is not None and self._allocator.is_untouched(self._undo.at):
                self._failed.add(self._search.classes[self._undo.at])
            self._undo = None
            if came is Came.TOO_MANY or everything is not None:
                return came
        if everything is not None:
            self._undo = self._allocator.allocate(self._data, everything[self._call.nth], must=True)
            return self._next(0) if self._undo is not None else Came.NONE
        return self._allocate_next()

    def _allocate_next(self) -> Came | DeviceIndices:
        """Take the next device that can be taken."""
        allocator, data, classes = self._allocator, self._data, self._search.classes
        for at in range(self._at, len(allocator.candidates)):
            pause()
            if allocator.is_ruled_out(data, at):
                continue
            if classes is not None and classes[at] in self._failed and allocator.is_untouched(at):
                continue
            if allocator.is_usable(data, at):
                self._undo = allocator.allocate(data, at)
                if self._undo is not None:
                    self._at = at + 1
                    return self._next(self._at)
        self._at = len(allocator.candidates)
        allocator.check_for_more()
        return Came.NONE

    def _next(self, start: int) -> DeviceIndices:
        claim, request, alternative, nth, _ = self._call
        return DeviceIndices(claim, request, alternative or 0, nth + 1, start)


# No fixed order


def why_order_matters(
    request_data: AllRequestData, allocator: DeviceAllocator
) -> SliceOrderMatters | None:
    """Why other devices may be taken than those that were."""
    choosing = [
        data for data in all_alternatives(request_data) if data.everything is None and data.count
    ]
    if choosing and allocator.beyond:
        return SliceOrderMatters(SliceOrderCause.POOL_UNCLEAR, allocator.beyond)
    slices = _slices(allocator)
    if sum(slices.values()) < 2:
        return None
    concerned = set()
    try:
        for data in choosing:
            for at, (pool, _) in enumerate(allocator.candidates):
                if allocator.is_selectable(data, at):
                    concerned.add((pool.driver, pool.name))
                pause()
    except (Aborted, Unclear) as error:
        return SliceOrderMatters(SliceOrderCause.ERROR_ON_A_DEVICE, error.reason)
    if sum(slices[pool] for pool in concerned) < 2:
        return None
    return SliceOrderMatters(SliceOrderCause.SEVERAL_SLICES)


def why_not_nothing(
    claims: Sequence[Claim],
    request_data: AllRequestData,
    allocator: DeviceAllocator,
    profile: Profile,
) -> SliceOrderMatters | None:
    """Why something may be taken, or the attempt may end in an error, where nothing was found."""
    if why := why_maybe_error(claims, request_data, allocator):
        return why
    if not _depends_on_what_was_seen(claims, allocator, profile):
        return None
    return why_order_matters(request_data, allocator)


def why_maybe_error(
    claims: Sequence[Claim], request_data: AllRequestData, allocator: DeviceAllocator
) -> SliceOrderMatters | None:
    """Why a request for all devices may end in an error, or else in nothing: a constraint against
    one of them is an error, one of them in use is not, and the first that is met counts."""
    constrained = any(
        claim.constraints and any(p.everything for alternatives in requests for p in alternatives)
        for claim, requests in zip(claims, request_data, strict=True)
    )
    if not constrained or sum(_slices(allocator).values()) < 2:
        return None
    return SliceOrderMatters(SliceOrderCause.ALL_UNDER_CONSTRAINT)


def _slices(allocator: DeviceAllocator) -> Mapping[tuple[str, str], int]:
    """How many slices for this node there are, by pool."""
    return {(c.pool.driver, c.pool.name): c.pool.slices[0] for c in allocator.candidates}


def _depends_on_what_was_seen(
    claims: Sequence[Claim], allocator: DeviceAllocator, profile: Profile
) -> bool:
    """Whether defects make it matter what the search looked at before."""
    quirks = profile.quirks
    if quirks.distinct_by_request and any(c.distinct for each in claims for c in each.constraints):
        return True
    keeps = quirks.undoes_in_part or quirks.counters_by_pool_name
    counts = profile.features.partitionable_devices and any(
        c.pool.counters for c in allocator.candidates
    )
    return keeps and counts
