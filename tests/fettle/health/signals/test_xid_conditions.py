"""Conditions that carry XIDs, as each vendor writes them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.reports import SignalReport
from fettle.health.signals.rule_files import load_rules
from fettle.model import EvidenceKind, Family, Source, SourceKind, Subject, UnitId, UnknownSignal
from tests.fettle.health.signals.objects import NOW, UUID, condition, node
from tests.fettle.health.signals.reading import NODE, RULES, only, report
from tests.fettle.health.signals.test_xids import MENTIONS, SEPARATORS

DETECTED = "detected XID-{} on the instance, review kernel logs for additional information."
BOOT = "6e43a052-e544-467b-a972-63d7cd2ce80a"


def weights(said: SignalReport) -> dict[Family, float]:
    return {e.family: e.weight for e in said.evidence}


def gpu(address: str) -> UnitId:
    return UnitId("gpu-1", "nvidia.com/gpu", f"pci:{address}")


def eks(reason: str, *messages: str) -> SignalReport:
    return report(condition("AcceleratedHardwareReady", "False", reason, "; ".join(messages)))


@pytest.mark.parametrize(
    ("reason", "order"),
    [
        ("NvidiaXID63Error", (79, 63)),
        ("NvidiaXID79Error", (63, 79)),
        ("DCGMHealthCode120", (63, 79)),
        ("GpuDcgmUnresponsive", (79, 63)),
        ("SomethingNew", (79, 63)),
        ("", (79, 63)),
    ],
)
def test_eks_joins_findings_and_none_of_their_xids_is_lost(
    reason: str, order: tuple[int, ...]
) -> None:
    said = eks(reason, *(DETECTED.format(code) for code in order))
    assert weights(said).items() >= {Family.BUS: 1.0, Family.MEMORY: 0.1}.items()


@pytest.mark.parametrize(
    ("message", "family", "weight"),
    [
        ("detected 1 Nvidia Double Bit error(s) on location L2", Family.MEMORY, 0.9),
        ("detected 3 NVLink errors on fieldId 409", Family.LINK, 0.3),
        ("GPU fabric health mask 0x2: incorrect configuration", Family.LINK, 0.75),
        ("expected 8 GPUs for this instance type but only 7 were detected", Family.BUS, 0.5),
        ("DCGM Diagnostic failed for test memory with error: x", Family.DRIVER, 0.75),
    ],
)
def test_a_finding_that_a_later_one_took_the_reason_from_still_counts(
    message: str, family: Family, weight: float
) -> None:
    said = eks("NvidiaXID13Error", message, DETECTED.format(13))
    assert weights(said)[family] == weight


def test_gke_lists_xids_in_a_json_object() -> None:
    said = report(
        condition("XidCriticalError", "True", '{"48":true,"63":true,"79":true}', "boot-1")
    )
    assert weights(said) == {Family.MEMORY: 1.0, Family.BUS: 1.0}
    assert sorted(e.text for e in said.evidence) == [
        "XID 48: double-bit ECC error (WORKFLOW_XID_48), also XID 63 (XidCriticalError)",
        "XID 79: GPU has fallen off the bus (RESTART_BM) (XidCriticalError)",
    ]


@pytest.mark.parametrize(
    ("reason", "weight"),
    [
        ('{"63":true}', 0.1),
        ('{ "63" : true }', 0.1),
        ('{"63":true,"79', 0.1),  # cut off within a number
        ('{"63":tr', 0.1),
        ('{"63":true,"79":false}', 0.1),
        ("{}", 0.5),  # it says that there is one, and not which
        ("", 0.5),
        ("null", 0.5),
    ],
)
def test_a_broken_json_object_of_xids_is_read_as_far_as_it_goes(reason: str, weight: float) -> None:
    assert only(report(condition("XidCriticalError", "True", reason, "boot-1"))).weight == weight


@pytest.mark.parametrize("type_", ["XIDErrors", "GPUXIDErrors", "GcmXidErrorsProblem"])
def test_the_kernels_log_in_a_message_names_the_gpu(type_: str) -> None:
    message = (
        "NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus. "
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:02): 63, Row Remapper"
    )
    said = report(condition(type_, "True", "XIDErrors", message))
    assert {(e.subject, e.weight) for e in said.evidence} == {
        (gpu("0000:c1:00.0"), 1.0),
        (gpu("0000:3b:00.0"), 0.1),
    }
    assert said.units == {gpu("0000:c1:00.0"), gpu("0000:3b:00.0")}


def test_a_gpu_named_by_its_address_meets_the_one_that_nvsentinel_names_by_uuid() -> None:
    known = f"ErrorCode:A PCI:0000:c1:00.0 GPU_UUID:{UUID} x Recommended Action=NONE;"
    said = report(
        condition("GpuThermalWatch", "True", "x", known),
        condition("GPUXIDErrors", "True", "x", "NVRM: Xid (PCI:0000:c1:00): 79, x"),
    )
    assert len({e.subject for e in said.evidence}) == 1


@pytest.mark.parametrize(
    ("message", "weight"),
    [
        ("XID errors in kernel log: NVRM: Xid (PCI:0000:c1:00): 13, Graphics Exception", 0.0),
        ("XID errors found in the kernel's log: 3", 0.5),
        ("NVRM: SXid (PCI:0000:05:00.0): 20034, Fatal", 0.5),
        ("NVRM: Xid (PCI:0000:c1", 0.5),
        ("", 0.5),
    ],
)
def test_a_condition_that_only_says_that_there_was_an_xid_weighs_what_the_xid_does(
    message: str, weight: float
) -> None:
    assert only(report(condition("XIDErrors", "True", "XIDErrors", message))).weight == weight


def test_nebius_concludes_so_its_own_word_stands_beside_the_xids() -> None:
    bad = condition(
        "NebiusGPUError",
        "True",
        "GPUHealthCheckFailed",
        '{"errors":[{"dmesg":"NVRM: Xid (PCI:0000:c1:00): 13, x"}]}',
    )
    said = only(report(bad))
    assert (said.subject, said.family, said.weight) == (gpu("0000:c1:00.0"), Family.DRIVER, 0.5)
    assert said.text.startswith("XID 13; NebiusGPUError is True (GPUHealthCheckFailed)")


@pytest.mark.parametrize(
    ("type_", "code", "weight"),
    [
        ("RepeatedXIDErrorOnSameGPU", 13, 0.75),
        ("RepeatedXIDErrorOnSameGPU", 63, 0.75),
        ("RepeatedXIDErrorOnSameGPU", 999, 0.75),
        ("RepeatedXID31OnSameGPU", 31, 0.5),
        ("RepeatedXID13OnSameGPCAndTPC", 13, 0.5),
        ("RepeatedXID48OnSameGPU", 48, 1.0),
        ("RepeatedXID94OnSameGPU", 94, 0.75),
        ("RepeatedXID31OnDifferentGPU", 31, 0.0),
        ("XID74Reg0ECCParityError", 74, 0.75),
        ("RepeatedXID74Reg0HardwareIssue", 74, 0.75),
        ("SomeNewRule", 13, 0.5),
        ("SysLogsXIDError", 13, 0.0),
    ],
)
def test_a_rule_that_draws_a_conclusion_weighs_at_least_its_own_weight(
    type_: str, code: int, weight: float
) -> None:
    message = (
        f"ErrorCode:{code} GPU_UUID:{UUID} XID {code} again and again "
        "Recommended Action=CONTACT_SUPPORT;"
    )
    said = report(condition(type_, "True", f"{type_}IsNotHealthy", message))
    assert max(e.weight for e in said.evidence) == weight
    assert all(str(code) in e.text for e in said.evidence)


def test_a_heavier_xid_keeps_its_weight_under_a_lighter_conclusion() -> None:
    message = f"ErrorCode:79 GPU_UUID:{UUID} x Recommended Action=CONTACT_SUPPORT;"
    said = report(condition("RepeatedXIDErrorOnSameGPU", "True", "x", message))
    assert weights(said) == {Family.BUS: 1.0, Family.DRIVER: 0.75}


def test_all_xids_that_nvsentinel_found_on_a_gpu_are_shown() -> None:
    message = "".join(
        f"ErrorCode:{code} GPU_UUID:{UUID} x Recommended Action=NONE;" for code in (63, 48, 63, 94)
    )
    said = only(report(condition("SysLogsXIDError", "True", "x", message)))
    assert said.text.startswith("XID 48: double-bit ECC error (WORKFLOW_XID_48), also XID 63, 94")


def test_power_smoothing_that_is_back_ends_the_xid_that_said_it_was_gone() -> None:
    def said(*codes: int, of: str = UUID) -> float:
        message = "".join(
            f"ErrorCode:{code} GPU_UUID:{of if code == 162 else UUID} x Recommended Action=NONE;"
            for code in codes
        )
        found = report(condition("SysLogsXIDError", "True", "x", message)).evidence
        return max(e.weight for e in found if e.subject == UnitId("gpu-1", "nvidia.com/gpu", UUID))

    assert said(163) == 1.0
    assert said(163, 162) == 0.0
    assert said(162, 163) == 1.0
    assert said(163, 162, of="GPU-other") == 1.0


def test_an_unknown_xid_that_its_producer_calls_fatal_makes_its_node_unknown_and_is_listed() -> (
    None
):
    said = eks("NvidiaXID777Error", DETECTED.format(777), DETECTED.format(777))
    evidence = only(said)
    assert (evidence.weight, evidence.kind) == (0.25, EvidenceKind.UNKNOWN)
    assert "unknown fault" in evidence.text
    assert said.unknown_signals == (UnknownSignal("AcceleratedHardwareReady: XID 777", "False"),)
    assert eks("NvidiaXID79Error").unknown_signals == ()


HARMLESS = "DCGM detected issues in health check system with error code 122"
OWN_122 = """
conditions:
  - {name: own, type: AcceleratedHardwareReady, reason: DCGMHealthCode122, faulty: false,
     family: link, weight: 0.0, source: ours}
