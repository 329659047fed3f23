"""Nodes with GPUs, and what their exporters say."""

from typing import Any

GPU = "nvidia.com/gpu"
H100 = "NVIDIA H100 80GB HBM3"


def uuid(node: str, number: int) -> str:
    return f"GPU-{node}-{number}"


def pci(number: int) -> str:
    return f"00000000:{number + 16:02X}:00.0"


def node(name: str, gpus: int = 8) -> dict[str, Any]:
    """As a cluster with the device plugin has it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "capacity": {GPU: str(gpus)},
            "allocatable": {GPU: str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def slice_of(name: str, gpus: int = 8) -> dict[str, Any]:
    """As the DRA driver publishes them."""
    devices = [
        {
            "name": f"gpu-{i}",
            "attributes": {
                "uuid": {"string": uuid(name, i)},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{i + 16:02x}:00.0"},
                "index": {"int": i},
                "type": {"string": "gpu"},
            },
        }
        for i in range(gpus)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpus"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def labels(node: str, number: int, **more: str) -> dict[str, str]:
    """As dcgm-exporter names a GPU."""
    return {
        "gpu": str(number),
        "UUID": uuid(node, number),
        "pci_bus_id": pci(number),
        "device": f"nvidia{number}",
        "modelName": H100,
        "hostname": node,
        **more,
    }


def pod(
    name: str = "p", namespace: str = "ml", gpus: int = 1, **annotations: str
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": name,
            "annotations": {f"fettle.dev/{k.replace('_', '-')}": v for k, v in annotations.items()},
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: str(gpus)}}}]},
    }
