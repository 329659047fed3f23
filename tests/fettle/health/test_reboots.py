"""A reboot mends what a reboot mends, whether or not the monitor that told of it comes back."""

from typing import Any

import pytest

from fettle.api.meta import rfc3339_at
from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.nodes import report_of_node
from fettle.model import Health, State, UnitId
from tests.fettle.health.incidents import HOUR, MINUTE, NODE, RULES, of, tell
from tests.fettle.health.signals.objects import NOW, condition, node

GPU = UnitId("gpu-1", "nvidia.com/gpu", "pci:0000:cb:00.0")
XID_109 = "NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008"
REBOOTED = NOW + 3 * HOUR


def seen(
    at: float,
    type_: str,
    *,
    renewed_at: float,
    boot: str,
    ready_since: float = NOW - HOUR,
    annotations: dict[str, str] | None = None,
    message: str = XID_109,
) -> Any:
    """A node of which one condition is True, while its kubelet renews its own."""
    ready = condition("Ready", "True", "x", renewed_at=at, at=ready_since)
    said = condition(type_, "True", "x", message, renewed_at=renewed_at, at=NOW)
    return node(ready, said, boot=boot, annotations=annotations)


def gpu(book: HealthBook, at: float) -> Health:
    return book.assess(GPU, (GPU, NODE), at)


@pytest.mark.parametrize("type_", ["XIDErrors", "ConditionOfNobody"])
def test_a_latched_xid_is_over_with_the_reboot_though_its_condition_stays(
    book: HealthBook, type_: str
) -> None:
    """Azure's and any other: of the second nothing is known but that it quotes the driver."""
    tell(book, seen(NOW, type_, renewed_at=NOW, boot="1"), NOW)
    assert gpu(book, NOW).state is State.UNHEALTHY
    for at in (REBOOTED, REBOOTED + MINUTE, REBOOTED + 2 * HOUR):
        tell(book, seen(at, type_, renewed_at=NOW, boot="2"), at)
        assert gpu(book, at).state not in (State.UNHEALTHY, State.DEGRADED)
        assert any("was until recently" in w.evidence.text for w in gpu(book, at).evidence)


def test_an_xid_that_is_told_anew_after_the_reboot_counts(book: HealthBook) -> None:
    tell(book, seen(NOW, "XIDErrors", renewed_at=NOW, boot="1"), NOW)
    tell(book, seen(REBOOTED, "XIDErrors", renewed_at=NOW, boot="2"), REBOOTED)
    at = REBOOTED + MINUTE
    tell(book, seen(at, "XIDErrors", renewed_at=at, boot="2"), at)
    assert gpu(book, at).state is State.UNHEALTHY


def test_an_xid_stays_while_its_monitor_is_silent_and_no_reboot_is_seen(book: HealthBook) -> None:
    tell(book, seen(NOW, "XIDErrors", renewed_at=NOW, boot="1"), NOW)
    tell(book, seen(REBOOTED, "XIDErrors", renewed_at=NOW, boot="1"), REBOOTED)
    assert gpu(book, REBOOTED).state is State.UNHEALTHY
    last = gpu(book, REBOOTED).evidence
    assert any("latched until it is cleared" in w.evidence.text for w in last)


def test_who_starts_later_finds_a_silent_monitors_xid_unknown_and_no_fault() -> None:
    book = HealthBook(HealthSettings(), RULES)
    tell(book, seen(REBOOTED, "XIDErrors", renewed_at=NOW, boot="2"), REBOOTED)
    assert (gpu(book, REBOOTED).state, gpu(book, REBOOTED).score) == (State.UNKNOWN, 0.75)


def test_a_stated_repair_ends_what_a_silent_monitor_told(book: HealthBook) -> None:
    tell(book, seen(NOW, "XIDErrors", renewed_at=NOW, boot="1"), NOW)
    tell(book, seen(REBOOTED, "XIDErrors", renewed_at=NOW, boot="1"), REBOOTED)
    at = REBOOTED + MINUTE
    said = {"fettle.dev/repaired": rfc3339_at(REBOOTED)}
    tell(book, seen(at, "XIDErrors", renewed_at=NOW, boot="1", annotations=said), at)
    assert gpu(book, at).state is State.UNKNOWN


