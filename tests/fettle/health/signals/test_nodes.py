"""What Node objects say: conditions by their polarity, labels, gaps, holds."""

from pathlib import Path

import pytest

from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.rule_files import load_rules
from fettle.model import EvidenceKind, Family, Source, SourceKind, UnitId, UnknownSignal
from tests.fettle.health.signals.objects import NOW, condition, node
from tests.fettle.health.signals.reading import NODE, only, report


@pytest.mark.parametrize(
    ("type_", "good", "bad", "reason", "family", "weight"),
    [
        # kubelet
        ("Ready", "True", "False", "KubeletNotReady", Family.NODE, 0.75),
        # node-problem-detector
        ("KernelDeadlock", "False", "True", "DockerHung", Family.NODE, 0.75),
        ("ReadonlyFilesystem", "False", "True", "FilesystemIsReadOnly", Family.NODE, 0.75),
        ("CperHardwareErrorFatal", "False", "True", "CperHardwareErrorFatal", Family.NODE, 0.9),
        ("FrequentKubeletRestart", "False", "True", "FrequentKubeletRestart", Family.NODE, 0.3),
        ("FrequentUnregisterNetDevice", "False", "True", "UnregisterNetDevice", Family.NODE, 0.3),
        # NVSentinel
        ("GpuMemWatch", "False", "True", "GpuMemWatchIsNotHealthy", Family.MEMORY, 0.75),
        ("GpuThermalWatch", "False", "True", "GpuThermalWatchIsNotHealthy", Family.THERMAL, 0.5),
        ("GpuPcieWatch", "False", "True", "GpuPcieWatchIsNotHealthy", Family.BUS, 0.5),
        ("GpuPowerWatch", "False", "True", "GpuPowerWatchIsNotHealthy", Family.THERMAL, 0.5),
        ("GpuInforomWatch", "False", "True", "GpuInforomWatchIsNotHealthy", Family.DRIVER, 0.3),
        ("GpuSmWatch", "False", "True", "GpuSmWatchIsNotHealthy", Family.DRIVER, 0.75),
        ("GpuNvlinkWatch", "False", "True", "GpuNvlinkWatchIsNotHealthy", Family.LINK, 0.5),
        ("GpuMcuWatch", "False", "True", "GpuMcuWatchIsNotHealthy", Family.DRIVER, 0.5),
        ("GpuPmuWatch", "False", "True", "GpuPmuWatchIsNotHealthy", Family.DRIVER, 0.5),
        ("GpuDriverWatch", "False", "True", "GpuDriverWatchIsNotHealthy", Family.DRIVER, 0.75),
        (
            "GpuNvswitchNonfatalWatch",
            "False",
            "True",
            "x",
            Family.LINK,
            0.3,
        ),
        ("GpuThermalMarginWatch", "False", "True", "x", Family.THERMAL, 0.5),
        ("SysLogsXIDError", "False", "True", "SysLogsXIDErrorIsNotHealthy", Family.DRIVER, 0.5),
        ("SysLogsSXIDError", "False", "True", "SysLogsSXIDErrorIsNotHealthy", Family.LINK, 0.75),
        ("SysLogsGPUFallenOff", "False", "True", "x", Family.BUS, 1.0),
        (
            "GpuNvswitchFatalWatch",
            "False",
            "True",
            "x",
            Family.LINK,
            0.75,
        ),
        ("XID74Reg3Bit18Set", "False", "True", "XID74Reg3Bit18SetIsNotHealthy", Family.LINK, 0.75),
        ("MultipleRemediations", "False", "True", "x", Family.DRIVER, 0.75),
        ("CSPMaintenance", "False", "True", "CSPMaintenanceIsNotHealthy", Family.MAINTENANCE, 0.5),
        ("RepeatedXIDErrorOnSameGPU", "False", "True", "x", Family.DRIVER, 0.75),
        ("SomeNewWatch", "False", "True", "SomeNewWatchIsNotHealthy", Family.DRIVER, 0.5),
        # EKS
        ("AcceleratedHardwareReady", "True", "False", "NvidiaNVLinkError", Family.LINK, 0.3),
        ("AcceleratedHardwareReady", "True", "False", "NvidiaDoubleBitError", Family.MEMORY, 0.9),
        ("AcceleratedHardwareReady", "True", "False", "NvidiaXID79Error", Family.BUS, 1.0),
        ("AcceleratedHardwareReady", "True", "False", "NvidiaXID63Error", Family.MEMORY, 0.1),
        ("AcceleratedHardwareReady", "True", "False", "NeuronDMAError", Family.DRIVER, 0.75),
        ("AcceleratedHardwareReady", "True", "False", "DCGMHealthCode80", Family.MEMORY, 0.9),
        ("KernelReady", "True", "False", "ForkFailedOutOfPIDs", Family.NODE, 0.5),
        ("NetworkingReady", "True", "False", "InterfaceNotUp", Family.NODE, 0.5),
        ("ContainerRuntimeReady", "True", "False", "PodStuckTerminating", Family.NODE, 0.0),
        # GKE
        ("XidCriticalError", "False", "True", "{}", Family.DRIVER, 0.5),
        # AKS, Nebius, AMD, GCM
        ("GPUMissing", "False", "True", "GPUMissing", Family.BUS, 0.5),
        ("GPUClockThrottling", "False", "True", "GPUClockThrottling", Family.THERMAL, 0.1),
        ("IBLinkFlapping", "False", "True", "IBLinkFlapping", Family.LINK, 0.5),
        ("NebiusGPUError", "False", "True", "GPUError", Family.DRIVER, 0.5),
        ("AMDGPUProblem", "False", "True", "AMDGPUIsDown", Family.DRIVER, 0.75),
        ("GcmXidErrorsProblem", "False", "True", "XidErrors", Family.DRIVER, 0.5),
    ],
)
def test_a_condition_is_a_fault_by_its_own_polarity(
    type_: str, good: str, bad: str, reason: str, family: Family, weight: float
) -> None:
    said = report(condition(type_, bad, reason, "what happened", at=NOW - 60))
    evidence = only(said)
    assert evidence.subject == NODE
    assert (evidence.family, evidence.weight) == (family, weight)
    assert evidence.observed_at == NOW - 60
    assert str(evidence.reporter) == "Node gpu-1"
    assert type_ in evidence.text

    fine = report(condition(type_, good, reason.replace("IsNotHealthy", "IsHealthy")))
    assert fine.evidence == ()
    assert Source(SourceKind.CONDITION, type_) in fine.settled

    unclear = report(condition(type_, "Unknown", reason))
    assert all(e.kind is EvidenceKind.UNKNOWN for e in unclear.evidence)
    assert Source(SourceKind.CONDITION, type_) not in unclear.settled


