"""Objects that say something of a node and its devices."""

from typing import Any

import msgspec

from fettle.cluster.view import NodeView
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import node

Raw = dict[str, Any]


def unit_said_ill(name: str = "unit", on: str = "n") -> Raw:
    """A running pod, of which the kubelet says that its unit is ill."""
    return speaking(name, on, b.RESOURCE, "GPU-1")


def device_said_ill(name: str = "device", on: str = "n") -> Raw:
    """A running pod, of which the kubelet says that its DRA device is ill."""
    return speaking(name, on, "claim:c/r", f"{b.DRIVER}/{on}/gpu-0")


def speaking(name: str, on: str, said_as: str, id_: str) -> Raw:
    said = [{"name": said_as, "resources": [{"resourceID": id_, "health": "Unhealthy"}]}]
    pod = b.gpu_pod(name=name)
    pod["spec"]["nodeName"] = on
    pod["status"] = {"phase": "Running", "containerStatuses": [{"allocatedResourcesStatus": said}]}
    return pod


def refused(name: str = "refused", on: str = "n") -> Raw:
    """A pod that the kubelet refused, for a reason that only the node can bring about."""
    pod = b.gpu_pod(name=name)
    pod["spec"]["nodeName"] = on
    pod["status"] = {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "Pod was rejected: Allocate failed due to GPU is lost, which is unexpected",
        "startTime": "1970-01-12T13:46:40Z",
    }
    return pod


def condition_of_claim(name: str = "c", on: str = "n") -> Raw:
    """A claim whose driver says that its device does not get ready."""
    device = {"driver": b.DRIVER, "pool": on, "device": "gpu-1"}
    condition = {
        "type": "Ready",
        "status": "False",
        "lastTransitionTime": "1970-01-12T13:46:40Z",
    }
    status = {
        "allocation": {"devices": {"results": [{"request": "r", **device}]}},
        "devices": [{**device, "conditions": [condition]}],
    }
    return {"metadata": {"name": name, "namespace": "d"}, "spec": {}, "status": status}


def rule(name: str = "rule") -> Raw:
    """A monitor's taint, whose key is known as a fault, on every `gpu-1`."""
    taint = {
        "key": "gaudi.intel.com/unhealthy",
        "value": "CriticalError",
        "effect": "NoExecute",
        "timeAdded": "1970-01-12T13:46:40Z",
    }
    selector = {"device": "gpu-1"}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}}


def ill(name: str = "n") -> Raw:
    """A node that says itself that all is not well with it."""
    restarts = {
        "type": "FrequentKubeletRestart",
        "status": "True",
        "lastTransitionTime": "1970-01-12T13:46:40Z",
    }
    said: Raw = node(name, status={"conditions": [restarts]})
    return said


def naming(*gpus: str, plugin: bool = False, name: str = "n") -> Raw:
    """A node of which a monitor says that these GPUs' memory is bad."""
    said = [f"ErrorCode:DCGM_FR_X {gpu} bad Recommended Action=COMPONENT_RESET;" for gpu in gpus]
    bad = {
        "type": "GpuMemWatch",
        "status": "True" if gpus else "False",
        "message": "".join(said) or "No Health Failures",
    }
    made: Raw = node(name, status={"conditions": [bad]} if gpus or plugin else {})
    for field in ("capacity", "allocatable"):
        made["status"][field] = {"nvidia.com/gpu": "8"} if plugin else {}
    return made


def healths(record: NodeView) -> dict[str, object]:
    """What is known of a node and all that is on it; when a state began is a matter of order."""
    found = {"node": record.health}
    for plugin in record.plugins.values():
        found |= {unit.unit: unit.health for unit in plugin.units}
    for pool in record.pools:
        found |= {str(device.id): device.health for device in pool.devices}
    return {
        name: (
            health.score,
            health.state,
            health.held,
            frozenset(msgspec.json.encode(w) for w in health.evidence),
        )
        for name, health in found.items()
    }
