"""Workloads of each kind as raw JSON, to mutate."""

import json
from typing import Any

from fettle.model.annotations import ANNOTATION
from tests.webhook.mutations import OWN
from tests.webhook.reviews import CLAIMS, Object, pod

TRAINING = {ANNOTATION: "training"}

JOBSET = "jobset.x-k8s.io/JobSet"


def pod_template(**spec: Any) -> Object:
    return {"metadata": {"labels": {"a": "b"}}, "spec": pod(**spec)["spec"]}


def workload(kind: str, spec: Object, annotations: Object | None = None) -> Object:
    group, _, name = kind.rpartition("/")
    metadata = {"name": "w", "namespace": "team", "annotations": dict(annotations or TRAINING)}
    version = f"{group}/v1" if group else "v1"
    return {"apiVersion": version, "kind": name, "metadata": metadata, "spec": spec}


T = pod_template(restartPolicy="Never")

KINDS: dict[str, tuple[Object, list[list[str | int]]]] = {
    "/ReplicationController": ({"template": T}, [["template"]]),
    "apps/Deployment": ({"template": T}, [["template"]]),
    "apps/StatefulSet": ({"template": T}, [["template"]]),
    "apps/DaemonSet": ({"template": T}, [["template"]]),
    "apps/ReplicaSet": ({"template": T}, [["template"]]),
    "batch/Job": ({"template": T, "backoffLimit": 6}, [["template"]]),
    "batch/CronJob": (
        {"jobTemplate": {"spec": {"template": T}}},
        [["jobTemplate", "spec", "template"]],
    ),
    "jobset.x-k8s.io/JobSet": (
        {"replicatedJobs": [{"name": n, "template": {"spec": {"template": T}}} for n in "ab"]},
        [["replicatedJobs", i, "template", "spec", "template"] for i in range(2)],
    ),
    "leaderworkerset.x-k8s.io/LeaderWorkerSet": (
        {"leaderWorkerTemplate": {"leaderTemplate": T, "workerTemplate": T, "size": 2}},
        [["leaderWorkerTemplate", t] for t in ("leaderTemplate", "workerTemplate")],
    ),
    "kubeflow.org/PyTorchJob": (
        {"pytorchReplicaSpecs": {"Master": {"template": T}, "Worker": {"template": T}}},
        [["pytorchReplicaSpecs", r, "template"] for r in ("Master", "Worker")],
    ),
    "ray.io/RayCluster": (
        {"headGroupSpec": {"template": T}, "workerGroupSpecs": [{"template": T}]},
        [["headGroupSpec", "template"], ["workerGroupSpecs", 0, "template"]],
    ),
    "ray.io/RayJob": (
        {
            "rayClusterSpec": {
                "headGroupSpec": {"template": T},
                "workerGroupSpecs": [{"template": T}],
            },
            "submitterPodTemplate": T,
        },
        [
            ["rayClusterSpec", "headGroupSpec", "template"],
            ["rayClusterSpec", "workerGroupSpecs", 0, "template"],
            ["submitterPodTemplate"],
        ],
    ),
}


def at(object: Object, path: list[str | int]) -> Any:
    found: Any = object["spec"]
    for key in path:
        found = found[key]
    return found


USING: Object = {"resourceClaims": CLAIMS}


def template(object: Object) -> Object:
    found: Object = object["spec"]["template"]
    return found


def deployment(annotations: Object | None = None, **spec: Any) -> Object:
    own = {"metadata": {"labels": {"a": "b"}}, "spec": {**pod(**USING)["spec"], **spec}}
    return workload("apps/Deployment", {"replicas": 1, "template": own}, annotations or OWN)


def of_kind(kind: str) -> tuple[Object, list[list[str | int]]]:
    """A workload of this kind, and where its templates are."""
    spec, paths = KINDS[kind]
    return json.loads(json.dumps(workload(kind, spec, OWN))), paths
