"""Snapshots of big fleets, and the bodies that a scheduler would send about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from uuid import NAMESPACE_DNS, uuid5

from tests.controlplane.api import Object
from tests.controlplane.objects import node, node_condition, pod

NODES = 5000
GPUS = 8
REFUSED_EVERY = 10
FAULT = "CperHardwareErrorFatal"
"""A node condition that makes every policy refuse the node."""


def name_of(number: int) -> str:
    return f"gpu-h100-{number:05d}.zone-a.internal"


def write_snapshot(folder: Path) -> None:
    """NODES nodes with a device plugin, every tenth of them refused, as `kubectl get` prints."""
    folder.mkdir(parents=True)
    items = [_node(number) for number in range(NODES)]
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}
    (folder / "nodes.json").write_text(json.dumps(listed))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    (folder / "namespaces.json").write_text(json.dumps(namespace))


def names_spread(count: int) -> list[str]:
    """So many nodes of the whole fleet, with its share of refused ones."""
    start = REFUSED_EVERY * 7
    return [name_of((start + i) % NODES) for i in range(count)]


def names_refused(count: int) -> list[str]:
    return [name_of(number * REFUSED_EVERY) for number in range(count)]


def waiting_pod(name: str) -> Object:
    """A pod of one GPU under the policy `training`."""
    return pod(name, gpus=1, annotations={"fettle.dev/policy": "training"})


def body(pod_name: str, names: Sequence[str]) -> bytes:
    """ExtenderArgs, spelled as kube-scheduler does, about a pod as the API server returns it."""
    asking = waiting_pod(pod_name)
    asking["metadata"] |= {
        "uid": str(uuid5(NAMESPACE_DNS, pod_name)),
        "resourceVersion": "417",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    asking["spec"] |= {
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for key in ("not-ready", "unreachable")
        ],
    }
    asking["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    args = {"Pod": asking, "Nodes": None, "NodeNames": list(names)}
    return json.dumps(args, separators=(",", ":")).encode()


def _node(number: int) -> Object:
    fault = number % REFUSED_EVERY == 0
    conditions = [node_condition(FAULT, "True", "CPERFatal", "memory error")] if fault else []
    return node(name_of(number), GPUS, conditions=conditions)
