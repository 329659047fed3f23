"""What device taints say, in ResourceSlices and DeviceTaintRules; never our own.

A taint stands until it is removed, so both kinds of object are the whole truth about what they
say, and silence is an all-clear. In a slice a driver speaks of its own device; by a
DeviceTaintRule an administrator does, or a monitor, whose keys the rules know.
"""

from collections.abc import Iterable

from fettle.api import resource
from fettle.api.meta import unix_s
from fettle.health.signals.reports import short
from fettle.health.signals.rules import SignalRules
from fettle.model import OWN_PREFIX, DeviceId, Evidence, TaintRef


def of_taint(
    device: DeviceId,
    taint: resource.DeviceTaint,
    reporter: str,
    rules: SignalRules,
    now: float,
    *,
    by_rule: bool = False,
) -> Evidence | None:
    """The evidence of one taint on one device; None for our own. `by_rule`: a DeviceTaintRule's."""
    if taint.key.startswith(OWN_PREFIX):
        return None
    row = rules.taint(device.driver, taint.key, taint.effect)
    if row is None:
        return None
    named = TaintRef(taint.key, taint.value, taint.effect)
    shown = f"taint {named}"
    family, kind, weight = row.family, row.kind, row.weight
    if row.xid and taint.value.strip().isdigit():
        xid = rules.xid(taint.value.strip())
        family, kind, weight = xid.family, xid.kind, xid.weight
        shown = f"{xid.text}; {shown}"
    return Evidence(
        subject=device,
        family=family,
        kind=kind,
        weight=weight,
        source=f"taint {taint.key}",
        reporter=reporter,
        text=short(shown),
        observed_at=unix_s(taint.time_added, now),
        half_life_s=rules.half_life_s(family),
        taints=(named,),
        planned=by_rule and row.is_catch_all,
    )


def of_slice_taints(
    slice_: resource.ResourceSlice, reporter: str, rules: SignalRules, now: float
) -> Iterable[Evidence]:
    for device in slice_.spec.devices or ():
        if device.taints:
            id_ = DeviceId(slice_.spec.driver, slice_.spec.pool.name, device.name)
            found = (of_taint(id_, taint, reporter, rules, now) for taint in device.taints)
            yield from (evidence for evidence in found if evidence is not None)


def selects(rule: resource.DeviceTaintRule, device: DeviceId) -> bool:
    """Whether a rule taints a device; a rule without a selector selects none, `{}` every one."""
    selector = rule.spec.device_selector
    return selector is not None and (
        selector.driver in (None, device.driver)
        and selector.pool in (None, device.pool)
        and selector.device in (None, device.device)
    )
