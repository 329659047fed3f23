"""Why a node or a device does not suit a pod, as values: a closed set of types with fields.

Whoever finds a reason makes it; `fettle/explain` alone turns it into words. The name of a type is
its `code`, which JSON shows beside the text: an interface, as `docs/explain-json.md` says. Stands
beside verdict in *watch → inventory → health → verdict → answer*.
"""

from enum import StrEnum

import msgspec

from fettle.model.health import Health
from fettle.model.modes import Mode
from fettle.model.subjects import DeviceId, PoolRef


class Reason(msgspec.Struct, frozen=True, gc=False):
    """One reason. `request` is always "claim/request" or "claim/request/alternative"."""

    @property
    def code(self) -> str:
        return type(self).__name__


class Complaint(StrEnum):
    """What about a health a policy does not accept."""

    HELD = "Held"
    UNHEALTHY = "Unhealthy"
    DEGRADED = "Degraded"
    UNKNOWN = "Unknown"
    SCORE_TOO_LOW = "ScoreTooLow"


# What a policy does not accept


class NodeRefusal(Reason, frozen=True, gc=False):
    """The node's own health is not acceptable; `min_score` is the policy's."""

    health: Health
    min_score: float


class NodeHeld(NodeRefusal, frozen=True, gc=False):
    """An operator holds the node."""


class NodeUnhealthy(NodeRefusal, frozen=True, gc=False):
    """The node is Unhealthy."""


class NodeDegraded(NodeRefusal, frozen=True, gc=False):
    """The node is Degraded, which the policy refuses."""


class NodeUnknown(NodeRefusal, frozen=True, gc=False):
    """The node's health is Unknown, which the policy refuses."""


class NodeScoreTooLow(NodeRefusal, frozen=True, gc=False):
    """The node's score is below the policy's minimum."""


class KubeletRefusedWorkload(Reason, frozen=True, gc=False):
    """The node's kubelet refused a pod of the same workload `at` that time, in Unix seconds.

    Until `until` the workload's pods go elsewhere; a note if no other node is left.
    """

    workload: str
    at: float
    until: float


class PodsDoNotStart(Reason, frozen=True, gc=False):
    """Devices kept a pod of the same workload from starting there, last `at` that Unix time.

    Until `until` the workload's pods go elsewhere; a note if no other node is left.
    """

    workload: str
    at: float
    until: float


class RanHere(Reason, frozen=True, gc=False):
    """The pod that this one comes back for ran on the node: `pod` (`namespace/name`)."""

    pod: str


class FailedHere(Reason, frozen=True, gc=False):
    """The pod that this one comes back for failed on the node, `at` that time, in Unix seconds."""

    pod: str
    at: float


class SlowsGang(Reason, frozen=True, gc=False):
    """The pod would be the slowest of its gang here: the slowest that is placed is `pod` on `node`,
    whose worst device has this score, 0 to 1."""

    pod: str
    node: str
    score: float


class SlowsRestOfGang(Reason, frozen=True, gc=False):
    """No member of the pod's gang is placed yet, `members` are to be as far as is known, and there
    are so many better nodes: here it would be the slowest."""

    members: int


class GangIsSlow(Reason, frozen=True, gc=False):
    """The gang gains little from so good a node, since `pod` on `node` is slower: its worst device
    has this score, 0 to 1."""

    pod: str
    node: str
    score: float


class DeviceRefusal(Reason, frozen=True, gc=False):
    """A device that a claim holds (`allocated`) or would get is not acceptable.

    `passed_over`: acceptable devices are here, but the scheduler would not take them;
    `taint_would_help`: it would, if a DeviceTaintRule kept it off this one.
    """

    request: str
    device: DeviceId
    health: Health
    min_score: float
    allocated: bool = False
    passed_over: bool = False
    taint_would_help: bool = False


class DeviceHeld(DeviceRefusal, frozen=True, gc=False):
    """An operator holds the device, or its node."""


class DeviceUnhealthy(DeviceRefusal, frozen=True, gc=False):
    """The device is Unhealthy."""


class DeviceDegraded(DeviceRefusal, frozen=True, gc=False):
    """The device is Degraded, which the policy refuses."""


class DeviceUnknown(DeviceRefusal, frozen=True, gc=False):
    """The device's health is Unknown, which the policy refuses."""


