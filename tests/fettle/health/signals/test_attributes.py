"""Device attributes by which drivers publish health."""

from typing import Any

import pytest

from fettle.health.signals.rule_tables import load_rules
from fettle.health.signals.slices import report_of_slice
from fettle.model import DeviceId, EvidenceKind
from tests.fettle.health.signals.objects import NOW, slice_

RULES = load_rules()
INTEL = "gpu.intel.com"


@pytest.mark.parametrize("name", ["health", "gpu.intel.com/health"])
@pytest.mark.parametrize("value", [{"string": "Unhealthy"}, {"bool": False}])
def test_intels_health_attribute_takes_the_device_out(name: str, value: dict[str, Any]) -> None:
    report = report_of_slice(slice_(driver=INTEL, attributes={name: value}), RULES, NOW)
    (evidence,) = report.evidence
    assert evidence.subject == DeviceId(INTEL, "gpu-1", "gpu-0")
    assert (evidence.kind, evidence.weight) == (EvidenceKind.LATCHED, 1.0)
    assert evidence.text.startswith("gpu.intel.com publishes its health as ")
    assert report.absent_is_clear


@pytest.mark.parametrize(
    "attributes",
    [
        {"health": {"string": "Healthy"}},
        {"health": {"bool": True}},
        {"health": {"int": 0}},
        {"health": {"version": "1.0.0"}},
        {"example.com/health": {"bool": False}},
        {},
        None,
    ],
)
def test_other_values_and_attributes_say_nothing(attributes: dict[str, Any] | None) -> None:
    assert report_of_slice(slice_(driver=INTEL, attributes=attributes), RULES, NOW).evidence == ()


def test_another_drivers_attribute_of_that_name_means_nothing() -> None:
    said = slice_(driver="gpu.example.com", attributes={"health": {"bool": False}})
    assert report_of_slice(said, RULES, NOW).evidence == ()
