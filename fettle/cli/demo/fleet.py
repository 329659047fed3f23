"""The demo's fleet as a snapshot folder, a fault in it, and the pods and claim that are sent."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fettle.api.meta import rfc3339

RECORDED_AT = datetime(2026, 11, 21, tzinfo=UTC)
"""When the embedded files were recorded."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def write(folder: Path, now: datetime) -> None:
    """Write the fleet as if it was recorded now, because old evidence weighs less."""
    shift = now - RECORDED_AT
    for file in resources.files(__package__).joinpath("snapshot").iterdir():
        text = _TIME.sub(lambda m: _shifted(m[0], shift), file.read_text(encoding="utf-8"))
        (folder / file.name).write_text(text, encoding="utf-8")


def _shifted(text: str, shift: timedelta) -> str:
    return rfc3339(datetime.fromisoformat(text) + shift)


def lose_gpu(folder: Path, node: str, now: datetime) -> str:
    """Let one GPU of a node fall off the bus, as NVSentinel reports it; returns its message."""
    message = (
        "ErrorCode:79 GPU:6 PCI:0000:db:00.0 GPU_UUID:GPU-01c3f2aa-9e1d-4a54-b1d4-6a50c1d2e9f7 "
        "NVRM: Xid (PCI:0000:db:00): 79, GPU has fallen off the bus. "
        "Recommended Action=RESTART_BM;"
    )
    _edit_conditions(
        folder,
        node,
        {
            "type": "SysLogsXIDError",
            "status": "True",
            "reason": "SysLogsXIDErrorIsNotHealthy",
            "message": message,
            "lastTransitionTime": rfc3339(now),
        },
    )
    return message


def _edit_conditions(folder: Path, node: str, condition: dict[str, Any]) -> None:
    _edit(folder, {node}, lambda status: status["conditions"].append(condition))


def _edit(folder: Path, nodes: set[str], change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "nodes.yaml"
    listed = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 (safe: strings only)
    for item in listed["items"]:
        if item["metadata"]["name"] in nodes:
            change(item["status"])
    text = yaml.safe_dump(listed, sort_keys=False)
    draft = path.with_suffix(".tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)  # at once: the folder is watched


class Happening(NamedTuple):
    """What happens to a node by itself: a fault by the type, reason and message of its condition,
    or, without a type, a reboot that mends all that came by earlier acts."""

    told: str
    node: str
    type: str = ""
    reason: str = ""
    message: str = ""


_OFF_THE_BUS = (
    "SysLogsXIDError",
    "SysLogsXIDErrorIsNotHealthy",
    "ErrorCode:79 GPU:{0} PCI:0000:{1}:00.0 NVRM: Xid (PCI:0000:{1}:00): 79, GPU has fallen off "
    "the bus. Recommended Action=RESTART_BM;",
)
# As the health monitor of the same name writes it; the pattern of node-problem-detector's
# config/kernel-monitor.json for a deadlock.
_DEADLOCK = "KernelDeadlock", "DockerHung", "task docker:20744 blocked for more than 300 seconds."
ACTS = (
    Happening("a GPU of hgx-02 falls off the bus", "hgx-02", *_OFF_THE_BUS),
    Happening("it spreads: the kernel of hgx-02 hangs", "hgx-02", *_DEADLOCK),
    Happening("the next node, hgx-07, loses a GPU too", "hgx-07", *_OFF_THE_BUS),
    Happening("hgx-02 is rebooted, and comes back sound", "hgx-02"),
    Happening("the kernel of dra-01 hangs", "dra-01", *_DEADLOCK),
    Happening("hgx-07 is rebooted, and comes back sound", "hgx-07"),
    Happening("dra-01 is rebooted, and comes back sound", "dra-01"),
)
"""The life of the fleet, again and again. None of its nodes is ill at first."""


def play(folder: Path, number: int, now: datetime) -> str:
    """Let the act of this number happen; returns it in words."""
    act = ACTS[number % len(ACTS)]
    if not act.type:
        _edit(folder, {act.node}, lambda status: _reboot(status, number))
        return act.told
    place = number % 8
    condition = {
        "type": act.type,
        "status": "True",
        "reason": act.reason,
        "message": act.message.format(place, f"{place:02x}"),
        "lastTransitionTime": rfc3339(now),
    }
    _edit_conditions(folder, act.node, condition)
    return act.told


def _reboot(status: dict[str, Any], number: int) -> None:
    came = {act.type for act in ACTS}
    status["conditions"] = [one for one in status["conditions"] if one["type"] not in came]
    first, *_ = status["nodeInfo"]["bootID"].partition("+")
    status["nodeInfo"]["bootID"] = f"{first}+{number}"


# --- what the demo sends

POLICIES = ("training", "inference", "scavenger")


def plugin_pod(policy: str, gpus: int) -> dict[str, Any]:
    """A pod that requests GPUs of a device plugin."""
    limits = {"nvidia.com/gpu": str(gpus)}
    return _pod(f"{policy}-plugin", policy, resources={"limits": limits, "requests": limits})


def claim_pod(policy: str) -> dict[str, Any]:
    """A pod that requests one GPU by DRA, through a ResourceClaimTemplate."""
    pod = _pod(f"{policy}-dra", policy, resources={"claims": [{"name": "gpu"}]})
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return pod


def _pod(name: str, policy: str, *, resources: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": name,
            "annotations": {"fettle.dev/policy": policy},
        },
        "spec": {"containers": [{"name": "main", "image": "train", "resources": resources}]},
    }


def oversized_claim() -> dict[str, Any]:
    """An AdmissionReview of a ResourceClaim with more devices than any claim may hold."""
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "forty-gpus", "namespace": "ml"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpus",
                        "exactly": {
                            "deviceClassName": "gpu.nvidia.com",
                            "allocationMode": "ExactCount",
                            "count": 40,
                        },
                    }
                ]
            }
        },
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "8d3c7b1e-demo",
            "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
            "resource": {
                "group": "resource.k8s.io",
                "version": "v1",
                "resource": "resourceclaims",
            },
            "name": "forty-gpus",
            "namespace": "ml",
            "operation": "CREATE",
            "userInfo": {"username": "demo"},
            "object": claim,
            "oldObject": None,
            "dryRun": False,
        },
    }
