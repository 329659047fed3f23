"""Pods that are stuck on their node: by what has failed under them, or since they do not start by
the node's fault, and since when; and which of these come after one that was evicted for that. Pure,
but for who asks.

Only what no tenant could have caused counts, and only what no breaker sets aside (decisions 0010
and 0060). It says where a pod is stuck; it is no evidence against a device.

That a pod does not start is what the kubelet or a driver says of the pod's own devices, or a proven
fault of them. What other pods meet on the node counts never, so nobody's pods decide about somebody
else's (decision 0093).
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import NamedTuple

from cachetools import TTLCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.api.meta import Condition, unix_s
from fettle.cluster import View
from fettle.health import is_past
from fettle.model import DEVICE_FAILED, Evidence, Family, Health, State, proven_evidence, reasons
from fettle.model.reasons import PodDoesNotStart, PodStuck, Reason, StuckIn
from fettle.pacing import pause, run_within
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import resolve_policy
from fettle.scheduling.former_nodes import KEEP_S, MOST_PLACES, place_of
from fettle.scheduling.placed.at_risk import AtRisk, PlacedPod, is_certain
from fettle.scheduling.waits import bound_at

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


class StartFailure(NamedTuple):
    """A pod that does not start on its node, and why. From `due_at` on, in Unix seconds, its policy
    lets it be evicted for that."""

    placed: PlacedPod
    why: Reason
    due_at: float

    @property
    def pod(self) -> core.Pod:
        return self.placed.pod


class StartFailures(NamedTuple):
    """Those that are due, and whether time alone makes more due."""

    due: Sequence[StartFailure] = ()
    waits: bool = False


class _Failing(NamedTuple):
    pod: core.Pod
    why: PodDoesNotStart | PodStuck
    due_at: float


async def find_start_failures(answers: Answers, at_risk: AtRisk, now: float) -> StartFailures:
    """In the newest view. `now` is in Unix seconds."""
    view, found = answers.view, await at_risk.current()

    def find() -> list[_Failing]:
        return [*_by_words(answers, view), *_by_proof(found.values(), now)]

    failing = await run_within(find)
    due = {one.pod.metadata.key: one for one in failing if one.due_at <= now}
    placed = await at_risk.placed(one.pod for one in due.values())
    failures = [StartFailure(one, due[one.key].why, due[one.key].due_at) for one in placed]
    return StartFailures(failures, waits=len(due) < len(failing))


def _by_words(answers: Answers, view: View) -> Iterator[_Failing]:
    """By what is said of their devices, where their workload is not the likely cause."""
    for key, start in view.failed_starts.items():
        pause()
        pod = view.pods.get(key)
        if pod is None or pod.metadata.uid != start.pod.metadata.uid or ran(pod):
            continue
        if start.is_over or start.blamed or not start.message:
            continue
        deadline_s = resolve_policy(pod, view, answers.policies).policy.failure.start_deadline_s
        if deadline_s is not None:
            why = PodDoesNotStart(start.message, start.at)
            yield _Failing(pod, why, max(start.at, bound_at(pod)) + deadline_s)


def _by_proof(found: Iterable[PlacedPod], now: float) -> Iterator[_Failing]:
    """By a proven fault of what they certainly are on."""
    for placed in found:
        pause()
        deadline_s = placed.policy.failure.start_deadline_s
        if deadline_s is None or ran(placed.pod):
            continue
        why = stuck(placed, now)
        if why is not None and why.stuck_in is StuckIn.CREATING:
            yield _Failing(placed.pod, why, why.since + deadline_s)


def ran(pod: core.Pod) -> bool:
    """Whether one of its containers has run, but for init containers: then it did start."""
    statuses = (pod.status.container_statuses if pod.status is not None else None) or ()
    return any(map(_ran, statuses)) or _was_ready(pod)


def _was_ready(pod: core.Pod) -> bool:
    """A container's status tells of its last run alone, and that may be a restart that failed. Both
    conditions are first set at once, by the kubelet's clock; Ready changes later only if it was
    True."""
    ready, initialized = pod.condition("Ready"), pod.condition("Initialized")
    if ready is None or initialized is None:
        return False
    began = unix_s(initialized.last_transition_time, inf)
    return unix_s(ready.last_transition_time, 0.0) > began


def _ran(container: core.ContainerStatus) -> bool:
    if container.state is None:
        return False
    last = container.last_state.terminated if container.last_state is not None else None
    ended = container.state.terminated or last
    if ended is not None:
        return ended.reason not in core.START_FAILED
    return container.state.waiting is None


class FreedPlaces:
    """The places of workloads whose pod was evicted because it did not start, and in which none has
    run since. `put` each pod as it arrives.

    Every replica knows it from the pods; after a restart, only from those that still exist. Pods
    are compared by the API server's clock alone.
    """

    def __init__(self) -> None:
        self._freed: TTLCache[str, float] = TTLCache(MOST_PLACES, KEEP_S)
        """By place: when a pod was evicted first, in Unix seconds."""

    def observe(self, new: WireObject) -> None:
        """An object as it is now, before a view shows it."""
        if not isinstance(new, core.Pod) or not new.node_name:
            return
        evicted_at = _evicted_at(new)
        if evicted_at is None and not self._freed:
            return
        if not (place := place_of(new)):
            return
        if evicted_at is not None:
            self._freed.setdefault(place, evicted_at)
        elif self.is_freed(new) and ran(new):
            self._freed.pop(place, None)

    def is_freed(self, pod: core.Pod) -> bool:
        """Whether it came after a pod that was evicted for that, in its place."""
        evicted_at = self._freed.get(place_of(pod), inf)
        return unix_s(pod.metadata.creation_timestamp, 0.0) >= evicted_at


def _evicted_at(pod: core.Pod) -> float | None:
    """When it was evicted with our mark before it ran; None if it was not."""
    mark, disruption = pod.condition(DEVICE_FAILED), pod.condition("DisruptionTarget")
    if mark is None or mark.status != "True" or not pod.disruption or ran(pod):
        return None
    return unix_s(disruption.last_transition_time if disruption is not None else None, 0.0)