class DeviceScoreTooLow(DeviceRefusal, frozen=True, gc=False):
    """The device's score is below the policy's minimum."""


class NodeRequirementNotMet(Reason, frozen=True, gc=False):
    """The node does not meet a requirement of the policy (`placement.requires`)."""

    requirement: str


class DeviceRequirementNotMet(Reason, frozen=True, gc=False):
    """A device that a claim holds or would get does not meet a requirement of the policy."""

    request: str
    device: DeviceId
    requirement: str
    allocated: bool = False
    passed_over: bool = False


class NodeRequirementUndecided(Reason, frozen=True, gc=False):
    """A requirement could not be evaluated on the node; `detail` is the evaluator's word."""

    requirement: str
    detail: str


class DeviceRequirementUndecided(Reason, frozen=True, gc=False):
    """A requirement could not be evaluated on a device."""

    device: DeviceId
    requirement: str
    detail: str


class TooFewAcceptableDevices(Reason, frozen=True, gc=False):
    """Which devices the pod would get cannot be told, and too few here are acceptable.

    `device` is the worst of the others: its `health`, or a `requirement` that it does not meet.
    """

    device: DeviceId
    complaint: Complaint | None = None
    health: Health | None = None
    min_score: float = 0.0
    requirement: str = ""


class TooFewAcceptableUnits(Reason, frozen=True, gc=False):
    """Of the units that a device plugin may give (`drawn`), fewer are acceptable than requested.

    `health` is that of the worst unit.
    """

    resource: str
    acceptable: int
    drawn: int
    requested: int
    complaint: Complaint
    health: Health
    min_score: float


class RiskTooHigh(Reason, frozen=True, gc=False):
    """The device plugin is too likely to give the pod a unit that is not acceptable.

    Of `drawn` units so many are `acceptable`. `risk` (0..1) is above `max_risk`. `health` is that
    of the worst unit.
    """

    resource: str
    acceptable: int
    drawn: int
    requested: int
    risk: float
    max_risk: float
    health: Health


class UnitsWorthTooLittle(Reason, frozen=True, gc=False):
    """What a draw of units is worth is below the policy's minimum."""

    resource: str
    requested: int
    drawn: int
    value: float
    min_score: float
    health: Health


class UnitNotAcceptable(Reason, frozen=True, gc=False):
    """A unit that a placed pod holds, or (not `certain`) may hold, is not acceptable."""

    resource: str
    unit: str
    certain: bool
    complaint: Complaint
    health: Health
    min_score: float


# Units of device plugins, by the scheduler's own checks


class NoUnits(Reason, frozen=True, gc=False):
    """The node has none of an extended resource to allocate."""

    resource: str


class NotEnoughUnits(Reason, frozen=True, gc=False):
    """The node has fewer units than requested, in use or not.

    `capacity` counts withdrawn units, too. `fewer`: how many more most nodes of its kind have.
    """

    resource: str
    allocatable: int
    requested: int
    capacity: int = 0
    fewer: int = 0


class UnitsTaken(Reason, frozen=True, gc=False):
    """Pods hold so many units that too few are left; they may hold more than the node has now."""

    resource: str
    taken: int
    allocatable: int
    requested: int


class UnitsWithdrawn(Reason, frozen=True, gc=False):
    """A note: the device plugin withdrew units, of which these are known by name.

    `counted`: the capacity still counts the withdrawn units; `known`: how many units these are.
    """

    resource: str
    withdrawn: int
    capacity: int
    units: tuple[str, ...]
    known: int
    counted: bool = True


class WithdrawnUnitHeld(Reason, frozen=True, gc=False):
    """A note: too few units are left, and a pod still holds one that the device plugin withdrew.

    The scheduler counts it among those that are left. `certain`: all `pods` hold it; else one of
    them does.
    """

    resource: str
    unit: str
    pods: tuple[str, ...]
    certain: bool = True


class BadDevice(msgspec.Struct, frozen=True, gc=False):
    """A device that whole-node pods cannot get; `why`: withdrawn, held, or its state."""

    device: str
    why: str


class NodeNotWhole(Reason, frozen=True, gc=False):
    """A note: the pod's devices here are sound, but pods that ask for all of the node's cannot be
    placed, because of others of the same resource or driver (`of`).

    `unnamed`: how many more are withdrawn. The node scores higher for it.
    """

    of: str
    devices: tuple[BadDevice, ...]
    unnamed: int = 0


