"""What pods say that are bound and do not start: the container runtime or a DRA driver fails.

A container's status carries the runtime's words. What a driver says is only in the kubelet's Event
FailedPrepareDynamicResources; without that, a pod with claims shows by its conditions that it
waits, which volumes and the network can cause, too. All of it is the word of the pod's namespace,
since a claim's configuration or an image can be the cause.
"""

from collections.abc import Collection, Iterator

import msgspec

from fettle.api import core, known_as
from fettle.api.meta import Condition, OwnerReference, unix_s
from fettle.health.signals import patterns
from fettle.health.signals.pods import domain_of_pod
from fettle.health.signals.reports import without_middle
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import (
    DeviceId,
    Evidence,
    EvidenceKind,
    ReporterId,
    Source,
    SourceKind,
    Subject,
    UnitId,
)

AWAITED_S = 600.0
"""After so long a pod with claims that still waits has failed to start. Preparing devices and
mounting volumes takes seconds, or a few minutes."""


class FailedStart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """That a pod does not start on its node, since `at`.

    - `workload`: what it is part of; if it is alone, its name.
    - `message`: what is said of its devices; "" if it only waits.
    - `blamed`: the nodes on which its workload fails, if that makes the workload the likely cause.
    - `devices`: those that it was given, as far as known, if something is said of devices.
    - `whole_node`: what is said is about all devices of the node.
    """

    pod: core.Pod
    workload: OwnerReference
    message: str
    at: float
    blamed: tuple[str, ...] = ()
    devices: tuple[Subject, ...] = ()
    whole_node: bool = False

    @property
    def node(self) -> str:
        return self.pod.node_name

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def is_over(self) -> bool:
        """Whether the pod has ended, so it will not start any more."""
        return self.pod.terminal


def failed_start(
    pod: core.Pod, rules: SignalRules, now: float, prepare_error: str = ""
) -> FailedStart | None:
    """Whether devices keep the pod from starting. `prepare_error`: the text of its Event
    FailedPrepareDynamicResources, if there was one."""
    if not pod.node_name:
        return None
    for said in _said_of_containers(pod):
        found = rules.said_of_start(said)
        if found is not None and not found[0].ignored:
            at = _ready_changed_at(pod, now) if pod.terminal else now
            return _failed(pod, without_middle(found[1]), at, found[0].whole_node)
    since = awaited_since(pod, now)
    if since is None:
        return None
    if (found := rules.said_of_start(prepare_error)) is not None:
        row, why = found
        return None if row.ignored else _failed(pod, without_middle(why), since, row.whole_node)
    return _failed(pod, "", since) if now >= since + AWAITED_S else None


def awaited_since(pod: core.Pod, now: float) -> float | None:
    """Since when the kubelet makes ready what the containers of a pod with claims need; None if it
    does not, or is done."""
    status = pod.status
    if status is None or status.phase != "Pending" or not pod.resource_claims or not pod.node_name:
        return None
    for condition in status.conditions or ():
        if condition.type == "PodReadyToStartContainers":
            return _possible(condition, now) if condition.status == "False" else None
    return None


def start_evidence(
    starts: Collection[FailedStart],
    rules: SignalRules,
    subject: Subject,
    workload: str,
    *,
    is_beside: bool = False,
) -> Evidence:
    """What the failed starts of one workload say of a node, or of a device that these pods were
    given. `is_beside`: of a node, where it is more likely that device."""
    worst = max(starts, key=lambda one: (bool(one.message), one.at))
    name = "start-beside" if is_beside else "start-failed" if worst.message else "start-awaited"
    signal = rules.signals[name]
    pods = f"{len(starts)} pods of {workload} do" if len(starts) > 1 else f"{workload} does"
    domain = domain_of_pod(worst.pod, worst.message)
    return Evidence(
        subject=subject,
        family=signal.family,
        kind=EvidenceKind.LEVEL,
        weight=signal.weight,
        source=Source(SourceKind.STARTS, domain),
        reporter=starts_of(workload),
        said=without_middle(
            f"{pods} not start: {worst.message or 'its devices may not be prepared'}"
        ),
        observed_at=min(one.at for one in starts),
        half_life_s=rules.half_life_s(signal.family),
        cap=signal.cap,
        reporting_namespace=worst.namespace,
        together=signal.together,
        domain=domain,
    )


def devices_meant(message: str, given: Collection[Subject]) -> tuple[Subject, ...]:
    """Of the devices that a pod was given, those that the message names, else all.

    >>> one, other = (DeviceId("gpu.nvidia.com", "gpu-01", f"gpu-{n}") for n in (1, 2))
    >>> devices_meant("cannot prepare gpu-2", [one, other]) == (other,)
    True
    """
    named = tuple(one for one in given if any(_names(message, name) for name in _called(one)))
    return named or tuple(given)


def _called(subject: Subject) -> tuple[str, ...]:
    match subject:
        case DeviceId():
            return (subject.device,)
        case UnitId():
            return subject.names
    return ()


def _names(message: str, name: str) -> bool:
    return patterns.names(message, name, joined="-")


STARTS = "starts of"
"""The kind of what reports the failed starts of a workload."""


def starts_of(workload: str) -> ReporterId:
    """Who reports failed starts."""
    return ReporterId(STARTS, workload)


def _failed(pod: core.Pod, message: str, at: float, whole_node: bool = False) -> FailedStart:
    return FailedStart(
        pod=pod, workload=known_as(pod), message=message, at=at, whole_node=whole_node
    )


def _said_of_containers(pod: core.Pod) -> Iterator[str]:
    """What is said of containers that cannot be created or started."""
    for container in pod.container_statuses():
        state = container.state
        if state is None:
            continue
        ended = state.terminated
        if state.waiting is not None:
            if state.waiting.reason in core.CANNOT_START:
                yield state.waiting.message
            ended = container.last_state.terminated if container.last_state is not None else None
        if ended is not None and ended.reason in core.START_FAILED:
            yield ended.message


def _ready_changed_at(pod: core.Pod, now: float) -> float:
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    ready = next((c for c in conditions if c.type == "Ready"), None)
    return _possible(ready, now) if ready is not None else now


def _possible(condition: Condition, now: float) -> float:
    """When it changed, by its node's clock as far as that is possible."""
    return min(unix_s(condition.last_transition_time, now), now)
