"""Taints of devices, holds and marks of nodes: what the tests of these publish and wait for."""

from collections.abc import Collection
from typing import Any, NamedTuple

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.fettle_process import FettleProcess

LOST = objects.taint("gpu.nvidia.com/xid", "None", "79")
"""The driver's own taint of a GPU that has fallen off the bus: it only informs."""


async def publish(api: Api, node: str, count: int, lost: Collection[int] = ()) -> None:
    """The node's devices, as its driver describes them now."""
    devices = objects.gpu_devices(count, taints={i: [LOST] for i in lost})
    await api.patch("resourceslices", f"{node}-{objects.DRIVER}", {"spec": {"devices": devices}})


def times_logged(fettle: FettleProcess, what: str) -> int:
    log = fettle.process.log.read_text().splitlines()
    return sum(what in line and '"warning"' in line for line in log)


HOLD = "fettle.dev/hold"
OURS = {"key": HOLD, "value": "annotated", "effect": "NoSchedule"}
HOLD_TAINTS = shipped.DEPLOY / "rbac" / "optional" / "hold-taints.yaml"


async def node_taints(api: Api, node: str) -> list[Object]:
    return list((await api.get("nodes", node))["spec"].get("taints") or [])


async def until_held(api: Api, node: str) -> None:
    await waiting.wait_until(
        lambda: node_taints(api, node),
        lambda t: OURS in t,
        what=f"{node} has the taint of its hold",
    )


async def rules(api: Api) -> list[Object]:
    return [rule["spec"] for rule in await api.list("devicetaintrules")]


RIGHTS = shipped.DEPLOY / "rbac" / "optional" / "node-marks.yaml"


class Marks(NamedTuple):
    """The label, the status of the condition, and whether the node is cordoned, by whom."""

    tier: str
    sound: str
    cordoned: str


async def condition(api: Api, node: str) -> dict[str, Any]:
    conditions = (await api.get("nodes", node))["status"]["conditions"]
    return next((c for c in conditions if c["type"] == "FettleDevicesSound"), {})


async def marks(api: Api) -> dict[str, Marks]:
    found = {}
    for node in await api.list("nodes"):
        metadata, is_cordoned = node["metadata"], node["spec"].get("unschedulable", False)
        ours = "fettle.dev/cordoned" in metadata.get("annotations", {})
        found[metadata["name"]] = Marks(
            metadata["labels"].get("fettle.dev/health", ""),
            (await condition(api, metadata["name"])).get("status", ""),
            ("ours" if ours else "others'") if is_cordoned else "ours, left" if ours else "",
        )
    return found


async def until_marked(api: Api, **wanted: tuple[str, str, str]) -> None:
    """These nodes are, whatever is on others."""
    await waiting.wait_until(
        lambda: marks(api),
        lambda found: all(found[name] == marked for name, marked in wanted.items()),
        what=f"marks are {wanted}",
        timeout_s=60,
    )
