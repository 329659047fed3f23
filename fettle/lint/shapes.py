"""Where claim specs, pod specs and Job specs are in the kinds of object that hold them: a table.

The webhook's mutations go by it too, so that what names a policy is also what is judged.
"""

from collections.abc import Iterable, Iterator, Mapping

from fettle.api.raw import Raw, text
from fettle.config import WorkloadSettings
from fettle.lint.fields import Field

Path = tuple[str, ...]
Table = Mapping[tuple[str, str], tuple[Path, ...]]
"""(API group, kind) → paths; `*` in one stands for each entry of a list or object."""


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


def with_own(rows: Iterable[WorkloadSettings]) -> Table:
    """Pod templates with those of the settings' rows, which replace those of the same kind."""
    return {**POD_TEMPLATES, **{(row.group, row.kind): _paths(*row.templates) for row in rows}}


def pod_specs(group: str, kind: str, templates: Table) -> tuple[Path, ...]:
    """Where such an object has specs of pods: its own, or those in its templates."""
    if (group, kind) == ("", "Pod"):
        return _paths("spec")
    return tuple((*path, "spec") for path in templates.get((group, kind), ()))


def specs(object: Raw, table: Table) -> Iterator[Field]:
    """The specs that the table says are in such an object; an absent one reads as empty."""
    group, slash, _ = text(object.get("apiVersion")).partition("/")
    for path in table.get((group if slash else "", text(object.get("kind"))), ()):
        yield from walk(Field("", object), path)


def walk(field: Field, path: Path) -> Iterator[Field]:
    """The objects to which a path leads."""
    for there in found(field, path):
        if isinstance(there.value, dict | None):
            yield Field(there.path, there.value or {})


def found(field: Field, path: Path) -> Iterator[Field]:
    """Whatever stands where a path leads."""
    if not path:
        yield field
    elif path[0] != "*":
        yield from found(field.at(path[0]), path[1:])
    elif isinstance(field.value, dict):
        for _, member in field.members():
            yield from found(member, path[1:])
    else:
        for entry in field.entries():
            yield from found(entry, path[1:])
