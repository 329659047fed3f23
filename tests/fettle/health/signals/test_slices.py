"""What taints in slices and rules say, and attributes by which drivers publish health."""

from pathlib import Path
from typing import Any

import pytest

from fettle.health.signals.rule_files import load_rules
from fettle.health.signals.slices import report_of_slice, report_of_taint_rule, selects_device
from fettle.model import DeviceId, EvidenceKind, Family
from tests.fettle.health.signals.objects import NOW, slice_, taint, taint_rule

RULES = load_rules()
NV = "gpu.nvidia.com"
LATCHED, LEVEL, UNKNOWN = EvidenceKind.LATCHED, EvidenceKind.LEVEL, EvidenceKind.UNKNOWN


@pytest.mark.parametrize(
    ("driver", "key", "value", "effect", "family", "kind", "weight"),
    [
        (NV, f"{NV}/xid", "79", "NoSchedule", Family.BUS, LATCHED, 1.0),
        (NV, f"{NV}/xid", "48", "NoSchedule", Family.MEMORY, LATCHED, 1.0),
        # the driver's effect counts: it asks the GPU whether that needs recovery
        (NV, f"{NV}/xid", "31", "NoSchedule", Family.DRIVER, LEVEL, 0.75),
        (NV, f"{NV}/xid", "31", "NoExecute", Family.DRIVER, LEVEL, 1.0),
        (NV, f"{NV}/xid", "31", "None", Family.DRIVER, LEVEL, 0.0),
        (NV, f"{NV}/xid", "63", "NoSchedule", Family.MEMORY, LEVEL, 0.75),
        (NV, f"{NV}/xid", "63", "None", Family.MEMORY, LEVEL, 0.1),
        (NV, f"{NV}/xid", "74", "NoSchedule", Family.LINK, LEVEL, 0.75),
        (NV, f"{NV}/xid", "74", "None", Family.LINK, LEVEL, 0.12),
        (NV, f"{NV}/xid", "109", "None", Family.DRIVER, LEVEL, 0.12),
        (NV, f"{NV}/xid", "119", "None", Family.DRIVER, LEVEL, 0.12),
        (NV, f"{NV}/xid", "119", "NoSchedule", Family.DRIVER, LATCHED, 1.0),
        # a GPU that is gone cannot be asked
        (NV, f"{NV}/xid", "79", "None", Family.BUS, LATCHED, 1.0),
        (NV, f"{NV}/xid", "777", "NoSchedule", Family.DRIVER, LEVEL, 0.75),
        (NV, f"{NV}/xid", "odd", "NoSchedule", Family.DRIVER, LEVEL, 0.75),
        (NV, f"{NV}/xid", "odd", "None", Family.DRIVER, LEVEL, 0.12),
        (NV, f"{NV}/gpu-lost", "", "NoSchedule", Family.BUS, LATCHED, 1.0),
        (NV, f"{NV}/unmonitored", "", "None", Family.DRIVER, UNKNOWN, 0.0),
        ("gpu.intel.com", "HealthIssues-memory_power", "", "NoExecute",
         Family.DRIVER, LATCHED, 1.0),
        ("gpu.intel.com", "UnboundUnmanaged", "", "NoSchedule", Family.DRIVER, LEVEL, 0.75),
        ("gaudi.intel.com", "gaudi.intel.com/unhealthy", "CriticalError", "NoExecute",
         Family.DRIVER, LATCHED, 1.0),
        ("gpu.example.com", "gpu.example.com/unhealthy", "", "NoSchedule",
         Family.DRIVER, LATCHED, 1.0),
        ("any.example.org", "unheard-of", "", "NoExecute", Family.DRIVER, LATCHED, 1.0),
        ("any.example.org", "unheard-of", "", "NoSchedule", Family.DRIVER, LEVEL, 0.75),
        ("any.example.org", "unheard-of", "", "None", Family.DRIVER, LEVEL, 0.15),
        ("any.example.org", "unheard-of", "", "SomethingNew", Family.DRIVER, LEVEL, 0.15),
    ],
)  # fmt: skip
def test_a_taint_is_read_by_its_row(
    driver: str,
    key: str,
    value: str,
    effect: str,
    family: Family,
    kind: EvidenceKind,
    weight: float,
) -> None:
    said = report_of_slice(slice_(taint(key, value, effect), driver=driver), RULES, NOW)
    (evidence,) = said.evidence
    assert evidence.subject == DeviceId(driver, "gpu-1", "gpu-0")
    assert (evidence.family, evidence.kind, evidence.weight) == (family, kind, weight)
    assert key in evidence.text
    assert evidence.observed_at == NOW
    assert said.absent_is_clear