class OtherKubeletRefusals(Reason, frozen=True, gc=False):
    """A note: kubelet refusals for resources of these domains do not count for this pod."""

    domains: tuple[str, ...]


# The pod's claims, on any node; `claim` is the name in the pod's spec


class ClaimNotFound(Reason, frozen=True, gc=False):
    """Neither the ResourceClaim ("" before it is made) nor its template exists."""

    claim: str
    resource_claim: str = ""
    template: str = ""


class ClaimUnreadable(Reason, frozen=True, gc=False):
    """The ResourceClaim or its template cannot be read."""

    claim: str
    detail: str


class DeviceClassUnreadable(Reason, frozen=True, gc=False):
    """A DeviceClass that a claim names cannot be read."""

    device_class: str
    detail: str


class ClaimLeftOver(Reason, frozen=True, gc=False):
    """A ResourceClaim for the pod's extended resources is left from an earlier attempt."""

    resource_claim: str


class ClaimBeingDeleted(Reason, frozen=True, gc=False):
    """The ResourceClaim has a deletion timestamp."""

    claim: str


class ClaimOfAnotherPod(Reason, frozen=True, gc=False):
    """The ResourceClaim was made for another pod."""

    claim: str
    resource_claim: str


class ClaimSelectorMalformed(Reason, frozen=True, gc=False):
    """The node selector of the allocation cannot be parsed: the attempt ends in an error."""

    claim: str
    detail: str


class ClaimFullyReserved(Reason, frozen=True, gc=False):
    """The ResourceClaim is reserved for as many pods as there may be."""

    claim: str
    pods: int


class BindingFailed(Reason, frozen=True, gc=False):
    """A binding failure condition of a device is true."""

    claim: str
    condition: str
    device: DeviceId
    other_pods: int


class BindingTimedOut(Reason, frozen=True, gc=False):
    """A binding condition did not become true in time."""

    claim: str
    condition: str
    device: DeviceId
    timeout_s: float
    other_pods: int


class ClaimWithoutTimestamp(Reason, frozen=True, gc=False):
    """The allocation has no timestamp, which the scheduler would fail to add; `pods` use it."""

    claim: str
    pods: int


class ClaimNamedTwice(Reason, frozen=True, gc=False):
    """Two entries of the pod are one ResourceClaim, which cannot be reserved twice."""

    first: str
    again: str
    resource_claim: str


class ClaimOnOtherNodes(Reason, frozen=True, gc=False):
    """The claim is allocated, and cannot be used on this node."""

    claim: str
    devices: tuple[DeviceId, ...]


class BindingAwaited(Reason, frozen=True, gc=False):
    """A note: the pod waits for a binding condition once it is placed; `since`: RFC 3339 or ""."""

    claim: str
    condition: str
    device: DeviceId
    since: str = ""


class BindingWouldBeAwaited(Reason, frozen=True, gc=False):
    """A note: the pod would wait for binding conditions of the devices that it would get."""

    claim: str
    conditions: tuple[str, ...]
    devices: tuple[DeviceId, ...]


class ClaimDeviceNotPublished(Reason, frozen=True, gc=False):
    """A note: the claim holds a device that is not published for this node."""

    claim: str
    device: DeviceId


# What the allocator finds


class NoAllocation(Reason, frozen=True, gc=False):
    """The claims cannot be allocated on the node, for these causes."""

    causes: tuple[Reason, ...]


class SchedulingError(Reason, frozen=True, gc=False):
    """The scheduler's attempt for the pod would end in an error on this node."""

    cause: Reason


class NothingFits(Reason, frozen=True, gc=False):
    """A search found nothing; more is not known."""


class NoDevices(Reason, frozen=True, gc=False):
    """There are no devices on the node."""

    requests: tuple[str, ...]


class NoDeviceMatches(Reason, frozen=True, gc=False):
    """No device matches the requests, but perhaps `in_use` ones that are allocated."""

    requests: tuple[str, ...]
    in_use: int = 0


class NearestDevice(Reason, frozen=True, gc=False):
    """No device of any node matches a request; what the nearest one lacks, in words."""

    request: str
    lacks: str


