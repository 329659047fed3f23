"""Claims, their templates and the workloads that use them, as raw JSON, to mutate."""

from typing import Any

from fettle.cluster import View
from fettle.model.annotations import ANNOTATION
from tests.fettle.building import pod as pod_of
from tests.webhook.mutations import cluster, context_of
from tests.webhook.reviews import Object

OWN = {ANNOTATION: "own"}

KEY = "vendor.example.com/ecc"

TOLERANT = context_of({"tolerations": {"devices": [{"key": KEY, "seconds": 60}]}})

BOTH = context_of({"tolerations": {"devices": [{"key": KEY}], "degradedAsFallback": True}})

NO_SCHEDULE = {"key": KEY, "operator": "Exists", "effect": "NoSchedule"}

NO_EXECUTE = {"key": KEY, "operator": "Exists", "effect": "NoExecute"}


def exactly(name: str = "gpu", **more: Any) -> Object:
    """A request as the API stores it."""
    option = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **more}
    return {"name": name, "exactly": option}


def either(*names: str, last: Object | None = None) -> Object:
    options: list[Object] = [
        {"name": name, "deviceClassName": name, "allocationMode": "ExactCount", "count": 1}
        for name in names
    ]
    options[-1] |= last or {}
    return {"name": "gpu", "firstAvailable": options}


def spec(*requests: Object, **devices: Any) -> Object:
    return {"devices": {"requests": list(requests or (exactly(),)), **devices}}


def claim(
    spec_: Object | None = None, annotations: Object | None = None, **metadata: Any
) -> Object:
    named = {"name": "gpus", "namespace": "team", "annotations": annotations or dict(OWN)}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {**named, **metadata},
        "spec": spec_ or spec(),
    }


def template(spec_: Object | None = None, **metadata: Any) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": "team", "annotations": dict(OWN), **metadata},
        "spec": {"metadata": {}, "spec": spec_ or spec()},
    }


def requests(object: Object) -> list[Object]:
    inner = object["spec"] if object["kind"] == "ResourceClaim" else object["spec"]["spec"]
    found: list[Object] = inner["devices"]["requests"]
    return found


def owned(**metadata: Any) -> Object:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "worker", "controller": True}
    return claim(annotations={"x": "y"}, ownerReferences=[owner], **metadata)


def knowing_worker(**annotations: str) -> View:
    metadata = {"name": "worker", "namespace": "team", "annotations": annotations}
    return cluster(pods={"team/worker": pod_of({"metadata": metadata})})
