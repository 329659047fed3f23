"""Notes about a pod as a whole."""

from enum import StrEnum

import msgspec

from fettle.model.health import Health
from fettle.model.modes import NO_SETTINGS, Mode
from fettle.model.policy import DEVICE_FAILED
from fettle.model.reasons.base import Reason, describe_state, listed, moment
from fettle.model.subjects import DeviceId


class PodNotInView(Reason, frozen=True, gc=False):
    """The pod was deleted, is finished, or has not been seen yet."""

    sentence = "deleted, finished, or not seen yet: judged as the scheduler last sent it"


class PodPlaced(Reason, frozen=True, gc=False):
    """The pod has a node; the verdicts are for another one like it."""

    node: str
    running: bool
    own_claims: bool

    def __str__(self) -> str:
        where = "runs on" if self.running else "is bound to"
        yet = "" if self.running else " and does not run yet"
        new = ", which gets claims of its own" if self.own_claims else ""
        return f"the pod {where} {self.node}{yet}: the verdicts are for another pod like it{new}"


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

    def __str__(self) -> str:
        where = f" on {self.node}" if self.node else ""
        at = f" at {self.at}" if self.at else ""
        why = ": ".join(filter(None, (self.reason, self.message)))
        had = [*self.devices, *self.units]
        held = f"; it held {listed(had)}" if had else ""
        return (
            f"the pod is finished: {self.phase}{where}{at}{f' ({why})' if why else ''}{held}; the "
            "verdicts are for another pod like it"
        )


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

    def __str__(self) -> str:
        return f"stuck in {self.stuck_in} since {moment(self.since)}: {self.cause}"


class PodDoesNotStart(Reason, frozen=True, gc=False):
    """Devices keep the pod from starting on its node, since `since` in Unix seconds; `message` is
    what the kubelet or the driver says of them."""

    message: str
    since: float

    def __str__(self) -> str:
        return f"not started since {moment(self.since)}: {self.message}"


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

    def __str__(self) -> str:
        seconds = round(self.at - self.fault_at)
        when = f"{abs(seconds)} s {'after' if seconds >= 0 else 'before'}"
        cause = "is the likely" if self.certain else "the pod may hold, and may be the"
        return (
            f"container {self.container} ended with exit code {self.exit_code} at "
            f"{moment(self.at)}, {when} {self.device} was seen to fail, which {cause} "
            f"cause: {self.fault}"
        )


class WorkloadStartsNowhere(Reason, frozen=True, gc=False):
    """Devices keep pods of the workload from starting on all these nodes, and none of its pods
    runs: its own image, configuration or claims are the likely cause.

    `pods`: how many of them; 0 where they are not counted.
    """

    workload: str
    nodes: tuple[str, ...]
    message: str
    pods: int = 0

    def __str__(self) -> str:
        pods = f"{self.pods} pods" if self.pods else "pods"
        return (
            f"{pods} of {self.workload} start on none of {len(self.nodes)} nodes "
            f"({listed(self.nodes)}), so the cause is likely their own image, configuration or "
            f"claims; Fettle holds it against no node{f': {self.message}' if self.message else ''}"
        )


class PodsRefusedEachTime(Reason, frozen=True, gc=False):
    """The kubelets of sound nodes refused every pod of a controller; `message` is the last word.

    `certain`: nothing else uses devices there, and the pod's own shape is what they refuse.
    """

    pods: int
    nodes: tuple[str, ...]
    message: str
    certain: bool

    def __str__(self) -> str:
        nodes = f"{len(self.nodes)} node{'s' if len(self.nodes) > 1 else ''}"
        idle = ", though nothing else uses devices there" if self.certain else ""
        return (
            f"the kubelets of {nodes} ({listed(self.nodes)}) refused each of its last {self.pods} "
            f"pods, and none runs{idle}: {self.message}"
        )


class PodsFitNowhere(Reason, frozen=True, gc=False):
    """Pods of a controller wait for a claim that no device can ever satisfy; `mistake` is what lint
    says of it."""

    sentence = "no device will ever satisfy {claim}, for which {pods} of its pods wait: {mistake}"
    pods: int
    claim: str
    mistake: str


class PodGated(Reason, frozen=True, gc=False):
    """The pod has scheduling gates."""

    gates: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"the pod has scheduling gates ({', '.join(self.gates)}): the scheduler does not look "
            "at it before they are removed"
        )


class ClaimsNotCreated(Reason, frozen=True, gc=False):
    """ResourceClaims have not been created from their templates yet."""

    claims: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"the ResourceClaim for {', '.join(self.claims)} has not been made from its template "
            "yet, for which the scheduler waits: events of the pod say why, such as a quota"
        )


class HeldDevice(msgspec.Struct, frozen=True, gc=False):
    """A device that a claim holds; `health` None: it is not published for the node."""

    device: DeviceId
    health: Health | None


