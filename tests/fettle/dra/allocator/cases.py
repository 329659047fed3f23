"""Short ways to write what an allocator sees, as API objects, and to ask Fettle's about it."""

from typing import Any

from tests.conformance.allocation import GATES, Answer, answer

DRIVER = "gpu.example.com"
DEFAULT_GATES = (
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
    "DRADeviceTaints",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
)
assert set(DEFAULT_GATES) < set(GATES)

Raw = dict[str, Any]


def device(name: str, attributes: Raw | None = None, **fields: Any) -> Raw:
    """Attributes as plain values: text, whole numbers and truth values."""
    kinds = {str: "string", int: "int", bool: "bool"}
    typed = {
        key: value if isinstance(value, dict) else {kinds[type(value)]: value}
        for key, value in (attributes or {}).items()
    }
    return {"name": name, **({"attributes": typed} if typed else {}), **fields}


def slice_(*devices: Raw, name: str = "s", pool: str = "p", of: int = 1, **spec: Any) -> Raw:
    where = {} if spec.keys() & {"allNodes", "nodeSelector", "perDeviceNodeSelection"} else HERE
    of_pool = {"name": pool, "generation": 1, "resourceSliceCount": of}
    content = {"driver": DRIVER, "pool": of_pool, "devices": list(devices), **where, **spec}
    return {"metadata": {"name": name}, "spec": content}


HERE = {"nodeName": "n"}


def request(name: str = "r", count: int = 1, **fields: Any) -> Raw:
    return {"name": name, "exactly": wanted(count, **fields)}


def wanted(count: int = 1, **fields: Any) -> Raw:
    return {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count, **fields}


def everything(name: str = "r", **fields: Any) -> Raw:
    return {"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "All", **fields}}


def first_available(name: str = "r", **alternatives: Raw) -> Raw:
    return {"name": name, "firstAvailable": [{"name": n, **a} for n, a in alternatives.items()]}


def selecting(expression: str) -> list[Raw]:
    return [{"cel": {"expression": expression}}]


def claim(*requests: Raw, constraints: tuple[Raw, ...] = (), name: str = "c") -> Raw:
    devices = {"requests": list(requests), "constraints": list(constraints)}
    return {"metadata": {"name": name}, "spec": {"devices": devices}}


def case(claims: list[Raw], slices: list[Raw], **more: Any) -> Raw:
    return {
        "features": list(DEFAULT_GATES),
        "node": {"metadata": {"name": "n", "labels": {"zone": "a"}}},
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "claims": claims,
        "slices": slices,
        **more,
    }


def asked(claims: list[Raw], slices: list[Raw], **more: Any) -> Answer:
    return answer(case(claims, slices, **more))


def given(claims: list[Raw], slices: list[Raw], **more: Any) -> str:
    """The devices in the order taken, or why there are none."""
    said = asked(claims, slices, **more)
    if said.kind != "allocated":
        return said.kind
    return " ".join(
        r["device"] for allocation in said.results for r in allocation["devices"]["results"]
    )