"""


@pytest.mark.parametrize("own", [False, True], ids=["shipped rows", "an own row for the reason"])
@pytest.mark.parametrize(
    ("joined", "kind", "weight"),
    [
        (DETECTED.format(79), EvidenceKind.LATCHED, 1.0),
        ("DCGM detected issues in health check system with error code 4", None, 0.9),
        ("frobnicator failed", EvidenceKind.UNKNOWN, 0.25),
        ("", None, 0.0),
    ],
)
def test_what_is_joined_to_a_harmless_finding_counts(
    joined: str, kind: EvidenceKind | None, weight: float, *, own: bool, tmp_path: Path
) -> None:
    """EKS's agent joins all findings in one message; the reason is that of the newest."""
    (tmp_path / "rules.yaml").write_text(OWN_122)
    rules = load_rules(tmp_path / "rules.yaml") if own else RULES
    message = "; ".join(filter(None, (joined, HARMLESS)))
    ill = condition("AcceleratedHardwareReady", "False", "DCGMHealthCode122", message)
    said = report_of_node(node(ill), rules, NOW).evidence
    worst = max(said, key=lambda one: one.weight)
    assert worst.weight == weight
    assert kind in (None, worst.kind)


def test_an_own_row_silences_the_xid_that_its_reason_names(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(OWN_122.replace("DCGMHealthCode122", "NvidiaXID79Error"))
    for more, weight in (("", 0.0), (f"; {DETECTED.format(48)}", 1.0)):
        message = DETECTED.format(79) + more
        ill = condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", message)
        said = report_of_node(node(ill), load_rules(tmp_path / "rules.yaml"), NOW).evidence
        assert max(one.weight for one in said) == weight


@pytest.mark.parametrize("type_", ["GpuDcgmUnresponsive", "GpuDcgmConnectivityFailure"])
def test_a_monitor_that_cannot_reach_dcgm_knows_nothing_of_the_devices(type_: str) -> None:
    message = "ErrorCode:DCGM_CONNECTIVITY_ERROR x Recommended Action=CONTACT_SUPPORT;"
    said = only(report(condition(type_, "True", f"{type_}IsNotHealthy", message)))
    assert (said.subject, said.kind) == (NODE, EvidenceKind.UNKNOWN)


def test_an_eks_agent_that_cannot_reach_dcgm_knows_nothing_of_the_devices() -> None:
    assert only(eks("DCGMError", "connection lost")).kind is EvidenceKind.UNKNOWN


@pytest.mark.parametrize(
    "type_",
    [
        "AcceleratedHardwareReady",
        "KernelReady",
        "NetworkingReady",
        "StorageReady",
        "ContainerRuntimeReady",
    ],
)
def test_a_reason_that_nobody_listed_is_unknown_and_listed(type_: str) -> None:
    """The agent calls it fatal."""
    said = report(condition(type_, "False", "Invented", "?"))
    assert only(said).kind is EvidenceKind.UNKNOWN
    assert said.unknown_signals == (UnknownSignal(f"{type_} (Invented)", "False"),)
    assert report(condition(type_, "True", "Invented", "?")).unknown_signals == ()


@pytest.mark.parametrize(
    "message",
    [
        BOOT,
        f" {BOOT.upper()}\n",
    ],
)
def test_a_fault_from_the_present_boot_stands(message: str) -> None:
    bad = node(condition("XidCriticalError", "True", '{"79":true}', message), boot=BOOT)
    assert only(report_of_node(bad, RULES, NOW)).weight == 1.0


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("XidCriticalError", "7f11a052-e544-467b-a972-63d7cd2ce80b"),
        ("XIDErrors", "NVRM: Xid (PCI:0000:c1:00): 79 [boot_id=7f11a052e544467ba97263d7cd2ce80b]"),
        ("GpuBusCheck", "lost, bootID: 7f11a052-e544-467b-a972-63d7cd2ce80b"),
    ],
)
def test_a_fault_from_before_the_reboot_is_over(type_: str, message: str, tmp_path: Path) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(
        "conditions:\n"
        "  - {name: own, type: GpuBusCheck, faulty: true, family: bus, weight: 0.9, source: us}\n"
    )
    bad = node(condition(type_, "True", '{"79":true}', message), boot=BOOT)
    said = report_of_node(bad, load_rules(own), NOW)
    assert said.evidence == ()
    assert Source(SourceKind.CONDITION, type_) in said.settled


