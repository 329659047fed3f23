"""What a policy does not accept."""

from enum import StrEnum
from typing import ClassVar

from fettle.model.health import Health
from fettle.model.reasons.base import Reason, describe_state, utc
from fettle.model.subjects import DeviceId

_PASSED_OVER = "acceptable devices exist here, but the scheduler would not take them"


class Complaint(StrEnum):
    """What about a health a policy does not accept."""

    HELD = "Held"
    UNHEALTHY = "Unhealthy"
    DEGRADED = "Degraded"
    UNKNOWN = "Unknown"
    SCORE_TOO_LOW = "ScoreTooLow"


def _not_accepted(complaint: Complaint | None, health: Health, min_score: float) -> str:
    if complaint is Complaint.UNKNOWN:
        return "Unknown"
    too_low = complaint is Complaint.SCORE_TOO_LOW
    return describe_state(health, f"score below {min_score:g}" if too_low else "")


class NodeRefusal(Reason, frozen=True, gc=False):
    """The node's own health is not acceptable; `min_score` is the policy's."""

    complaint: ClassVar[Complaint]
    health: Health
    min_score: float

    def __str__(self) -> str:
        return f"node is {_not_accepted(self.complaint, self.health, self.min_score)}"


class NodeHeld(NodeRefusal, frozen=True, gc=False):
    """An operator holds the node."""

    complaint = Complaint.HELD


class NodeUnhealthy(NodeRefusal, frozen=True, gc=False):
    """The node is Unhealthy."""

    complaint = Complaint.UNHEALTHY


class NodeDegraded(NodeRefusal, frozen=True, gc=False):
    """The node is Degraded, which the policy refuses."""

    complaint = Complaint.DEGRADED


class NodeUnknown(NodeRefusal, frozen=True, gc=False):
    """The node's health is Unknown, which the policy refuses."""

    complaint = Complaint.UNKNOWN


class NodeScoreTooLow(NodeRefusal, frozen=True, gc=False):
    """The node's score is below the policy's minimum."""

    complaint = Complaint.SCORE_TOO_LOW


class Maintenance(Reason, frozen=True, gc=False):
    """Work on the node makes it the last choice: `what` is told of it. It begins in `begins_in_s`
    seconds, before a pod of the policy ends, which runs for `runs_s`; None: it is under way."""

    what: str
    begins_in_s: float | None = None
    runs_s: int = 0

    def __str__(self) -> str:
        if self.begins_in_s is None:
            return f"the last choice: maintenance is under way: {self.what}"
        return (
            f"the last choice: maintenance begins in {_span(self.begins_in_s)}, before a pod that "
            f"runs for {_span(self.runs_s)} would end: {self.what}"
        )


class DriverIsNew(Reason, frozen=True, gc=False):
    """The node runs a new version of a driver, which the policy avoids as long as it is new: it is
    the last choice. Or the policy prefers it."""

    name: str
    version: str
    former: str
    preferred: bool = False

    def __str__(self) -> str:
        what = "preferred" if self.preferred else "the last choice"
        return f"{what}: its driver of {self.name} is new: {self.version} instead of {self.former}"


