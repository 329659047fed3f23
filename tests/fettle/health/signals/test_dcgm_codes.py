"""DCGM's error codes weigh what they mean, whichever watch, agent or form tells of them."""

from pathlib import Path

import pytest

from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.rule_files import load_rules
from fettle.model import Evidence, EvidenceKind, Family
from tests.fettle.health.signals.objects import NOW, condition, node
from tests.fettle.health.signals.reading import RULES, only, report

UUID = "GPU-11111111-2222-3333-4444-555555555555"
# As NVIDIA/NVSentinel platform-connectors, process_node_events.go, writes entries
ENTRY = f"ErrorCode:{{}} GPU:0 PCI:0000:18:00.0 GPU_UUID:{UUID} {{}} Recommended Action={{}};"
# As aws/eks-node-monitoring-agent monitors/nvidia/dcgm/dcgm_healthcheck.go does (commit 51af549)
EKS = "DCGM detected issues in health check system with error code {}"


def sentinel(watch: str, code: str, text: str = "x", action: str = "NONE") -> Evidence:
    said = ENTRY.format(code, text, action)
    return only(report(condition(watch, "True", f"{watch}IsNotHealthy", said)))


def eks(code: int, message: str = "") -> dict[str, object]:
    said = message or EKS.format(code)
    return condition("AcceleratedHardwareReady", "False", f"DCGMHealthCode{code}", said)


@pytest.mark.parametrize("watch", ["GpuMemWatch", "GpuNvlinkWatch", "GpuInforomWatch"])
@pytest.mark.parametrize(
    ("code", "weight", "family"),
    [
        ("DCGM_FR_IMEX_UNHEALTHY", 0.0, Family.DRIVER),
        ("DCGM_FR_ROW_REMAP_FAILURE", 0.9, Family.MEMORY),
        ("DCGM_FR_NVLINK_ERROR_CRITICAL", 0.3, Family.LINK),
        ("DCGM_FR_CLOCK_THROTTLE_POWER", 0.0, Family.THERMAL),  # the name of older releases
        ("DCGM_FR_CLOCKS_EVENT_POWER", 0.0, Family.THERMAL),
    ],
)
def test_a_code_weighs_the_same_under_every_watch(
    watch: str, code: str, weight: float, family: Family
) -> None:
    found = sentinel(watch, code)
    assert (found.weight, found.family) == (weight, family)


def test_a_missing_imex_daemon_is_no_fault_of_a_gpu_whatever_is_recommended() -> None:
    """NVIDIA/NVSentinel#1471"""
    found = sentinel(
        "GpuNvlinkWatch",
        "DCGM_FR_IMEX_UNHEALTHY",
        "IMEX daemon status is -3 (not READY)",
        "CONTACT_SUPPORT",
    )
    assert found.weight == 0.0


def test_a_code_that_is_advised_to_reset_weighs_at_least_that() -> None:
    found = sentinel("GpuMemWatch", "DCGM_FR_PENDING_ROW_REMAP", action="COMPONENT_RESET")
    assert found.weight == 0.75


def test_a_code_that_nobody_knows_weighs_what_its_watch_does_and_is_listed() -> None:
    said = condition("GpuMemWatch", "True", "x", ENTRY.format("DCGM_FR_TOMORROW", "x", "NONE"))
    told = report(said)
    assert only(told).weight == 0.75
    assert "GpuMemWatch: DCGM DCGM_FR_TOMORROW" in {one.type for one in told.unknown_signals}


@pytest.mark.parametrize(
    ("text", "weight", "kind"),
    [
        ("Detected XID 31 for GPU 4", 0.0, EvidenceKind.LEVEL),
        ("Detected XID 79 for GPU 4", 1.0, EvidenceKind.LATCHED),
        ("Detected an XID", 0.75, EvidenceKind.LEVEL),
    ],
)
def test_an_xid_in_a_watch_weighs_what_the_xid_does(
    text: str, weight: float, kind: EvidenceKind
) -> None:
    found = sentinel("GpuMemWatch", "DCGM_FR_XID_ERROR", text)
    assert (found.weight, found.kind) == (weight, kind)


def test_every_code_of_an_aggregated_message_counts() -> None:
    """The agent joins findings with "; ", and the reason is that of the newest."""
    told = report(eks(122, "; ".join(map(EKS.format, (80, 71, 122)))))
    assert {one.family: one.weight for one in told.evidence} == {
        Family.MEMORY: 0.9,
        Family.LINK: 0.3,
        Family.DRIVER: 0.0,
    }


@pytest.mark.parametrize(
    "row",
    [
        "dcgm_codes: [{name: 122, family: bus, weight: 0.4, text: t, source: ours}]",
        "dcgm_codes:\n"
        "  - {name: DCGM_FR_IMEX_UNHEALTHY, family: bus, weight: 0.4, text: t, source: ours}",
    ],
)
def test_a_row_of_ones_own_names_a_code_by_number_or_name(tmp_path: Path, row: str) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(row)
    rules = load_rules(own)
    named = ENTRY.format("DCGM_FR_IMEX_UNHEALTHY", "x", "NONE")
    for said in (eks(122), condition("GpuNvlinkWatch", "True", "x", named)):
        assert only(report_of_node(node(said), rules, NOW)).weight == 0.4


@pytest.mark.parametrize("reason", ["DCGMHealthCode71", "DCGMHealth*"])
def test_a_row_of_ones_own_wins_over_a_shipped_one_for_the_same_text(
    tmp_path: Path, reason: str
) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(
        "conditions:\n"
        f"  - {{name: ours, type: 'Accelerated*', reason: '{reason}', faulty: false,\n"
        "     family: driver, weight: 0, source: our NVLinks are not used}\n"
    )
    rules = load_rules(own)
    assert only(report_of_node(node(eks(71)), rules, NOW)).weight == 0.0
    both = report_of_node(node(eks(71, f"{EKS.format(80)}; {EKS.format(71)}")), rules, NOW)
    assert max(one.weight for one in both.evidence) == 0.9  # what else the message says counts


def test_the_table_has_all_codes_of_dcgm_up_to_its_newest_release() -> None:
    """dcgmlib/dcgm_errors.h: 1 to 132."""
    rows = set(RULES.dcgm_codes.values())
    assert {int(row.name) for row in rows} == set(range(1, 133))
    assert all(row.code.startswith("DCGM_FR_") for row in rows)
    assert all(RULES.dcgm(row.code) is RULES.dcgm(row.name) for row in rows)
