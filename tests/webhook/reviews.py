"""AdmissionReviews as the API server sends them, and what its defaulting does to objects."""

import base64
import copy
from typing import Any

import msgspec

Object = dict[str, Any]

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


def review(object: Object | None, /, operation: str = "CREATE", **request: Any) -> Object:
    """A review of this object; further fields of the request by keyword."""
    group, _, version = str((object or {}).get("apiVersion", "v1")).rpartition("/")
    kind = {"group": group, "version": version, "kind": (object or {}).get("kind", "Pod")}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": kind,
            "requestKind": kind,
            "resource": {"group": group, "version": version, "resource": "things"},
            "namespace": "team",
            "operation": operation,
            "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
            "object": object,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            **request,
        },
    }


def tolerations(seconds: int = 300) -> list[Object]:
    """What DefaultTolerationSeconds adds."""
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in (NOT_READY, UNREACHABLE)
    ]


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """A pod as admission sees it: defaulted, with fields that nobody here knows."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "worker",
            "namespace": "team",
            "creationTimestamp": None,
            **({"annotations": annotations} if annotations is not None else {}),
        },
        "spec": {
            "containers": [
                {"name": "main", "image": "train", "resources": {}, "newField": {"x": 1}},
                {"name": "side", "image": "log", "resources": {}},
            ],
            "restartPolicy": "Always",
            "tolerations": tolerations(),
            "fieldOfTheFuture": ["kept"],
            **spec,
        },
        "status": {},
    }


def seconds(object: Object) -> dict[str, int]:
    """For how long a pod tolerates which taint."""
    return {e["key"]: e["tolerationSeconds"] for e in object["spec"]["tolerations"]}


GPU = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}
CLAIMS = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]


def job(
    annotations: dict[str, str] | None = None, template: Object | None = None, **spec: Any
) -> Object:
    """A Job as admission sees it: defaulted."""
    pod_spec = {
        "containers": [{"name": "main", "image": "train", "resources": {}}],
        "restartPolicy": "Never",
        **(template or {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team",
            **({"annotations": annotations} if annotations is not None else {}),
        },
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "suspend": False,
            "podReplacementPolicy": "TerminatingOrFailed",
            "manualSelector": False,
            "template": {"metadata": {"creationTimestamp": None}, "spec": pod_spec},
            **spec,
        },
        "status": {},
    }


def stored(object: Object) -> Object:
    """The object after the API server's defaulting, as far as it touches what we write."""
    made = copy.deepcopy(object)
    for container in made["spec"].get("containers", []):
        resources = container.get("resources", {})
        for name, amount in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(name, amount)
    for rule in (made["spec"].get("podFailurePolicy") or {}).get("rules", []):
        for pattern in rule.get("onPodConditions", []):
            pattern.setdefault("status", "True")
    return made


def encoded(object: Any) -> bytes:
    return msgspec.json.encode(object)


def patch_of(response: Object) -> list[Object]:
    """The operations in a response."""
    if "patch" not in response:
        assert "patchType" not in response
        return []
    assert response["patchType"] == "JSONPatch"
    operations: list[Object] = msgspec.json.decode(base64.b64decode(response["patch"]))
    return operations
