"""Where claim specs, pod specs and Job specs are in the kinds of object that hold them: a table."""

from collections.abc import Iterator, Mapping

from fettle.lint.fields import Field
from fettle.lint.raw import Raw, text

Table = Mapping[tuple[str, str], tuple[str, ...]]
"""(API group, kind) → path of the spec; `*` stands for each entry of a list or object."""

_DRA = "resource.k8s.io"
_TEMPLATE = ("spec", "template", "spec")

CLAIM_SPECS: Table = {
    (_DRA, "ResourceClaim"): ("spec",),
    (_DRA, "ResourceClaimTemplate"): ("spec", "spec"),
}
CLASS_SPECS: Table = {(_DRA, "DeviceClass"): ("spec",)}
JOB_SPECS: Table = {
    ("batch", "Job"): ("spec",),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec"),
    ("jobset.x-k8s.io", "JobSet"): ("spec", "replicatedJobs", "*", "template", "spec"),
}
POD_SPECS: Table = {
    ("", "Pod"): ("spec",),
    ("", "PodTemplate"): ("template", "spec"),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    **{kind: (*path, "template", "spec") for kind, path in JOB_SPECS.items()},
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        *("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
    ),
    ("kubeflow.org", "PyTorchJob"): ("spec", "pytorchReplicaSpecs", "*", "template", "spec"),
    ("ray.io", "RayCluster"): ("spec", "workerGroupSpecs", "*", "template", "spec"),
    ("ray.io", "RayJob"): (
        *("spec", "rayClusterSpec", "workerGroupSpecs", "*", "template", "spec"),
    ),
}


def specs(object: Raw, table: Table) -> Iterator[Field]:
    """The specs that the table says are in such an object; an absent one reads as empty."""
    group, slash, _ = text(object.get("apiVersion")).partition("/")
    path = table.get((group if slash else "", text(object.get("kind"))))
    if path is not None:
        yield from walk(Field("", object), path)


def walk(field: Field, path: tuple[str, ...]) -> Iterator[Field]:
    """The objects to which a path leads."""
    for there in found(field, path):
        if isinstance(there.value, dict | None):
            yield Field(there.path, there.value or {})


def found(field: Field, path: tuple[str, ...]) -> Iterator[Field]:
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