class Obstacles(msgspec.Struct, frozen=True, gc=False):
    """How many devices the same obstacle keeps away."""

    obstacle: Reason
    devices: int


class TooFewDevices(Reason, frozen=True, gc=False):
    """Of the devices that match, too few can be taken; `requested` None: all are requested.

    `one_share`: a request takes at most one share of each device.
    """

    requests: tuple[str, ...]
    requested: int | None
    matching: int
    obstacles: tuple[Obstacles, ...] = ()
    one_share: bool = False


class TooFewCandidates(Reason, frozen=True, gc=False):
    """Too few devices can be allocated for one request."""

    request: str


class ConstraintTooNarrow(Reason, frozen=True, gc=False):
    """Too few devices satisfy a constraint of a claim."""

    claim: str
    attribute: str


class GroupsDisagree(Reason, frozen=True, gc=False):
    """Too few groups of requests find devices that agree on an attribute."""

    attribute: str


class AttributeMissing(Reason, frozen=True, gc=False):
    """No device that matches has an attribute that a constraint compares."""

    request: str
    attribute: str


class ConstraintNotMet(Reason, frozen=True, gc=False):
    """Too few devices have a common value (or, `distinct`, different values) of an attribute.

    `at_least`: alternatives of the requests ask for more; `value` is that of most devices.
    """

    requests: tuple[str, ...]
    attribute: str
    distinct: bool
    requested: int
    available: int
    at_least: bool = False
    value: str = ""
    obstacles: tuple[Obstacles, ...] = ()


class ValuesWithDevices(msgspec.Struct, frozen=True, gc=False):
    """How many values of an attribute have free devices: for each request, and for all of them."""

    by_request: tuple[tuple[str, int], ...]
    together: int


class GroupsNotMet(Reason, frozen=True, gc=False):
    """Of groups of requests that each need a common value, too few get one.

    `groups` are the requests of each group; `pairs`: each is of two requests for one device.
    """

    groups: tuple[tuple[str, ...], ...]
    attribute: str
    available: int
    pairs: bool = False
    values: ValuesWithDevices | None = None
    obstacles: tuple[Obstacles, ...] = ()


class SharedConstraint(Reason, frozen=True, gc=False):
    """Requests share a constraint of a claim."""

    claim: str
    attribute: str
    distinct: bool


class SharedCounters(Reason, frozen=True, gc=False):
    """Requests share the counters of a pool."""

    pool: PoolRef


class SharedCapacity(Reason, frozen=True, gc=False):
    """Requests share the capacity of a device."""

    device: DeviceId


class RequestsDoNotFit(Reason, frozen=True, gc=False):
    """Requests that could each be met alone cannot be met together; what they may compete for.

    `single`: it is one request for several devices.
    """

    competing_for: tuple[Reason, ...] = ()
    single: bool = False


class PoolNotWhole(Reason, frozen=True, gc=False):
    """A pool that may be meant cannot be allocated from; `flaw` is upstream's word for it."""

    pool: PoolRef
    flaw: str


class PoolDisputed(Reason, frozen=True, gc=False):
    """Slices of these nodes contradict each other about a pool; those of each node count for it
    alone."""

    pool: PoolRef
    nodes: tuple[str, ...]


class PoolInvalid(Reason, frozen=True, gc=False):
    """A pool contradicts itself, which fails the whole node."""

    pool: PoolRef
    detail: str


class PoolBetweenGenerations(Reason, frozen=True, gc=False):
    """The pool's driver is replacing its slices."""

    pool: PoolRef


# Obstacles: why one device that matches cannot be taken


class DeviceAllocated(Reason, frozen=True, gc=False):
    """A claim holds it."""


class CapacityMissing(Reason, frozen=True, gc=False):
    """It does not have a capacity that is requested."""

    capacity: str


class CapacityTooSmall(Reason, frozen=True, gc=False):
    """It has less of a capacity than requested."""


class CapacityUsedUp(Reason, frozen=True, gc=False):
    """Others consume so much of it that too little is left."""


class RequestPolicyGivesLess(Reason, frozen=True, gc=False):
    """Its request policy gives a request at most `largest` of a capacity."""

    capacity: str
    largest: str


class RequestPolicyRoundsUp(Reason, frozen=True, gc=False):
    """Its request policy rounds the request up to more than it gives."""

    capacity: str


