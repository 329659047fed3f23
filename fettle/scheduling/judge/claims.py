"""What the DRA claims of a demand mean for a node: the devices they would get, and their worth.

Pure. `fettle.dra` predicts the devices; `acceptance` says whether the policy accepts them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from operator import attrgetter

import msgspec

from fettle.api.resource import DeviceTaint, DeviceToleration
from fettle.cluster import NodeView
from fettle.dra import (
    ALL,
    AMPLE,
    CURRENT,
    AllocationOutcome,
    AllocationStatus,
    Alternative,
    Budget,
    Claim,
    DeviceView,
    Match,
    NodeTarget,
    PoolView,
    Profile,
    allocate,
    are_tolerated,
    explain_shortfall,
    parse_node_selector,
    why_unclear,
    with_allocated,
)
from fettle.model import SOME_DRIVER, SOUND, UNKNOWN_SCORE, DeviceId, Health, State, reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause
from fettle.scheduling.demand import Bound
from fettle.scheduling.judge.acceptance import Acceptance, complaint, device_refusal
from fettle.scheduling.judge.parts import (
    UNDECIDED_VALUE,
    Choice,
    Part,
    leftover_devices,
    rejected_part,
)
from fettle.scheduling.judge.scores import value_of_devices

VANISHED = Health(UNKNOWN_SCORE, State.UNKNOWN)
"""The health of a device that a claim holds, but that is not published.

It may be dead, or its driver may be restarting.
"""


def is_usable(bound: Bound, node: NodeView) -> bool:
    """Whether an allocation can be used on the node."""
    if bound.nodes is None:
        return True
    return parse_node_selector(bound.nodes).matches(NodeTarget(node.name, node.labels))


def bound_part(bound: Bound, node: NodeView, acceptance: Acceptance) -> Part:
    """What a claim that is allocated already says: it pins the pod, so its devices are judged."""
    part = Part(frozenset(h.device.driver for h in bound.held))
    if not is_usable(bound, node):
        devices = tuple(held.device for held in bound.held)
        return rejected_part(reasons.ClaimOnOtherNodes(bound.name, devices), node)
    wanted = {held.device for held in bound.held}
    pools = {(id_.driver, id_.pool) for id_ in wanted}
    here = [
        device
        for pool in node.pools
        if (pool.driver, pool.name) in pools
        for device in (*pool.devices, *pool.withheld)
        if device.id in wanted
    ]
    if bound.awaits is not None:
        part.notes.append(bound.awaits)
    for gone in sorted(wanted - {device.id for device in here}):
        part.notes.append(reasons.ClaimDeviceNotPublished(bound.name, gone))
    published = {device.id: device for device in here}
    results = dict.fromkeys((h.device, h.tolerations, h.admin_access) for h in bound.held)
    given = [
        choice_of(bound.name, published[id_], tolerations, acceptance, admin_access=admin_access)
        if id_ in published
        else Choice(bound.name, id_, VANISHED, admin_access=admin_access)
        for id_, tolerations, admin_access in results
    ]
    return _judged(part, given, acceptance, allocated=True)


class Allocator(msgspec.Struct, frozen=True):
    """What an allocation needs besides the claims and the node.

    `driver` returns the only driver whose devices an expression can match; "" if it may be any.
    `explains`: spend time on why nothing can be allocated, and on what a claim would wait for after
    its allocation.
    """

    match: Match
    profile: Profile = CURRENT
    budget: Budget = AMPLE
    driver: Callable[[str], str] = lambda _: ""
    explains: bool = False

    def pools(self, claims: Sequence[Claim], node: NodeView) -> Sequence[PoolView]:
        """The node's pools, without unclear ones of drivers that no claim asks for."""
        # Nothing is taken from those, whatever they hold. But a request for all devices, or by a
        # selector that may match any driver, looks at every pool.
        if not any(why_unclear(pool, self.profile) for pool in node.pools):
            return node.pools
        alternatives = [each for claim in claims for each in claim.alternatives()]
        drivers = {
            self.driver(each.selectors[0]) if each.selectors else "" for each in alternatives
        }
        if "" in drivers or any(each.mode == ALL for each in alternatives):
            return node.pools
        return [
            p for p in node.pools if not (why_unclear(p, self.profile) and _is_beside(p, drivers))
        ]

    def predict(self, claims: Sequence[Claim], node: NodeView) -> AllocationOutcome:
        """What the scheduler's allocator would take here, with the defects of its version."""
        if node.malformed:
            malformed = reasons.NodeSelectorMalformed(node.malformed)
            return AllocationOutcome(AllocationStatus.ERROR, reasons=(malformed,))
        return allocate(
            claims, self.pools(claims, node), self.match, self.profile, budget=self.budget
        )

    def search(
        self, claims: Sequence[Claim], node: NodeView, acceptance: Acceptance
    ) -> AllocationOutcome:
        """Whether there is any allocation of acceptable devices."""

        def acceptable(device: DeviceView, wanted: Alternative) -> bool:
            choice = _choice_for("", device, wanted, acceptance)
            return choice.is_acceptable(acceptance) and not choice.met.unmet

        return allocate(
            claims,
            self.pools(claims, node),
            self.match,
            self.profile.correct,
            acceptable=acceptable,
            budget=self.budget,
        )


