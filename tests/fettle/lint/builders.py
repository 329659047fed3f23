"""Claims, templates and pods as raw JSON, and views that know some of them."""

from typing import Any

import msgspec

from fettle import view
from fettle.lint.contexts import ViewContext
from fettle.view import View
from fettle.wire import kinds, resource

Object = dict[str, Any]


def claim(*requests: Object, name: str = "gpus", namespace: str = "team") -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": list(requests)}},
    }


def template(*requests: Object, name: str = "gpus", namespace: str = "team") -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": list(requests)}}},
    }


def exactly(name: str = "gpu", **fields: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": "gpu.nvidia.com", **fields}}


def alternatives(*subrequests: Object, name: str = "gpu") -> Object:
    return {"name": name, "firstAvailable": list(subrequests)}


def alternative(name: str, **fields: Any) -> Object:
    return {"name": name, "deviceClassName": "gpu.nvidia.com", **fields}


def pod_spec(
    *uses: Object, claims: list[Object] | None = None, group: str = "containers"
) -> Object:
    """A pod whose one container uses claims like this."""
    default = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
    container = {"name": "main", "resources": {"claims": list(uses)}}
    return {"resourceClaims": default if claims is None else claims, group: [container]}


def pod(spec: Object, namespace: str = "team") -> Object:
    metadata = {"name": "worker", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def knowing(*objects: Object, synced: bool = True) -> View:
    """A view of a cluster that holds these claims and templates."""
    claims: dict[str, resource.ResourceClaim] = {}
    templates: dict[str, resource.ResourceClaimTemplate] = {}
    for raw in objects:
        decoded = kinds.BY_NAME[raw["kind"]].decode(msgspec.json.encode(raw))
        if isinstance(decoded, resource.ResourceClaim):
            claims[decoded.metadata.key] = decoded
        elif isinstance(decoded, resource.ResourceClaimTemplate):
            templates[decoded.metadata.key] = decoded
    return msgspec.structs.replace(view.EMPTY, synced=synced, claims=claims, templates=templates)


def context(*objects: Object, synced: bool = True) -> ViewContext:
    return ViewContext(knowing(*objects, synced=synced), "team")
