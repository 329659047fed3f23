"""Kueue's API group (`kueue.x-k8s.io`): which workloads hold quota, and what their pods are."""

import msgspec

from fettle.api.annotations import ApiObject
from fettle.api.core import PodSpec, Toleration
from fettle.api.meta import Condition, ObjectMeta, Wire


class PodTemplate(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class PodSet(Wire, frozen=True, kw_only=True):
    name: str = "main"
    count: int = 1
    template: PodTemplate = PodTemplate()


class PodSetAssignment(Wire, frozen=True, kw_only=True):
    """`flavors` by resource. `count` may be less than the pod set's."""

    name: str = "main"
    flavors: dict[str, str] | None = None
    count: int | None = None


class Admission(Wire, frozen=True, kw_only=True):
    pod_set_assignments: tuple[PodSetAssignment, ...] | None = None


class CheckState(Wire, frozen=True, kw_only=True):
    """What an AdmissionCheck says of one workload."""

    name: str = ""
    state: str = ""
    message: str = ""


class WorkloadSpec(Wire, frozen=True, kw_only=True):
    pod_sets: tuple[PodSet, ...] | None = None


class WorkloadStatus(Wire, frozen=True, kw_only=True):
    admission: Admission | None = None
    admission_checks: tuple[CheckState, ...] | None = None
    conditions: tuple[Condition, ...] | None = None

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, if it is True."""
        return next(
            (c for c in self.conditions or () if (c.type, c.status) == (kind, "True")), None
        )

    def pending(self) -> tuple[CheckState, ...]:
        """The checks that it waits for while it holds quota; none if it does not."""
        if self.admission is None or self.condition("QuotaReserved") is None:
            return ()
        if self.condition("Evicted") is not None or self.condition("Finished") is not None:
            return ()
        return tuple(one for one in self.admission_checks or () if one.state == "Pending")


class QueuedWorkload(ApiObject, frozen=True, kw_only=True):
    """A Workload: what stands in the queue for a Job and others."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class WorkloadOutline(Wire, frozen=True, kw_only=True):
    """Of a Workload whose pods cannot be read."""

    metadata: ObjectMeta
    status: WorkloadStatus = WorkloadStatus()


class AdmissionCheckSpec(Wire, frozen=True, kw_only=True):
    controller_name: str = ""


class AdmissionCheckStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] | None = None


class AdmissionCheck(ApiObject, frozen=True, kw_only=True):
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()

    @property
    def is_active(self) -> bool:
        conditions = self.status.conditions or ()
        return any((one.type, one.status) == ("Active", "True") for one in conditions)


class FlavorSpec(Wire, frozen=True, kw_only=True):
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] | None = None


class ResourceFlavor(ApiObject, frozen=True, kw_only=True):
    """The nodes that a pod set was given quota on."""

    spec: FlavorSpec = FlavorSpec()
