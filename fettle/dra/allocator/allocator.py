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
    LookAhead,
    find_candidates,
    find_competing_groups,
    find_infeasible,
    interchangeable,
    may_skip,
)
from fettle.dra.allocator.results import (
    AMPLE,
    NOTHING,
    Aborted,
    AllocationOutcome,
    AllocationStatus,
    Budget,
    DeviceIndices,
    DeviceResult,
    Unclear,
    Unfinished,
)
from fettle.dra.claims import ALL, EXACT_COUNT, Claim, Request
from fettle.dra.pools import PoolView
from fettle.model import reasons
from fettle.model.reasons import Reason, SliceOrderCause, SliceOrderMatters, Unmodelled
from fettle.pacing import pause, within

# Allocate

PRUNING_SHARE = 0.25
"""The share of a search's time that may go into finding out whether it can succeed."""


def allocate(
    claims: Sequence[Claim],
    pools: Sequence[PoolView],
    match: Match,
    profile: Profile = CURRENT,
    *,
    acceptable: Acceptable | None = None,
    budget: Budget = AMPLE,
) -> AllocationOutcome:
    """The first allocation that satisfies all claims, as the scheduler would find it.

    `acceptable` excludes devices: is there *any* allocation without them?
    """
    attempt = _Attempt(claims, pools, match, profile, acceptable, budget)
    try:
        return within(budget.seconds, attempt.outcome)
    except Unfinished as error:
        return attempt.unfinished(error.reason)
    except TimeoutError:
        return attempt.unfinished(reasons.SearchTookTooLong(seconds=budget.seconds))


class _Attempt:
    """One call of `allocate`."""

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

    def outcome(self) -> AllocationOutcome:
        """Search, and say what the result means. Raises Unfinished."""
        claims, request_data, allocator = self._claims, self._request_data, self.allocator
        ordered = self._profile.ordered
        try:
            allocator.gather_candidates()
            self._validate_requests()
            if why := self._search():
                return self._nothing_fits(why)
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
            return self._nothing_found()
        if not ordered and (why := why_order_matters(request_data, allocator)):
            return self._undecided(why, bounded=not allocator.beyond)
        if why := _node_selector_problem(self.search.result):
            return self._error(why)
        return AllocationOutcome(AllocationStatus.FITS, self.search.result, steps=self.search.steps)

    def unfinished(self, why: Reason) -> AllocationOutcome:
        """The outcome if the search was ended by its budget."""
        return self._undecided(why, bounded=not self.allocator.beyond)

    def _validate_requests(self) -> None:
        """The checks that upstream makes claim by claim before it searches."""
        features = self._profile.features
        for claim, requests in zip(self._claims, self._request_data, strict=True):
            total = 0
            for request, alternatives in zip(claim.requests, requests, strict=True):
                check_gates(request, claim.name, features)
                for data in alternatives:
                    validate_request(data, features)
                    if data.alternative.mode == ALL:
                        _select_all(data, self.allocator, self._pools, self._profile)
                    pause()
                total = add_to_total(total, request, alternatives, claim.name, MAX_RESULTS)
            for unknown in unknown_constraints(claim):
                raise Aborted(unknown)

    def _search(self) -> Reason | None:
        """Search to the end. Returns a reason if it turns out meanwhile that it cannot succeed."""
        search, prune_after = self.search, self._budget.prune_after
        search.begin()
        while search.under_way:
            if search.steps > self._budget.steps:
                raise Unfinished(reasons.SearchTookTooLong(steps=search.steps))
            if prune_after is not None and search.in_vain >= prune_after:
                prune_after = None
                try:
                    if why := within(self._budget.seconds * PRUNING_SHARE, self._prune):
                        return why
                except TimeoutError:
                    pass  # the search itself may end sooner
            search.step()
            pause()
        search.end()
        return None

    def _prune(self) -> Reason | None:
        """Why the search cannot succeed. Otherwise it skips from now on what cannot succeed."""
        claims, request_data, allocator, profile = (
            self._claims,
            self._request_data,
            self.allocator,
            self._profile,
        )
        all_candidates = find_candidates(request_data, allocator)
        if all_candidates is None:
            return None
        if why := find_infeasible(claims, request_data, all_candidates, allocator, profile):
            return why
        if may_skip(claims, request_data, profile):
            self.search.classes = interchangeable(claims, all_candidates, allocator)
            look_ahead = LookAhead(
                find_competing_groups(claims, request_data, all_candidates, allocator, profile)
            )
            self.search.can_succeed = look_ahead.can_succeed
        return None

    def _nothing_found(self) -> AllocationOutcome:
        """The outcome if the search found nothing."""
        claims, request_data, allocator, profile = (
            self._claims,
            self._request_data,
            self.allocator,
            self._profile,
        )
        if profile.ordered:
            return self._nothing_fits(NOTHING)
        why = why_not_nothing(claims, request_data, allocator, profile)
        if not why:
            return self._nothing_fits(NOTHING)
        all_candidates = find_candidates(request_data, allocator)
        if all_candidates and (
            known := find_infeasible(claims, request_data, all_candidates, allocator, profile)
        ):
            return self._nothing_fits(known)
        return self._undecided(why)

    def _nothing_fits(self, why: Reason) -> AllocationOutcome:
        """The outcome if nothing fits. With an invalid pool, the scheduler reports an error of this
        node instead."""
        for pool in self._pools:
            if doubted := why_unclear(pool, self._profile):
                return self._undecided(doubted)
        for pool in self._pools:
            if pool.invalid:
                invalid = reasons.PoolInvalid(pool.ref, pool.invalid)
                return self._error(why, invalid, on_node=True)
        return AllocationOutcome(AllocationStatus.NONE, reasons=(why,), steps=self.search.steps)

    def _error(self, *why: Reason, on_node: bool = False) -> AllocationOutcome:
        return AllocationOutcome(
            AllocationStatus.ERROR, reasons=why, on_node=on_node, steps=self.search.steps
        )

    def _undecided(self, why: Reason, *, bounded: bool = False) -> AllocationOutcome:
        return AllocationOutcome(
            AllocationStatus.UNDECIDED, reasons=(why,), steps=self.search.steps, bounded=bounded
        )