def _is_beside(pool: PoolView, drivers: Collection[str]) -> bool:
    """Whether a pool belongs to none of these drivers, and cannot end the scheduler's attempt."""
    # A device on which no expression can be evaluated ends it, whoever asks.
    aborts = any(device.published.abort for device in pool.devices)
    return pool.driver not in {*drivers, SOME_DRIVER} and not aborts


def claims_part(
    claims: Sequence[Claim],
    node: NodeView,
    acceptance: Acceptance,
    allocator: Allocator,
    in_flight: int,
) -> Part:
    """What the claims get on this node, after up to `in_flight` pods with the same needs."""
    predicted = allocator.predict(claims, node)
    if allocator.explains and _nothing(predicted):
        why = explain_shortfall(
            claims,
            allocator.pools(claims, node),
            allocator.match,
            allocator.profile,
            budget=allocator.budget,
        )
        predicted = msgspec.structs.replace(predicted, reasons=why)
    part = _predicted_part(claims, predicted, node, acceptance)
    if allocator.explains:
        part.notes += _awaited(claims, predicted)
    if part.refusals or part.required:
        feasible = allocator.search(claims, node, acceptance)
        if feasible.found is AllocationStatus.FITS:
            part.note_passed_over(taint_would_help=_would_taint_help(claims, allocator.profile))
        return part
    # Undecided, but no other devices can be allocated: refuse if too few of them are acceptable.
    if predicted.bounded and any(_unacceptable(claims, node, acceptance)):
        feasible = allocator.search(claims, node, acceptance)
        if feasible.found is AllocationStatus.NONE:
            return _refuse_any_choice(
                part, list(_unacceptable(claims, node, acceptance)), acceptance
            )
    worst: Part | None = None
    # Where nothing can be allocated, none of them is placed either.
    counts = part.value is not None and predicted.found is AllocationStatus.FITS
    in_flight = in_flight if counts else 0
    pools = node.pools
    for _ in range(in_flight):
        if predicted.found is not AllocationStatus.FITS:
            break
        node = msgspec.structs.replace(node, pools=with_allocated(node.pools, predicted.devices))
        predicted = allocator.predict(claims, node)
        if predicted.found is AllocationStatus.FITS:
            later = _predicted_part(claims, predicted, node, acceptance)
            if (value := _worth_later(later)) < (part.value or 0.0):
                part.value, worst = value, later
    if worst is None:
        part.leftover = leftover_devices(part, _counting(part.devices), pools)
    if in_flight:
        note = reasons.PodsInFlight(in_flight)
        if allocator.explains and worst is not None:
            note = _with_outcome(note, part, worst)
        part.notes.append(note)
    return part


def _would_taint_help(claims: Sequence[Claim], profile: Profile) -> bool:
    """Whether a DeviceTaintRule would make the scheduler take others than the refused devices."""
    taint = DeviceTaint(key="any", effect="NoSchedule")
    alternatives = [each for claim in claims for each in claim.alternatives()]
    anything = any(are_tolerated([taint], each.tolerations) for each in alternatives)
    return not anything and profile.features.device_taint_rules


def _unacceptable(
    claims: Sequence[Claim], node: NodeView, acceptance: Acceptance
) -> Iterator[Choice]:
    """The node's devices that the policy does not accept for some request."""
    alternatives = [each for claim in claims for each in claim.alternatives()]
    wanted = {(each.tolerations, each.admin_access): each for each in alternatives}
    for pool in node.pools:
        for device in pool.devices:
            for alternative in wanted.values():
                choice = _choice_for("", device, alternative, acceptance)
                if not choice.is_acceptable(acceptance) or choice.met.unmet:
                    yield choice
                    break


def has_unacceptable_device(
    claims: Sequence[Claim], node: NodeView, acceptance: Acceptance
) -> bool:
    """Whether the policy does not accept some device here for some request.

    The pod may not get it by this view, but it may by a newer one.
    """
    alternatives = {
        (each.tolerations, each.admin_access): each
        for claim in claims
        for each in claim.alternatives()
    }
    has_requirements = bool(acceptance.placement.requires)
    for pool in node.pools:
        for device in (*pool.devices, *pool.withheld):
            if device.health is SOUND and not has_requirements:
                continue
            for alternative in alternatives.values():
                choice = _choice_for("", device, alternative, acceptance)
                if not choice.is_acceptable(acceptance) or choice.met.unmet:
                    return True
            pause()
    return False


