"""The past of the demo's fleet: what befell its nodes in the last four weeks, told to an inventory
with the clock of then. What that remembers is written as DeviceHealth objects, as by a steward.
"""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from fettle.api import DeviceHealth, kinds
from fettle.api.kinds import Kind
from fettle.api.meta import rfc3339
from fettle.cluster import Inventory
from fettle.config import HealthSettings
from fettle.health import HealthBook, load_rules

BEGAN = timedelta(days=29)
"""So long ago all nodes were sound."""
TICK_S = 7200.0
_MENDED = "dgxc.nvidia.com/nvsentinel-state"
"""The label by which NVSentinel (docs/INTEGRATIONS.md) says that it has mended a node."""
_FILE = "devicehealths.yaml"


class Befell(NamedTuple):
    """A fault that began `days` ago and lasted for `hours`: by its condition, or, without one, what
    the node and its devices suffer from today. It ended with a reboot, a remediation, or by
    itself."""

    days: float
    hours: float
    node: str
    ended: str = ""
    condition: Mapping[str, str] | None = None


_CORRUPTS = {
    "type": "GpuMemWatch",
    "reason": "GpuMemWatchIsNotHealthy",
    "message": "ErrorCode:DCGM_FR_VOLATILE_DBE_DETECTED GPU:6 PCI:0000:db:00.0 "
    "GPU_UUID:GPU-01c3f2aa-9e1d-4a54-b1d4-6a50c1d2e9f7 Detected 1 volatile double-bit ECC errors "
    "in GPU 6 Recommended Action=COMPONENT_RESET;",
}
_LOST = {
    "type": "SysLogsXIDError",
    "reason": "SysLogsXIDErrorIsNotHealthy",
    "message": "ErrorCode:79 GPU:2 PCI:0000:02:00.0 NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen "
    "off the bus. Recommended Action=RESTART_BM;",
}
_HANGS = {
    "type": "KernelDeadlock",
    "reason": "DockerHung",
    "message": "task docker:20744 blocked for more than 300 seconds.",
}
REBOOT, REMEDIATION = "reboot", "remediation"
BEFELL = (
    Befell(24.0, 9.0, "hgx-05", REBOOT),
    Befell(11.5, 31.0, "hgx-05", REBOOT),
    Befell(10.0, 30.0, "hgx-01", REMEDIATION, _CORRUPTS),
    Befell(19.0, 14.0, "dra-02", REBOOT),
    Befell(5.5, 20.0, "dra-02", REBOOT),
    Befell(26.0, 5.0, "hgx-03"),
    Befell(15.0, 7.0, "hgx-03"),
    Befell(3.0, 4.0, "hgx-03"),
    Befell(8.0, 6.0, "hgx-06", REBOOT),
    Befell(21.0, 3.0, "hgx-04", REBOOT, _HANGS),
    Befell(17.0, 26.0, "hgx-02", REBOOT, _LOST),
    Befell(6.5, 2.0, "dra-01", REBOOT, _HANGS),
)


class _Event(NamedTuple):
    at: float
    kind: Kind
    raw: dict[str, Any]


