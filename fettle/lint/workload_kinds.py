"""Which kinds of object hold claims, pods and Jobs, and where: tables of paths.

The webhook's mutations read the same tables, so every pod that gets a policy is also checked.
"""

from collections.abc import Iterable, Mapping

from fettle.config import WorkloadSettings

Path = tuple[str, ...]
Table = Mapping[tuple[str, str], tuple[Path, ...]]
"""(API group, kind) → paths; `*` in a path stands for each entry of a list or object."""


def _paths(*dotted: str) -> tuple[Path, ...]:
    return tuple(tuple(path.split(".")) for path in dotted)


def _specs_of(templates: Table) -> Table:
    return {kind: tuple((*path, "spec") for path in paths) for kind, paths in templates.items()}


_DRA = "resource.k8s.io"

CLAIM_SPECS: Table = {
    (_DRA, "ResourceClaim"): _paths("spec"),
    (_DRA, "ResourceClaimTemplate"): _paths("spec.spec"),
}
CLASS_SPECS: Table = {(_DRA, "DeviceClass"): _paths("spec")}
JOB_TEMPLATES: Table = {
    ("batch", "CronJob"): _paths("spec.jobTemplate"),
    ("jobset.x-k8s.io", "JobSet"): _paths("spec.replicatedJobs.*.template"),
}
JOB_SPECS: Table = {("batch", "Job"): _paths("spec"), **_specs_of(JOB_TEMPLATES)}
POD_TEMPLATES: Table = {
    ("", "PodTemplate"): _paths("template"),
    ("", "ReplicationController"): _paths("spec.template"),
    ("apps", "DaemonSet"): _paths("spec.template"),
    ("apps", "Deployment"): _paths("spec.template"),
    ("apps", "ReplicaSet"): _paths("spec.template"),
    ("apps", "StatefulSet"): _paths("spec.template"),
    ("batch", "Job"): _paths("spec.template"),
    ("batch", "CronJob"): _paths("spec.jobTemplate.spec.template"),
    ("jobset.x-k8s.io", "JobSet"): _paths("spec.replicatedJobs.*.template.spec.template"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _paths(
        "spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"
    ),
    ("kubeflow.org", "PyTorchJob"): _paths("spec.pytorchReplicaSpecs.*.template"),
    ("ray.io", "RayCluster"): _paths(
        "spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"
    ),
    ("ray.io", "RayJob"): _paths(
        "spec.rayClusterSpec.headGroupSpec.template",
        "spec.rayClusterSpec.workerGroupSpecs.*.template",
        "spec.submitterPodTemplate",
    ),
}


def with_settings(rows: Iterable[WorkloadSettings]) -> Table:
    """The table of pod templates with rows from the settings, which replace those of their kind."""
    return {**POD_TEMPLATES, **{(row.group, row.kind): _paths(*row.templates) for row in rows}}


def passing_on(rows: Iterable[WorkloadSettings]) -> set[tuple[str, str]]:
    """The (API group, kind) of each workload that passes its policy on to its pods; a TrainJob does
    without a template of its own."""
    return {*with_settings(rows), ("trainer.kubeflow.org", "TrainJob")}


def checked(templates: Table) -> frozenset[tuple[str, str]]:
    """The (API group, kind) of all objects that rules are about."""
    others = (("", "Pod"), ("", "Namespace"), ("fettle.dev", "DevicePolicy"))
    of_dra = (_DRA, "DeviceTaintRule")
    return frozenset((*CLAIM_SPECS, *CLASS_SPECS, *JOB_SPECS, *templates, *others, of_dra))


def pod_specs(group: str, kind: str, templates: Table) -> tuple[Path, ...]:
    """Paths of the pod specs in an object of this kind: its own, or those of its templates."""
    if (group, kind) == ("", "Pod"):
        return _paths("spec")
    return tuple((*path, "spec") for path in templates.get((group, kind), ()))
