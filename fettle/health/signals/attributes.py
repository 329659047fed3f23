"""What device attributes in ResourceSlices say, where a driver publishes health in them."""

from collections.abc import Iterator

from fettle.api import resource
from fettle.health.signals.reports import short
from fettle.health.signals.rules import SignalRules
from fettle.health.signals.rules.rows import AttributeRow
from fettle.model import DeviceId, Evidence


def of_slice_attributes(
    slice_: resource.ResourceSlice, reporter: str, rules: SignalRules, now: float
) -> Iterator[Evidence]:
    """One piece of evidence for each attribute that says its device is ill."""
    driver = slice_.spec.driver
    rows = rules.attributes_of(driver)
    for device in (slice_.spec.devices or ()) if rows else ():
        for row in rows:
            value = _shown(device, driver, row.attribute)
            if value is not None and row.matches(value):
                id_ = DeviceId(driver, slice_.spec.pool.name, device.name)
                yield _evidence(id_, row, value, reporter, rules, now)


def _shown(device: resource.Device, driver: str, name: str) -> str | None:
    """An attribute as text; its name may stand with or without the driver's domain."""
    attributes = device.attributes or {}
    found = attributes.get(name) or attributes.get(f"{driver}/{name}")
    if found is None:
        return None
    if found.bool_ is not None:
        return "true" if found.bool_ else "false"
    return found.string if found.int_ is None else str(found.int_)


def _evidence(
    device: DeviceId, row: AttributeRow, value: str, reporter: str, rules: SignalRules, now: float
) -> Evidence:
    return Evidence(
        subject=device,
        family=row.family,
        kind=row.kind,
        weight=row.weight,
        source=f"attribute {row.attribute}",
        reporter=reporter,
        text=short(f"{device.driver} publishes its {row.attribute} as {value}"),
        observed_at=now,
        half_life_s=rules.half_life_s(row.family),
    )