def test_a_node_that_tells_no_boot_leaves_every_fault_standing() -> None:
    bad = node(condition("XidCriticalError", "True", '{"79":true}', BOOT), boot="")
    assert only(report_of_node(bad, RULES, NOW)).weight == 1.0


@pytest.mark.parametrize(
    ("type_", "status", "heartbeat_s"),
    [
        ("AcceleratedHardwareReady", "True", 300),
        ("NebiusGPUError", "False", 300),
    ],
)
def test_a_gpu_monitor_that_renews_is_missed(type_: str, status: str, heartbeat_s: float) -> None:
    def at(renewed_at: float) -> SignalReport:
        alive = condition("Ready", "True", "KubeletReady")
        return report(alive, condition(type_, status, renewed_at=renewed_at))

    assert at(NOW - 3 * heartbeat_s).evidence == ()
    assert only(at(NOW - 3 * heartbeat_s - 1)).kind is EvidenceKind.UNKNOWN


@pytest.mark.parametrize(
    ("type_", "status", "reason", "heartbeat_s"),
    [
        ("XidCriticalError", "True", '{"63":true}', 60),
        ("KernelReady", "False", "ForkFailedOutOfPIDs", 300),
        ("NetworkingReady", "False", "InterfaceNotUp", 300),
        ("NebiusBootDiskIOError", "True", "x", 300),
    ],
)
def test_what_a_monitor_last_said_before_it_fell_silent_goes_stale(
    type_: str, status: str, reason: str, heartbeat_s: float
) -> None:
    alive = condition("Ready", "True", "KubeletReady", at=NOW - 24 * 3600)
    silent = condition(type_, status, reason, renewed_at=NOW - 3 * heartbeat_s - 60)
    said = report(alive, silent)
    assert (only(said).kind, len(said.stale)) == (EvidenceKind.UNKNOWN, 1)


