"""What kubelets, device plugins and monitors write about a replay's nodes and pods."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from tests.goodput.plan import GPUS
from tests.goodput.replay import Device, Fault, Node, Pod

RESOURCE = "nvidia.com/gpu"
DRIVER = DEVICE_CLASS = "gpu.nvidia.com"
MARKER = "fettle.dev/claims"
NAMESPACE = "default"
KERNEL = ("KernelDeadlock", "DockerHung", "task docker:123 blocked for more than 120 seconds.")
"""As node-problem-detector writes it."""
NO_DRIVER = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "nvidia-container-cli: initialization error: nvml error: driver not loaded"
)
"""What a container runtime says of a pod that does not start: nvidia-container-toolkit#230."""
LOST_TAINT, HOLD_TAINT = "gpu.nvidia.com/gpu-lost", "fettle.dev/hold"
_ACTIONS = {"79": "RESTART_BM"}
_SUPPORT = ("thermal", "nvlink")

Object = dict[str, Any]
Said = dict[str, tuple[str, str]]
"""By the condition's type: its reason and message while it is True."""


def rfc3339(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def said_of(node: Node) -> Said:
    """The conditions that are True."""
    texts: dict[str, str] = defaultdict(str)
    said: Said = {}
    for fault in node.reported():
        condition = fault.kind.shows.condition
        if condition == KERNEL[0]:
            said[condition] = KERNEL[1:]
        elif condition:
            texts[condition] += _entry(fault)
            said[condition] = (f"{condition}IsNotHealthy", texts[condition])
    return said


def _entry(fault: Fault) -> str:
    """A finding as NVSentinel writes it."""
    assert fault.device is not None
    device, code = fault.device, fault.kind.shows.code
    action = "CONTACT_SUPPORT" if fault.name in _SUPPORT else _ACTIONS.get(code, "COMPONENT_RESET")
    return (
        f"ErrorCode:{code} GPU:{device.index} PCI:{device.pci} GPU_UUID:{device.uuid} "
        f"{fault.name} fault Recommended Action={action};"
    )


def conditions(before: Said, now: Said, at_s: float) -> list[Object]:
    """The conditions that changed."""
    changed = []
    for condition in sorted(before.keys() | now.keys()):
        if before.get(condition) == now.get(condition):
            continue
        reason, message = now.get(condition, (f"{condition}IsHealthy", "No Health Failures"))
        status = "True" if condition in now else "False"
        changed.append(
            {
                "type": condition,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": rfc3339(at_s),
            }
        )
    return changed


def allocatable(node: Node) -> int:
    return GPUS - sum(device.withdrawn for device in node.devices)


def node_object(node: Node, more_conditions: list[Object], *, dra: bool = False) -> Object:
    resources = {"cpu": "96", "memory": "1000Gi", "pods": "110"}
    units = ({}, {}) if dra else ({RESOURCE: str(GPUS)}, {RESOURCE: str(allocatable(node))})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": node.name},
        "spec": {},
        "status": {
            "capacity": resources | units[0],
            "allocatable": resources | units[1],
            "conditions": [ready, *more_conditions],
        },
    }


def devices(node: Node) -> list[Object]:
    """What its DRA driver publishes; a device that is withdrawn has a taint."""
    return [
        {
            "name": device.name,
            "attributes": {
                "uuid": {"string": device.uuid},
                "index": {"int": device.index},
                "resource.kubernetes.io/pciBusID": {"string": device.pci},
            },
            "capacity": {"memory": {"value": "80Gi"}},
            "taints": [
                {"key": key, "value": "true", "effect": "NoSchedule"} for key in _taints(device)
            ],
        }
        for device in node.devices
    ]


def _taints(device: Device) -> list[str]:
    """Of the driver for what it loses itself; of a hold for what else is taken away."""
    taken = [f for f in device.faults if f.reported and f.kind.shows.withdrawn]
    lost = {fault.name in ("lost", "withdrawn") for fault in taken}
    return [LOST_TAINT if own else HOLD_TAINT for own in sorted(lost)]


def slice_object(node: Node, generation: int) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node.name},
        "spec": {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": generation, "resourceSliceCount": 1},
            "devices": devices(node),
        },
    }


def class_object() -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DEVICE_CLASS},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
    }


def claim_object(pod: Pod) -> Object:
    exactly = {"deviceClassName": DEVICE_CLASS, "count": pod.gpus}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": pod.name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


def allocation(pod: Pod, node: Node, devices: list[Device]) -> Object:
    """The status of its claim. The scheduler's node selector is left out: nothing reads it here."""
    return {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "r",
                        "driver": DRIVER,
                        "pool": node.name,
                        "device": device.name,
                    }
                    for device in devices
                ]
            }
        },
        "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.name}],
    }


def pod_object(pod: Pod, created_s: float, *, dra: bool = False) -> Object:
    units = {MARKER: "0"} if dra else {RESOURCE: str(pod.gpus)}
    requests = {"cpu": str(12 * pod.gpus), "memory": f"{100 * pod.gpus}Gi", **units}
    resources: Object = {"requests": requests, "limits": units}
    spec: Object = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    if dra:
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimName": pod.name}]
        resources["claims"] = [{"name": "gpus"}]
    if pod.in_gang:
        spec["schedulingGroup"] = {"podGroupName": pod.group}
    spec["containers"] = [{"name": "c", "image": "x", "resources": resources}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": NAMESPACE,
            "uid": pod.name,
            "annotations": {"fettle.dev/policy": pod.job.kind.policy},
            "creationTimestamp": rfc3339(created_s),
            "ownerReferences": [_controller(pod)],
        },
        "spec": spec,
    }


def group_object(pod: Pod) -> Object:
    """Of the pods of its gang: they are placed together or not at all."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": pod.group, "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": pod.job.kind.pods}}},
    }


def _controller(pod: Pod) -> Object:
    """A ReplicaSet for a service; for training one of the kinds that run pods together."""
    name = pod.job.name
    serves = pod.job.kind.policy == "inference"
    version, kind = ("apps/v1", "ReplicaSet") if serves else ("kubeflow.org/v1", "PyTorchJob")
    return {"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": True}


def running_status(pod: Pod, at_s: float, *, dra: bool = False) -> Object:
    units = [{"resourceID": device.uuid, "health": "Healthy"} for device in pod.devices]
    allocated = [] if dra else [{"name": RESOURCE, "resources": units}]
    return {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": rfc3339(at_s),
            },
        ],
        "containerStatuses": [
            {
                "name": "c",
                "image": "x",
                "imageID": "x",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {}},
                "allocatedResourcesStatus": allocated,
            }
        ],
    }


def stuck_status(at_s: float) -> Object:
    waiting = {"reason": "RunContainerError", "message": NO_DRIVER}
    return {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(at_s)}
        ],
        "containerStatuses": [
            {
                "name": "c",
                "image": "x",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": waiting},
            }
        ],
    }


def ended_status(phase: str, refusal: str, at_s: float) -> Object:
    if not refusal:
        return {"phase": phase}
    return {
        "phase": phase,
        "reason": "UnexpectedAdmissionError",
        "message": refusal,
        "startTime": rfc3339(at_s),
    }