class FleetPast:
    """What is remembered of the fleet in this folder, which is as of `now`."""

    def __init__(self, folder: Path, now: datetime, health: Mapping[str, Any]) -> None:
        rules, settings = load_rules(), msgspec.convert(health, HealthSettings)
        self._folder = folder
        self._inventory = Inventory(HealthBook(settings, rules), rules, health=settings)
        self._stored: dict[str, DeviceHealth] = {}
        self._nodes: list[str] = []
        at = (now - BEGAN).timestamp()
        for event in sorted(self._events(now), key=lambda one: one.at):
            while at < event.at:
                self._tick(at)
                at = min(at + TICK_S, event.at)
            self._put(event.kind, event.raw, at)
        self._tick(now.timestamp())

    def follow(self, now: datetime) -> None:
        """Remember how its nodes are now, too."""
        for kind, raw in _objects(self._folder):
            if kind is kinds.NODE:
                self._put(kind, raw, now.timestamp())
        self._tick(now.timestamp())

    def write(self) -> None:
        """Into the folder, which may be watched: at once."""
        kind = kinds.DEVICE_HEALTH
        items = [
            {
                "apiVersion": kind.api_version,
                "kind": kind.name,
                "metadata": {"name": name},
                "status": msgspec.to_builtins(one.status),
            }
            for name, one in self._stored.items()
        ]
        draft = self._folder / f"{_FILE}.tmp"
        draft.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        draft.replace(self._folder / _FILE)

    def _put(self, kind: Kind, raw: dict[str, Any], at: float) -> None:
        self._inventory.put(kind, kind.decode(msgspec.json.encode(raw)), at)

    def _tick(self, at: float) -> None:
        self._inventory.age(at)
        for _ in self._inventory.refresh(at):
            pass
        for name in self._inventory.settle().intersection(self._nodes):
            found = self._inventory.recall(name, self._stored.get(name), at)
            if found is not None:
                self._stored[name] = found

    def _events(self, now: datetime) -> Iterator[_Event]:
        began = now - BEGAN
        for kind, raw in _objects(self._folder):
            if kind not in (kinds.NODE, kinds.SLICE):
                yield _Event(_last_time(raw, began).timestamp(), kind, raw)
                continue
            node = raw["metadata"]["name"] if kind is kinds.NODE else raw["spec"]["nodeName"]
            if kind is kinds.NODE:
                self._nodes.append(node)
            yield _Event(began.timestamp(), kind, _sound(raw, _boots(node), began))
            for befell in (one for one in BEFELL if one.node == node):
                yield from _course(kind, raw, befell, now)
            yield _Event(_last_time(raw, began).timestamp(), kind, raw)


def _course(kind: Kind, raw: dict[str, Any], befell: Befell, now: datetime) -> Iterator[_Event]:
    """How an object of a node changed by what befell it."""
    start = now - timedelta(days=befell.days)
    end = start + timedelta(hours=befell.hours)
    later = [one for one in BEFELL if one.node == befell.node and one.days < befell.days]
    boots = sum(one.ended == REBOOT for one in later)
    before = boots + (befell.ended == REBOOT)
    ill = _sound(raw, before, start) if befell.condition else _as_at(raw, before, start)
    if befell.condition and kind is kinds.NODE:
        since = {"status": "True", "lastTransitionTime": rfc3339(start)}
        ill["status"]["conditions"].append({**befell.condition, **since})
    yield _Event(start.timestamp(), kind, ill)
    ended = _sound(raw, boots, end)
    if befell.ended == REMEDIATION:  # and it has stayed sound since
        ended["metadata"]["labels"] = raw["metadata"].get("labels", {})
    yield _Event(end.timestamp(), kind, ended)


def _boots(node: str) -> int:
    return sum(one.node == node and one.ended == REBOOT for one in BEFELL)


def _as_at(raw: dict[str, Any], boots: int, at: datetime) -> dict[str, Any]:
    """The object as it is, but as of then, so many boots before the last."""
    then = deepcopy(raw)
    status = then.get("status", {})
    for condition in status.get("conditions", ()):
        condition["lastTransitionTime"] = rfc3339(at)
    if boots and status:
        status["nodeInfo"]["bootID"] += f"-{boots}"
    for device in then.get("spec", {}).get("devices", ()):
        for taint in device.get("taints", ()):
            taint["timeAdded"] = rfc3339(at)
    return then


def _sound(raw: dict[str, Any], boots: int, at: datetime) -> dict[str, Any]:
    """The object with nothing amiss."""
    then = _as_at(raw, boots, at)
    then["metadata"].pop("annotations", None)
    then["metadata"].get("labels", {}).pop(_MENDED, None)
    if status := then.get("status"):
        status["conditions"] = [one for one in status["conditions"] if one["type"] == "Ready"]
        status["allocatable"] = dict(status["capacity"])
    for device in then.get("spec", {}).get("devices", ()):
        device.pop("taints", None)
    return then


def _objects(folder: Path) -> Iterator[tuple[Kind, dict[str, Any]]]:
    by_name = {kind.name: kind for kind in kinds.KINDS}
    for file in sorted(folder.glob("*.yaml")):
        if file.name != _FILE:
            for raw in yaml.safe_load(file.read_text(encoding="utf-8"))["items"]:
                yield by_name[raw["kind"]], raw


def _last_time(told: object, least: datetime) -> datetime:
    """The latest time in an object."""
    match told:
        case dict():
            return max((_last_time(one, least) for one in told.values()), default=least)
        case list():
            return max((_last_time(one, least) for one in told), default=least)
        case str() if told.endswith("Z") and told[:4].isdigit():
            return max(least, datetime.fromisoformat(told))
    return least