@pytest.mark.parametrize(
    ("reason", "message", "text"),
    [
        ("DockerHung", "task blocked", "KernelDeadlock is True (DockerHung): task blocked"),
        ("DockerHung", "", "KernelDeadlock is True (DockerHung)"),
        ("", "task blocked", "KernelDeadlock is True: task blocked"),
        ("", "", "KernelDeadlock is True"),
        (" ", "\n", "KernelDeadlock is True"),
    ],
)
def test_what_a_condition_leaves_empty_is_left_out(reason: str, message: str, text: str) -> None:
    assert only(report(condition("KernelDeadlock", "True", reason, message))).text == text


@pytest.mark.parametrize(
    ("message", "text"),
    [("no heartbeat", "Ready is Unknown: no heartbeat"), ("", "Ready is Unknown")],
)
def test_an_unknown_condition_without_a_message_ends_with_its_status(
    message: str, text: str
) -> None:
    assert only(report(condition("Ready", "Unknown", "", message))).text == text


@pytest.mark.parametrize("type_", ["MemoryPressure", "NetworkUnavailable", "example.org/Custom"])
def test_a_condition_without_a_rule_says_nothing(type_: str) -> None:
    assert report(condition(type_, "True"), condition(type_, "False")).evidence == ()


@pytest.mark.parametrize(
    "type_",
    ["AcceleratedHardwareReady", "GPUMissing", "NebiusGPUError", "AMDGPUProblem"],
)
def test_a_check_of_gpus_that_cannot_tell_makes_its_node_unknown(type_: str) -> None:
    evidence = only(report(condition(type_, "Unknown", "", "not checked yet")))
    assert (evidence.kind, evidence.subject) == (EvidenceKind.UNKNOWN, NODE)