class PartitionableDevicesOff(Reason, frozen=True, gc=False):
    """It consumes counters, and the feature gate DRAPartitionableDevices is off."""


class CountersExhausted(Reason, frozen=True, gc=False):
    """The counters of its pool do not suffice."""

    pool: PoolRef


class Tainted(Reason, frozen=True, gc=False):
    """It has taints in its ResourceSlice that the request does not tolerate."""

    keys: tuple[str, ...]


class TaintedByRule(Reason, frozen=True, gc=False):
    """A DeviceTaintRule taints it, and the request does not tolerate that."""

    keys: tuple[str, ...]


class AttributeAbsent(Reason, frozen=True, gc=False):
    """It does not have the attribute that a constraint compares."""


# What ends the scheduler's attempt in an error


class FeatureGateOff(Reason, frozen=True, gc=False):
    """A request uses a field whose feature gate is off."""

    request: str
    gate: str


class DeviceClassNotFound(Reason, frozen=True, gc=False):
    """A request names a DeviceClass that does not exist."""

    request: str
    device_class: str


class RequestInvalid(Reason, frozen=True, gc=False):
    """A request that no API server would store."""

    request: str
    detail: str


class ClaimTooLarge(Reason, frozen=True, gc=False):
    """A claim asks for more devices than a claim may have."""

    claim: str
    request: str
    adding: int
    limit: int
    total: int


class ResultsTooMany(Reason, frozen=True, gc=False):
    """A claim would need more devices than a claim may have."""

    limit: int


class ConstraintInvalid(Reason, frozen=True, gc=False):
    """A constraint of a claim has an unknown form."""

    claim: str
    index: int


class SelectorFailed(Reason, frozen=True, gc=False):
    """A CEL selector fails on a device; `detail` is the evaluator's word."""

    request: str
    device: DeviceId
    detail: str


class AttributesInvalid(Reason, frozen=True, gc=False):
    """No selector can be evaluated on a device, since an attribute of it cannot be read."""

    request: str
    device: DeviceId
    detail: str


class DeviceNodesInvalid(Reason, frozen=True, gc=False):
    """For which nodes a device is cannot be told."""

    device: DeviceId
    detail: str


class NodeSelectorTooComplex(Reason, frozen=True, gc=False):
    """The allocation's node selector could not be written."""

    device: DeviceId
    terms: int


class NodeSelectorMalformed(Reason, frozen=True, gc=False):
    """A node selector of some ResourceSlice cannot be parsed: no pool can be gathered here."""

    detail: str


class PoolUnusable(Reason, frozen=True, gc=False):
    """All devices are requested, and a pool that may have some is being updated, or is invalid."""

    request: str
    pool: PoolRef
    state: str


class ConstraintForbidsDevice(Reason, frozen=True, gc=False):
    """A device is needed, but a constraint of the claim forbids it."""

    request: str
    device: DeviceId


class SchedulerCrashes(Reason, frozen=True, gc=False):
    """This version of kube-scheduler crashes over a request for all devices that use counters."""

    request: str
    device: DeviceId


class CapacityRequestInvalid(Reason, frozen=True, gc=False):
    """A requested capacity cannot be granted as a number; `detail` says why."""

    detail: str


# What cannot be decided


class Unmodelled(StrEnum):
    """Behaviour of Kubernetes that Fettle does not model."""

    DERIVED_ATTRIBUTES = "DerivedAttributes"
    SHARES_BEFORE_1_36 = "SharesBefore1.36"
    ALL_ALTERNATIVE_BEFORE_1_36 = "AllAlternativeBefore1.36"
    COUNTERS_BEFORE_1_36_2 = "CountersBefore1.36.2"
    COUNTERS_OF_1_34 = "CountersOf1.34"
    POOLS_OF_1_34 = "PoolsOf1.34"
    COMPATIBILITY_GROUPS = "CompatibilityGroups"
    OPTIONAL_NODE_OPERATIONS = "OptionalNodeOperations"


class NotModelled(Reason, frozen=True, gc=False):
    """Fettle does not model what Kubernetes does with this request, device or pool."""

    feature: Unmodelled
    request: str = ""
    device: DeviceId | None = None
    pool: PoolRef | None = None
    detail: str = ""