@pytest.mark.parametrize(
    ("value", "effect", "remark"),
    [
        ("31", "NoSchedule", "the driver says that it needs recovery; taint"),
        ("63", "NoSchedule", "up to v0.5.0 it says so of each XID that it does not list"),
        ("119", "None", "it needs no recovery, or was told to ignore this XID"),
        ("119", "NoSchedule", ""),
        ("31", "None", ""),
    ],
)
def test_where_an_effect_decides_it_is_said_what_older_drivers_mean_by_it(
    value: str, effect: str, remark: str
) -> None:
    said = report_of_slice(slice_(taint(f"{NV}/xid", value, effect)), RULES, NOW)
    (evidence,) = said.evidence
    assert remark in evidence.text
    assert ("the driver says" in evidence.text) is bool(remark)
    assert evidence.text.endswith(f"taint {NV}/xid={value}:{effect}")


def test_who_knows_that_the_drivers_are_old_can_let_the_xid_alone_decide(tmp_path: Path) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(
        "taints: [{name: nvidia-xid, key: gpu.nvidia.com/xid, effect: NoSchedule, xid: true,"
        " family: driver, weight: 0.5, source: ours}]"
    )
    rules = load_rules(own)
    said = report_of_slice(slice_(taint(f"{NV}/xid", "63", "NoSchedule")), rules, NOW)
    assert [evidence.weight for evidence in said.evidence] == [0.1]


def test_our_own_taints_never_come_back_as_evidence() -> None:
    assert report_of_slice(slice_(taint("fettle.dev/degraded")), RULES, NOW).evidence == ()
    rule = taint_rule({}, taint("fettle.dev/degraded"))
    device = DeviceId("d", "p", "x")
    assert report_of_taint_rule(rule, [device], RULES, NOW).evidence == ()


def test_several_taints_of_one_device_all_count() -> None:
    said = report_of_slice(
        slice_(taint("gpu.nvidia.com/xid", "74"), taint("gpu.nvidia.com/gpu-lost")), RULES, NOW
    )
    assert {e.family for e in said.evidence} == {Family.LINK, Family.BUS}


def test_a_rule_taints_the_devices_it_is_given() -> None:
    rule = taint_rule({"driver": "gpu.nvidia.com"}, taint("example.org/recall", effect="NoExecute"))
    devices = [DeviceId("gpu.nvidia.com", "a", "0"), DeviceId("gpu.nvidia.com", "b", "0")]
    said = report_of_taint_rule(rule, devices, RULES, NOW)
    assert [e.subject for e in said.evidence] == devices
    assert str(said.reporter) == "DeviceTaintRule rule"
    assert said.absent_is_clear


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        (None, False),  # documented as "none"; 1.36 tainted every device
        ({"driver": "d"}, True),
        ({"driver": "d", "pool": "p"}, True),
        ({"driver": "d", "pool": "p", "device": "x"}, True),
        ({"driver": "other"}, False),
        ({"pool": "other"}, False),
        ({"device": "other"}, False),
    ],
)
def test_a_rule_selects_by_the_names_it_gives(
    selector: dict[str, str] | None, selected: bool
) -> None:
    assert selects_device(taint_rule(selector, taint("k")), DeviceId("d", "p", "x")) is selected


def test_a_hold_on_a_slice_holds_all_its_devices() -> None:
    said = report_of_slice(slice_(annotations={"fettle.dev/hold": "recall"}), RULES, NOW)
    assert {e.subject for e in said.evidence} == {
        DeviceId("gpu.nvidia.com", "gpu-1", "gpu-0"),
        DeviceId("gpu.nvidia.com", "gpu-1", "other"),
    }
    assert {(e.family, e.kind) for e in said.evidence} == {(Family.OPERATOR, LATCHED)}


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
