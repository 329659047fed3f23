"""The taints that devices have or would have by their health, as plain data for people. Pure."""

from collections.abc import Iterator
from typing import Any

from fettle.cluster import View
from fettle.config import DeviceTaintSettings
from fettle.model import DEGRADED_TAINT, UNHEALTHY_TAINT, Mode
from fettle.scheduling import PlannedTaint, TaintPlan, is_assessed


def list_taints(
    plan: TaintPlan, view: View, settings: DeviceTaintSettings, mode: Mode, in_vain: str = ""
) -> list[dict[str, Any]]:
    """Each taint of a plan. `effect` is the one that it should have, `there` the one that the
    device has by a rule of Fettle's now, None if there is no such rule. `whyNot` says why they
    differ, in words; `in_vain` why the scheduler would obey no rule."""
    there = dict(_rules_of(view))
    return [
        {
            "device": str(device),
            "key": planned.taint.key,
            "effect": planned.taint.effect,
            "there": found[1] if (found := there.get(str(device))) is not None else None,
            "whyNot": None
            if found == (planned.taint.key, planned.taint.effect)
            else _why_not(planned, settings, mode, in_vain),
            "confirmedAt": planned.confirmed_at,
        }
        for device, planned in sorted(plan.taints.items())
    ]


def _rules_of(view: View) -> Iterator[tuple[str, tuple[str, str]]]:
    for rule in view.taint_rules.values():
        selector, taint = rule.spec.device_selector, rule.spec.taint
        if selector is not None and is_assessed(taint):
            device = f"{selector.driver}/{selector.pool}/{selector.device}"
            yield device, (taint.key, taint.effect)


def _why_not(planned: PlannedTaint, settings: DeviceTaintSettings, mode: Mode, in_vain: str) -> str:
    key = planned.taint.key
    if key == UNHEALTHY_TAINT and settings.unhealthy is None:
        return "deviceTaints.unhealthy is not set"
    if key == DEGRADED_TAINT and settings.degraded is None:
        return "deviceTaints.degraded is not set"
    if mode is not Mode.ENFORCE:
        return f"mode {mode}"
    if in_vain:
        return in_vain
    if key == DEGRADED_TAINT and planned.taint.effect != "None":
        return "due once a dry run shows that claims get their fallback"
    return "due: if it stays so, /readyz?verbose and the log of the steward that leads say why"