def test_a_node_that_is_not_heard_from_is_unknown() -> None:
    evidence = only(report(condition("Ready", "Unknown", "NodeStatusUnknown")))
    assert evidence.kind is EvidenceKind.UNKNOWN
    assert evidence.subject == NODE


@pytest.mark.parametrize(
    ("value", "weight"), [("PASS", None), ("WARN", 0.5), ("ERR", 0.75), ("EVICT", 0.9)]
)
def test_autopilots_label_is_read(value: str, weight: float | None) -> None:
    said = report(labels={"autopilot.ibm.com/gpuhealth": value})
    assert [e.weight for e in said.evidence] == ([] if weight is None else [weight])


def test_while_autopilot_tests_a_nodes_gpus_nothing_is_known_of_them() -> None:
    said = only(report(labels={"autopilot.ibm.com/gpuhealth": "TESTING"}))
    assert (said.subject, said.kind) == (NODE, EvidenceKind.UNKNOWN)


def test_an_amd_label_names_one_gpu() -> None:
    said = report(
        labels={
            "metricsexporter.amd.com.gpu.3.state": "unhealthy",
            "metricsexporter.amd.com.gpu.4.state": "healthy",
        }
    )
    assert only(said).subject == UnitId("gpu-1", "amd.com/gpu", "index:3")


def test_our_own_labels_and_conditions_are_no_evidence() -> None:
    said = report(
        condition("fettle.dev/Ready", "True", "fettle.dev/ReadyIsNotHealthy"),
        condition("FettleDevicesSound", "False", "DevicesUnhealthy"),
        condition("FettleDevices", "True", "FettleDevicesIsNotHealthy"),  # NVSentinel's echo of it
        labels={"fettle.dev/health": "unhealthy"},
        annotations={"fettle.dev/health-reason": "0.0: dead", "fettle.dev/cordoned": "dead"},
    )
    assert said.evidence == ()
    assert said.unknown_signals == ()


@pytest.mark.parametrize(
    ("capacity", "allocatable", "weight", "text"),
    [
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "7"}, 0.05, "1 of 8 nvidia.com/gpu"),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "4"}, 0.10, "4 of 8 nvidia.com/gpu"),
        ({"nvidia.com/gpu": "1"}, {}, 0.10, "1 of 1 nvidia.com/gpu"),
        ({"rdma/hca": "1k"}, {"rdma/hca": "999"}, 0.0004, "1 of 1000 rdma/hca"),
    ],
)
def test_withdrawn_units_are_mild_evidence_that_says_how_many(
    capacity: dict[str, str], allocatable: dict[str, str], weight: float, text: str
) -> None:
    evidence = only(report(capacity=capacity, allocatable=allocatable))
    assert evidence.weight == pytest.approx(weight)
    assert text in evidence.text


@pytest.mark.parametrize(
    ("capacity", "allocatable"),
    [
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "8"}),
        ({"nvidia.com/gpu": "0"}, {}),
        ({"cpu": "96", "memory": "2Ti", "hugepages-2Mi": "1Gi"}, {"cpu": "90", "memory": "1Ti"}),
        ({"attachable-volumes.kubernetes.io/x": "2"}, {}),
        ({"nvidia.com/gpu": "many"}, {"nvidia.com/gpu": "2"}),
    ],
)
def test_what_is_reserved_or_unreadable_is_no_gap(
    capacity: dict[str, str], allocatable: dict[str, str]
) -> None:
    assert report(capacity=capacity, allocatable=allocatable).evidence == ()


def test_a_hold_is_latched_and_tells_its_reason() -> None:
    evidence = only(report(annotations={"fettle.dev/hold": "fan tray swap, OPS-4711"}))
    assert (evidence.family, evidence.kind, evidence.weight) == (
        Family.OPERATOR,
        EvidenceKind.LATCHED,
        1.0,
    )
    assert "fan tray swap, OPS-4711" in evidence.text
    assert "no reason given" in only(report(annotations={"fettle.dev/hold": ""})).text
    assert report(annotations={"fettle.dev/hold": "false"}).evidence == ()


