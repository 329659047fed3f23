"""Which kinds make pods, and where they keep what their pods' annotations come from: a table of
paths as `webhook/places.py` reads them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fettle.settings import WorkloadSettings


class Workload(NamedTuple):
    """`annotated`: paths of metadata whose annotations reach the pods. `jobs`: paths of Job specs.

    `restamped`: its templates may be changed later. `also_made`: it is stamped even where a
    controller made it, which must not be done to what its maker compares with its own template (a
    Deployment would make one ReplicaSet after another).
    """

    annotated: tuple[str, ...]
    jobs: tuple[str, ...] = ()
    restamped: bool = False
    also_made: bool = False


Table = Mapping[tuple[str, str], Workload]
"""By API group and kind."""

_POD_TEMPLATE = "spec.template.metadata"
_JOBSET_JOBS = "spec.replicatedJobs.*.template.spec"

WORKLOADS: Table = {
    ("apps", "Deployment"): Workload((_POD_TEMPLATE,), restamped=True),
    ("apps", "StatefulSet"): Workload((_POD_TEMPLATE,), restamped=True),
    ("apps", "DaemonSet"): Workload((_POD_TEMPLATE,), restamped=True),
    ("apps", "ReplicaSet"): Workload((_POD_TEMPLATE,), restamped=True),
    ("batch", "Job"): Workload((_POD_TEMPLATE,), also_made=True),
    ("batch", "CronJob"): Workload(
        ("spec.jobTemplate.spec.template.metadata",), ("spec.jobTemplate.spec",), restamped=True
    ),
    ("jobset.x-k8s.io", "JobSet"): Workload(
        (f"{_JOBSET_JOBS}.template.metadata",), (_JOBSET_JOBS,), also_made=True
    ),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): Workload(
        (
            "spec.leaderWorkerTemplate.leaderTemplate.metadata",
            "spec.leaderWorkerTemplate.workerTemplate.metadata",
        ),
        restamped=True,
    ),
    ("kubeflow.org", "PyTorchJob"): Workload(("spec.pytorchReplicaSpecs.*.template.metadata",)),
    # It has no template of its own: `webhook/trainjobs.py`.
    ("trainer.kubeflow.org", "TrainJob"): Workload(()),
    ("ray.io", "RayCluster"): Workload(
        ("spec.headGroupSpec.template.metadata", "spec.workerGroupSpecs.*.template.metadata")
    ),
    ("ray.io", "RayJob"): Workload(
        (
            "spec.rayClusterSpec.headGroupSpec.template.metadata",
            "spec.rayClusterSpec.workerGroupSpecs.*.template.metadata",
        )
    ),
    ("resource.k8s.io", "ResourceClaimTemplate"): Workload(("spec.metadata",)),
}


def with_own(rows: Iterable[WorkloadSettings]) -> Table:
    """The table with the settings' rows, which replace those of the same kind."""
    own = {
        (row.group, row.kind): Workload(tuple(f"{path}.metadata" for path in row.templates))
        for row in rows
    }
    return {**WORKLOADS, **own}
