"""What nodes and devices carry besides their health, for people: what operators hold and who obeys
it, what is written on Nodes, what a node lacks, and the taints that devices have or would have.
Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fettle.api import resource
from fettle.cluster import UNMARKED, NodeMarks, NodeView, Shortage, View
from fettle.config import DeviceTaintSettings
from fettle.explain.wording import LOWERED, SUSPECTED
from fettle.health import describe_hold, hold_time, selects_device
from fettle.model import (
    CORDONED,
    DEGRADED_TAINT,
    DEVICES_SOUND,
    HEALTH,
    SOUND,
    UNHEALTHY_TAINT,
    DeviceId,
    Mode,
    NodeId,
    State,
    Subject,
    is_tainted_as_held,
    utc,
)
from fettle.scheduling.plans import NodeHealth, PlannedTaint, TaintPlan, UnsoundDevice, is_assessed

OBEYED_BY_SCHEDULER, OBEYED_BY_FETTLE = "Scheduler", "Fettle"
MOST_NAMED = 3
"""Devices of which the condition tells."""
_LONGEST_FAULT = 200


def list_holds(view: View) -> list[dict[str, Any]]:
    """Each hold that is in force. `obeyedBy` is Scheduler if a taint goes with it, which counts
    with or without Fettle, else Fettle."""
    return [
        {
            "subject": str(subject),
            "reason": hold.reason,
            # Who holds it, or `null`.
            "by": hold.by or None,
            "since": hold_time(hold.since),
            "until": hold_time(hold.until),
            # In which annotation it stands.
            "annotation": hold.annotation,
            # `Scheduler` if a taint goes with it, else `Fettle`.
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


def state_in_words(found: NodeHealth, lost: Sequence[Shortage] = ()) -> str:
    """Such as `1 of 8 devices Unhealthy: nvidia.com/gpu GPU-1a2b: XID 79`, and what is lost."""
    if not lost:
        return _states(found)
    gone = "; ".join(map(missing_in_words, lost[:MOST_NAMED]))
    if (more := len(lost) - MOST_NAMED) > 0:
        gone = f"{gone}; and {more} more"
    return f"{gone}; {_states(found)}" if found.devices else gone


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
        # Those beside it, by their key.
        "labels": dict(marks.labels),
        # The annotation's.
        "reason": marks.annotation or None,
        # Its `status`, `reason` and `message`.
        "condition": {"status": marks.status, "reason": marks.cause, "message": marks.message}
        if marks.status
        else None,
        # Why Fettle cordoned it.
        "cordoned": marks.cordon or None,
        "text": "; ".join(said),
    }


def plain_missing(node: NodeView) -> list[dict[str, Any]]:
    """What a node has fewer of than expected, and who expects it. From `lostAt` on it is lost; None
    if it is not known since when."""
    return [
        {
            "name": one.name,
            "expected": one.expected,
            "found": one.found,
            # Who expects it, in words.
            "source": one.source,
            # `null`, as `lostAt`, if it is not known since when.
            "since": one.since,
            # From when it counts as lost.
            "lostAt": one.lost_at if one.since is not None else None,
            "text": missing_in_words(one),
        }
        for one in node.missing
    ]


def missing_in_words(one: Shortage) -> str:
    """Such as `2 of 8 nvidia.com/gpu missing, expected by its peers`."""
    return f"{one.number} of {one.expected} {one.name} missing, expected by {one.source}"


def list_taints(
    plan: TaintPlan,
    view: View,
    settings: DeviceTaintSettings,
    mode: Mode,
    in_vain: str = "",
    *,
    dry_run: bool = False,
) -> list[dict[str, Any]]:
    """Each taint of a plan. `effect` is the one that it should have now, `confirmedEffect` the one
    from `confirmedAt` on, and `there` the one that the device has by `rule`, a rule of Fettle's;
    None if there is no such rule. `whyNot` says why they differ, in words; `in_vain` why the
    scheduler would obey no rule. `text` says it in a sentence."""
    there = dict(_rules_of(view))
    listed = [
        {
            "device": str(device),
            # The taint's key.
            "key": planned.taint.key,
            # The effect that it should have now; for a setting that is not set, as if it were
            # `NoSchedule`.
            "effect": planned.taint.effect,
            # The effect that a rule of Fettle's gives it, or `null`.
            "there": found.effect if (found := there.get(str(device))) is not None else None,
            # That rule's name, or `null`.
            "rule": found.rule if found is not None else None,
            # Why the two differ, in words.
            "whyNot": None
            if found is not None and found[1:] == (planned.taint.key, planned.taint.effect)
            else _why_not(planned, settings, mode, in_vain, dry_run=dry_run),
            # From when the state counts as confirmed.
            "confirmedAt": planned.confirmed_at,
            # The effect from then on.
            "confirmedEffect": planned.strongest,
        }
        for device, planned in sorted(plan.taints.items())
    ]
    return [{**one, "text": taint_in_words(one)} for one in listed]


def taint_in_words(taint: Mapping[str, Any]) -> str:
    """What Fettle taints a device by its health, and what comes of it."""
    key, effect, then = taint["key"], taint["effect"], taint["confirmedEffect"]
    if taint["there"] is None:
        return f"would be tainted {key}:{effect} by its health: {taint['whyNot']}"
    said = f"tainted {key}:{taint['there']} by DeviceTaintRule {taint['rule']}"
    if taint["whyNot"]:
        said += f"; {effect}: {taint['whyNot']}"
    elif then != effect:
        said += f"; {then} from {utc(taint['confirmedAt']):%Y-%m-%d %H:%M:%SZ} on, if it stays so"
    return said


class _Found(NamedTuple):
    rule: str
    key: str
    effect: str


def _rules_of(view: View) -> Iterator[tuple[str, _Found]]:
    for name, rule in view.taint_rules.items():
        selector, taint = rule.spec.device_selector, rule.spec.taint
        if selector is not None and is_assessed(taint):
            device = f"{selector.driver}/{selector.pool}/{selector.device}"
            yield device, _Found(name, taint.key, taint.effect)


def _why_not(
    planned: PlannedTaint,
    settings: DeviceTaintSettings,
    mode: Mode,
    in_vain: str,
    *,
    dry_run: bool,
) -> str:
    key = planned.taint.key
    if key == UNHEALTHY_TAINT and settings.unhealthy is None:
        return "deviceTaints.unhealthy is not set"
    if key == DEGRADED_TAINT and settings.degraded is None:
        return "deviceTaints.degraded is not set"
    if mode is not Mode.ENFORCE:
        return f"mode {mode}"
    if dry_run:
        return "steward.dryRun"
    if in_vain:
        return in_vain
    if key == DEGRADED_TAINT and planned.taint.effect != "None":
        return "due once a dry run shows that claims get their fallback"
    return "due: if it stays so, /readyz?verbose and the log of the steward that leads say why"