def _node_selector_problem(taken: Sequence[DeviceResult]) -> reasons.NodeSelectorTooComplex | None:
    """Why upstream's `createNodeSelector` fails for the allocation; None if it does not."""
    pinned: set[int] = set()
    for one in taken:
        published = one.device.published
        if published.pins:
            pinned.add(one.claim)
        elif one.claim not in pinned and published.terms > 1:
            return reasons.NodeSelectorTooComplex(published.id, published.terms)
    return None


def _select_all(
    data: RequestData, allocator: DeviceAllocator, pools: Sequence[PoolView], profile: Profile
) -> None:
    """Mode All: find the devices that match. Every pool of the node has to be complete."""
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
    """Raises Aborted if a request needs a feature gate that is off."""
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
    """Raises Aborted or Unclear if no device can satisfy the request."""
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
    """Add the fewest devices that a request needs to those of the claim so far; raises Aborted."""
    fewest = min(data.count for data in alternatives)
    if fewest > limit - total:
        raise Aborted(reasons.ClaimTooLarge(claim, request.name, fewest, limit, total))
    return total + fewest


def unknown_constraints(claim: Claim) -> Iterator[Reason]:
    for number, constraint in enumerate(claim.constraints):
        if constraint.attribute is None:
            yield reasons.ConstraintInvalid(claim.name, number)


# allocateOne


class CallResult(IntEnum):
    """What a call of upstream's `allocateOne` returns."""

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
        """How many devices were rolled back because nothing was found with them."""
        self.classes: Sequence[int] | None = None
        """The class of each candidate, if known: if one of a class fails, so do the others."""
        self.can_succeed: Callable[[DeviceIndices], bool] | None = None
        """Checks before a call whether it can find anything."""
        self.result: tuple[DeviceResult, ...] | None = None
        self._waiting: list[_EndOfClaim | _Choice | _Device] = []
        self._came = CallResult.NONE

    def begin(self) -> None:
        self._came = self._enter(DeviceIndices(0, 0))

    @property
    def under_way(self) -> bool:
        return bool(self._waiting)

    def step(self) -> None:
        """Allocate one device or roll one back; raises Aborted or Unclear."""
        answer = self._waiting[-1].resume(self._came)
        if isinstance(answer, CallResult):
            self._waiting.pop()
            self._came = answer
        elif self.can_succeed is not None and not self.can_succeed(answer):
            self._came = CallResult.NONE
        else:
            self._came = self._enter(answer)

    def end(self) -> None:
        """Set `result` if all was allocated; raises Aborted."""
        if self._came is CallResult.TOO_MANY:
            raise Aborted(reasons.ResultsTooMany(MAX_RESULTS))
        if self._came is CallResult.ALL:
            self.result = self.allocator.results()

    def _enter(self, call: DeviceIndices) -> CallResult:
        """Make a call, and those that only return what the next call returns."""
        while True:
            self.steps += 1
            claim, request, chosen, nth, _ = call
            if claim >= len(self.request_data):
                return CallResult.ALL
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
                return CallResult.NONE
            if nth >= data.count:
                call = DeviceIndices(claim, request + 1)
                continue
            if data.count - nth > MAX_RESULTS - self.allocator.allocated_number(claim):
                return CallResult.TOO_MANY
            self._waiting.append(_Device(call, data, self))
            return CallResult.NONE  # as if a device had failed: `resume` then tries the first one