def test_a_node_without_anything_says_nothing() -> None:
    assert report().evidence == ()


def test_xid_154_on_eks_is_read_from_its_message() -> None:
    message = "Xid 154: GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)"
    bad = condition("AcceleratedHardwareReady", "False", "NvidiaXID154Error", message)
    said = only(report(bad))
    assert (said.family, said.weight) == (Family.LINK, 0.5)
    assert said.text == "XID 154: peer-to-peer traffic must be drained (AcceleratedHardwareReady)"


ALIVE = condition("Ready", "True", "KubeletReady", at=NOW - 24 * 3600)
MINUTE = 60.0


def test_a_monitor_that_fell_silent_leaves_a_gpu_node_unknown() -> None:
    silent = condition("AMDGPUProblem", "False", renewed_at=NOW - 16 * MINUTE)
    said = report(ALIVE, silent)
    (evidence,) = said.evidence
    assert (evidence.subject, evidence.kind) == (NODE, EvidenceKind.UNKNOWN)
    assert evidence.text == (
        "the reporter of AMDGPUProblem has been silent since 2026-09-21 13:57:20Z, though the "
        "kubelet has not"
    )
    assert Source(SourceKind.CONDITION, "AMDGPUProblem") not in said.settled


@pytest.mark.parametrize(
    ("type_", "renewed_at"),
    [
        ("AMDGPUProblem", NOW - 14 * MINUTE),  # three heartbeats are not over yet
        ("AMDGPUProblem", NOW + 14 * MINUTE),
        ("GpuMemWatch", NOW - 30 * 24 * 60 * MINUTE),  # NVSentinel writes changes only
    ],
)
def test_a_monitor_that_is_not_due_yet_is_not_silent(type_: str, renewed_at: float) -> None:
    said = report(ALIVE, condition(type_, "False", renewed_at=renewed_at))
    assert said.evidence == ()
    assert Source(SourceKind.CONDITION, type_) in said.settled


@pytest.mark.parametrize("type_", ["KernelDeadlock", "KernelReady", "FrequentKubeletRestart"])
def test_every_monitor_that_renews_is_missed_when_it_falls_silent(type_: str) -> None:
    status = "True" if type_ == "KernelReady" else "False"
    said = report(ALIVE, condition(type_, status, renewed_at=NOW - 16 * MINUTE))
    evidence = only(said)
    assert (evidence.subject, evidence.kind) == (NODE, EvidenceKind.UNKNOWN)
    assert evidence.observed_at == NOW - 16 * MINUTE
    assert Source(SourceKind.CONDITION, type_) not in said.settled


def test_a_monitor_of_ones_own_that_renews_is_missed(tmp_path: Path) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(
        "conditions:\n"
        "  - {name: own, type: OwnCheck, faulty: true, family: bus, weight: 0.5,\n"
        "     heartbeat_s: 60, source: here}\n"
    )
    silent = node(ALIVE, condition("OwnCheck", "False", renewed_at=NOW - 4 * MINUTE))
    assert only(report_of_node(silent, load_rules(own), NOW)).kind is EvidenceKind.UNKNOWN


def test_one_monitor_that_fell_silent_is_said_once() -> None:
    renewed_at = NOW - 16 * MINUTE
    types = ["KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown"]
    said = report(ALIVE, *(condition(t, "False", renewed_at=renewed_at) for t in types))
    assert only(said).text == (
        "the reporter of KernelDeadlock, ReadonlyFilesystem, XfsShutdown has been silent since "
        "2026-09-21 13:57:20Z, though the kubelet has not"
    )
    other = condition("AcceleratedHardwareReady", "True", renewed_at=renewed_at - MINUTE)
    assert (
        len(report(ALIVE, condition(types[0], "False", renewed_at=renewed_at), other).evidence) == 2
    )


def test_a_node_on_which_a_monitor_never_spoke_misses_none() -> None:
    """GKE's plugin makes its condition with the first fault, and removes it after a reboot."""
    assert report(ALIVE).evidence == ()
    over = condition(
        "XidCriticalError", "True", '{"79":true}', "another-boot", renewed_at=NOW - 16 * MINUTE
    )
    assert report(ALIVE, over).evidence == ()


