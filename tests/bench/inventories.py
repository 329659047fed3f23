"""Views of big fleets with DRA devices, made by the inventory from objects of the API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fettle.api import kinds
from fettle.cluster import EMPTY, Inventory, View
from fettle.config import HealthSettings, PrometheusSettings
from fettle.health import HealthBook, load_rules
from tests.bench import fleets
from tests.controlplane.api import Object
from tests.controlplane.objects import DRIVER, device_class, node

NOW = 1_000_000.0
FABRIC = "fabric.example.com"
PORTS = 16

Devices = Callable[[int], list[Object]]
"""The devices of the node of this number, as in a ResourceSlice."""


def gpu(number: int, model: str = "H100", **more: Any) -> Object:
    """One device as a driver publishes it."""
    attributes = {
        "index": {"int": number % fleets.GPUS},
        "uuid": {"string": f"GPU-{number:08d}"},
        "productName": {"string": f"NVIDIA {model}"},
        "driverVersion": {"version": "570.86.15"},
    }
    capacity = {"memory": {"value": "80Gi"}}
    return {
        "name": f"gpu-{number % fleets.GPUS}",
        "attributes": attributes,
        "capacity": capacity,
        **more,
    }


def alike(node: int) -> list[Object]:
    return [gpu(node * fleets.GPUS + i) for i in range(fleets.GPUS)]


def of_shapes(shapes: int) -> Devices:
    """Nodes of so many kinds: which of their devices are tainted, and by what, differs."""

    def devices(node: int) -> list[Object]:
        made = alike(node)
        shape = node % shapes
        made[shape % fleets.GPUS]["taints"] = [
            {"key": f"example.com/fault-{shape}", "effect": "NoSchedule"}
        ]
        return made

    return devices


def of_models(models: int) -> Devices:
    def devices(node: int) -> list[Object]:
        return [
            gpu(node * fleets.GPUS + i, model=f"H{node % models}00") for i in range(fleets.GPUS)
        ]

    return devices


def write_snapshot(folder: Path, devices: Devices, nodes: int = fleets.NODES) -> None:
    """The same fleet as `kubectl get` prints it, with the device class of its driver."""
    folder.mkdir(parents=True)
    names = [fleets.name_of(number) for number in range(nodes)]
    lists = {
        "nodes": ("v1", "Node", [node(name, fleets.GPUS) for name in names]),
        "resourceslices": (
            "resource.k8s.io/v1",
            "ResourceSlice",
            [slice_of(name, devices(number)) for number, name in enumerate(names)],
        ),
        "deviceclasses": ("resource.k8s.io/v1", "DeviceClass", [device_class(DRIVER)]),
        "namespaces": ("v1", "Namespace", [{"metadata": {"name": "default"}}]),
    }
    for name, (version, kind, items) in lists.items():
        whole = [{**item, "apiVersion": version, "kind": kind} for item in items]
        listed = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": whole}
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(listed))


def view(devices: Devices, nodes: int = fleets.NODES) -> View:
    return look(of_nodes(devices, nodes), EMPTY)


def of_nodes(
    devices: Devices,
    nodes: int = fleets.NODES,
    racks: int = 0,
    prometheus: PrometheusSettings | None = None,
) -> Inventory:
    """Where there are racks, each has a fabric with devices that its nodes share."""
    inventory = Inventory(HealthBook(HealthSettings(), RULES), RULES, prometheus=prometheus)
    for number in range(nodes):
        name = fleets.name_of(number)
        labels = {"rack": str(number % racks)} if racks else {}
        put(inventory, kinds.NODE, {"metadata": {"name": name, "labels": labels}, "status": {}})
        put(inventory, kinds.SLICE, slice_of(name, devices(number)))
    for rack in range(racks):
        put(inventory, kinds.SLICE, _fabric(rack))
    return inventory


def look(inventory: Inventory, previous: View) -> View:
    """As the writer task makes a view, at once."""
    for _ in inventory.refresh(NOW):
        pass
    made = inventory.view(previous, synced=True, served={})
    assert made is not None
    inventory.settle()
    return made


def slice_of(node: str, devices: list[Object]) -> Object:
    return {
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _fabric(rack: int) -> Object:
    here = {"key": "rack", "operator": "In", "values": [str(rack)]}
    return {
        "metadata": {"name": f"fabric-{rack}"},
        "spec": {
            "driver": FABRIC,
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [here]}]},
            "pool": {"name": f"fabric-{rack}", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"port-{number}"} for number in range(PORTS)],
        },
    }


def claim_of_port(rack: int, port: int) -> Object:
    held = {
        "request": "port",
        "driver": FABRIC,
        "pool": f"fabric-{rack}",
        "device": f"port-{port}",
    }
    return {
        "metadata": {"name": f"port-{rack}-{port}", "namespace": "default"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": [held]}}},
    }


def put(inventory: Inventory, kind: kinds.Kind, raw: Object) -> None:
    inventory.put(kind, kind.decode(msgspec.json.encode(raw)), NOW)


RULES = load_rules()