class _EndOfClaim:
    """Waits for the claims after this one. If one of them is too large, that is a mere failure."""

    def resume(self, came: CallResult) -> CallResult:
        return CallResult.NONE if came is CallResult.TOO_MANY else came


class _Choice:
    """Tries the alternatives of a list in order.

    If all of them need too many devices, no other choice before them can help.
    """

    def __init__(self, call: DeviceIndices, size: int) -> None:
        self._call = call
        self._size = size
        self._at = 0
        self._too_many = True

    def resume(self, came: CallResult) -> CallResult | DeviceIndices:
        if came is CallResult.ALL:
            return came
        if came is CallResult.NONE:
            self._too_many = False
        self._at += 1
        if self._at < self._size:
            return DeviceIndices(self._call.claim, self._call.request, self._at)
        return CallResult.TOO_MANY if self._too_many else CallResult.NONE


class _Device:
    """Allocates one device, and the next one whenever the calls after it fail.

    If they fail with one device, they fail with every device of its class: any allocation with the
    other device would also be one with the two exchanged.
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

    def resume(self, came: CallResult) -> CallResult | DeviceIndices:
        everything = self._data.everything
        if came is CallResult.ALL:
            return came
        if self._undo is not None:
            self._search.in_vain += 1
            self._allocator.roll_back(self._data, self._undo)
            if self._search.classes is not None and self._allocator.is_untouched(self._undo.at):
                self._failed.add(self._search.classes[self._undo.at])
            self._undo = None
            if came is CallResult.TOO_MANY or everything is not None:
                return came
        if everything is not None:
            self._undo = self._allocator.allocate(self._data, everything[self._call.nth], must=True)
            return self._next(0) if self._undo is not None else CallResult.NONE
        return self._allocate_next()

    def _allocate_next(self) -> CallResult | DeviceIndices:
        """Allocate the next device that can be."""
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
        return CallResult.NONE

    def _next(self, start: int) -> DeviceIndices:
        claim, request, alternative, nth, _ = self._call
        return DeviceIndices(claim, request, alternative or 0, nth + 1, start)


# Schedulers that visit slices in no fixed order


def why_order_matters(
    request_data: AllRequestData, allocator: DeviceAllocator
) -> SliceOrderMatters | None:
    """Why the scheduler may take other devices than those found; None if it cannot."""
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
    """Why the scheduler may find something, or end in an error, although nothing was found."""
    if why := why_maybe_error(claims, request_data, allocator):
        return why
    if not _depends_on_earlier_steps(claims, allocator, profile):
        return None
    return why_order_matters(request_data, allocator)


def why_maybe_error(
    claims: Sequence[Claim], request_data: AllRequestData, allocator: DeviceAllocator
) -> SliceOrderMatters | None:
    """Why a request for all devices may end in an error: whichever comes first, a device that a
    constraint forbids or one that is in use, decides whether it is an error or just a failure."""
    constrained = any(
        claim.constraints and any(p.everything for alternatives in requests for p in alternatives)
        for claim, requests in zip(claims, request_data, strict=True)
    )
    if not constrained or sum(_slices(allocator).values()) < 2:
        return None
    return SliceOrderMatters(SliceOrderCause.ALL_UNDER_CONSTRAINT)


def _slices(allocator: DeviceAllocator) -> Mapping[tuple[str, str], int]:
    """How many slices each pool has for this node."""
    return {(c.pool.driver, c.pool.name): c.pool.slices[0] for c in allocator.candidates}


def _depends_on_earlier_steps(
    claims: Sequence[Claim], allocator: DeviceAllocator, profile: Profile
) -> bool:
    """Whether defects make the result depend on what the search tried before."""
    quirks = profile.quirks
    if quirks.distinct_by_request and any(c.distinct for each in claims for c in each.constraints):
        return True
    keeps = quirks.undoes_in_part or quirks.counters_by_pool_name
    counts = profile.features.partitionable_devices and any(
        c.pool.counters for c in allocator.candidates
    )
    return keeps and counts
