"""Claims, templates and pods as raw JSON, and views that know some of them."""

from typing import Any

import msgspec

from fettle.api import kinds, resource
from fettle.api.meta import ObjectMeta
from fettle.cluster import View, view
from fettle.config import HealthSettings
from fettle.lint.checks import run_checks
from fettle.lint.cluster import NOTHING_KNOWN, Cluster
from fettle.lint.findings import Finding, Rule
from fettle.lint.manifests import Manifest
from fettle.model import Policies, Validation

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
    """A view of a cluster that holds these claims and templates, and the class they name."""
    claims: dict[str, resource.ResourceClaim] = {}
    templates: dict[str, resource.ResourceClaimTemplate] = {}
    gpus = resource.DeviceClass(metadata=ObjectMeta(name="gpu.nvidia.com"))
    for raw in objects:
        decoded = kinds.BY_NAME[raw["kind"]].decode(msgspec.json.encode(raw))
        if isinstance(decoded, resource.ResourceClaim):
            claims[decoded.metadata.key] = decoded
        elif isinstance(decoded, resource.ResourceClaimTemplate):
            templates[decoded.metadata.key] = decoded
    return msgspec.structs.replace(
        view.EMPTY,
        basis=1,
        synced=synced,
        claims=claims,
        templates=templates,
        classes={gpus.metadata.name: gpus},
    )


def cluster(*objects: Object, synced: bool = True) -> Cluster:
    return Cluster(knowing(*objects, synced=synced))


def findings(rule: Rule, object: Object, known: Cluster = NOTHING_KNOWN) -> list[Finding]:
    """What one rule says of an object, whose namespace is `team` unless it names its own."""
    found = rule.check(Manifest(object, "team"), known)
    return [finding for finding in found if finding is not None]


def checked(object: Object) -> list[Finding]:
    manifest = Manifest(object)
    return list(run_checks(manifest, Policies(), {}, None, Validation(), HealthSettings()))