def test_a_stated_repair_ends_what_a_silent_monitor_told_of_its_whole_node(
    book: HealthBook,
) -> None:
    """Azure's condition names no GPU."""
    nobody = "GPU Xid 79 found"
    tell(book, seen(NOW, "XIDErrors", renewed_at=NOW, boot="1", message=nobody), NOW)
    silent = seen(REBOOTED, "XIDErrors", renewed_at=NOW, boot="1", message=nobody)
    tell(book, silent, REBOOTED)
    assert of(book, NODE, REBOOTED).state is State.UNHEALTHY
    at = REBOOTED + MINUTE
    said = {"fettle.dev/repaired": rfc3339_at(REBOOTED)}
    told = seen(at, "XIDErrors", renewed_at=NOW, boot="1", message=nobody, annotations=said)
    tell(book, told, at)
    assert of(book, NODE, at).state is State.UNKNOWN


@pytest.mark.parametrize("renewed_at", [NOW - HOUR, NOW + HOUR])
def test_what_was_renewed_before_the_node_was_ready_again_is_not_said_again(
    book: HealthBook, renewed_at: float
) -> None:
    """Also if Fettle did not see it then."""
    tell(book, seen(NOW, "ConditionOfNobody", renewed_at=NOW, boot="1"), NOW)
    back = REBOOTED - 10 * MINUTE
    for at in (REBOOTED, REBOOTED + HOUR):
        told = seen(at, "ConditionOfNobody", renewed_at=renewed_at, boot="2", ready_since=back)
        tell(book, told, at)
        assert gpu(book, at).state is State.HEALTHY


def test_what_is_said_as_the_node_gets_ready_is_said_again(book: HealthBook) -> None:
    tell(book, seen(NOW, "ConditionOfNobody", renewed_at=NOW, boot="1"), NOW)
    first = REBOOTED - MINUTE
    told = seen(REBOOTED, "ConditionOfNobody", renewed_at=first, boot="2", ready_since=REBOOTED - 1)
    tell(book, told, REBOOTED)
    assert gpu(book, REBOOTED).state is State.UNHEALTHY


@pytest.mark.parametrize("code", ["GPU_RECOVERY_REBOOT", "FALLEN_OFF_BUS", "NVLINK_DOWN"])
def test_a_reboot_mends_what_a_monitor_says_that_writes_changes_only(
    book: HealthBook, code: str
) -> None:
    """NVSentinel's monitors start again after a boot, and write what is still so."""
    entry = f"ErrorCode:DCGM_FR_{code} PCI:0000:cb:00.0 x Recommended Action=RESTART_BM;"
    for boot, at in (("1", NOW), ("2", REBOOTED)):
        ill = condition(
            "GpuAllWatch", "True", "GpuAllWatchIsNotHealthy", entry, renewed_at=NOW, at=NOW
        )
        book.ledger.report(report_of_node(node(ill, boot=boot), RULES, at), at)
        assert (gpu(book, at).state is State.UNHEALTHY) is (boot == "1")


def test_a_level_fault_from_before_the_node_was_away_is_not_stale_but_over() -> None:
    book = HealthBook(HealthSettings(), RULES)
    at = NOW + 20 * MINUTE
    stale = seen(at, "KernelDeadlock", renewed_at=NOW, boot="2")
    tell(book, stale, at)
    assert of(book, NODE, at).score < 0.3
    fresh = HealthBook(HealthSettings(), RULES)
    came_back = seen(at, "KernelDeadlock", renewed_at=NOW, boot="2", ready_since=NOW + 5 * MINUTE)
    tell(fresh, came_back, at)
    assert (of(fresh, NODE, at).state, of(fresh, NODE, at).score) == (State.UNKNOWN, 0.75)


def test_a_fault_of_the_memory_outlives_the_reboot(book: HealthBook) -> None:
    """NVSentinel writes a condition when its state changes, and not again."""
    entry = "ErrorCode:DCGM_FR_VOLATILE_DBE_DETECTED PCI:0000:cb:00.0 x Recommended Action=NONE;"
    for boot, at in (("1", NOW), ("2", REBOOTED)):
        ill = condition("GpuMemWatch", "True", "x", entry, renewed_at=NOW, at=NOW)
        said = report_of_node(node(ill, boot=boot), RULES, at)
        book.ledger.report(said, at)
    assert gpu(book, REBOOTED).state in (State.UNHEALTHY, State.DEGRADED)
