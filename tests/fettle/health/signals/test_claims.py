"""What ResourceClaims say of the devices they hold."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.health.signals.claims import has_device_status, report_of_claim
from fettle.health.signals.reports import one_line
from fettle.health.signals.rule_files import load_rules
from fettle.model import DeviceId, EvidenceKind, Family, SettingsError, Source, SourceKind
from tests.fettle.health.signals.objects import NOW, claim, condition

RULES = load_rules()
NIC = ("nic", "dra.net", "gpu-1", "eth1")
DEVICE = DeviceId("dra.net", "gpu-1", "eth1")


def test_a_device_that_is_not_ready_counts_as_evidence_from_its_claims_namespace() -> None:
    bad = condition("Ready", "False", "AttachFailed", "no such network", at=NOW - 60)
    report = report_of_claim(claim(NIC, conditions=[bad]), RULES, NOW)
    (evidence,) = report.evidence
    assert evidence.subject == DEVICE
    assert (evidence.kind, evidence.weight, evidence.observed_at) == (
        EvidenceKind.LEVEL,
        0.35,
        NOW - 60,
    )
    assert evidence.reporting_namespace == "ml"
    assert evidence.text == (
        "dra.net says Ready is False (AttachFailed) in claim ml/c-1: no such network"
    )
    assert report.cleared == frozenset()


def test_a_device_that_is_ready_again_is_cleared() -> None:
    report = report_of_claim(claim(NIC, conditions=[condition("Ready", "True")]), RULES, NOW)
    assert report.evidence == ()
    assert report.cleared == {(DEVICE, Source(SourceKind.CLAIM_CONDITION, "Ready"))}


def test_a_condition_that_the_driver_declared_a_failure_needs_no_rule() -> None:
    held = claim(
        NIC,
        conditions=[condition("example.com/attach-failed", "True", "FabricDown")],
        failures=["example.com/attach-failed"],
    )
    (evidence,) = report_of_claim(held, RULES, NOW).evidence
    assert (evidence.subject, evidence.weight) == (DEVICE, 0.35)
    assert "example.com/attach-failed is True (FabricDown)" in evidence.text

    undeclared = claim(NIC, conditions=[condition("example.com/attach-failed", "True")])
    assert report_of_claim(undeclared, RULES, NOW).evidence == ()


@pytest.mark.parametrize("status", ["Unknown", "", "Odd"])
def test_a_status_that_is_neither_true_nor_false_says_nothing(status: str) -> None:
    report = report_of_claim(claim(NIC, conditions=[condition("Ready", status)]), RULES, NOW)
    assert (report.evidence, report.cleared) == ((), frozenset())


def test_only_a_claim_with_device_statuses_speaks() -> None:
    assert not has_device_status(None)
    assert not has_device_status(claim(NIC))
    assert has_device_status(claim(NIC, conditions=[condition("Ready", "True")]))


def test_an_operator_tells_what_a_vendors_condition_means(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "device_conditions:\n"
        "- {name: ours, driver: 'gpu.*', type: Overheated, faulty: true, family: thermal,"
        " weight: 0.5, source: us}\n"
    )
    hot = condition("Overheated", "True")
    held = claim(("r", "gpu.example.com", "p", "d"), conditions=[hot])
    (evidence,) = report_of_claim(held, load_rules(path), NOW).evidence
    assert (evidence.family, evidence.weight, evidence.reporting_namespace) == (
        Family.THERMAL,
        0.5,
        "",
    )


def test_what_a_tenant_can_bring_about_cannot_be_latched(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "device_conditions:\n"
        "- {name: ours, type: Bad, faulty: true, family: bus, weight: 1, kind: latched,"
        " tenant_caused: true, source: us}\n"
    )
    with pytest.raises(SettingsError, match="row 'ours': tenant_caused"):
        load_rules(path)


@given(st.text(), st.sampled_from(["True", "False", "Unknown", ""]), st.text(), st.text())
def test_any_condition_is_read_without_an_error(
    type_: str, status: str, reason: str, message: str
) -> None:
    held = claim(NIC, conditions=[condition(type_, status, reason, message)], failures=[type_])
    for evidence in report_of_claim(held, RULES, NOW).evidence:
        assert evidence.weight <= 0.35
        assert evidence.text == one_line(evidence.text)
