"""What is written on Nodes about the health of their devices, in words. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fettle.cluster import UNMARKED, NodeMarks, Shortage
from fettle.explain.missing import missing_in_words
from fettle.explain.wording import LOWERED, SUSPECTED
from fettle.model import CORDONED, DEVICES_SOUND, HEALTH, SOUND, State
from fettle.scheduling.plans import NodeHealth, UnsoundDevice

MOST_NAMED = 3
"""Devices of which the condition tells."""
_LONGEST_FAULT = 200


def state_in_words(found: NodeHealth, lost: Sequence[Shortage] = ()) -> str:
    """Such as `1 of 8 devices Unhealthy: nvidia.com/gpu GPU-1a2b: XID 79`, and what is lost."""
    if not lost:
        return _states(found)
    gone = "; ".join(map(missing_in_words, lost[:MOST_NAMED]))
    if (more := len(lost) - MOST_NAMED) > 0:
        gone = f"{gone}; and {more} more"
    return f"missing: {gone}" + (f"; {_states(found)}" if found.devices else "")


def _states(found: NodeHealth) -> str:
    number: Counter[State] = Counter()
    for one in found.bad:
        number[one.health.state] += one.number
    states = (State.UNHEALTHY, State.DEGRADED, State.UNKNOWN)
    parts = [f"{number[state]} {state}" for state in states if number[state]]
    if not parts:
        if found.suspected:
            return f"{found.suspected} Degraded of {found.devices} devices, {SUSPECTED}"
        return f"{found.devices} devices Healthy{f', {LOWERED}' if found.lowered < 1 else ''}"
    return f"{', '.join(parts)} of {found.devices} devices: {_named(found.bad)}"


def _named(bad: tuple[UnsoundDevice, ...]) -> str:
    named = "; ".join(map(_device, bad[:MOST_NAMED]))
    more = sum(one.number for one in bad[MOST_NAMED:])
    return f"{named}; and {more} more" if more else named


def _device(one: UnsoundDevice) -> str:
    name = f"{one.pool} {one.name}" if one.name else f"{one.number} {one.pool}"
    fault = one.health.evidence[0].evidence.text if one.health.evidence else str(one.health.state)
    if len(fault) > _LONGEST_FAULT:
        fault = f"{fault[:_LONGEST_FAULT]}…"
    return f"{name}: {fault}"


CAUSES = {
    State.UNHEALTHY: "DevicesUnhealthy",
    State.DEGRADED: "DevicesDegraded",
    State.UNKNOWN: "DevicesUnknown",
    State.HEALTHY: "DevicesHealthy",
}
"""The reasons of the condition by the worst state of a device, an interface."""
LOST = "DevicesMissing"
"""The reason where none is Unhealthy, and some are lost."""


def worst_state(found: NodeHealth) -> State:
    return found.bad[0].health.state if found.bad else SOUND.state


def plain_marks(marks: NodeMarks) -> dict[str, Any] | None:
    """What Fettle has written on a Node; None if nothing. `text` says it in a sentence."""
    if marks == UNMARKED:
        return None
    said = []
    if marks.tier:
        reason = f" ({marks.annotation})" if marks.annotation else ""
        said.append(f"label {HEALTH}={marks.tier}{reason}")
    said += [f"label {label}={value}" for label, value in marks.labels]
    if marks.status:
        said.append(f"condition {DEVICES_SOUND} {marks.status} {marks.cause}: {marks.message}")
    if marks.cordon:
        said.append(f"annotation {CORDONED}: {marks.cordon}")
    return {
        "label": marks.tier or None,
        "labels": dict(marks.labels),
        "reason": marks.annotation or None,
        "condition": {"status": marks.status, "reason": marks.cause, "message": marks.message}
        if marks.status
        else None,
        "cordoned": marks.cordon or None,
        "text": "; ".join(said),
    }
