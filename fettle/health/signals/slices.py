"""What ResourceSlices and DeviceTaintRules say of devices: taints, attributes that publish health,
and an operator's hold.

A taint stands until it is removed, so both kinds of object are complete about what they say, and
silence is an all-clear. In a slice, a driver speaks of its own devices. A DeviceTaintRule comes
from an administrator or a monitor, whose keys the rules know. Fettle's own taints never count.
"""

from collections.abc import Iterable, Iterator

from fettle.api import kinds, resource
from fettle.api.meta import unix_s
from fettle.health.signals.operator_words import evidence_of_holds, holds_on_devices, in_force
from fettle.health.signals.reports import SignalReport, heaviest, one_line
from fettle.health.signals.rule_rows import AttributeRow, rule_of
from fettle.health.signals.rule_tables import UNKNOWN_FAULT, SignalRules
from fettle.model import OWN_PREFIX, DeviceId, Evidence, ReporterId, Source, SourceKind, TaintRef
from fettle.pacing import pause


def report_of_slice(slice_: resource.ResourceSlice, rules: SignalRules, now: float) -> SignalReport:
    """Taints and faulty attributes of the slice's devices, and the operator's hold on all of
    them."""
    reporter = ReporterId(kinds.SLICE.name, slice_.metadata.name)
    devices = [
        DeviceId(slice_.spec.driver, slice_.spec.pool.name, device.name)
        for device in slice_.spec.devices or ()
    ]
    tainted = _of_taints(slice_, reporter, rules, now)
    described = _of_attributes(slice_, reporter, rules, now)
    holds = in_force(holds_on_devices(slice_.metadata, devices), now)
    held = evidence_of_holds(holds, reporter, now)
    evidence = heaviest((*tainted, *described, *held))
    return SignalReport(reporter, evidence, absent_is_clear=True, holds=holds)


def report_of_taint_rule(
    rule: resource.DeviceTaintRule, devices: Iterable[DeviceId], rules: SignalRules, now: float
) -> SignalReport:
    """The rule's taint on each of `devices`, which the rule selects."""
    reporter = ReporterId(kinds.TAINT_RULE.name, rule.metadata.name)
    taint = rule.spec.taint
    found = (_taint_evidence(d, taint, reporter, rules, now, by_rule=True) for d in devices)
    evidence = heaviest(e for e in found if e is not None)
    return SignalReport(reporter, evidence, absent_is_clear=True)


def _taint_evidence(
    device: DeviceId,
    taint: resource.DeviceTaint,
    reporter: ReporterId,
    rules: SignalRules,
    now: float,
    *,
    by_rule: bool = False,
) -> Evidence | None:
    """The evidence of one taint on one device; None if the taint is Fettle's own. `by_rule`: the
    taint comes from a DeviceTaintRule."""
    if taint.key.startswith(OWN_PREFIX):
        return None
    value = taint.value.strip()
    row = rules.taint(device.driver, taint.key, value, taint.effect)
    if row is None:
        return None
    named = TaintRef(taint.key, taint.value, taint.effect)
    shown = f"taint {named}"
    family, kind, weight = row.family, row.kind, row.weight
    unlisted = ""
    if row.xid and value.isdigit():
        xid, unlisted = rules.tainting_xid(value, row), rules.unlisted_xid(value)
        family, kind, weight = xid.family, xid.kind, xid.weight
        shown = f"{xid.text}; {shown}"
    elif row.xid and value:
        shown, unlisted = f"XID {value}: {UNKNOWN_FAULT}; {shown}", value
    return Evidence(
        subject=device,
        family=family,
        kind=kind,
        weight=weight,
        source=Source(SourceKind.TAINT, taint.key),
        rule=rule_of(SourceKind.TAINT, row.key),
        reporter=reporter,
        said=one_line(shown),
        observed_at=unix_s(taint.time_added, now),
        half_life_s=rules.half_life_s(family),
        taints=(named,),
        planned=by_rule and row.is_catch_all,
        unlisted=unlisted,
    )


def _of_taints(
    slice_: resource.ResourceSlice, reporter: ReporterId, rules: SignalRules, now: float
) -> Iterable[Evidence]:
    for device in slice_.spec.devices or ():
        if device.taints:
            id_ = DeviceId(slice_.spec.driver, slice_.spec.pool.name, device.name)
            for taint in device.taints:
                pause()
                found = _taint_evidence(id_, taint, reporter, rules, now)
                if found is not None:
                    yield found


def selects_device(rule: resource.DeviceTaintRule, device: DeviceId) -> bool:
    """Whether a rule taints a device. A rule without a selector selects none; `{}` selects every
    device."""
    selector = rule.spec.device_selector
    return selector is not None and (
        selector.driver in (None, device.driver)
        and selector.pool in (None, device.pool)
        and selector.device in (None, device.device)
    )


def _of_attributes(
    slice_: resource.ResourceSlice, reporter: ReporterId, rules: SignalRules, now: float
) -> Iterator[Evidence]:
    """One piece of evidence for each attribute by which a driver says that a device is faulty."""
    driver = slice_.spec.driver
    rows = rules.attributes_of(driver)
    for device in (slice_.spec.devices or ()) if rows else ():
        for row in rows:
            value = _attribute_text(device, driver, row.attribute)
            if value is not None and row.matches(value):
                id_ = DeviceId(driver, slice_.spec.pool.name, device.name)
                yield _attribute_evidence(id_, row, value, reporter, rules, now)


def _attribute_text(device: resource.Device, driver: str, name: str) -> str | None:
    """An attribute as text. Its name may come with or without the driver's domain."""
    attributes = device.attributes or {}
    found = attributes.get(name) or attributes.get(f"{driver}/{name}")
    if found is None:
        return None
    if found.bool_ is not None:
        return "true" if found.bool_ else "false"
    return found.string if found.int_ is None else str(found.int_)


def _attribute_evidence(
    device: DeviceId,
    row: AttributeRow,
    value: str,
    reporter: ReporterId,
    rules: SignalRules,
    now: float,
) -> Evidence:
    return Evidence(
        subject=device,
        family=row.family,
        kind=row.kind,
        weight=row.weight,
        source=Source(SourceKind.ATTRIBUTE, row.attribute),
        reporter=reporter,
        said=one_line(f"{device.driver} publishes its {row.attribute} as {value}"),
        observed_at=now,
        half_life_s=rules.half_life_s(row.family),
    )
