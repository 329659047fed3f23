"""Objects as the API server prints them, decoded as Fettle decodes them."""

import json
from datetime import UTC, datetime
from typing import Any

from fettle.api import core, kinds, resource

NOW = 1_790_000_000.0
UUID = "GPU-1a2b3c4d-0000-1111-2222-333344445555"
OTHER_UUID = "GPU-99999999-0000-1111-2222-333344445555"


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    type_: str,
    status: str,
    reason: str = "",
    message: str = "",
    at: float = NOW,
    renewed_at: float = NOW,
) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(at),
        "lastHeartbeatTime": stamp(renewed_at),
    }


def node(
    *conditions: dict[str, Any],
    name: str = "gpu-1",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    capacity: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    boot: str = "boot-1",
) -> core.Node:
    written = {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": annotations,
            "uid": f"u-{name}",
        },
        "status": {
            "conditions": list(conditions),
            "capacity": capacity or {},
            "allocatable": allocatable if allocatable is not None else capacity or {},
            "nodeInfo": {"bootID": boot},
        },
    }
    decoded = kinds.NODE.decode(json.dumps(written).encode())
    assert isinstance(decoded, core.Node)
    return decoded


def pod(
    name: str = "train-0",
    *,
    uid: str = "",
    namespace: str = "ml",
    node: str | None = "gpu-1",
    resources: list[dict[str, Any]] | None = None,
    phase: str = "Running",
    reason: str = "",
    message: str = "",
    scheduled_at: float | None = NOW,
    created_at: float = NOW - 30,
    status: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
) -> core.Pod:
    conditions = []
    if scheduled_at is not None:
        conditions.append(condition("PodScheduled", "True", at=scheduled_at))
    written = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "creationTimestamp": stamp(created_at),
        },
        "spec": {"nodeName": node, **(spec or {})},
        "status": {
            "phase": phase,
            "reason": reason,
            "message": message,
            "conditions": conditions,
            "containerStatuses": [{"name": "main", "allocatedResourcesStatus": resources}],
            **(status or {}),
        },
    }
    decoded = kinds.POD.decode(json.dumps(written).encode())
    assert isinstance(decoded, core.Pod)
    return decoded


GPU_LOST = (
    "Pod was rejected: Allocate failed due to device plugin GetPreferredAllocation rpc failed with "
    "err: rpc error: code = Unknown desc = error getting list of preferred allocation devices: "
    "unable to get device link information: error getting NVLink for devices (0, 1): failed to get "
    "nvlink remote pci info: failed to get nvlink state: GPU is lost, which is unexpected"
)
"""Only the node can bring this about."""
NONE_AVAILABLE = (
    "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
    "nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected"
)
"""A pod created with `nodeName` of a node in full use brings this about, and so may a fault."""


def refused_pod(
    name: str,
    at: float,
    node: str = "gpu-1",
    uid: str = "",
    message: str = GPU_LOST,
    namespace: str = "ml",
) -> core.Pod:
    """As a kubelet leaves it: `PodScheduled` is taken away, `startTime` is when it refused."""
    return pod(
        name,
        uid=uid,
        node=node,
        namespace=namespace,
        phase="Failed",
        reason="UnexpectedAdmissionError",
        message=message,
        scheduled_at=None,
        created_at=at - 30,
        status={"startTime": stamp(at), "containerStatuses": None},
    )


def waiting_pod(
    name: str, *, node: str | None = None, scheduled: bool = False, namespace: str = "ml"
) -> core.Pod:
    """Pending: not bound yet, bound by a scheduler, or created with the name of its node."""
    at = NOW if scheduled else None
    return pod(name, node=node, phase="Pending", scheduled_at=at, namespace=namespace)


def health(name: str, resource_id: str, value: str, message: str = "") -> dict[str, Any]:
    entry = {"resourceID": resource_id, "health": value, "message": message}
    return {"name": name, "resources": [entry]}


def slice_(
    *taints: dict[str, Any],
    driver: str = "gpu.nvidia.com",
    device: str = "gpu-0",
    annotations: dict[str, str] | None = None,
    attributes: dict[str, Any] | None = None,
) -> resource.ResourceSlice:
    """Two devices, the first of which carries the taints and attributes."""
    written = {
        "metadata": {"name": f"gpu-1-{driver}", "annotations": annotations},
        "spec": {
            "driver": driver,
            "nodeName": "gpu-1",
            "pool": {"name": "gpu-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": device, "taints": list(taints), "attributes": attributes},
                {"name": "other"},
            ],
        },
    }
    decoded = kinds.SLICE.decode(json.dumps(written).encode())
    assert isinstance(decoded, resource.ResourceSlice)
    return decoded


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, Any]:
    return {"key": key, "value": value, "effect": effect, "timeAdded": stamp(NOW)}


def taint_rule(
    selector: dict[str, str] | None, taint: dict[str, Any], name: str = "rule"
) -> resource.DeviceTaintRule:
    written = {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}
    decoded = kinds.TAINT_RULE.decode(json.dumps(written).encode())
    assert isinstance(decoded, resource.DeviceTaintRule)
    return decoded


def claim(
    *results: tuple[str, str, str, str],
    name: str = "c-1",
    namespace: str = "ml",
    conditions: list[dict[str, Any]] | None = None,
    failures: list[str] | None = None,
) -> resource.ResourceClaim:
    """A claim allocated as (request, driver, pool, device); `conditions` are of the first."""
    allocated: list[dict[str, Any]] = [
        dict(zip(("request", "driver", "pool", "device"), r, strict=True)) for r in results
    ]
    for result in allocated:
        result["bindingFailureConditions"] = failures
    said = [{k: allocated[0][k] for k in ("driver", "pool", "device")}] if conditions else []
    for status in said:
        status["conditions"] = conditions
    written = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
        "status": {"allocation": {"devices": {"results": allocated}}, "devices": said},
    }
    decoded = kinds.CLAIM.decode(json.dumps(written).encode())
    assert isinstance(decoded, resource.ResourceClaim)
    return decoded


THERMAL = (
    "ErrorCode:DCGM_FR_CLOCKS_EVENT_THERMAL GPU:4 PCI:0000:c4:00.0 "
    "GPU_UUID:GPU-b5f21324-f1f9-f1a4-1a37-1166234f6e4f Clocks are throttled by temperature: "
    "check cooling; lower load Recommended Action=CONTACT_SUPPORT;"
)

XID = (
    "ErrorCode:119 PCI:0002:00:00 GPU_UUID:GPU-22222222-2222-2222-2222-222222222222 "
    "kernel: [16450076.435595] NVRM: Xid (PCI:0002:00:00): 119, pid=1582259, name=nvc:[driver], "
    "Timeout after 6s of waiting for RPC response from GPU1 GSP! "
    "Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8). Recommended Action=COMPONENT_RESET;"
)
