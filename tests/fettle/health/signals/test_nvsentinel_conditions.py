"""What NVSentinel says of a node and its devices by conditions and labels."""

import pytest

from fettle.model import EvidenceKind, Family, NodeId, Source, SourceKind, UnitId
from tests.fettle.health.signals.objects import OTHER_UUID, THERMAL, UUID, XID, condition
from tests.fettle.health.signals.reading import NODE, only, report


def test_nvsentinel_names_the_device() -> None:
    said = report(condition("GpuThermalWatch", "True", "GpuThermalWatchIsNotHealthy", THERMAL))
    evidence = only(said)
    assert evidence.subject == UnitId(
        "gpu-1",
        "nvidia.com/gpu",
        "GPU-b5f21324-f1f9-f1a4-1a37-1166234f6e4f",
        ("pci:0000:c4:00.0", "index:4"),
    )
    assert (evidence.family, evidence.kind, evidence.weight) == (
        Family.THERMAL,
        EvidenceKind.LEVEL,
        0.5,
    )
    assert "Clocks are throttled" in evidence.text
    assert said.settled >= {Source(SourceKind.CONDITION, "GpuThermalWatch")}


def test_an_xid_that_nvsentinel_names_is_looked_up() -> None:
    evidence = only(report(condition("SysLogsXIDError", "True", "x", XID)))
    assert (evidence.kind, evidence.weight) == (EvidenceKind.LATCHED, 1.0)
    assert evidence.text.startswith("XID 119: GSP RPC timeout (RESET_GPU)")


def test_an_sxid_is_not_taken_for_an_xid() -> None:
    message = "ErrorCode:79 GPU:0 x Recommended Action=NONE;"
    evidence = only(report(condition("SysLogsSXIDError", "True", "x", message)))
    assert (evidence.family, evidence.weight) == (Family.LINK, 0.75)


def test_a_code_that_is_no_number_is_not_taken_for_an_xid() -> None:
    message = f"ErrorCode:GSP_ERROR GPU_UUID:{UUID} x Recommended Action=NONE;"
    evidence = only(report(condition("SysLogsXIDError", "True", "x", message)))
    assert evidence.text == "SysLogsXIDError GSP_ERROR: x (recommended: NONE)"


KERNEL = "NVRM: Xid (PCI:0000:c1:00): 79, pid=7, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("message", "device", "code"),
    [
        (KERNEL, "pci:0000:c1:00.0", "79"),
        (f"GPU_UUID:{UUID} {KERNEL} Recommended Action=RESTART_BM;", UUID, "79"),
        (f"ErrorCode:UNKNOWN GPU_UUID:{UUID} {KERNEL} Recommended Action=NONE;", UUID, "79"),
        (f"ErrorCode:48 GPU_UUID:{UUID} {KERNEL} Recommended Action=NONE;", UUID, "48"),
        (f"GPU_UUID:{UUID} Xid error code 48 Recommended Action=NONE;", UUID, "48"),
    ],
)
def test_an_xid_that_has_no_error_code_is_read_in_the_text(
    message: str, device: str, code: str
) -> None:
    evidence = only(report(condition("SysLogsXIDError", "True", "x", message)))
    assert isinstance(evidence.subject, UnitId)
    assert (evidence.subject.unit, evidence.weight) == (device, 1.0)
    assert evidence.text.startswith(f"XID {code}: ")


@pytest.mark.parametrize(
    "text", ["no answer after 79 s", "SXid (PCI:0000:c1:00): 79, x", "taxid 79"]
)
def test_without_an_error_code_no_other_number_is_taken_for_one(text: str) -> None:
    message = f"GPU:3 {text} Recommended Action=NONE;"
    evidence = only(report(condition("SysLogsXIDError", "True", "x", message)))
    assert (evidence.weight, evidence.kind) == (0.5, EvidenceKind.LEVEL)
    assert evidence.text == f"SysLogsXIDError: {text} (recommended: NONE)"


def test_families_of_one_device_in_one_condition_are_kept_apart() -> None:
    message = "".join(
        f"ErrorCode:{code} GPU_UUID:{UUID} x Recommended Action=NONE;" for code in (74, 145, 48)
    )
    said = report(condition("SysLogsXIDError", "True", "x", message))
    assert {(e.family, e.weight) for e in said.evidence} == {
        (Family.LINK, 0.5),
        (Family.MEMORY, 1.0),
    }


def test_a_recommended_restart_weighs_at_least_that_much() -> None:
    def weight(action: str) -> float:
        message = f"ErrorCode:D GPU_UUID:{UUID} x Recommended Action={action};"
        return only(report(condition("GpuThermalWatch", "True", "x", message))).weight

    assert weight("NONE") == weight("CONTACT_SUPPORT") == weight("SOMETHING_NEW") == 0.5
    assert weight("COMPONENT_RESET") == 0.75
    assert weight("REPLACE_VM") == 0.9


def test_a_message_that_names_no_device_is_about_the_node() -> None:
    for message in ("", "something broke", "ErrorCode:79 NIC:mlx5_0 x Recommended Action=NONE;"):
        said = report(condition("GpuDriverWatch", "True", "x", message))
        assert only(said).subject == NODE


def test_an_entry_that_names_no_device_is_about_the_node_beside_one_that_does() -> None:
    message = (
        f"ErrorCode:74 GPU_UUID:{UUID} x Recommended Action=NONE;"
        "ErrorCode:79 x Recommended Action=RESTART_BM;"
    )
    said = report(condition("SysLogsXIDError", "True", "x", message))
    by_subject = {type(e.subject): e.weight for e in said.evidence}
    assert by_subject == {UnitId: 0.5, NodeId: 1.0}


