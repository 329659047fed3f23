"""Manifests that tests create: nodes with devices, classes, claims, pods, Jobs, taint rules. Pure
functions that return plain dictionaries, which a test may change before it creates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.controlplane.api import Object
from tests.controlplane.components import RULES_API

GPU = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"
DEVICE_CLASS = "gpu.nvidia.com"
AttributeValue = str | int | bool


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- nodes


def node(
    name: str,
    gpus: int = 0,
    *,
    allocatable: int | None = None,
    resource: str = GPU,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Object] = (),
    conditions: Sequence[Object] = (),
    cpu: str = "64",
    memory: str = "512Gi",
    pods: int = 110,
) -> Object:
    """A Ready node; `gpus` in capacity, and in allocatable unless that is given."""
    amounts = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    free = dict(amounts)
    if gpus or allocatable:
        amounts[resource] = str(gpus)
        free[resource] = str(gpus if allocatable is None else allocatable)
    own = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(name, None, {**own, **(labels or {})}, annotations),
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {
            "capacity": amounts,
            "allocatable": free,
            "conditions": [node_condition("Ready", "True", "KubeletReady"), *conditions],
            "declaredFeatures": ["RestartAllContainersOnContainerExits"],
        },
    }


def node_condition(
    kind: str, status: str, reason: str = "Set", message: str = "", *, since: str | None = None
) -> Object:
    at = since or now()
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


# --- dynamic resource allocation


def device(
    name: str,
    attributes: Mapping[str, AttributeValue] | None = None,
    capacity: Mapping[str, str] | None = None,
    taints: Sequence[Object] = (),
) -> Object:
    made: Object = {"name": name}
    if attributes:
        made["attributes"] = {key: _attribute(value) for key, value in attributes.items()}
    if capacity:
        made["capacity"] = {key: {"value": value} for key, value in capacity.items()}
    if taints:
        made["taints"] = [dict(taint) for taint in taints]
    return made


def gpu_devices(
    count: int, *, taints: Mapping[int, Sequence[Object]] | None = None
) -> list[Object]:
    """gpu-0, gpu-1, ..., those named by number with taints."""
    return [
        device(
            f"gpu-{i}",
            {"index": i, "productName": "NVIDIA H100 80GB HBM3"},
            {"memory": "80Gi"},
            (taints or {}).get(i, ()),
        )
        for i in range(count)
    ]


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Object:
    """For nodes and devices alike."""
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def resource_slice(
    node: str,
    devices: int | Sequence[Object],
    *,
    driver: str = DRIVER,
    pool: str | None = None,
    generation: int = 1,
    slices: int = 1,
    name: str | None = None,
) -> Object:
    found = gpu_devices(devices) if isinstance(devices, int) else [dict(d) for d in devices]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {
                "name": pool or node,
                "generation": generation,
                "resourceSliceCount": slices,
            },
            "devices": found,
        },
    }


def device_class(
    name: str = DEVICE_CLASS,
    *,
    driver: str = DRIVER,
    selectors: Sequence[str] | None = None,
    extended_resource: str | None = None,
) -> Object:
    """Selects all devices of the driver, or by the CEL expressions given instead."""
    expressions = [f'device.driver == "{driver}"'] if selectors is None else selectors
    spec: Object = {"selectors": _selectors(expressions)}
    if extended_resource:
        spec["extendedResourceName"] = extended_resource
    metadata = {"name": name}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": metadata,
        "spec": spec,
    }


def claim_spec(
    count: int = 1,
    *,
    device_class: str = DEVICE_CLASS,
    request: str = "gpu",
    selectors: Sequence[str] = (),
    tolerations: Sequence[Object] = (),
    everything: bool = False,
) -> Object:
    """One request of exactly `count` devices, or of all with `everything`."""
    exactly: Object = {"deviceClassName": device_class}
    exactly |= (
        {"allocationMode": "All"}
        if everything
        else {"allocationMode": "ExactCount", "count": count}
    )
    if selectors:
        exactly["selectors"] = _selectors(selectors)
    if tolerations:
        exactly["tolerations"] = [dict(toleration) for toleration in tolerations]
    return {"devices": {"requests": [{"name": request, "exactly": exactly}]}}


def claim(
    name: str,
    spec: Object | None = None,
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": _metadata(name, namespace, None, annotations),
        "spec": spec or claim_spec(),
    }


def claim_template(
    name: str,
    spec: Object | None = None,
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "metadata": {"annotations": dict(annotations or {})},
            "spec": spec or claim_spec(),
        },
    }


def device_taint_rule(
    name: str,
    key: str,
    effect: str | None = "NoSchedule",
    *,
    value: str = "",
    driver: str | None = None,
    pool: str | None = None,
    device: str | None = None,
) -> Object:
    """Selects by what is given; nothing given selects every device. `effect` None omits it."""
    chosen = {"driver": driver, "pool": pool, "device": device}
    put = {"key": key, "effect": effect, "value": value}
    return {
        "apiVersion": RULES_API,
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {
            "deviceSelector": {k: v for k, v in chosen.items() if v is not None},
            "taint": {k: v for k, v in put.items() if v},
        },
    }


# --- workloads


def pod_template(
    *,
    gpus: int = 0,
    resource: str = GPU,
    templates: Mapping[str, str] | None = None,
    claims: Mapping[str, str] | None = None,
    cpu: str = "100m",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    tolerations: Sequence[Object] = (),
    priority_class: str | None = None,
    restart_policy: str = "Never",
    node_selector: Mapping[str, str] | None = None,
    node: str | None = None,
) -> Object:
    """Metadata and spec of a pod of one container. `templates` and `claims` name, per claim of the
    pod, the ResourceClaimTemplate or the ResourceClaim; the container uses all of them. `node`
    binds the pod there without a scheduler."""
    resources: Object = {"requests": {"cpu": cpu}}
    if gpus:
        resources["limits"] = {resource: str(gpus)}
    used = [
        {"name": key, "resourceClaimTemplateName": name} for key, name in (templates or {}).items()
    ]
    used += [{"name": key, "resourceClaimName": name} for key, name in (claims or {}).items()]
    if used:
        resources["claims"] = [{"name": one["name"]} for one in used]
    spec: Object = {
        "restartPolicy": restart_policy,
        "containers": [
            {"name": "main", "image": "example.com/none:1", "resources": resources},
        ],
        "terminationGracePeriodSeconds": 1,
    }
    optional: Object = {
        "resourceClaims": used,
        "tolerations": [dict(toleration) for toleration in tolerations],
        "priorityClassName": priority_class,
        "nodeSelector": dict(node_selector or {}),
        "nodeName": node,
    }
    spec |= {key: value for key, value in optional.items() if value}
    metadata = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    return {"metadata": metadata, "spec": spec}


def pod(name: str, *, namespace: str = "default", **template: Any) -> Object:
    """Further arguments are those of `pod_template`."""
    made = pod_template(**template)
    made["metadata"] |= {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def job(
    name: str,
    *,
    namespace: str = "default",
    completions: int = 1,
    parallelism: int = 1,
    backoff_limit: int = 6,
    job_annotations: Mapping[str, str] | None = None,
    pod_failure_policy: Object | None = None,
    **template: Any,
) -> Object:
    """Further arguments are those of `pod_template`."""
    spec: Object = {
        "completions": completions,
        "parallelism": parallelism,
        "backoffLimit": backoff_limit,
        "template": pod_template(**template),
    }
    if pod_failure_policy:
        spec["podFailurePolicy"] = pod_failure_policy
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, namespace, None, job_annotations),
        "spec": spec,
    }


def replica_set(name: str, *, replicas: int = 1, **template: Any) -> Object:
    """Further arguments are those of `pod_template`."""
    labels = {"set": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": _metadata(name, "default", None, None),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": pod_template(labels=labels, restart_policy="Always", **template),
        },
    }


def deployment(name: str, **template: Any) -> Object:
    """Further arguments are those of `replica_set`."""
    return replica_set(name, **template) | {"kind": "Deployment"}


def priority_class(name: str, value: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def scheduler_configuration(*extenders: Object, **more: Any) -> Object:
    """A KubeSchedulerConfiguration with these `extenders:` entries."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [dict(extender) for extender in extenders],
        **more,
    }


def _metadata(
    name: str,
    namespace: str | None,
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str] | None,
) -> Object:
    optional = {"namespace": namespace, "labels": labels, "annotations": annotations}
    return {"name": name} | {key: value for key, value in optional.items() if value}


def _attribute(value: AttributeValue) -> Object:
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": value}


def _selectors(expressions: Sequence[str]) -> list[Object]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def policy(name: str, spec: Object) -> Object:
    metadata = {"name": name}
    return {
        "apiVersion": "fettle.dev/v1alpha1",
        "kind": "DevicePolicy",
        "metadata": metadata,
        "spec": spec,
    }
