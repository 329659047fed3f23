"""What has failed under a pod, and what the pod is stuck in there. Pure.

Only what no tenant could have caused counts, and only what no breaker sets aside (decisions 0010
and 0060). It says where a pod is stuck; it is no evidence against a device.
"""

from fettle.api import core
from fettle.api.meta import Condition, unix_s
from fettle.health import is_past
from fettle.model import Evidence, Family, Health, State, proven_evidence, reasons
from fettle.model.reasons import PodStuck, Reason, StuckIn
from fettle.scheduling.placed.at_risk import PlacedPod, is_certain

CREATING_S = 60.0
"""So long after its device failed, a pod that the kubelet still prepares is stuck. Preparing takes
seconds; a volume that takes longer is not to be mistaken for it."""
TERMINATING_S = 30.0
"""So long after its grace period, a pod that still terminates is stuck. The kubelet kills what runs
then, which takes seconds, unless it hangs in a driver."""
CRASH_S = 60.0
"""A container that ends so shortly before or after a fault was ended by it. Monitors look about
once a minute."""
GRAVE = 0.5
"""What weighs less makes no device useless at once: worn parts, and what applications cause."""
_OF_DEVICES = frozenset((Family.MEMORY, Family.LINK, Family.BUS, Family.THERMAL, Family.DRIVER))
_CRASH_LOOP = "CrashLoopBackOff"
_PREPARING = frozenset(("ContainerCreating", "PodInitializing"))


def failures(placed: PlacedPod) -> list[Reason]:
    """Why the pod's policy refuses where it is, as far as something has failed that the pod
    certainly is on: devices first, then the node."""
    return [why for why in possible_failures(placed) if is_certain(why)]


def possible_failures(placed: PlacedPod) -> list[Reason]:
    """These, and then the units that the pod may hold, as nobody knows which it does."""
    found = [why for why in placed.verdict.refusals if faults_of(why)]
    return sorted(found, key=lambda w: (not is_certain(w), isinstance(w, reasons.NodeRefusal)))


def faults_of(refusal: Reason) -> list[Evidence]:
    """The grave faults of devices by which something is Unhealthy, the first one first."""
    health = getattr(refusal, "health", None)
    if not isinstance(health, Health) or health.state is not State.UNHEALTHY:
        return []
    found = (
        weighed.evidence
        for weighed in proven_evidence(health.evidence)
        if weighed.weight >= GRAVE
        and weighed.evidence.family in _OF_DEVICES
        and not weighed.evidence.planned
        and not is_past(weighed.evidence)
    )
    return sorted(found, key=lambda evidence: evidence.observed_at)


def device_of(refusal: Reason) -> str:
    """What a refusal is about, as people call it."""
    if isinstance(refusal, reasons.DeviceRefusal):
        return str(refusal.device)
    if isinstance(refusal, reasons.UnitNotAcceptable):
        return f"{refusal.resource} {refusal.unit}"
    return "a device of its node"


def stuck(placed: PlacedPod, now: float) -> PodStuck | None:
    """What a pod is stuck in on something that has failed; None if it is not."""
    for cause in failures(placed):
        failed_at = faults_of(cause)[0].observed_at
        if (found := _stuck_in(placed.pod, failed_at, now)) is not None:
            return PodStuck(*found, cause)
    return None


def _stuck_in(pod: core.Pod, failed_at: float, now: float) -> tuple[StuckIn, float] | None:
    deleted = pod.metadata.deletion_timestamp
    if deleted is not None:  # the API gives the end of the grace period
        since = deleted.timestamp()
        return (StuckIn.TERMINATING, since) if now - since >= TERMINATING_S else None
    for container in pod.container_statuses():
        waiting = container.state.waiting if container.state is not None else None
        if waiting is None:
            continue
        if waiting.reason == _CRASH_LOOP:
            last = container.last_state.terminated if container.last_state is not None else None
            ended_at = unix_s(last.finished_at if last is not None else None, now)
            if last is None or (last.exit_code and ended_at >= failed_at - CRASH_S):
                return StuckIn.CRASHING, ended_at
        elif (waits_since := _waits_since(pod, waiting.reason)) is not None:
            since = max(waits_since, failed_at)
            if now - since >= CREATING_S:
                return StuckIn.CREATING, since
    return None


def _waits_since(pod: core.Pod, reason: str) -> float | None:
    """Since when a container is made ready, or cannot be created; None while its image may be being
    pulled, which begins once the rest is ready."""
    status = pod.status or core.PodStatus()
    taken = unix_s(status.start_time, 0.0)
    if reason in core.CANNOT_START:
        return taken
    ready = _condition(status, "PodReadyToStartContainers")
    if reason not in _PREPARING or ready is None or ready.status != "False":
        return None
    return unix_s(ready.last_transition_time, taken)


def _condition(status: core.PodStatus, kind: str) -> Condition | None:
    return next((one for one in status.conditions or () if one.type == kind), None)