def test_a_message_that_was_cut_settles_nothing() -> None:
    message = "NVRM: Xid (PCI:0000:c1:00): 79, x; NVRM: Xid (PCI:0000..."
    assert (
        Source(SourceKind.CONDITION, "XIDErrors")
        not in report(condition("XIDErrors", "True", "x", message)).settled
    )
    healthy = condition("XIDErrors", "False", "NoXid", "nothing found...")
    assert Source(SourceKind.CONDITION, "XIDErrors") in report(healthy).settled


@pytest.mark.parametrize("status", ["Unknown", "", "maybe"])
def test_xids_beside_an_unknown_status_are_no_fault(status: str) -> None:
    said = report(condition("XIDErrors", status, "NvidiaXID79Error", DETECTED.format(79)))
    assert [e.kind for e in said.evidence] == [EvidenceKind.UNKNOWN]


def test_a_row_of_ones_own_finds_all_xids_in_reason_and_message(tmp_path: Path) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(
        "conditions:\n"
        "  - {name: seen, type: OwnXids, faulty: true, family: driver, weight: 0.3, source: us,\n"
        "     xid: any}\n"
        "  - {name: form, type: OwnForm, faulty: true, family: driver, weight: 0.3, source: us,\n"
        "     xid: 'fault (\\d+)', concludes: true}\n"
    )

    def of(*found: dict[str, object]) -> set[tuple[Subject, Family, float]]:
        said = report_of_node(node(*found), load_rules(own), NOW)
        return {(e.subject, e.family, e.weight) for e in said.evidence}

    assert of(condition("OwnXids", "True", "Xid63", "then xid 79 on 0000:c1:00.0")) == {
        (NODE, Family.MEMORY, 0.1),
        (NODE, Family.BUS, 1.0),
    }
    assert of(condition("OwnForm", "True", "fault 63", "fault 31, code 79")) == {
        (NODE, Family.MEMORY, 0.1),
        (NODE, Family.DRIVER, 0.3),
    }


