"""Reasons in words for people: the one place where a `Reason` becomes a sentence. Pure.

`text` is what `explain` prints. `plain_reason` is what JSON has: the code, the text and the fields.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import singledispatch
from typing import Any

import msgspec

from fettle.model import (
    DEVICE_FAILED,
    DeviceId,
    Health,
    Kept,
    Mode,
    State,
    proven_evidence,
    reasons,
    utc,
)
from fettle.model.reasons import Complaint, Obstacles, Reason

MAX_NAMED = 3
"""How many devices, pods or groups a sentence names."""
LOWERED = "lowered by what tenants could cause"
"""Follows a state and its score, where the score is worse than what the state goes by."""
SUSPECTED = "by what tenants could cause, which refuses nobody"
"""Follows the state that a score has, where refusals go by a better one."""
ENDS_IN_AN_ERROR = "the scheduler's attempt for this pod would end in an error"
_PASSED_OVER = "acceptable devices exist here, but the scheduler would not take them"
_NO_ORDER = "this scheduler visits slices in no fixed order"


@singledispatch
def text(reason: Reason) -> str:
    """The reason as a sentence, or a part of one."""
    raise TypeError(f"no words for {reason.code}")


def why_withheld(reason: Reason) -> str:
    """Why devices of a pool cannot be allocated now, for a line that names the pool anyway."""
    match reason:
        case reasons.PoolNotWhole():
            return f"pool {reason.flaw}"
        case reasons.PoolBetweenGenerations():
            return "pool between generations: its driver is replacing its slices"
        case reasons.SchedulingError():
            return f"the scheduler's attempts here end in an error: {text(reason.cause)}"
    return text(reason)


def texts(found: Iterable[Reason]) -> list[str]:
    """Each reason as a sentence."""
    return [text(reason) for reason in found]


def plain_reason(reason: Reason) -> dict[str, Any]:
    """The reason for JSON: `code`, `text`, and its fields in camelCase, reasons within it too."""
    fields = {_camel(name): _plain(getattr(reason, name)) for name in reason.__struct_fields__}
    return {"code": reason.code, "text": text(reason), **fields}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _plain(value: object) -> object:
    match value:
        case Reason():
            return plain_reason(value)
        case Health():
            proven = proven_evidence(value.evidence)
            evidence = {"evidence": proven[0].evidence.text} if proven else {}
            return {"state": str(value.state), "proven": round(value.proven, 4), **evidence}
        case DeviceId():
            return str(value)
        case StrEnum():
            return str(value)
        case msgspec.Struct():
            names = value.__struct_fields__
            return {_camel(name): _plain(getattr(value, name)) for name in names}
        case tuple():
            return [_plain(each) for each in value]
    return value


def describe_kept(value: Kept) -> str:
    """Why a state is worse than its score alone would make it."""
    if value.restless:
        return "held because its fault kept coming back"
    if value.until:
        return "held by the minimum dwell"
    again = " again" if value.then is State.HEALTHY else ""
    return f"{value.then}{again} from {value.score:.2f}"


def describe_state(health: Health, what: str = "") -> str:
    """A state (or `what` is wrong) with the score that refusals go by and the heaviest evidence."""
    what = what or str(health.state)
    proven = proven_evidence(health.evidence)
    top = f": {proven[0].evidence.text}" if proven else ""
    why = (
        f"; {describe_kept(health.kept)}"
        if health.kept is not None and what == health.state
        else ""
    )
    return f"{what} ({health.proven:.2f}{why}){top}"


def _not_accepted(complaint: Complaint | None, health: Health, min_score: float) -> str:
    if complaint is Complaint.UNKNOWN:
        return "Unknown"
    too_low = complaint is Complaint.SCORE_TOO_LOW
    return describe_state(health, f"score below {min_score:g}" if too_low else "")


def _listed(names: Sequence[object]) -> str:
    more = ", …" if len(names) > MAX_NAMED else ""
    return ", ".join(map(str, names[:MAX_NAMED])) + more


def _counted(obstacles: Iterable[Obstacles], *, more: bool = False) -> str:
    return ", ".join(
        f"{each.devices} {'more ' if more else ''}{text(each.obstacle)}" for each in obstacles
    )


# What a policy does not accept


@text.register
def _(reason: reasons.NodeHeld | reasons.NodeUnhealthy | reasons.NodeDegraded) -> str:
    return f"node is {describe_state(reason.health)}"


@text.register
def _(reason: reasons.KubeletRefusedWorkload) -> str:
    return f"its kubelet refused a pod of {reason.workload} {_avoided(reason)}"


@text.register
def _(reason: reasons.PodsDoNotStart) -> str:
    return f"a pod of {reason.workload} did not start there {_avoided(reason)}"


def _avoided(reason: reasons.KubeletRefusedWorkload | reasons.PodsDoNotStart) -> str:
    at, until = (f"{utc(t):%H:%M}" for t in (reason.at, reason.until))
    return (
        f"at {at} UTC: until {until} UTC the pods of {reason.workload} go elsewhere, while another "
        f"node is left"
    )


@text.register
def _(reason: reasons.RanHere) -> str:
    return f"preferred: {reason.pod} ran here, which this pod comes back for"


@text.register
def _(reason: reasons.FailedHere) -> str:
    at = f"{utc(reason.at):%H:%M}"
    return f"avoided: {reason.pod}, which this pod comes back for, failed here at {at} UTC"


@text.register
def _(reason: reasons.SlowsGang) -> str:
    return f"avoided: it would be the slowest of its gang here; so far that is {_slowest(reason)}"


@text.register
def _(reason: reasons.SlowsRestOfGang) -> str:
    return (
        "avoided: no other member of its gang is placed yet, and as many nodes as are needed "
        f"({reason.members}) are better"
    )


@text.register
def _(reason: reasons.GangIsSlow) -> str:
    return f"its gang gains little from so good a node: it waits for {_slowest(reason)}"


def _slowest(reason: reasons.SlowsGang | reasons.GangIsSlow) -> str:
    return f"{reason.pod} on {reason.node} with a score of {reason.score:.2g}"


@text.register
def _(_reason: reasons.NodeUnknown) -> str:
    return "node is Unknown"


@text.register
def _(reason: reasons.NodeScoreTooLow) -> str:
    return f"node is {describe_state(reason.health, f'score below {reason.min_score:g}')}"


def _device(reason: reasons.DeviceRefusal | reasons.DeviceRequirementNotMet) -> str:
    how = "is allocated" if reason.allocated else "would get"
    return f"{reason.request} {how} {reason.device}"


def _passed_over(reason: reasons.DeviceRefusal) -> str:
    if not reason.passed_over:
        return ""
    rule = (
        ": a DeviceTaintRule with effect NoSchedule keeps it off those that are refused "
        "(the setting deviceTaints lets Fettle write it)"
    )
    return f"; {_PASSED_OVER}{rule if reason.taint_would_help else ''}"


@text.register
def _(reason: reasons.DeviceHeld | reasons.DeviceUnhealthy | reasons.DeviceDegraded) -> str:
    return f"{_device(reason)}, which is {describe_state(reason.health)}{_passed_over(reason)}"


@text.register
def _(reason: reasons.DeviceUnknown) -> str:
    return f"{_device(reason)}, which is Unknown{_passed_over(reason)}"


@text.register
def _(reason: reasons.DeviceScoreTooLow) -> str:
    too_low = describe_state(reason.health, f"score below {reason.min_score:g}")
    return f"{_device(reason)}, which is {too_low}{_passed_over(reason)}"


@text.register
def _(reason: reasons.NodeRequirementNotMet) -> str:
    return f"node does not meet the policy: {reason.requirement}"


@text.register
def _(reason: reasons.DeviceRequirementNotMet) -> str:
    passed_over = f"; {_PASSED_OVER}" if reason.passed_over else ""
    unmet = f"which does not meet the policy: {reason.requirement}"
    return f"{_device(reason)}, {unmet}{passed_over}"


@text.register
def _(reason: reasons.NodeRequirementUndecided) -> str:
    why = f": {reason.detail}" if reason.detail else ""
    return f"what the policy requires of the node: {reason.requirement}{why}"


@text.register
def _(reason: reasons.DeviceRequirementUndecided) -> str:
    return f"whether {reason.device} meets the policy: {reason.requirement}: {reason.detail}"


@text.register
def _(reason: reasons.TooFewAcceptableDevices) -> str:
    undecided = (
        "which devices it would get is not decided, and there are not enough acceptable ones"
    )
    if reason.health is not None:
        worst = _not_accepted(reason.complaint, reason.health, reason.min_score)
        return f"{undecided}: {reason.device} is {worst}"
    return f"{undecided}: {reason.device} does not meet the policy: {reason.requirement}"


@text.register
def _(reason: reasons.TooFewAcceptableUnits) -> str:
    return (
        f"{reason.resource}: {reason.acceptable} acceptable of {reason.drawn}, "
        f"{reason.requested} requested; "
        f"the worst is {_not_accepted(reason.complaint, reason.health, reason.min_score)}"
    )


@text.register
def _(reason: reasons.RiskTooHigh) -> str:
    return (
        f"{reason.resource}: {reason.acceptable} acceptable of {reason.drawn} that the device "
        f"plugin may give, {reason.requested} requested: a bad one at {100 * reason.risk:.3g} %, "
        f"more than {100 * reason.max_risk:.3g} %; the worst is {describe_state(reason.health)}"
    )


@text.register
def _(reason: reasons.UnitsWorthTooLittle) -> str:
    worst = describe_state(reason.health)
    return (
        f"{reason.resource}: {reason.requested} drawn from {reason.drawn} are worth "
        f"{reason.value:.2f}, less than {reason.min_score:g}; the worst is {worst}"
    )


@text.register
def _(reason: reasons.UnitNotAcceptable) -> str:
    holds = "holds" if reason.certain else "may hold"
    what = _not_accepted(reason.complaint, reason.health, reason.min_score)
    return f"{holds} {reason.resource} {reason.unit}, which is {what}"


# Units of device plugins


@text.register
def _(reason: reasons.NoUnits) -> str:
    return (
        f"this node has no {reason.resource} to allocate: no device plugin offers it here, and no "
        "DeviceClass stands for it"
    )


@text.register
def _(reason: reasons.NotEnoughUnits) -> str:
    withdrawn = reason.capacity - reason.allocatable
    why = [f"{withdrawn} of {reason.capacity} withdrawn by the device plugin"] if withdrawn else []
    why += [f"most nodes of its kind have {reason.fewer} more"] if reason.fewer else []
    if not reason.capacity:
        why.insert(0, "its device plugin offers none")
    return (
        f"{reason.resource}: {reason.allocatable} allocatable, {reason.requested} requested, "
        f"which the scheduler's own check refuses{': ' if why else ''}{', '.join(why)}"
    )


@text.register
def _(reason: reasons.UnitsTaken) -> str:
    taken = f"{reason.taken} of {reason.allocatable} are taken by pods"
    if reason.taken > reason.allocatable:
        taken = f"pods hold {reason.taken}, more than the {reason.allocatable} that it has now"
    return (
        f"{reason.resource}: {taken}, {reason.requested} requested, which the scheduler's own "
        "check refuses"
    )


@text.register
def _(reason: reasons.UnitsWithdrawn) -> str:
    units = ", ".join(reason.units)
    if not reason.counted:
        offers = f"no longer offered by the device plugin, which has {reason.capacity}"
        return f"{reason.resource}: {offers}: {units}"
    among = ":" if reason.known == reason.withdrawn else ", among them"
    count = f"{reason.withdrawn} of {reason.capacity} withdrawn by the device plugin"
    return f"{reason.resource}: {count}{among} {units}"


@text.register
def _(reason: reasons.WithdrawnUnitHeld) -> str:
    pods = ", ".join(reason.pods[:MAX_NAMED])
    who = pods if reason.certain else f"one of {pods}"
    return (
        f"{reason.resource}: the withdrawn {reason.unit} is still held by {who}, and the scheduler "
        "counts it among those that are left: a sound one is free for a pod once that ends"
    )


@text.register
def _(reason: reasons.NodeNotWhole) -> str:
    bad = [f"{one.device} is {one.why}" for one in reason.devices[:MAX_NAMED]]
    more = len(reason.devices) - len(bad)
    bad += [f"{more} more"] if more else []
    bad += [f"{reason.unnamed} withdrawn"] if reason.unnamed else []
    needs = f"its other devices cannot serve pods that need all of its {reason.of}"
    return f"preferred: {needs}: {', '.join(bad)}"


@text.register
def _(reason: reasons.OtherKubeletRefusals) -> str:
    return f"kubelet refusals for {', '.join(reason.domains)} do not count here"


# The pod's claims


@text.register
def _(reason: reasons.ClaimNotFound) -> str:
    claim, template = reason.resource_claim, f"ResourceClaimTemplate {reason.template}"
    if not reason.template:
        return f"claim {reason.claim}: ResourceClaim {claim} does not exist"
    if not claim:
        return f"claim {reason.claim}: {template} does not exist"
    return (
        f"claim {reason.claim}: neither ResourceClaim {claim}, which was made for it, nor "
        f"{template} exists"
    )


@text.register
def _(reason: reasons.ClaimUnreadable) -> str:
    return f"claim {reason.claim} cannot be read: {reason.detail}"


@text.register
def _(reason: reasons.DeviceClassUnreadable) -> str:
    return f"device class {reason.device_class} cannot be read: {reason.detail}"


@text.register
def _(reason: reasons.ClaimLeftOver) -> str:
    return (
        f"ResourceClaim {reason.resource_claim} was created for the pod's extended resources by "
        "an earlier scheduling attempt: unless that is still binding the pod, the next attempt "
        "deletes the claim, and the one after it allocates again"
    )


@text.register
def _(reason: reasons.ClaimBeingDeleted) -> str:
    return f"claim {reason.claim} is being deleted"


@text.register
def _(reason: reasons.ClaimOfAnotherPod) -> str:
    claim = f"ResourceClaim {reason.resource_claim}"
    return f"claim {reason.claim}: {claim} was not made for this pod"


@text.register
def _(reason: reasons.ClaimSelectorMalformed) -> str:
    return f"claim {reason.claim}: its node selector cannot be parsed: {reason.detail}"


@text.register
def _(reason: reasons.ClaimFullyReserved) -> str:
    return (
        f"claim {reason.claim} is reserved for {reason.pods} pods, the maximum: "
        "the scheduler's attempt would fail when reserving it for one more"
    )


def _what_follows(other_pods: int) -> str:
    if other_pods:
        pods = "another pod" if other_pods == 1 else f"{other_pods} other pods"
        return f"it stays allocated, since it is reserved for {pods}"
    return "the scheduler revokes the allocation and allocates again"


@text.register
def _(reason: reasons.BindingFailed) -> str:
    failed = f"condition {reason.condition} says that {reason.device} cannot be bound"
    return f"claim {reason.claim}: {failed}; {_what_follows(reason.other_pods)}"


@text.register
def _(reason: reasons.BindingTimedOut) -> str:
    unmet = f"condition {reason.condition} of {reason.device}"
    late = f"{unmet} did not become true within {reason.timeout_s:g} s"
    return f"claim {reason.claim}: {late}; {_what_follows(reason.other_pods)}"


@text.register
def _(reason: reasons.ClaimWithoutTimestamp) -> str:
    mend = "delete the ResourceClaim and create it again"
    if reason.pods:
        one = "pod that uses it has" if reason.pods == 1 else f"{reason.pods} pods that use it have"
        mend = f"{mend}, or wait until the {one} ended"
    return (
        f"claim {reason.claim} was allocated without an allocationTimestamp: the scheduler's "
        "attempt would fail when reserving it, by adding one to an allocation that cannot be "
        f"changed; {mend}"
    )


@text.register
def _(reason: reasons.ClaimNamedTwice) -> str:
    return (
        f"claims {reason.first} and {reason.again} are one ResourceClaim, "
        f"{reason.resource_claim}: the scheduler's attempt would fail when reserving it for the "
        "pod twice; list it once in spec.resourceClaims"
    )


@text.register
def _(reason: reasons.ClaimOnOtherNodes) -> str:
    holds = f" (it holds {_listed(reason.devices)})" if reason.devices else ""
    return f"claim {reason.claim} is allocated to other nodes{holds}"


@text.register
def _(reason: reasons.BindingAwaited) -> str:
    since = f" since {reason.since}" if reason.since else ""
    condition = f"condition {reason.condition} of {reason.device}"
    return f"claim {reason.claim} is waiting for {condition}{since}"


@text.register
def _(reason: reasons.BindingWouldBeAwaited) -> str:
    word = "condition" if len(reason.conditions) == 1 else "conditions"
    awaited = f"{word} {', '.join(reason.conditions)} of {_listed(reason.devices)}"
    return f"claim {reason.claim} would wait for {awaited}"


@text.register
def _(reason: reasons.ClaimDeviceNotPublished) -> str:
    return f"claim {reason.claim} holds {reason.device}, which is not published for this node"


# What the allocator finds


@text.register
def _(reason: reasons.NoAllocation) -> str:
    return f"no allocation is possible here: {'; '.join(texts(reason.causes))}"


@text.register
def _(reason: reasons.SchedulingError) -> str:
    return f"{ENDS_IN_AN_ERROR}: {text(reason.cause)}"


@text.register
def _(_reason: reasons.NothingFits) -> str:
    return "no combination of devices satisfies all requests"


@text.register
def _(reason: reasons.NoDevices) -> str:
    return f"{', '.join(reason.requests)}: there are no devices here"


@text.register
def _(reason: reasons.NearestDevice) -> str:
    return f"{reason.request}: no device of any node matches; the nearest one: {reason.lacks}"


@text.register
def _(reason: reasons.NoDeviceMatches) -> str:
    requests = ", ".join(reason.requests)
    if not reason.in_use:
        return f"{requests}: no device on this node matches"
    held = f"{reason.in_use} {'device is' if reason.in_use == 1 else 'devices are'} allocated"
    return f"{requests}: {held}, and no other device on this node matches"


@text.register
def _(reason: reasons.TooFewDevices) -> str:
    requested = "all" if reason.requested is None else reason.requested
    match = "device matches" if reason.matching == 1 else "devices match"
    causes = f": {_counted(reason.obstacles)}" if reason.obstacles else ""
    once = " (a request takes at most one share of each device)" if reason.one_share else ""
    requests = ", ".join(reason.requests)
    return f"{requests}: {requested} requested, {reason.matching} {match}{causes}{once}"


@text.register
def _(reason: reasons.TooFewCandidates) -> str:
    return f"{reason.request}: too few devices can be allocated"


@text.register
def _(reason: reasons.ConstraintTooNarrow) -> str:
    few = f"too few devices satisfy the constraint on {reason.attribute}"
    return f"claim {reason.claim}: {few}"


@text.register
def _(reason: reasons.GroupsDisagree) -> str:
    return f"too few groups of requests find devices that agree on {reason.attribute}"


@text.register
def _(reason: reasons.AttributeMissing) -> str:
    return (
        f"{reason.request}: no matching device has the attribute {reason.attribute}, which a "
        "constraint compares"
    )


def _available(number: int) -> str:
    return f"at most {number} available" if number else "none available"


@text.register
def _(reason: reasons.ConstraintNotMet) -> str:
    details = [f"value {reason.value}"] if reason.value else []
    if reason.obstacles:
        details.append(_counted(reason.obstacles, more=reason.available > 0))
    values = "different values" if reason.distinct else "a common value"
    return (
        f"{', '.join(reason.requests)}: {'at least ' if reason.at_least else ''}"
        f"{reason.requested} requested with {values} of {reason.attribute}, "
        f"{_available(reason.available)}" + (f" ({'; '.join(details)})" if details else "")
    )


@text.register
def _(reason: reasons.GroupsNotMet) -> str:
    number = len(reason.groups)
    named = [" and ".join(group) for group in reason.groups]
    details = []
    if (values := reason.values) is not None:
        of_each = [f"{count} for {request}" for request, count in values.by_request]
        all_ = "both" if len(of_each) == 2 else "all of these"
        of_each.append(f"{values.together} for {all_}")
        details.append(f"values with free devices: {', '.join(of_each)}")
    if reason.obstacles:
        details.append(_counted(reason.obstacles, more=True))
    return (
        f"{_listed(named)}: {number} {'pairs' if reason.pairs else 'groups'} requested, each with "
        f"a common value of {reason.attribute}, {_available(reason.available)}"
        + (f" ({'; '.join(details)})" if details else "")
    )


@text.register
def _(reason: reasons.SharedConstraint) -> str:
    kind = "distinctAttribute" if reason.distinct else "matchAttribute"
    return f"{kind} {reason.attribute} of claim {reason.claim}"


@text.register
def _(reason: reasons.SharedCounters) -> str:
    return f"counters of {reason.pool}"


@text.register
def _(reason: reasons.SharedCapacity) -> str:
    return f"capacity of {reason.device}"


@text.register
def _(reason: reasons.RequestsDoNotFit) -> str:
    single = "too few devices fit together"
    few = single if reason.single else "not all requests can be met together"
    causes = ", ".join(texts(reason.competing_for)) or "they compete for the same devices"
    return f"{few} ({causes})"


@text.register
def _(reason: reasons.PoolNotWhole) -> str:
    return f"{reason.pool} is {reason.flaw}"


@text.register
def _(reason: reasons.PoolDisputed) -> str:
    nodes = ", ".join(reason.nodes)
    return f"{reason.pool} is disputed: slices of {nodes} each count for their own node only"


@text.register
def _(reason: reasons.PoolInvalid) -> str:
    return f"{reason.pool} is invalid: {reason.detail}"


# Obstacles, as in "2 devices match: 1 allocated, 1 tainted (key)"


@text.register
def _(_reason: reasons.DeviceAllocated) -> str:
    return "allocated"


@text.register
def _(reason: reasons.CapacityMissing) -> str:
    return f"without capacity {reason.capacity}"


@text.register
def _(_reason: reasons.CapacityTooSmall) -> str:
    return "with too little capacity"


@text.register
def _(_reason: reasons.CapacityUsedUp) -> str:
    return "with too little capacity left"


@text.register
def _(reason: reasons.RequestPolicyGivesLess) -> str:
    most = f"{reason.largest} of {reason.capacity}"
    return f"whose requestPolicy gives a request at most {most}"


@text.register
def _(reason: reasons.RequestPolicyRoundsUp) -> str:
    return f"whose requestPolicy rounds the request up to more of {reason.capacity} than it gives"


@text.register
def _(_reason: reasons.PartitionableDevicesOff) -> str:
    return "of a kind that is disabled (DRAPartitionableDevices)"


@text.register
def _(reason: reasons.CountersExhausted) -> str:
    return f"for which the counters of {reason.pool} do not suffice"


@text.register
def _(reason: reasons.Tainted | reasons.TaintedByRule) -> str:
    return f"tainted ({', '.join(reason.keys)})"


@text.register
def _(_reason: reasons.AttributeAbsent) -> str:
    return "without the attribute"


# What ends the scheduler's attempt in an error


@text.register
def _(reason: reasons.FeatureGateOff) -> str:
    return f"{reason.request}: the gate {reason.gate} is off"


@text.register
def _(reason: reasons.DeviceClassNotFound) -> str:
    return f"{reason.request}: device class {reason.device_class} does not exist"


@text.register
def _(reason: reasons.RequestInvalid | reasons.RequestUnclear) -> str:
    return f"{reason.request}: {reason.detail}"


@text.register
def _(reason: reasons.ClaimTooLarge) -> str:
    return (
        f"claim {reason.claim}, request {reason.request}: adding {reason.adding} devices exceeds "
        f"the claim limit of {reason.limit}, with {reason.total} already accounted for"
    )


@text.register
def _(reason: reasons.ResultsTooMany) -> str:
    return f"a claim would need more than {reason.limit} devices"


@text.register
def _(reason: reasons.ConstraintInvalid) -> str:
    return f"claim {reason.claim}: constraint {reason.index} is of an unknown form"


@text.register
def _(reason: reasons.SelectorFailed | reasons.SelectorUndecided) -> str:
    return f"{reason.request} on {reason.device}: {reason.detail}"


@text.register
def _(reason: reasons.AttributesInvalid) -> str:
    return f"{reason.request}: selectors on {reason.device}: {reason.detail}"


@text.register
def _(reason: reasons.DeviceNodesInvalid) -> str:
    return f"{reason.device}: {reason.detail}"


@text.register
def _(reason: reasons.NodeSelectorTooComplex) -> str:
    return f"{reason.device}: its node selector has {reason.terms} terms"


@text.register
def _(reason: reasons.NodeSelectorMalformed | reasons.CapacityRequestInvalid) -> str:
    return reason.detail


@text.register
def _(reason: reasons.PoolUnusable) -> str:
    unusable = f"{reason.pool} is {reason.state}"
    return f"{reason.request}: all devices are requested, but {unusable}"


@text.register
def _(reason: reasons.ConstraintForbidsDevice) -> str:
    needed = f"{reason.device} is needed, but a constraint of the claim forbids it"
    return f"{reason.request}: {needed}"


@text.register
def _(reason: reasons.SchedulerCrashes) -> str:
    return (
        f"{reason.request}: {reason.device} consumes counters, and this version of kube-scheduler "
        "crashes where all such devices are requested; upgrade it to 1.35.6 or 1.36.2"
    )


# What cannot be decided

_UNMODELLED = {
    reasons.Unmodelled.DERIVED_ATTRIBUTES: "derived attributes are not modelled",
    reasons.Unmodelled.SHARES_BEFORE_1_36: "before Kubernetes 1.36, devices with "
    "allowMultipleAllocations are given out in ways that are not modelled",
    reasons.Unmodelled.ALL_ALTERNATIVE_BEFORE_1_36: "before Kubernetes 1.36, an alternative that "
    "requests all devices is mistaken for the first of its list, and that is not modelled",
    reasons.Unmodelled.COUNTERS_BEFORE_1_36_2: "before Kubernetes 1.36.2, devices in shared use "
    "draw nothing on counters, and which ones on other nodes are is not known here",
    reasons.Unmodelled.COUNTERS_OF_1_34: "it has shared counters, which Kubernetes 1.34 keeps by "
    "slice, and that is not modelled",
    reasons.Unmodelled.POOLS_OF_1_34: "it is {detail}, and what Kubernetes 1.34 makes of that is "
    "not modelled",
    reasons.Unmodelled.COMPATIBILITY_GROUPS: "compatibility groups are not modelled",
    reasons.Unmodelled.OPTIONAL_NODE_OPERATIONS: "optional node operations are not modelled",
}


@text.register
def _(reason: reasons.NotModelled) -> str:
    what = _UNMODELLED[reason.feature].format(detail=reason.detail)
    of = str(reason.pool) if reason.pool is not None else reason.request
    if reason.device is not None:
        of = f"{of} on {reason.device}" if of else str(reason.device)
    return f"{of}: {what}"


@text.register
def _(reason: reasons.DeviceUnclear) -> str:
    return f"{reason.device}: {reason.detail}"


@text.register
def _(reason: reasons.CapacityCheckIgnored) -> str:
    return f"{reason.device}: {text(reason.cause)}, which this version ignores"


@text.register
def _(reason: reasons.PoolUnclear) -> str:
    return f"{reason.pool}: {reason.detail}"


@text.register
def _(reason: reasons.SliceOrderMatters) -> str:
    beyond = text(reason.beyond) if reason.beyond is not None else ""
    match reason.cause:
        case reasons.SliceOrderCause.POOL_UNCLEAR:
            return f"this scheduler visits pools in no fixed order, and one is unclear: {beyond}"
        case reasons.SliceOrderCause.ERROR_ON_A_DEVICE:
            return f"{_NO_ORDER}, and on some device: {beyond}"
        case reasons.SliceOrderCause.SEVERAL_SLICES:
            return f"{_NO_ORDER}, and several have such devices"
    return f"{_NO_ORDER}, and all devices are requested under a constraint"


@text.register
def _(reason: reasons.SearchTookTooLong) -> str:
    if reason.steps is not None:
        return f"no result within {reason.steps} search steps"
    return f"no result within {reason.seconds:g} s"


@text.register
def _(reason: reasons.ObjectUnreadable) -> str:
    return reason.detail


# Notes about what may happen next


@text.register
def _(reason: reasons.RuleSetAside) -> str:
    share = f"{100 * reason.condemned / reason.devices:.3g} %"
    policies = "policy " if len(reason.policies) == 1 else "policies "
    sudden = ", within minutes" if reason.burst else ""
    return (
        f"breaker: {reason.rule} is set aside in {reason.pool}: it alone condemns "
        f"{reason.condemned} of {reason.devices} ({share}; more than {100 * reason.limit:.3g} %)"
        f"{sudden}, so by {policies}{', '.join(reason.policies)} what it condemns is the last "
        "choice of pods that have waited long enough; either the rule is wrong, or so much has "
        "really failed"
    )


@text.register
def _(reason: reasons.PodsInFlight) -> str:
    pods = "1 pod" if reason.pods == 1 else f"up to {reason.pods} pods"
    then = f": then {text(reason.then)}" if reason.then is not None else ""
    if reason.devices:
        named = [f"{each.device} ({each.score:.2f})" for each in reason.devices]
        then = f": this one may then get {_listed(named)}"
    return f"{pods} with the same needs may be placed here first{then}"


@text.register
def _(reason: reasons.PreemptionWouldHelp) -> str:
    devices = _listed(reason.devices)
    would = f"get {devices}" if devices else "not be refused"
    return f"if it preempts {_listed(reason.victims)} here, it would {would}"


@text.register
def _(reason: reasons.PreemptionWouldNotHelp) -> str:
    gone = f"with {_listed(reason.victims)} gone it would be refused: {text(reason.cause)}"
    return f"preempts nobody here: {gone}"


# Notes about a pod as a whole


@text.register
def _(reason: reasons.PoolBetweenGenerations) -> str:
    return f"{reason.pool} is between generations: its driver is replacing its slices"


@text.register
def _(_reason: reasons.PodNotInView) -> str:
    return (
        "the pod was deleted, is finished, or has not been seen yet: this is about the pod as the "
        "scheduler last sent it"
    )


@text.register
def _(reason: reasons.PodPlaced) -> str:
    where = "runs on" if reason.running else "is bound to"
    yet = "" if reason.running else " and does not run yet"
    new = ", which gets claims of its own" if reason.own_claims else ""
    return f"the pod {where} {reason.node}{yet}: the verdicts are for another pod like it{new}"


@text.register
def _(reason: reasons.PodFinished) -> str:
    where = f" on {reason.node}" if reason.node else ""
    at = f" at {reason.at}" if reason.at else ""
    why = ": ".join(filter(None, (reason.reason, reason.message)))
    had = [*reason.devices, *reason.units]
    held = f"; it held {_listed(had)}" if had else ""
    return (
        f"the pod is finished: {reason.phase}{where}{at}{f' ({why})' if why else ''}{held}; the "
        "verdicts are for another pod like it"
    )


@text.register
def _(reason: reasons.PodStuck) -> str:
    return f"stuck in {reason.stuck_in} since {_moment(reason.since)}: {text(reason.cause)}"


@text.register
def _(reason: reasons.CrashAtFault) -> str:
    seconds = round(reason.at - reason.fault_at)
    when = f"{abs(seconds)} s {'after' if seconds >= 0 else 'before'}"
    cause = "is the likely" if reason.certain else "the pod may hold, and may be the"
    return (
        f"container {reason.container} ended with exit code {reason.exit_code} at "
        f"{_moment(reason.at)}, {when} {reason.device} was seen to fail, which {cause} "
        f"cause: {reason.fault}"
    )


@text.register
def _(reason: reasons.WorkloadStartsNowhere) -> str:
    pods = f"{reason.pods} pods" if reason.pods else "pods"
    return (
        f"{pods} of {reason.workload} start on none of {len(reason.nodes)} nodes "
        f"({_listed(reason.nodes)}), so the cause is likely their own image, configuration or "
        f"claims; Fettle holds it against no node{f': {reason.message}' if reason.message else ''}"
    )


@text.register
def _(reason: reasons.PodsRefusedEachTime) -> str:
    nodes = f"{len(reason.nodes)} node{'s' if len(reason.nodes) > 1 else ''}"
    idle = ", though nothing else uses devices there" if reason.certain else ""
    return (
        f"the kubelets of {nodes} ({_listed(reason.nodes)}) refused each of its last {reason.pods} "
        f"pods, and none runs{idle}: {reason.message}"
    )


@text.register
def _(reason: reasons.PodsFitNowhere) -> str:
    return (
        f"no device will ever satisfy {reason.claim}, for which {reason.pods} of its pods wait: "
        f"{reason.mistake}"
    )


@text.register
def _(reason: reasons.PodGated) -> str:
    return (
        f"the pod has scheduling gates ({', '.join(reason.gates)}): the scheduler does not look at "
        "it before they are removed"
    )


@text.register
def _(reason: reasons.ClaimsNotCreated) -> str:
    return (
        f"the ResourceClaim for {', '.join(reason.claims)} has not been made from its template "
        "yet, for which the scheduler waits: events of the pod say why, such as a quota"
    )


@text.register
def _(reason: reasons.PodHolds) -> str:
    what = f"its claim {reason.claim}" if reason.claim else "its extended resources"
    has = "has admin access to" if reason.admin_access else "holds"
    devices = (
        f"{held.device}, {describe_state(held.health)}"
        if held.health is not None
        else f"{held.device}, which is not published for this node"
        for held in reason.devices
    )
    return f"for {what} it {has} {'; '.join(devices)}"


@text.register
def _(reason: reasons.ClaimWillBeReallocated) -> str:
    return (
        f"claim {reason.claim} is allocated and no other pod uses it: as no node fits, the "
        "scheduler revokes the allocation and allocates again, unless taints, node selectors or a "
        "lack of cpu or memory keep the pod off the other nodes anyway"
    )


@text.register
def _(reason: reasons.ClaimStaysAllocated) -> str:
    what = f"ResourceClaim {reason.resource_claim}" if reason.resource_claim else "the pod"
    return (
        f"claim {reason.claim} is allocated and no other pod uses it, but the scheduler revokes "
        "that only if it looks at a node where the claim cannot be used, and there is none: "
        f"delete {what} and create it again to have it anew"
    )


@text.register
def _(reason: reasons.NodeEndsAttempt) -> str:
    more = f" (and {reason.others} more)" if reason.others else ""
    return (
        f"node {reason.node}{more} can keep the pod off all other nodes: if the scheduler looks at "
        f"it, its attempt to place the pod ends in an error: {text(reason.cause)}"
    )


@text.register
def _(_reason: reasons.NodeCordoned) -> str:
    return "cordoned: the scheduler places only pods there that tolerate that"


@text.register
def _(reason: reasons.FurtherReasons) -> str:
    return f"and {reason.others} more"


@text.register
def _(reason: reasons.PodMarked) -> str:
    since = f" since {reason.since}" if reason.since else ""
    return f"has the condition {DEVICE_FAILED}{since} ({reason.cause}): {reason.message}"


@text.register
def _(reason: reasons.FettleNotReady) -> str:
    return f"Fettle is not ready: {reason.detail}"


@text.register
def _(reason: reasons.PatienceLasts) -> str:
    gang = ", as one of a gang," if reason.in_gang else ""
    return (
        f"it waits for sound devices{gang} until {_moment(reason.until)}; then it takes Degraded "
        "ones, or a higher risk"
    )


@text.register
def _(reason: reasons.PatienceOver) -> str:
    return (
        f"it has waited for sound devices until {_moment(reason.since)}; since then it takes "
        "Degraded ones, or a higher risk, where nothing better is left"
    )


def _moment(unix_s: float) -> str:
    return f"{utc(unix_s):%Y-%m-%d %H:%M:%S} UTC"


@text.register
def _(reason: reasons.NotEnforced) -> str:
    does = (
        "changes nothing for this pod and only records these verdicts"
        if reason.mode is Mode.OBSERVE
        else "ranks nodes for this pod and refuses none"
    )
    return f"mode {reason.mode} ({reason.origin}): Fettle {does}"


@text.register
def _(reason: reasons.SchedulerDoesNotAsk) -> str:
    named = ", ".join(reason.named) or "none"
    return (
        f"scheduler {reason.scheduler} does not ask Fettle, as far as the settings say "
        f"(scheduler.names: {named}): it places this pod without these verdicts"
    )
