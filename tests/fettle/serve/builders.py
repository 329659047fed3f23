"""Nodes, refused pods and running pods of a small fleet."""

from typing import Any

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 0, hold: str = "") -> dict[str, Any]:
    amounts = {"cpu": "8", **({GPU: str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "annotations": {"fettle.dev/hold": hold} if hold else {}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def refused(name: str) -> dict[str, Any]:
    said = f"0/2 nodes are available: 1 Insufficient {GPU}, 1 fettle: no sound devices ({GPU})."
    condition = {"type": "PodScheduled", "status": "False", "message": said}
    container = {"name": "main", "resources": {"limits": {GPU: "1"}}}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": {"containers": [container]},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def running(name: str, node: str, gpus: int, priority: int = 0) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"nodeName": node, "containers": [container], "priority": priority}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": spec,
        "status": {"phase": "Running"},
    }


def let_preempt_nobody(name: str) -> dict[str, Any]:
    waits = refused(name)
    said = f"0/1 nodes are available: 1 Insufficient {GPU}. preemption: no candidate node for "
    waits["status"]["conditions"][0]["message"] = said + "preemption."
    waits["spec"]["priority"] = 10
    return waits
