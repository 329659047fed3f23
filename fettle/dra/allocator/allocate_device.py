"""Allocates one device to a request, or gives it back: all checks, and the state behind them.

A port of `requestData`, `isSelectable`, `allocateDevice` and `rollbackDevice` of
k8s.io/dynamic-resource-allocation/structured (incubating; experimental where an alpha gate is on).
Selectors are looked up, not evaluated.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from fettle.api import core
from fettle.api.resource import DeviceAttribute, DeviceTaint, DeviceToleration
from fettle.cel import Outcome, OutcomeKind
from fettle.dra.allocator.constraint import (
    ConstraintTracker,
    MatchAttribute,
    new_constraint_tracker,
)
from fettle.dra.allocator.consumable_capacity import Used, consumed_capacities, fits_capacities
from fettle.dra.allocator.counters import Counters
from fettle.dra.allocator.features import Profile, why_unclear
from fettle.dra.allocator.results import Aborted, DeviceResult, Unclear
from fettle.dra.claims import Alternative, Claim, Request
from fettle.dra.pools import DeviceView, PoolView
from fettle.dra.quantities import Amount
from fettle.model import TaintRef, reasons
from fettle.model.reasons import Unmodelled
from fettle.pacing import pause

# requestData


class RequestData:
    """One alternative of a request during a search, as upstream's `requestData`.

    `path` names it for people: claim/request or claim/request/subrequest. `everything` are the
    candidates that mode All needs, None in other modes. `matches` caches which candidates its
    selectors match; alternatives with the same selectors share it.
    """

    __slots__ = (
        "admin",
        "alternative",
        "capacity",
        "claim",
        "count",
        "everything",
        "matches",
        "path",
        "request",
    )

    def __init__(
        self,
        claim: int,
        name: str,
        request: Request,
        alternative: Alternative,
        matches: dict[int, bool],
    ) -> None:
        self.claim = claim
        self.path = f"{name}/{alternative.name}"
        self.request = request
        self.alternative = alternative
        self.count = alternative.count
        self.admin = bool(alternative.admin_access)
        self.capacity: dict[str, Amount] = dict(alternative.capacity or ())
        self.everything: list[int] | None = None
        self.matches = matches

    @property
    def name(self) -> str:
        return self.alternative.name


AllRequestData = Sequence[Sequence[Sequence[RequestData]]]
"""By claim, request, alternative."""


def request_data_of(claims: Sequence[Claim]) -> AllRequestData:
    """The data of every alternative."""
    matches: defaultdict[tuple[str, ...], dict[int, bool]] = defaultdict(dict)
    return [
        [
            [RequestData(c, claim.name, r, a, matches[a.selectors]) for a in r.alternatives]
            for r in claim.requests
        ]
        for c, claim in enumerate(claims)
    ]


def all_alternatives(request_data: AllRequestData) -> Iterator[RequestData]:
    return (data for requests in request_data for alternatives in requests for data in alternatives)


# Taints


def are_tolerated(taints: Sequence[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether all taints that prevent allocation are tolerated; unknown effects do not."""
    return all(
        taint.effect not in ("NoSchedule", "NoExecute")
        or any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def tolerates(
    toleration: DeviceToleration | core.Toleration, taint: DeviceTaint | TaintRef | core.Taint
) -> bool:
    """As `ToleratesTaint` of k8s.io/dynamic-resource-allocation/resourceclaim does; taints of
    nodes are tolerated alike."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


# isSelectable, allocateDevice and rollbackDevice

Match = Callable[[str, DeviceView], Outcome]
"""(expression, device) → outcome of the selector."""

Acceptable = Callable[[DeviceView, Alternative], bool]
"""Whether an alternative may get the device. Must not depend on its name and count."""

LISTED = 16
"""Candidates listed between two pauses."""


class CandidateDevice(NamedTuple):
    pool: PoolView
    device: DeviceView


class DeviceRollbackState(NamedTuple):
    """What is needed to roll a device back.

    `consumed` is None for a device that is not shared. `shared_before`: this search had allocated
    another share of it already.
    """

    at: int
    counted: bool
    consumed: dict[str, int] | None = None
    shared_before: bool = False


class DeviceAllocator:
    """Checks and allocates devices, and knows what is allocated in one search.

    `pools` are the usable ones, up to the first whose content is unclear; `beyond` is why it is, if
    there is one. `candidates` are their devices, empty until they are gathered. `shareable` are
    candidates that several requests may share. `acceptable` excludes devices like a taint that no
    request tolerates.
    """

    def __init__(
        self,
        claims: Sequence[Claim],
        pools: Sequence[PoolView],
        match: Match,
        profile: Profile,
        acceptable: Acceptable | None = None,
    ) -> None:
        clear = tuple(takewhile(lambda pool: not why_unclear(pool, profile), pools))
        self.pools = [pool for pool in clear if not pool.incomplete and not pool.invalid]
        self.candidates: list[CandidateDevice] = []
        self.shareable: Collection[int] = ()
        self.beyond = why_unclear(pools[len(clear)], profile) if len(clear) < len(pools) else None
        self._match = match
        self._features = profile.features
        self._quirks = profile.quirks
        self._rules = profile.rules
        self._acceptable = acceptable
        self._constraints: list[list[ConstraintTracker]] = [
            [new_constraint_tracker(constraint, profile) for constraint in claim.constraints]
            for claim in claims
        ]
        self._bound: dict[RequestData, Sequence[ConstraintTracker]] = {}
        self._counters = Counters(profile.quirks)
        self._holders: list[int] = []  # bit i: held for claim i
        self._shares: dict[int, dict[str, int]] = {}
        self._taken: list[list[DeviceResult]] = [[] for _ in claims]

    def gather_candidates(self) -> None:
        """To be called first."""
        shareable: list[int] = []
        for pool in self.pools:
            for device in pool.devices:
                if self._features.consumable_capacity and device.published.multiple:
                    shareable.append(len(self.candidates))
                self.candidates.append(CandidateDevice(pool, device))
                if device.published.consumes:
                    self._counters.note(pool, device)
                    pause()
                elif len(self.candidates) % LISTED == 0:  # a pause takes longer than one of these
                    pause()
        self._holders = [0] * len(self.candidates)
        self.shareable = frozenset(shareable)

    def check_for_more(self) -> None:
        """To be called when no candidate is left: raises Unclear if there may be others."""
        if self.beyond:
            raise Unclear(self.beyond)

    def allocated_number(self, claim: int) -> int:
        """How many devices a claim has so far."""
        return len(self._taken[claim])

    def common_value(self, claim: int, constraint: int) -> DeviceAttribute | None:
        """The value that a matchAttribute requires by now; None if it may be any."""
        tracked = self._constraints[claim][constraint]
        return tracked.agreed if isinstance(tracked, MatchAttribute) else None

    def results(self) -> tuple[DeviceResult, ...]:
        return tuple(taken for claim in self._taken for taken in claim)

    # Checks

    def is_usable(self, data: RequestData, at: int) -> bool:
        """Whether a device passes the checks before `allocate`, the cheapest first."""
        return (
            not self.is_ruled_out(data, at)
            and self.is_selectable(data, at)
            and self._fits(data, at)
        )

    def is_ruled_out(self, data: RequestData, at: int) -> bool:
        """Whether a device is known to be unusable, without evaluating anything."""
        return data.matches.get(at) is False or self._in_use(data, at)

    def is_untouched(self, at: int) -> bool:
        """Whether this search has allocated nothing of a candidate."""
        return self._holders[at] == 0 and at not in self._shares

    def _in_use(self, data: RequestData, at: int) -> bool:
        if data.admin:
            return bool(self._holders[at] >> data.claim & 1)
        return self.candidates[at].device.allocated or self._holders[at] != 0

    def is_selectable(self, data: RequestData, at: int) -> bool:
        """Whether the selectors match and the device is for this node. Cached."""
        matches = data.matches.get(at)
        if matches is None:
            matches = data.matches[at] = self._matches_selectors(data, self.candidates[at].device)
        return matches

    def _matches_selectors(self, data: RequestData, device: DeviceView) -> bool:
        published = device.published
        if published.device.binding_conditions and not self._features.device_binding_and_status:
            return False
        for expression in data.alternative.selectors:
            if published.abort:
                raise Aborted(reasons.AttributesInvalid(data.path, published.id, published.abort))
            outcome = self._match(expression, device)
            if outcome.kind is OutcomeKind.MATCH:
                continue
            if outcome.kind is OutcomeKind.NO_MATCH:
                return False
            why = outcome.reason or str(outcome.kind)
            if outcome.undecided:
                raise Unclear(reasons.SelectorUndecided(data.path, published.id, why))
            raise Aborted(reasons.SelectorFailed(data.path, published.id, why))
        if device.misplaced:
            raise Aborted(reasons.DeviceNodesInvalid(published.id, device.misplaced))
        if device.here and published.multiple and self._rules.shares_repeat:
            raise Unclear(
                reasons.NotModelled(Unmodelled.SHARES_BEFORE_1_36, data.path, published.id)
            )
        return device.here

    def allocatable(self, data: RequestData) -> list[int]:
        """The candidates that the request could get if no other request existed.

        Raises what `allocate` raises.
        """
        able: list[int] = []
        for at, (pool, device) in enumerate(self.candidates):
            if (
                (data.admin or not device.allocated)
                and self.is_selectable(data, at)
                and self._fits_beside(data, device, device.consumed, {})
                and not self._forbidden(data, device)
                and self._counters.suffice(pool, device)
            ):
                able.append(at)
            pause()
        self.check_for_more()
        return able

    def fits_if_unused(self, data: RequestData, at: int) -> bool:
        """Whether a device's capacities suffice if nobody else uses them."""
        device = self.candidates[at].device
        used = device.consumed if self._quirks.all_drops_short else {}
        return self._fits_beside(data, device, used, {})

    def _fits(self, data: RequestData, at: int) -> bool:
        device = self.candidates[at].device
        return self._fits_beside(data, device, device.consumed, self._shares.get(at) or {})

    def _fits_beside(
        self,
        data: RequestData,
        device: DeviceView,
        used: Used,
        taking: Used,
    ) -> bool:
        published = device.published
        if not self._features.consumable_capacity:
            return True
        if published.plain and not data.capacity and not used and not taking:
            return True
        if published.unclear:
            raise Unclear(reasons.DeviceUnclear(published.id, published.unclear))
        fractional = self._features.fractional_capacity_range
        try:
            return fits_capacities(
                data.capacity, published.capacities, used, taking, fractional=fractional
            )
        except Aborted as error:
            if self._quirks.amounts_unchecked:
                ignored = reasons.CapacityCheckIgnored(published.id, error.reason)
                raise Unclear(ignored) from error
            raise

    # Allocating and rolling back

    def allocate(
        self, data: RequestData, at: int, *, must: bool = False
    ) -> DeviceRollbackState | None:
        """Allocate a selectable device; None, and nothing is changed, if that is not possible.

        `must`: the request needs this very device, so a constraint that forbids it is an error.
        """
        pool, device = self.candidates[at]
        multiple = self._features.consumable_capacity and device.published.multiple
        if not (multiple and data.admin) and self._in_use(data, at):
            return None
        if not self._operable(device):
            return None
        if must and self._quirks.all_strays and data.alternative != data.request.alternatives[0]:
            raise Unclear(reasons.NotModelled(Unmodelled.ALL_ALTERNATIVE_BEFORE_1_36, data.path))
        counts = bool(device.published.device.consumes_counters)
        if counts and not self._features.partitionable_devices:
            return None
        if multiple and (self._is_shared(device) or at in self._shares):
            counts = False  # its first share has consumed them
        if counts and must and self._quirks.all_crashes:
            raise Aborted(reasons.SchedulerCrashes(data.path, device.id))
        if counts and not self._reserve(pool, device):
            return None
        undo = DeviceRollbackState(at, counts)
        if self._forbidden(data, device):
            self._release(undo)
            return None
        if not self._constrain(data, device):
            self._release(undo)
            if must:
                raise Aborted(reasons.ConstraintForbidsDevice(data.path, device.id))
            return None
        return self._hold(data, undo, multiple=multiple)

    def _is_shared(self, device: DeviceView) -> bool:
        return bool(device.consumed) if self._quirks.empty_shares_unseen else device.shares > 0

    def _operable(self, device: DeviceView) -> bool:
        """Whether the device's slice may skip node operations (an alpha feature of 1.37)."""
        features = self._features
        if not device.published.skips:
            return True
        if features.optional_node_operations:
            raise Unclear(
                reasons.NotModelled(Unmodelled.OPTIONAL_NODE_OPERATIONS, device=device.id)
            )
        return not (
            features.list_type_attributes
            or features.compatibility_groups
            or features.derived_attributes
        )

    def _reserve(self, pool: PoolView, device: DeviceView) -> bool:
        if self._features.compatibility_groups:
            raise Unclear(reasons.NotModelled(Unmodelled.COMPATIBILITY_GROUPS, device=device.id))
        if device.published.unclear:
            raise Unclear(reasons.DeviceUnclear(device.id, device.published.unclear))
        return self._counters.reserve(pool, device)

    def _forbidden(self, data: RequestData, device: DeviceView) -> bool:
        taints = device.taints if self._features.device_taints else ()
        if taints and not self._features.device_taint_rules:
            taints = taints[: len(device.device.taints or ())]  # the slice's own
        if taints and not are_tolerated(taints, data.alternative.tolerations):
            return True
        return self._acceptable is not None and not self._acceptable(device, data.alternative)

    def _constrain(self, data: RequestData, device: DeviceView) -> bool:
        constraints = self._concerning(data)
        for number, constraint in enumerate(constraints):
            if not constraint.add(data.request, device):
                for added in reversed(constraints[:number]):
                    added.remove(data.request)
                return False
        return True

    def _concerning(self, data: RequestData) -> Sequence[ConstraintTracker]:
        """The constraints that concern a request."""
        found = self._bound.get(data)
        if found is None:
            found = self._bound[data] = [
                constraint
                for constraint in self._constraints[data.claim]
                if constraint.concerns(data.request, data.alternative)
            ]
        return found

    def _hold(
        self, data: RequestData, undo: DeviceRollbackState, *, multiple: bool
    ) -> DeviceRollbackState | None:
        """Check the capacity, and write the allocation down."""
        at, device = undo.at, self.candidates[undo.at].device
        if not multiple:
            self._holders[at] |= 1 << data.claim
        if not self._fits(data, at):
            if self._quirks.undoes_in_part:
                return None
            if not multiple:
                self._holders[at] &= ~(1 << data.claim)
            self._unconstrain(data)
            self._release(undo)
            return None
        consumed = None
        if multiple:
            fractional = self._features.fractional_capacity_range
            amounts = consumed_capacities(
                data.capacity, device.published.capacities, fractional=fractional
            )
            consumed = {name: amount.nano for name, amount in amounts.items()}
            undo = undo._replace(consumed=consumed, shared_before=at in self._shares)
            share = self._shares.setdefault(at, {})
            for name, value in consumed.items():
                share[name] = share.get(name, 0) + value
        self._taken[data.claim].append(
            DeviceResult(
                data.claim,
                data.name,
                device,
                data.admin,
                None if consumed is None else tuple(consumed.items()),
            )
        )
        return undo

    def roll_back(self, data: RequestData, undo: DeviceRollbackState) -> None:
        """Undo an `allocate`, the last one first."""
        self._taken[data.claim].pop()
        if undo.consumed is None:
            self._holders[undo.at] &= ~(1 << data.claim)
        else:
            self._unshare(undo.at, undo.consumed, others=undo.shared_before)
        self._unconstrain(data)
        leaks = self._quirks.undoes_in_part and undo.consumed is not None
        if undo.counted and not leaks:
            self._counters.release(*self.candidates[undo.at])

    def _unshare(self, at: int, consumed: Mapping[str, int], *, others: bool) -> None:
        """Release a share. `others`: this search has allocated other shares of the device."""
        share = self._shares.get(at)
        if self._quirks.undoes_in_part:
            others = not consumed
        if share is None:
            return
        for name, value in consumed.items():
            share[name] -= value
        if not others and not any(share.values()):
            del self._shares[at]

    def _unconstrain(self, data: RequestData) -> None:
        for constraint in reversed(self._concerning(data)):
            constraint.remove(data.request)

    def _release(self, undo: DeviceRollbackState) -> None:
        """Release counters after a later check failed."""
        if undo.counted and not self._quirks.undoes_in_part:
            self._counters.release(*self.candidates[undo.at])
