"""The taints that devices have or would have by their health, as plain data for people. Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from fettle.cluster import View
from fettle.config import DeviceTaintSettings
from fettle.model import DEGRADED_TAINT, UNHEALTHY_TAINT, Mode
from fettle.scheduling.plans import PlannedTaint, TaintPlan, is_assessed


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
    scheduler would obey no rule."""
    there = dict(_rules_of(view))
    return [
        {
            "device": str(device),
            "key": planned.taint.key,
            "effect": planned.taint.effect,
            "there": found.effect if (found := there.get(str(device))) is not None else None,
            "rule": found.rule if found is not None else None,
            "whyNot": None
            if found is not None and found[1:] == (planned.taint.key, planned.taint.effect)
            else _why_not(planned, settings, mode, in_vain, dry_run=dry_run),
            "confirmedAt": planned.confirmed_at,
            "confirmedEffect": planned.strongest,
        }
        for device, planned in sorted(plan.taints.items())
    ]


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