def _refuse_any_choice(part: Part, unacceptable: Sequence[Choice], acceptance: Acceptance) -> Part:
    """Refuse: it is undecided which devices the pod gets, and too few acceptable ones are here."""
    refused = [choice for choice in unacceptable if not choice.is_acceptable(acceptance)]
    part.refusals, part.overruled, part.required = [], [], []
    if refused:
        placement = acceptance.placement
        worst = min(refused, key=lambda choice: choice.health.proven)
        left = acceptance.refuses_by(worst.health, worst.device.driver)
        found = complaint(left, placement)
        part.refusals.append(
            reasons.TooFewAcceptableDevices(worst.device, found, left, placement.min_score)
        )
    else:
        first = unacceptable[0]
        part.required.append(
            reasons.TooFewAcceptableDevices(first.device, requirement=first.met.unmet[0])
        )
    return part


def _with_outcome(note: reasons.PodsInFlight, now: Part, later: Part) -> reasons.PodsInFlight:
    """The note, with what the pod would get once the pods in flight have their devices."""
    if refused := later.refusals or later.required:
        return msgspec.structs.replace(note, then=refused[0])
    best = max(choice.health.score for choice in _counting(now.devices))
    scores = {choice.device: choice.health.score for choice in _counting(later.devices)}
    worse = [reasons.DeviceScore(device, score) for device, score in scores.items() if score < best]
    return msgspec.structs.replace(note, devices=tuple(sorted(worse, key=attrgetter("score"))))


def _awaited(
    claims: Sequence[Claim], predicted: AllocationOutcome
) -> Iterator[reasons.BindingWouldBeAwaited]:
    """The binding conditions that the pod waits for once it has these devices."""
    devices: dict[tuple[str, tuple[str, ...]], dict[DeviceId, None]] = {}
    for taken in predicted.devices:
        if conditions := taken.device.device.binding_conditions:
            devices.setdefault((claims[taken.claim].name, conditions), {})[taken.device.id] = None
    for (name, conditions), found in devices.items():
        yield reasons.BindingWouldBeAwaited(name, conditions, tuple(found))


def _worth_later(later: Part) -> float:
    """What a node is worth once pods in flight are placed there; nothing if it would be refused."""
    # They may be placed elsewhere. So this lowers a score, and refuses nothing.
    refused = later.refusals or later.required
    return 0.0 if refused or later.value is None else later.value


def _predicted_part(
    claims: Sequence[Claim], predicted: AllocationOutcome, node: NodeView, acceptance: Acceptance
) -> Part:
    part = Part()
    if predicted.found is not AllocationStatus.FITS:
        open_ = predicted.found is AllocationStatus.UNDECIDED
        (part.undecided if open_ else part.rejected).append(_why_not(predicted))
        part.value = UNDECIDED_VALUE * node.health.score
        return part
    alternatives = [{each.name: each for each in claim.alternatives()} for claim in claims]
    given = [
        _choice_for(
            f"{claims[t.claim].name}/{t.request}",
            t.device,
            alternatives[t.claim][t.request],
            acceptance,
        )
        for t in predicted.devices
    ]
    part.pools = frozenset(choice.device.driver for choice in given)
    return _judged(part, given, acceptance)


def _choice_for(
    request: str, device: DeviceView, wanted: Alternative, acceptance: Acceptance
) -> Choice:
    admin_access = bool(wanted.admin_access)
    return choice_of(request, device, wanted.tolerations, acceptance, admin_access=admin_access)


def choice_of(
    request: str,
    device: DeviceView,
    tolerations: Sequence[DeviceToleration],
    acceptance: Acceptance,
    *,
    admin_access: bool,
) -> Choice:
    """The choice of a device for a request with these tolerations."""
    health, tolerated = acceptance.tolerating(device.health, tolerations)
    met = acceptance.requirements.of_device(device)
    return Choice(request, device.id, health, tolerated, met, admin_access)


def _counting(devices: Sequence[Choice]) -> list[Choice]:
    """The devices whose health counts."""
    return [choice for choice in devices if not choice.admin_access]


def _nothing(predicted: AllocationOutcome) -> bool:
    return predicted.found is AllocationStatus.NONE or predicted.on_node


def _why_not(predicted: AllocationOutcome) -> Reason:
    if _nothing(predicted):
        return reasons.NoAllocation(predicted.reasons)
    (cause,) = predicted.reasons
    return reasons.SchedulingError(cause) if predicted.found is AllocationStatus.ERROR else cause


def _judged(
    part: Part, devices: list[Choice], acceptance: Acceptance, *, allocated: bool = False
) -> Part:
    part.devices = devices
    for choice in devices:
        unmet, undecided = choice.met
        request, device = choice.request, choice.device
        part.required += [
            reasons.DeviceRequirementNotMet(request, device, what, allocated) for what in unmet
        ]
        part.undecided += [
            reasons.DeviceRequirementUndecided(device, what, why) for what, why in undecided
        ]
        if choice.admin_access:
            continue
        placement = acceptance.placement
        refusal = partial(device_refusal, request, device, placement=placement, allocated=allocated)
        if why := refusal(choice.health):
            still = refusal(acceptance.refuses_by(choice.health, device.driver))
            if still is not None:
                part.refusals.append(still)
            else:
                part.overruled.append(why)
    if scores := [choice.health.score for choice in _counting(devices)]:
        part.value = value_of_devices(scores, acceptance.placement.aggregate)
    return part