class PodHolds(Reason, frozen=True, gc=False):
    """What a pod that has a node was given: by a claim of its own, or ("") extended resources."""

    claim: str
    devices: tuple[HeldDevice, ...]
    admin_access: bool = False

    def __str__(self) -> str:
        what = f"its claim {self.claim}" if self.claim else "its extended resources"
        has = "has admin access to" if self.admin_access else "holds"
        devices = (
            f"{held.device}, {describe_state(held.health)}"
            if held.health is not None
            else f"{held.device}, which is not published for this node"
            for held in self.devices
        )
        return f"for {what} it {has} {'; '.join(devices)}"


class ClaimWillBeReallocated(Reason, frozen=True, gc=False):
    """As no node fits, the scheduler revokes the claim's allocation and allocates again."""

    sentence = (
        "claim {claim} is allocated and no other pod uses it: as no node fits, the "
        "scheduler revokes the allocation and allocates again, unless taints, node selectors or a "
        "lack of cpu or memory keep the pod off the other nodes anyway"
    )
    claim: str


class ClaimStaysAllocated(Reason, frozen=True, gc=False):
    """No node fits, and the scheduler will not revoke the claim's allocation.

    `resource_claim` is what to delete, "" where it is made for the pod.
    """

    claim: str
    resource_claim: str

    def __str__(self) -> str:
        what = f"ResourceClaim {self.resource_claim}" if self.resource_claim else "the pod"
        return (
            f"claim {self.claim} is allocated and no other pod uses it, but the scheduler revokes "
            "that only if it looks at a node where the claim cannot be used, and there is none: "
            f"delete {what} and create it again to have it anew"
        )


class NodeEndsAttempt(Reason, frozen=True, gc=False):
    """A node on which the scheduler's attempt ends in an error can keep the pod off all others."""

    node: str
    others: int
    cause: Reason

    def __str__(self) -> str:
        more = f" (and {self.others} more)" if self.others else ""
        return (
            f"node {self.node}{more} can keep the pod off all other nodes: if the scheduler looks "
            f"at it, its attempt to place the pod ends in an error: {self.cause}"
        )


class NodeCordoned(Reason, frozen=True, gc=False):
    """The node is cordoned."""

    sentence = "cordoned: the scheduler places only pods there that tolerate that"


class FurtherReasons(Reason, frozen=True, gc=False):
    """There are so many `others` of the same kind, too many to be told."""

    sentence = "and {others} more"
    others: int


class PodMarked(Reason, frozen=True, gc=False):
    """The pod has the condition `fettle.dev/DeviceFailed`: its `cause` (the condition's reason) and
    message, and since when."""

    cause: str
    message: str
    since: str

    def __str__(self) -> str:
        since = f" since {self.since}" if self.since else ""
        return f"has the condition {DEVICE_FAILED}{since} ({self.cause}): {self.message}"


class PatienceLasts(Reason, frozen=True, gc=False):
    """The pod waits for what its policy accepts, and takes Degraded devices, or a higher risk, from
    `until` on, in Unix seconds. `in_gang`: as long as pods wait that run together with others."""

    until: float
    in_gang: bool = False

    def __str__(self) -> str:
        gang = ", as one of a gang," if self.in_gang else ""
        return (
            f"it waits for sound devices{gang} until {moment(self.until)}; then it takes Degraded "
            "ones, or a higher risk"
        )


class PatienceOver(Reason, frozen=True, gc=False):
    """The pod has waited long enough: it takes Degraded devices, or a higher risk, as its last
    choice, since `since`, in Unix seconds."""

    since: float

    def __str__(self) -> str:
        return (
            f"it has waited for sound devices until {moment(self.since)}; since then it takes "
            "Degraded ones, or a higher risk, where nothing better is left"
        )


class NotEnforced(Reason, frozen=True, gc=False):
    """The pod's mode lets Fettle refuse nothing; `origin` says who set it."""

    mode: Mode
    origin: str

    def __str__(self) -> str:
        if self.origin == NO_SETTINGS:
            return f"{NO_SETTINGS}: these are the verdicts of a Fettle with built-in ones"
        does = (
            "changes nothing for this pod and only records these verdicts"
            if self.mode is Mode.OBSERVE
            else "ranks nodes for this pod and refuses none"
        )
        return f"mode {self.mode} ({self.origin}): Fettle {does}"


class FettleNotReady(Reason, frozen=True, gc=False):
    """A source of Fettle's is not synced or silent, so what it says may be old or incomplete."""

    sentence = "Fettle is not ready: {detail}"
    detail: str


class SchedulerDoesNotAsk(Reason, frozen=True, gc=False):
    """The pod's scheduler is not one that the settings name (`scheduler.names`)."""

    scheduler: str
    named: tuple[str, ...]

    def __str__(self) -> str:
        named = ", ".join(self.named) or "none"
        return (
            f"scheduler {self.scheduler} does not ask Fettle, as far as the settings say "
            f"(scheduler.names: {named}): it places this pod without these verdicts"
        )