def test_an_entry_whose_device_was_cut_away_is_not_about_the_whole_node() -> None:
    message = (
        f"ErrorCode:74 GPU_UUID:{UUID} x Recommended Action=NONE;"
        "ErrorCode:79 GPU_UUID:GPU-4a...;..."
    )
    said = report(condition("SysLogsXIDError", "True", "x", message))
    by_subject = {type(e.subject): e.weight for e in said.evidence}
    assert by_subject == {UnitId: 0.5, NodeId: 0.1}


def test_a_message_cut_off_names_what_it_can_and_warns_about_the_rest() -> None:
    said = report(condition("GpuThermalWatch", "True", "x", (THERMAL * 9)[:1024]))
    by_subject = {type(e.subject): e for e in said.evidence}
    assert by_subject[UnitId].weight == 0.5
    assert by_subject[NodeId].weight == 0.1
    assert "truncated" in by_subject[NodeId].text
    assert Source(SourceKind.CONDITION, "GpuThermalWatch") not in said.settled


def test_conditions_that_name_a_gpu_differently_meet_in_its_uuid() -> None:
    one = f"ErrorCode:A GPU:4 PCI:0000:c4:00.0 GPU_UUID:{UUID} x Recommended Action=NONE;"
    two = "ErrorCode:74 PCI:0000:C4:00 x Recommended Action=NONE;"
    said = report(
        condition("GpuThermalWatch", "True", "x", one),
        condition("SysLogsXIDError", "True", "x", two),
    )
    others = ("pci:0000:c4:00.0", "index:4")
    assert {e.subject for e in said.evidence} == {UnitId("gpu-1", "nvidia.com/gpu", UUID, others)}


@pytest.mark.parametrize(
    ("value", "weight"),
    [
        ("quarantined", 0.75),
        ("draining", 0.75),
        ("drain-succeeded", 0.75),
        ("drain-failed", 0.75),
        ("remediating", 0.75),
        ("remediation-failed", 0.9),
        ("remediation-succeeded", None),
        ("something-else", None),
    ],
)
def test_nvsentinels_state_label_is_read(value: str, weight: float | None) -> None:
    said = report(labels={"dgxc.nvidia.com/nvsentinel-state": value})
    assert [e.weight for e in said.evidence] == ([] if weight is None else [weight])


def test_what_nvsentinel_may_have_remediated_is_told_apart() -> None:
    conditions = (
        condition("SysLogsXIDError", "True", "x", XID + THERMAL),
        condition("KernelDeadlock", "True", "x"),
    )
    labels = {"dgxc.nvidia.com/nvsentinel-state": "remediation-succeeded"}
    before, after = report(*conditions), report(*conditions, labels=labels)
    assert before.remediated is None
    assert after.remediated is not None
    words = [fault.identity for fault in after.remediated]
    assert len(set(words)) == 2
    assert {fault.evidence for fault in after.remediated} | set(after.evidence) == set(
        before.evidence
    )
    assert [str(e.source) for e in after.evidence] == ["condition KernelDeadlock"]
    assert after.units == before.units
    assert report(labels=labels).remediated == ()


def test_other_gpus_stay_unnamed() -> None:
    message = f"ErrorCode:79 GPU_UUID:{OTHER_UUID} x Recommended Action=RESTART_BM;"
    said = report(condition("SysLogsXIDError", "True", "x", message))
    assert {e.subject for e in said.evidence} == {UnitId("gpu-1", "nvidia.com/gpu", OTHER_UUID)}


def test_xid_154_is_read_down_to_its_recovery_action() -> None:
    """As NVSentinel writes it; its own row would only degrade the GPU."""
    message = (
        f"ErrorCode:154 PCI:0008:01:00 GPU_UUID:{UUID} NVRM: Xid (PCI:0008:01:00): 154, GPU "
        "recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required) "
        "Recommended Action=COMPONENT_RESET;"
    )
    said = only(
        report(condition("SysLogsXIDError", "True", "SysLogsXIDErrorIsNotHealthy", message))
    )
    assert said.subject == UnitId("gpu-1", "nvidia.com/gpu", UUID, ("pci:0008:01:00.0",))
    assert (said.kind, said.weight) == (EvidenceKind.LATCHED, 1.0)
    assert said.text.startswith("XID 154: the GPU must be reset; SysLogsXIDError 154")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            "ErrorCode:7 GPU:6 Recommended Action=RESTART_BM;",
            "GpuMemWatch 7 (recommended: RESTART_BM)",
        ),
        ("ErrorCode:7 GPU:6 ;", "GpuMemWatch 7"),
    ],
)
def test_an_entry_without_a_text_has_its_code_and_its_advice(message: str, text: str) -> None:
    said = report(condition("GpuMemWatch", "True", "GpuMemWatchIsNotHealthy", message))
    assert text in [evidence.text for evidence in said.evidence]


def test_an_xid_of_nvlink_is_read_with_the_part_that_nvsentinel_decoded() -> None:
    message = (
        f"ErrorCode:149.NETIR_LINK_EVT PCI:0008:01:00 GPU_UUID:{UUID} NVRM: Xid (PCI:0008:01:00): "
        "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 Recommended Action=COMPONENT_RESET;"
    )
    said = only(report(condition("SysLogsXIDError", "True", "x", message)))
    assert (said.family, said.weight) == (Family.LINK, 0.75)
    assert said.text.startswith("XID 149: NVLink: NETIR error")
