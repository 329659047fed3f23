"""What kubelets, device plugins and monitors write about a replay's nodes and pods."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from tests.goodput.plan import GPUS
from tests.goodput.replay import Fault, Node, Pod

RESOURCE = "nvidia.com/gpu"
NAMESPACE = "default"
KERNEL = ("KernelDeadlock", "DockerHung", "task docker:123 blocked for more than 120 seconds.")
"""As node-problem-detector writes it."""
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


def node_object(node: Node, more_conditions: list[Object]) -> Object:
    resources = {"cpu": "96", "memory": "1000Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": node.name},
        "spec": {},
        "status": {
            "capacity": {**resources, RESOURCE: str(GPUS)},
            "allocatable": {**resources, RESOURCE: str(allocatable(node))},
            "conditions": [ready, *more_conditions],
        },
    }


def pod_object(pod: Pod, at_s: float) -> Object:
    resources = {
        "cpu": str(12 * pod.gpus),
        "memory": f"{100 * pod.gpus}Gi",
        RESOURCE: str(pod.gpus),
    }
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": resources, "limits": {RESOURCE: str(pod.gpus)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": NAMESPACE,
            "uid": pod.name,
            "annotations": {"fettle.dev/policy": pod.job.kind.policy},
            "creationTimestamp": rfc3339(at_s),
        },
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
        },
    }


def running_status(pod: Pod) -> Object:
    units = [{"resourceID": device.uuid, "health": "Healthy"} for device in pod.devices]
    return {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "PodScheduled", "status": "True"},
        ],
        "containerStatuses": [
            {
                "name": "c",
                "image": "x",
                "imageID": "x",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {}},
                "allocatedResourcesStatus": [{"name": RESOURCE, "resources": units}],
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