def test_the_last_fault_of_a_monitor_goes_stale_when_it_falls_silent() -> None:
    renewed_at = NOW - 20 * MINUTE
    bad = condition("KernelDeadlock", "True", "DockerHung", at=NOW - 3600, renewed_at=renewed_at)
    said = report(ALIVE, bad)
    assert only(said).kind is EvidenceKind.UNKNOWN  # it stands no more, and is not cleared
    assert Source(SourceKind.CONDITION, "KernelDeadlock") not in said.settled
    (left,) = said.stale
    assert (left.subject, left.kind, left.weight) == (NODE, EvidenceKind.LEVEL, 0.75)
    assert left.observed_at == renewed_at + 15 * MINUTE  # three heartbeats


def test_a_monitor_whose_silence_counts_leaves_its_fault_beside_it() -> None:
    said = report(ALIVE, condition("AMDGPUProblem", "True", renewed_at=NOW - 16 * MINUTE))
    assert [e.kind for e in said.evidence] == [EvidenceKind.UNKNOWN]
    assert [e.weight for e in said.stale] == [0.75]


@pytest.mark.parametrize("status", ["Unknown", "", "maybe"])
def test_a_silent_monitor_that_told_no_fault_leaves_none(status: str) -> None:
    said = report(ALIVE, condition("KernelDeadlock", status, renewed_at=NOW - 16 * MINUTE))
    assert (only(said).kind, said.stale) == (EvidenceKind.UNKNOWN, ())


@pytest.mark.parametrize(("kind", "observed"), [("latched", []), ("decaying", [NOW - 3600])])
def test_what_a_silent_monitor_says_is_latched_is_not_said_again_and_an_event_is(
    tmp_path: Path, kind: str, observed: list[float]
) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(
        "conditions:\n"
        "  - {name: own, type: OwnCheck, faulty: true, family: bus, weight: 0.5,\n"
        f"     kind: {kind}, heartbeat_s: 300, source: here}}\n"
    )
    bad = node(ALIVE, condition("OwnCheck", "True", at=NOW - 3600, renewed_at=NOW - 20 * MINUTE))
    said = report_of_node(bad, load_rules(own), NOW)
    silence, *faults = said.evidence
    assert silence.kind is EvidenceKind.UNKNOWN
    assert [one.observed_at for one in faults] == observed
    assert said.stale == ()


def test_where_the_kubelet_is_silent_too_nobody_else_is() -> None:
    """Its own condition then says so, and for all of the node."""
    long_ago = NOW - 3600
    dead = condition("Ready", "Unknown", "NodeStatusUnknown", "x", renewed_at=long_ago)
    said = report(dead, condition("AMDGPUProblem", "False", renewed_at=long_ago - 60))
    assert [str(e.source) for e in said.evidence] == ["condition Ready"]


def test_a_condition_that_no_rule_names_is_no_evidence_but_is_listed() -> None:
    said = report(
        condition("GpuBurnIn", "Failed\x1b[2J", "Whatever"),
        condition("EtcdIsVoter", "True"),
        condition("Ready", "True"),
        condition("AcceleratedHardwareReady", "False", "SomethingNew"),
        condition("KernelDeadlock", "False"),
        condition("MemoryPressure", "True"),
        condition("NetworkUnavailable", "False"),
        condition("fettle.dev/Own", "True"),
        condition("SomeNewWatch", "True", "SomeNewWatchIsNotHealthy"),
    )
    assert said.unknown_signals == (
        UnknownSignal("GpuBurnIn", "Failed [2J"),
        UnknownSignal("EtcdIsVoter", "True"),
        UnknownSignal("AcceleratedHardwareReady (SomethingNew)", "False"),
    )
    assert "GpuBurnIn" not in str(said.evidence)


def test_a_row_without_weight_makes_a_condition_known(tmp_path: Path) -> None:
    own = tmp_path / "rules.yaml"
    own.write_text(
        "conditions:\n"
        "  - {name: own, type: GpuBurnIn, faulty: true, family: bus, weight: 0, source: here}\n"
    )
    assert (
        report_of_node(node(condition("GpuBurnIn", "True")), load_rules(own), NOW).unknown_signals
        == ()
    )
