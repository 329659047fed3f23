"""What is written about a pod on a failed device: the condition `fettle.dev/DeviceFailed`, and its
eviction. Each write names the pod's UID, so that it never meets a later pod of the same name.

The condition's reason says what is done about the pod, so every replica, and the leader that comes
next, knows it from the pod alone.
"""

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

from fettle.api import core, kinds
from fettle.api.meta import Condition, rfc3339_at
from fettle.client import Session
from fettle.model import DEVICE_FAILED, Conflict, NotFound

_OURS = "fettle: "
"""How the messages of our conditions begin. Others may set the condition too."""
_LONGEST = 1024


class MarkReason(StrEnum):
    """What is done about a marked pod: the condition's reason, an interface."""

    MARKED = "DeviceUnhealthy"
    OVER_BUDGET = "EvictionAwaitsDisruptionBudget"
    DENIED = "EvictionDenied"
    NOWHERE_BETTER = "NoBetterNodeForReplacement"
    NO_OTHER_NODE = "NoOtherNodeForReplacement"
    CLAIM_SHARED = "ClaimIsShared"
    NO_REPLACEMENT = "NothingReplacesThePod"


def condition_of(pod: core.Pod) -> Condition | None:
    """The pod's condition `fettle.dev/DeviceFailed` if it is True, whoever set it."""
    found = pod.condition(DEVICE_FAILED)
    return found if found is not None and found.status == "True" else None


def is_ours(condition: Condition) -> bool:
    return condition.message.startswith(_OURS)


async def mark(session: Session, pod: core.Pod, reason: MarkReason, words: str, now: float) -> None:
    """Set the condition, or change what it says. Raises ClusterError."""
    condition: dict[str, Any] = {
        "type": DEVICE_FAILED,
        "status": "True",
        "reason": str(reason),
        "message": (_OURS + words)[:_LONGEST],
    }
    if condition_of(pod) is None:
        condition["lastTransitionTime"] = rfc3339_at(now)
    await _patch(session, pod, condition)


async def unmark(session: Session, pod: core.Pod) -> None:
    """Take the condition away. Raises ClusterError."""
    await _patch(session, pod, {"type": DEVICE_FAILED, "$patch": "delete"})


async def _patch(session: Session, pod: core.Pod, condition: Mapping[str, Any]) -> None:
    body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
    with suppress(NotFound, Conflict):  # that pod is gone
        await session.patch(_path(pod, "status"), body, strategic=True)


async def evict(session: Session, pod: core.Pod, *, dry_run: bool = False) -> None:
    """Raises ClusterError: BudgetSpent if a PodDisruptionBudget allows it to nobody now. In a dry
    run nothing is written, and PodDisruptionBudgets and admission are asked all the same."""
    metadata = pod.metadata
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace},
        "deleteOptions": {"preconditions": {"uid": metadata.uid}},
    }
    with suppress(NotFound, Conflict):  # that pod is gone
        await session.create(_path(pod, "eviction"), eviction, dry_run=dry_run)


def _path(pod: core.Pod, subresource: str) -> str:
    return kinds.POD.path_of(pod.metadata.name, pod.metadata.namespace, subresource)