def _span(seconds: float) -> str:
    hours, minutes = divmod(int(seconds) // 60, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


class KubeletRefusedWorkload(Reason, frozen=True, gc=False):
    """The node's kubelet refused a pod of the same workload `at` that time, in Unix seconds.

    Until `until` the workload's pods go elsewhere; a note if no other node is left.
    """

    workload: str
    at: float
    until: float

    def __str__(self) -> str:
        return f"its kubelet refused a pod of {self.workload} {_avoided(self)}"


class PodsDoNotStart(Reason, frozen=True, gc=False):
    """Devices kept a pod of the same workload from starting there, last `at` that Unix time.

    Until `until` the workload's pods go elsewhere; a note if no other node is left.
    """

    workload: str
    at: float
    until: float

    def __str__(self) -> str:
        return f"a pod of {self.workload} did not start there {_avoided(self)}"


def _avoided(reason: KubeletRefusedWorkload | PodsDoNotStart) -> str:
    at, until = (f"{utc(t):%H:%M}" for t in (reason.at, reason.until))
    return (
        f"at {at} UTC: until {until} UTC the pods of {reason.workload} go elsewhere, while another "
        f"node is left"
    )


class RanHere(Reason, frozen=True, gc=False):
    """The pod that this one comes back for ran on the node: `pod` (`namespace/name`)."""

    sentence = "preferred: {pod} ran here, which this pod comes back for"
    pod: str


class FailedHere(Reason, frozen=True, gc=False):
    """The pod that this one comes back for failed on the node, `at` that time, in Unix seconds."""

    pod: str
    at: float

    def __str__(self) -> str:
        at = f"{utc(self.at):%H:%M}"
        return f"avoided: {self.pod}, which this pod comes back for, failed here at {at} UTC"


class SlowsGang(Reason, frozen=True, gc=False):
    """The pod would be the slowest of its gang here: the slowest that is placed is `pod` on `node`,
    whose worst device has this score, 0 to 1."""

    pod: str
    node: str
    score: float

    def __str__(self) -> str:
        return f"avoided: it would be the slowest of its gang here; so far that is {_slowest(self)}"


class SlowsRestOfGang(Reason, frozen=True, gc=False):
    """No member of the pod's gang is placed yet, `members` are to be as far as is known, and there
    are so many better nodes: here it would be the slowest."""

    sentence = (
        "avoided: no other member of its gang is placed yet, and as many nodes as are needed "
        "({members}) are better"
    )
    members: int


class GangIsSlow(Reason, frozen=True, gc=False):
    """The gang gains little from so good a node, since `pod` on `node` is slower: its worst device
    has this score, 0 to 1."""

    pod: str
    node: str
    score: float

    def __str__(self) -> str:
        return f"its gang gains little from so good a node: it waits for {_slowest(self)}"


def _slowest(reason: SlowsGang | GangIsSlow) -> str:
    return f"{reason.pod} on {reason.node} with a score of {reason.score:.2g}"


class DeviceRefusal(Reason, frozen=True, gc=False):
    """A device that a claim holds (`allocated`) or would get is not acceptable.

    `passed_over`: acceptable devices are here, but the scheduler would not take them;
    `taint_would_help`: it would, if a DeviceTaintRule kept it off this one.
    """

    complaint: ClassVar[Complaint]
    request: str
    device: DeviceId
    health: Health
    min_score: float
    allocated: bool = False
    passed_over: bool = False
    taint_would_help: bool = False

    def __str__(self) -> str:
        what = _not_accepted(self.complaint, self.health, self.min_score)
        rule = (
            ": a DeviceTaintRule with effect NoSchedule keeps it off those that are refused "
            "(the setting deviceTaints lets Fettle write it)"
        )
        passed_over = f"; {_PASSED_OVER}{rule if self.taint_would_help else ''}"
        return f"{_device(self)}, which is {what}{passed_over if self.passed_over else ''}"


class DeviceHeld(DeviceRefusal, frozen=True, gc=False):
    """An operator holds the device, or its node."""

    complaint = Complaint.HELD


class DeviceUnhealthy(DeviceRefusal, frozen=True, gc=False):
    """The device is Unhealthy."""

    complaint = Complaint.UNHEALTHY


class DeviceDegraded(DeviceRefusal, frozen=True, gc=False):
    """The device is Degraded, which the policy refuses."""

    complaint = Complaint.DEGRADED


class DeviceUnknown(DeviceRefusal, frozen=True, gc=False):
    """The device's health is Unknown, which the policy refuses."""

    complaint = Complaint.UNKNOWN


class DeviceScoreTooLow(DeviceRefusal, frozen=True, gc=False):
    """The device's score is below the policy's minimum."""

    complaint = Complaint.SCORE_TOO_LOW


class NodeRequirementNotMet(Reason, frozen=True, gc=False):
    """The node does not meet a requirement of the policy (`placement.requires`)."""

    sentence = "node does not meet the policy: {requirement}"
    requirement: str


class DeviceRequirementNotMet(Reason, frozen=True, gc=False):
    """A device that a claim holds or would get does not meet a requirement of the policy."""

    request: str
    device: DeviceId
    requirement: str
    allocated: bool = False
    passed_over: bool = False

    def __str__(self) -> str:
        passed_over = f"; {_PASSED_OVER}" if self.passed_over else ""
        unmet = f"which does not meet the policy: {self.requirement}"
        return f"{_device(self)}, {unmet}{passed_over}"


def _device(reason: DeviceRefusal | DeviceRequirementNotMet) -> str:
    how = "is allocated" if reason.allocated else "would get"
    return f"{reason.request} {how} {reason.device}"


class NodeRequirementUndecided(Reason, frozen=True, gc=False):
    """A requirement could not be evaluated on the node; `detail` is the evaluator's word."""

    requirement: str
    detail: str

    def __str__(self) -> str:
        why = f": {self.detail}" if self.detail else ""
        return f"what the policy requires of the node: {self.requirement}{why}"


class DeviceRequirementUndecided(Reason, frozen=True, gc=False):
    """A requirement could not be evaluated on a device."""

    sentence = "whether {device} meets the policy: {requirement}: {detail}"
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

    def __str__(self) -> str:
        undecided = (
            "which devices it would get is not decided, and there are not enough acceptable ones"
        )
        if self.health is not None:
            worst = _not_accepted(self.complaint, self.health, self.min_score)
            return f"{undecided}: {self.device} is {worst}"
        return f"{undecided}: {self.device} does not meet the policy: {self.requirement}"


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

    def __str__(self) -> str:
        return (
            f"{self.resource}: {self.acceptable} acceptable of {self.drawn}, "
            f"{self.requested} requested; "
            f"the worst is {_not_accepted(self.complaint, self.health, self.min_score)}"
        )


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

    def __str__(self) -> str:
        return (
            f"{self.resource}: {self.acceptable} acceptable of {self.drawn} that the device "
            f"plugin may give, {self.requested} requested: a bad one at {100 * self.risk:.3g} %, "
            f"more than {100 * self.max_risk:.3g} %; the worst is {describe_state(self.health)}"
        )


class UnitsWorthTooLittle(Reason, frozen=True, gc=False):
    """What a draw of units is worth is below the policy's minimum."""

    resource: str
    requested: int
    drawn: int
    value: float
    min_score: float
    health: Health

    def __str__(self) -> str:
        worst = describe_state(self.health)
        return (
            f"{self.resource}: {self.requested} drawn from {self.drawn} are worth "
            f"{self.value:.2f}, less than {self.min_score:g}; the worst is {worst}"
        )


class UnitNotAcceptable(Reason, frozen=True, gc=False):
    """A unit that a placed pod holds, or (not `certain`) may hold, is not acceptable."""

    resource: str
    unit: str
    certain: bool
    complaint: Complaint
    health: Health
    min_score: float

    def __str__(self) -> str:
        holds = "holds" if self.certain else "may hold"
        what = _not_accepted(self.complaint, self.health, self.min_score)
        return f"{holds} {self.resource} {self.unit}, which is {what}"
