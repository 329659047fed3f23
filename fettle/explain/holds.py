"""What operators hold, as plain data for people, and who obeys it. Pure."""

from collections.abc import Iterable
from typing import Any

from fettle.api import resource
from fettle.cluster import View
from fettle.health import describe_hold, hold_time, selects_device
from fettle.model import DeviceId, NodeId, Subject, is_tainted_as_held

OBEYED_BY_SCHEDULER, OBEYED_BY_FETTLE = "Scheduler", "Fettle"


def list_holds(view: View) -> list[dict[str, Any]]:
    """Each hold that is in force. `obeyedBy` is Scheduler if a taint goes with it, which counts
    with or without Fettle, else Fettle."""
    return [
        {
            "subject": str(subject),
            "reason": hold.reason,
            "by": hold.by or None,
            "since": hold_time(hold.since),
            "until": hold_time(hold.until),
            "annotation": hold.annotation,
            "obeyedBy": obeyed_by(subject, view),
            "text": describe_hold(hold),
        }
        for subject, holds in sorted(view.holds.items(), key=lambda item: str(item[0]))
        for hold in holds
    ]


def obeyed_by(subject: Subject, view: View) -> str:
    match subject:
        case NodeId():
            node = view.nodes.get(subject.node)
            obeyed = node is not None and is_tainted_as_held(node.taints)
        case DeviceId():
            obeyed = is_held_by_rule(subject, view.taint_rules.values())
        case _:
            obeyed = False
    return OBEYED_BY_SCHEDULER if obeyed else OBEYED_BY_FETTLE


def is_held_by_rule(device: DeviceId, rules: Iterable[resource.DeviceTaintRule]) -> bool:
    """Whether one of these rules makes the scheduler obey a hold on the device."""
    return any(
        is_tainted_as_held((rule.spec.taint,)) and selects_device(rule, device) for rule in rules
    )