class RequestUnclear(Reason, frozen=True, gc=False):
    """A request that cannot be read in full."""

    request: str
    detail: str


class DeviceUnclear(Reason, frozen=True, gc=False):
    """A device that cannot be read in full."""

    device: DeviceId
    detail: str


class CapacityCheckIgnored(Reason, frozen=True, gc=False):
    """A requested capacity that later versions of Kubernetes refuse, and this one does not."""

    device: DeviceId
    cause: Reason


class PoolUnclear(Reason, frozen=True, gc=False):
    """A pool of which something cannot be told."""

    pool: PoolRef
    detail: str


class SelectorUndecided(Reason, frozen=True, gc=False):
    """Whether a selector matches a device cannot be told (yet)."""

    request: str
    device: DeviceId
    detail: str


class SliceOrderCause(StrEnum):
    """Why the order of pools or slices decides, which is not fixed."""

    POOL_UNCLEAR = "PoolUnclear"
    ERROR_ON_A_DEVICE = "ErrorOnADevice"
    SEVERAL_SLICES = "SeveralSlices"
    ALL_UNDER_CONSTRAINT = "AllUnderConstraint"


class SliceOrderMatters(Reason, frozen=True, gc=False):
    """The choice depends on an order that is not fixed; `beyond` is what it may meet."""

    cause: SliceOrderCause
    beyond: Reason | None = None


class SearchTookTooLong(Reason, frozen=True, gc=False):
    """The search was ended after so many steps, or seconds."""

    steps: int | None = None
    seconds: float | None = None


class ObjectUnreadable(Reason, frozen=True, gc=False):
    """An object of this node cannot be read, so something may be missing; `detail` names it."""

    detail: str


# Notes about what may happen next


class DeviceScore(msgspec.Struct, frozen=True, gc=False):
    """A device and its score."""

    device: DeviceId
    score: float


class RuleSetAside(Reason, frozen=True, gc=False):
    """This rule alone condemns so much of a pool that what it condemns is the last choice, by these
    policies, of pods that have waited.

    It condemns `condemned` of `devices` by the policy that it condemns most for, and may condemn
    the share `limit` (0..1). `rule` is the source of the evidence. `hard`: it is what a driver or
    hardware latched, or what a kubelet refused. `burst`: it began to within ten minutes, and names
    no devices.
    """

    rule: str
    pool: str
    policies: tuple[str, ...]
    condemned: int
    devices: int
    limit: float
    hard: bool = False
    burst: bool = False


class PodsInFlight(Reason, frozen=True, gc=False):
    """Up to so many pods with the same needs may be placed here first; what is left then.

    `then` is why this pod would be refused by then, `devices` what it may get instead.
    """

    pods: int
    then: Reason | None = None
    devices: tuple[DeviceScore, ...] = ()


class PreemptionWouldHelp(Reason, frozen=True, gc=False):
    """If the pod preempts these pods (`namespace/name`), it would get these devices."""

    victims: tuple[str, ...]
    devices: tuple[DeviceId, ...]


class PreemptionWouldNotHelp(Reason, frozen=True, gc=False):
    """With these pods gone, the node would be refused for the cause."""

    victims: tuple[str, ...]
    cause: Reason


# Notes about a pod as a whole


class PodNotInView(Reason, frozen=True, gc=False):
    """The pod was deleted, is finished, or has not been seen yet."""


class PodPlaced(Reason, frozen=True, gc=False):
    """The pod has a node; the verdicts are for another one like it."""

    node: str
    running: bool
    own_claims: bool


class PodFinished(Reason, frozen=True, gc=False):
    """The pod has ended, in the `phase` Succeeded or Failed; what is known of it.

    `reason` and `message` are those of its status. `at`: when it ended, RFC 3339 or "". `devices`
    and `units` are what it held as far as known, `node` is "" if it never had one.
    """

    phase: str
    node: str
    reason: str = ""
    message: str = ""
    at: str = ""
    devices: tuple[DeviceId, ...] = ()
    units: tuple[str, ...] = ()


class StuckIn(StrEnum):
    """What a pod does not get out of, as kubectl shows it."""

    CREATING = "ContainerCreating"
    CRASHING = "CrashLoopBackOff"
    TERMINATING = "Terminating"