TYPES = st.sampled_from(
    ["AcceleratedHardwareReady", "XidCriticalError", "XIDErrors", "SysLogsXIDError", "KernelReady"]
)
GARBAGE = st.text(max_size=60) | MENTIONS | st.just('{"48":true,"63":tr')


@given(TYPES, st.sampled_from(["True", "False", "Unknown"]), GARBAGE, GARBAGE)
def test_no_condition_is_too_odd_to_be_read(
    type_: str, status: str, reason: str, message: str
) -> None:
    for evidence in report(condition(type_, status, reason, message)).evidence:
        assert 0.0 <= evidence.weight <= 1.0


@given(st.lists(MENTIONS, min_size=1, max_size=3), SEPARATORS, GARBAGE)
def test_what_is_added_to_a_message_never_makes_a_fault_lighter(
    told: list[str], separator: str, more: str
) -> None:
    def worst(message: str) -> dict[tuple[Subject, Family], float]:
        said = report(condition("XIDErrors", "True", "x", message))
        by_weight = sorted(said.evidence, key=lambda e: e.weight)
        return {(e.subject, e.family): e.weight for e in by_weight}

    before = worst(separator.join(told))
    after = worst(separator.join([*told, more]))
    lost = [key for key, weight in before.items() if after.get(key, 0.0) < weight]
    assert not lost or "162" in more  # it ends 163


LOGGED = "NVRM: Xid (PCI:0000:c1:00): 79, pid=1234, GPU has fallen off the bus."


@pytest.mark.parametrize("status", ["True", "False"])
def test_the_drivers_own_line_counts_under_a_condition_that_nobody_listed(status: str) -> None:
    said = report(condition("OurGpuWatch", status, "Whatever", f"seen: {LOGGED}"))
    evidence = only(said)
    assert evidence.subject == UnitId("gpu-1", "nvidia.com/gpu", "pci:0000:c1:00.0")
    assert (evidence.kind, evidence.weight) == (EvidenceKind.LATCHED, 1.0)
    assert [one.type for one in said.unknown_signals] == ["OurGpuWatch"]
    over = report(condition("OurGpuWatch", status, "Whatever", "all is well"))
    assert (over.evidence, Source(SourceKind.CONDITION, "OurGpuWatch") in over.settled) == (
        (),
        True,
    )


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("True", "no XID 79 was seen"),
        ("True", "Xid errors: 0"),
        ("Unknown", LOGGED),
    ],
)
def test_other_words_about_xids_under_such_a_condition_are_no_fault(
    status: str, message: str
) -> None:
    assert report(condition("OurGpuWatch", status, "Whatever", message)).evidence == ()


def test_the_drivers_own_line_counts_beside_what_a_row_without_xid_says() -> None:
    message = f"kernel: {LOGGED} task nvidia:12 blocked"
    said = report(condition("KernelDeadlock", "True", "DockerHung", message))
    weights = {(str(e.subject), e.weight) for e in said.evidence}
    assert weights == {
        ("node gpu-1", 0.75),
        ("nvidia.com/gpu pci:0000:c1:00.0 on gpu-1", 1.0),
    }
    silenced = report(condition("TempIMEXProblem", "True", "x", message))
    assert {e.weight for e in silenced.evidence} == {0.0}
    assert (
        report(condition("KernelDeadlock", "False", "KernelHasNoDeadlock", message)).evidence == ()
    )
