"""The core group (`v1`): Node, Pod, Namespace and ResourceQuota, as far as devices are concerned;
and which workload a pod is part of: one name for all pods that do the same."""

from collections.abc import Iterator
from datetime import datetime

import msgspec

from fettle.api.annotations import ApiObject
from fettle.api.meta import Condition, ObjectMeta, OwnerReference, Wire
from fettle.pacing import pause

Quantities = dict[str, str | int]
_OUTLIVING = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "actions.github.com/scale-set-name": "AutoscalingRunnerSet",
}
"""Labels that name on each pod a workload that outlives the pod's controller, and its kind: to try
again, it makes a new Job, StatefulSet or EphemeralRunner."""


class NodeSelectorRequirement(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Wire, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class NodeSelector(Wire, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class Taint(Wire, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class NodeAffinity(Wire, frozen=True, kw_only=True):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None


class Toleration(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSpec(Wire, frozen=True, kw_only=True):
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool = False


class NodeSystemInfo(Wire, frozen=True, kw_only=True):
    boot_id: str = msgspec.field(default="", name="bootID")
    kubelet_version: str = ""


class NodeAddress(Wire, frozen=True, kw_only=True):
    address: str = ""


class NodeStatus(Wire, frozen=True, kw_only=True):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: tuple[Condition, ...] | None = None
    node_info: NodeSystemInfo | None = None
    addresses: tuple[NodeAddress, ...] | None = None


class Node(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None
    cut: tuple[str, ...] = msgspec.field(default=(), name="fettle.dev/cut")
    """What of it was too long to be read (see `trimming.py`)."""


class ContainerClaim(Wire, frozen=True, kw_only=True):
    name: str
    request: str = ""


class ResourceRequirements(Wire, frozen=True, kw_only=True):
    requests: Quantities | None = None
    limits: Quantities | None = None
    claims: tuple[ContainerClaim, ...] | None = None


class Container(Wire, frozen=True, kw_only=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class PodResourceClaim(Wire, frozen=True, kw_only=True):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGate(Wire, frozen=True, kw_only=True):
    name: str = ""


class PodSchedulingGroup(Wire, frozen=True, kw_only=True):
    pod_group_name: str = ""


LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of nodes from which Kubernetes itself evicts. Every pod tolerates them for a while."""
DEFAULT_SCHEDULER = "default-scheduler"
"""The scheduler of pods without a `spec.schedulerName`. The API server fills it in before
admission."""


class PodSpec(Wire, frozen=True, kw_only=True):
    """`tolerations` without those of `LOST`: nearly every pod has them, and they say nothing of
    where it may go."""

    scheduler_name: str | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] | None = None
    scheduling_group: PodSchedulingGroup | None = None
    node_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: Quantities | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None

    def __post_init__(self) -> None:
        if self.tolerations:
            kept = tuple(one for one in self.tolerations if one.key not in LOST)
            msgspec.structs.force_setattr(self, "tolerations", kept or None)


class ResourceHealth(Wire, frozen=True, kw_only=True):
    resource_id: str = msgspec.field(default="", name="resourceID")
    health: str = ""
    message: str = ""


class ResourceStatus(Wire, frozen=True, kw_only=True):
    """One entry of `allocatedResourcesStatus`. `name` is an extended resource or
    `claim:<claim>/<request>`."""

    name: str
    resources: tuple[ResourceHealth, ...] | None = None


CANNOT_START = frozenset({"CreateContainerError", "RunContainerError", "StartError"})
"""Why a container waits that cannot be created or started."""
START_FAILED = frozenset({"StartError", "ContainerCannotRun"})
"""Why a container ended that never ran."""
_LONGEST_MESSAGE = 2048


def _keep_message(state: "ContainerStateWaiting | ContainerStateTerminated", needed: bool) -> None:
    kept = state.message[:_LONGEST_MESSAGE] if needed else ""
    msgspec.structs.force_setattr(state, "message", kept)


class ContainerStateTerminated(Wire, frozen=True, kw_only=True):
    """`message` only of a container that never ran: what others write as they end can be large, and
    is their own."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.message:
            _keep_message(self, self.reason in START_FAILED)


class ContainerStateWaiting(Wire, frozen=True, kw_only=True):
    """`message` only of a container that cannot be created or started."""

    reason: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        if self.message:
            _keep_message(self, self.reason in CANNOT_START)


class ContainerState(Wire, frozen=True, kw_only=True):
    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Wire, frozen=True, kw_only=True):
    name: str = ""
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] | None = None


class PodResourceClaimStatus(Wire, frozen=True, kw_only=True):
    name: str
    resource_claim_name: str | None = None


class PodStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    nominated_node_name: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None


class Pod(ApiObject, frozen=True, kw_only=True):
    spec: PodSpec | None = None
    status: PodStatus | None = None

    @property
    def node_name(self) -> str:
        """The node that the pod is bound to; "" if none."""
        return (self.spec.node_name if self.spec is not None else None) or ""

    @property
    def scheduler_name(self) -> str:
        """The name of the scheduler that places it."""
        return (self.spec.scheduler_name if self.spec is not None else None) or DEFAULT_SCHEDULER

    @property
    def priority(self) -> int:
        """Its priority, as the API server resolved it."""
        return (self.spec.priority if self.spec is not None else None) or 0

    @property
    def preempts(self) -> bool:
        """Whether it may preempt pods of lower priority."""
        return self.spec is None or self.spec.preemption_policy != "Never"

    @property
    def resource_claims(self) -> tuple[PodResourceClaim, ...]:
        return (self.spec.resource_claims if self.spec is not None else None) or ()

    @property
    def scheduling_gates(self) -> tuple[str, ...]:
        """Names of its scheduling gates. While there is one, schedulers ignore the pod."""
        gates = (self.spec.scheduling_gates if self.spec is not None else None) or ()
        return tuple(gate.name for gate in gates)

    @property
    def pod_group(self) -> str:
        """The PodGroup that it is placed with, `namespace/name`; "" if none."""
        group = self.spec.scheduling_group if self.spec is not None else None
        return f"{self.metadata.namespace}/{group.pod_group_name}" if group is not None else ""

    @property
    def nominated_node(self) -> str:
        """The node on which the scheduler preempts pods for it; "" if none."""
        return (self.status.nominated_node_name if self.status is not None else None) or ""

    @property
    def terminal(self) -> bool:
        return self.status is not None and self.status.phase in ("Succeeded", "Failed")

    def condition(self, kind: str) -> Condition | None:
        """The pod's condition of this type; None if it has none."""
        conditions = (self.status.conditions if self.status is not None else None) or ()
        return next((one for one in conditions if one.type == kind), None)

    @property
    def disruption(self) -> str:
        """Why Kubernetes ends it though it could go on, such as `EvictionByEvictionAPI`; "" if it
        does not."""
        found = self.condition("DisruptionTarget")
        if found is None or found.status != "True":
            return ""
        return found.reason or found.type

    def container_statuses(self) -> Iterator[ContainerStatus]:
        for statuses in (
            (self.status.container_statuses, self.status.init_container_statuses)
            if self.status is not None
            else ()
        ):
            for one in statuses or ():
                pause()
                yield one


class ObjectReference(Wire, frozen=True, kw_only=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSource(Wire, frozen=True, kw_only=True):
    component: str = ""


class WatchedEvent(ApiObject, frozen=True, kw_only=True):
    """An Event about a Pod or Node. `last_timestamp`: when it was last seen, if its writer
    counts."""

    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    source: EventSource = msgspec.field(default_factory=EventSource)
    reporting_component: str = ""


class PartialObjectMetadata(ApiObject, frozen=True, kw_only=True):
    """Any object, if only its metadata was asked for."""


class WatchedObject(Wire, frozen=True, kw_only=True):
    """Any object, whole: `raw` is its JSON."""

    metadata: ObjectMeta = ObjectMeta()
    raw: bytes = b""


class Namespace(ApiObject, frozen=True, kw_only=True):
    pass


class ResourceQuotaSpec(Wire, frozen=True, kw_only=True):
    hard: Quantities | None = None


class ResourceQuota(ApiObject, frozen=True, kw_only=True):
    spec: ResourceQuotaSpec | None = None


def workload_of(pod: Pod) -> OwnerReference | None:
    """A workload that outlives the pod's controller, else that; None if the pod is alone."""
    metadata = pod.metadata
    for label, kind in _OUTLIVING.items():
        # A tenant may write a label, but only its own namespace can be meant by it.
        if name := metadata.label(label):
            uid = f"{metadata.namespace}/{kind}/{name}"
            return OwnerReference(kind=kind, name=name, uid=uid)
    if (controller := metadata.controller) is None:
        return None
    # Nor does a reference to another namespace's workload make a pod that one's.
    return OwnerReference(
        kind=controller.kind, name=controller.name, uid=f"{metadata.namespace}/{controller.uid}"
    )


def known_as(pod: Pod) -> OwnerReference:
    """What a pod has in common with those that come after it: its workload. A pod that is alone has
    its name, or the `generateName` that it was made from, within its namespace."""
    if (workload := workload_of(pod)) is not None:
        return workload
    metadata = pod.metadata
    name = f"{metadata.generate_name}*" if metadata.generate_name else metadata.name
    return OwnerReference(kind="Pod", name=name, uid=f"{metadata.namespace}/Pod/{name}")