class PodStuck(Reason, frozen=True, gc=False):
    """The pod does not get out of a state, since `since` in Unix seconds, and is on something that
    has failed: `cause`."""

    stuck_in: StuckIn
    since: float
    cause: Reason


class CrashAtFault(Reason, frozen=True, gc=False):
    """A container ended within a minute of the fault of a device that the pod held, or (not
    `certain`) may have held.

    `at` and `fault_at` are in Unix seconds; `fault` is what was reported of the device.
    """

    container: str
    exit_code: int
    at: float
    device: str
    fault: str
    fault_at: float
    certain: bool = True


class WorkloadStartsNowhere(Reason, frozen=True, gc=False):
    """Devices keep pods of the workload from starting on all these nodes, and none of its pods
    runs: its own image, configuration or claims are the likely cause.

    `pods`: how many of them; 0 where they are not counted.
    """

    workload: str
    nodes: tuple[str, ...]
    message: str
    pods: int = 0


class PodsRefusedEachTime(Reason, frozen=True, gc=False):
    """The kubelets of sound nodes refused every pod of a controller; `message` is the last word.

    `certain`: nothing else uses devices there, and the pod's own shape is what they refuse.
    """

    pods: int
    nodes: tuple[str, ...]
    message: str
    certain: bool


class PodsFitNowhere(Reason, frozen=True, gc=False):
    """Pods of a controller wait for a claim that no device can ever satisfy; `mistake` is what lint
    says of it."""

    pods: int
    claim: str
    mistake: str


class PodGated(Reason, frozen=True, gc=False):
    """The pod has scheduling gates."""

    gates: tuple[str, ...]


class ClaimsNotCreated(Reason, frozen=True, gc=False):
    """ResourceClaims have not been created from their templates yet."""

    claims: tuple[str, ...]


class HeldDevice(msgspec.Struct, frozen=True, gc=False):
    """A device that a claim holds; `health` None: it is not published for the node."""

    device: DeviceId
    health: Health | None


class PodHolds(Reason, frozen=True, gc=False):
    """What a pod that has a node was given: by a claim of its own, or ("") extended resources."""

    claim: str
    devices: tuple[HeldDevice, ...]
    admin_access: bool = False


class ClaimWillBeReallocated(Reason, frozen=True, gc=False):
    """As no node fits, the scheduler revokes the claim's allocation and allocates again."""

    claim: str


class ClaimStaysAllocated(Reason, frozen=True, gc=False):
    """No node fits, and the scheduler will not revoke the claim's allocation.

    `resource_claim` is what to delete, "" where it is made for the pod.
    """

    claim: str
    resource_claim: str


class NodeEndsAttempt(Reason, frozen=True, gc=False):
    """A node on which the scheduler's attempt ends in an error can keep the pod off all others."""

    node: str
    others: int
    cause: Reason


class NodeCordoned(Reason, frozen=True, gc=False):
    """The node is cordoned."""


class FurtherReasons(Reason, frozen=True, gc=False):
    """There are so many `others` of the same kind, too many to be told."""

    others: int


class PodMarked(Reason, frozen=True, gc=False):
    """The pod has the condition `fettle.dev/DeviceFailed`: its `cause` (the condition's reason) and
    message, and since when."""

    cause: str
    message: str
    since: str


class PatienceLasts(Reason, frozen=True, gc=False):
    """The pod waits for what its policy accepts, and takes Degraded devices, or a higher risk, from
    `until` on, in Unix seconds. `in_gang`: as long as pods wait that run together with others."""

    until: float
    in_gang: bool = False


class PatienceOver(Reason, frozen=True, gc=False):
    """The pod has waited long enough: it takes Degraded devices, or a higher risk, as its last
    choice, since `since`, in Unix seconds."""

    since: float


class NotEnforced(Reason, frozen=True, gc=False):
    """The pod's mode lets Fettle refuse nothing; `origin` says who set it."""

    mode: Mode
    origin: str


class FettleNotReady(Reason, frozen=True, gc=False):
    """A source of Fettle's is not synced or silent, so what it says may be old or incomplete."""

    detail: str


class SchedulerDoesNotAsk(Reason, frozen=True, gc=False):
    """The pod's scheduler is not one that the settings name (`scheduler.names`)."""

    scheduler: str
    named: tuple[str, ...]
