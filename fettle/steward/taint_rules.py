"""DeviceTaintRules as Fettle writes them: one for one device, under a name that follows from the
device, with our label. So two that write the same rule write one, and all of ours are found again.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fettle.api import api_path, kinds, resource
from fettle.client import Session, served_kinds
from fettle.model import Conflict, DeviceId, NotFound, TaintLike

_PLURAL = kinds.TAINT_RULE.plural
OWN_LABELS = {"app.kubernetes.io/managed-by": "fettle"}


def rule_name(prefix: str, device: DeviceId) -> str:
    return prefix + hashlib.sha256(str(device).encode()).hexdigest()[:12]


def has_our_labels(rule: resource.DeviceTaintRule) -> bool:
    return (rule.metadata.labels or {}).items() >= OWN_LABELS.items()


async def create_rule(
    session: Session,
    name: str,
    device: DeviceId,
    taint: TaintLike,
    metadata: Mapping[str, Any] | None = None,
) -> bool:
    """Taint a device, with more `metadata` if given. False if no DeviceTaintRules are served.
    Raises ClusterError."""
    api_version = await _served_version(session)
    if not api_version:
        return False
    rule = {
        "apiVersion": api_version,
        "kind": kinds.TAINT_RULE.name,
        "metadata": {**(metadata or {}), "name": name, "labels": OWN_LABELS},
        "spec": {
            "deviceSelector": {
                "driver": device.driver,
                "pool": device.pool,
                "device": device.device,
            },
            "taint": {"key": taint.key, "value": taint.value, "effect": taint.effect},
        },
    }
    with suppress(Conflict):  # it is there already
        await session.create(api_path(api_version, _PLURAL), rule)
    return True


async def change_rule(session: Session, name: str, taint: TaintLike) -> None:
    """Let the rule set this taint instead. Raises ClusterError."""
    if api_version := await _served_version(session):
        with suppress(NotFound):
            new = {"key": taint.key, "value": taint.value, "effect": taint.effect}
            path = api_path(api_version, _PLURAL, name=name)
            await session.patch(path, {"spec": {"taint": new}})


async def delete_rule(session: Session, name: str) -> None:
    """Raises ClusterError."""
    if api_version := await _served_version(session):
        with suppress(NotFound):
            await session.delete(api_path(api_version, _PLURAL, name=name))


async def _served_version(session: Session) -> str:
    """The newest version of DeviceTaintRules that is served, with its group; "" if none is."""
    kind = kinds.TAINT_RULE
    served = {s.version for s in await served_kinds(session, kind.group) if s.kind == kind.name}
    return next((one for one in kind.api_versions if one.rpartition("/")[2] in served), "")
