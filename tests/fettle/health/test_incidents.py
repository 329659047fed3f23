"""Incidents as they happen to people, told object by object."""

from typing import Any

import pytest

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.slices import report_of_slice, report_of_taint_rule
from fettle.model import BUILT_IN, SOUND, DeviceId, ReporterId, State, UnitId
from fettle.scheduling.judge.acceptance import complaint
from tests.fettle.health.incidents import DEVICE, HOUR, MINUTE, NODE, RULES, of, tell
from tests.fettle.health.signals.objects import (
    NOW,
    THERMAL,
    UUID,
    condition,
    node,
    slice_,
    taint,
    taint_rule,
)


def test_a_gpu_falls_off_the_bus_and_its_neighbour_stays_sound(book: HealthBook) -> None:
    book.ledger.report(report_of_slice(slice_(taint("gpu.nvidia.com/xid", "79")), RULES, NOW), NOW)
    lost = of(book, DEVICE, NOW)
    assert (lost.state, lost.score) == (State.UNHEALTHY, 0.0)
    assert "XID 79: GPU has fallen off the bus" in lost.evidence[0].evidence.text
    assert of(book, DeviceId("gpu.nvidia.com", "gpu-1", "other"), NOW) is SOUND
    assert of(book, DEVICE, NOW + 30 * 24 * HOUR).state is State.UNHEALTHY

    at = NOW + 30 * 24 * HOUR + MINUTE
    book.ledger.report(report_of_slice(slice_(), RULES, at), at)
    assert of(book, DEVICE, at).state is State.HEALTHY


def test_a_gpu_that_throttles_is_degraded_until_it_cools(book: HealthBook) -> None:
    uuid, others = "GPU-b5f21324-f1f9-f1a4-1a37-1166234f6e4f", ("pci:0000:c4:00.0", "index:4")
    gpu = UnitId("gpu-1", "nvidia.com/gpu", uuid, others)
    hot = condition("GpuThermalWatch", "True", "GpuThermalWatchIsNotHealthy", THERMAL)
    tell(book, node(hot), NOW)
    assert book.ledger.units("gpu-1") == {gpu}
    assert (of(book, gpu, NOW).state, of(book, gpu, NOW).score) == (State.DEGRADED, 0.5)

    cool = condition("GpuThermalWatch", "False", "GpuThermalWatchIsHealthy", "No Health Failures")
    tell(book, node(cool), NOW + MINUTE)
    assert of(book, gpu, NOW + MINUTE).state is State.HEALTHY


def test_nvsentinel_names_one_gpu_of_eight_and_seven_stay_sound(book: HealthBook) -> None:
    gpus = [UnitId("gpu-1", "nvidia.com/gpu", f"GPU-{i}") for i in range(8)]
    message = "ErrorCode:95 GPU_UUID:GPU-4 uncontained Recommended Action=COMPONENT_RESET;"
    bad = condition("SysLogsXIDError", "True", "SysLogsXIDErrorIsNotHealthy", message)
    tell(book, node(bad), NOW)
    states = {gpu.unit: of(book, gpu, NOW).state for gpu in gpus}
    assert states.pop("GPU-4") is State.UNHEALTHY
    assert set(states.values()) == {State.HEALTHY}
    assert of(book, NODE, NOW) is SOUND


def test_nvsentinel_takes_one_of_two_gpus_back_out_of_its_message(book: HealthBook) -> None:
    entry = "ErrorCode:74 GPU_UUID:GPU-{} link down Recommended Action=NONE;"
    both = condition("SysLogsXIDError", "True", "x", entry.format(1) + entry.format(2))
    one = condition("SysLogsXIDError", "True", "x", entry.format(2))
    tell(book, node(both), NOW)
    tell(book, node(one), NOW + MINUTE)
    first, second = (UnitId("gpu-1", "nvidia.com/gpu", f"GPU-{i}") for i in (1, 2))
    assert of(book, first, NOW + MINUTE).state is State.HEALTHY
    assert of(book, second, NOW + MINUTE).state is State.DEGRADED


def test_nvsentinel_is_uninstalled_and_a_reboot_clears_what_it_latched(book: HealthBook) -> None:
    message = f"ErrorCode:79 GPU_UUID:{UUID} gone Recommended Action=RESTART_BM;"
    tell(book, node(condition("SysLogsXIDError", "True", "x", message)), NOW)
    gpu = UnitId("gpu-1", "nvidia.com/gpu", UUID)
    tell(book, node(), NOW + MINUTE)
    assert of(book, gpu, NOW + 100 * HOUR).state is State.UNHEALTHY
    tell(book, node(boot="boot-2"), NOW + 101 * HOUR)
    assert of(book, gpu, NOW + 101 * HOUR).state is State.HEALTHY


def test_what_is_latched_and_no_longer_reported_says_so_until_it_is_reported_again(
    book: HealthBook,
) -> None:
    message = f"ErrorCode:79 GPU_UUID:{UUID} gone Recommended Action=RESTART_BM;"
    xid = condition("SysLogsXIDError", "True", "x", message, at=NOW)
    gpu = UnitId("gpu-1", "nvidia.com/gpu", UUID)

    def told(at: float) -> tuple[str, float]:
        evidence = of(book, gpu, at).evidence[0].evidence
        return evidence.text, evidence.observed_at

    tell(book, node(xid), NOW)
    text, since = told(NOW)
    for minute in (1, 2):
        tell(book, node(), NOW + minute * MINUTE)
        unsaid = f"{text}; no longer reported, latched until it is cleared"
        assert told(NOW + minute * MINUTE) == (unsaid, since)
    tell(book, node(xid), NOW + 3 * MINUTE)
    assert told(NOW + 3 * MINUTE) == (text, since)
    book.ledger.vanish(ReporterId("Node", "gpu-1"), NOW + 4 * MINUTE)
    assert told(NOW + 4 * MINUTE) == (unsaid, since)


def test_a_monitor_is_uninstalled_and_its_last_fault_fades(book: HealthBook) -> None:
    problem = condition("AMDGPUProblem", "True", "AMDGPUIsUnhealthy", "RAS error", at=NOW)
    tell(book, node(condition("Ready", "True"), problem), NOW)
    assert of(book, NODE, NOW).state is State.UNHEALTHY

    at = NOW + 20 * MINUTE
    alive = condition("Ready", "True", renewed_at=at)
    tell(book, node(alive, problem), at)
    silent = of(book, NODE, at)
    assert silent.state is State.UNHEALTHY  # bad news outlives its messenger
    assert any("has been silent since" in w.evidence.text for w in silent.evidence)

    later = NOW + 24 * HOUR
    book.changed_by_time(later)
    faded = of(book, NODE, later)
    assert (faded.state, faded.score) == (State.UNKNOWN, 0.75)

    back = condition("AMDGPUProblem", "False", renewed_at=later)
    tell(book, node(condition("Ready", "True", renewed_at=later), back), later)
    assert of(book, NODE, later).state is State.HEALTHY


def test_a_driver_that_asks_for_a_reboot_takes_its_gpu_out_until_it_is_rebooted(
    book: HealthBook,
) -> None:
    message = (
        f"ErrorCode:154 GPU_UUID:{UUID} NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action "
        "changed from 0x0 (None) to 0x2 (OS Reboot) Recommended Action=RESTART_VM;"
    )
    gpu = UnitId("gpu-1", "nvidia.com/gpu", UUID)
    tell(book, node(condition("SysLogsXIDError", "True", "x", message)), NOW)
    assert of(book, gpu, NOW).state is State.UNHEALTHY
    assert "the node must be rebooted" in of(book, gpu, NOW).evidence[0].evidence.text
    tell(book, node(), NOW + HOUR)  # the monitor restarts and has forgotten
    assert of(book, gpu, NOW + 48 * HOUR).state is State.UNHEALTHY
    tell(book, node(boot="boot-2"), NOW + 49 * HOUR)
    assert of(book, gpu, NOW + 49 * HOUR).state is State.HEALTHY


def flap(book: HealthBook, times: int, every_s: float, status: str) -> float:
    """Ready turns `status` and back, `times`; returns when it was last well again."""
    at = NOW
    for i in range(times):
        at = NOW + i * every_s
        tell(book, node(condition("Ready", status, "x", at=at)), at)
        of(book, NODE, at)
        at += 40.0
        tell(book, node(condition("Ready", "True", "KubeletReady", at=at)), at)
        of(book, NODE, at)
    return at


def test_a_node_that_failed_once_is_free_at_once(book: HealthBook) -> None:
    at = flap(book, 1, 0.0, "False")
    assert of(book, NODE, at).state is State.HEALTHY


def test_a_node_that_keeps_failing_is_worse_than_one_that_failed_once(book: HealthBook) -> None:
    at = flap(book, 3, 20 * MINUTE, "False")
    assert of(book, NODE, at + 19 * MINUTE).state is State.UNHEALTHY  # it may be down soon again
    flapping = of(book, NODE, at + 20 * MINUTE)
    assert flapping.state is State.DEGRADED
    assert "was until recently" in flapping.evidence[0].evidence.text
    assert "(the latest of 3)" in flapping.evidence[0].evidence.text
    assert of(book, NODE, at + 12 * HOUR).state is State.HEALTHY


def test_failures_of_different_kinds_are_counted_and_the_latest_is_told(book: HealthBook) -> None:
    flap(book, 2, 20 * MINUTE, "Unknown")
    at = NOW + HOUR
    tell(book, node(condition("Ready", "False", "KubeletDown", at=at)), at)
    tell(book, node(condition("Ready", "True", "KubeletReady", at=at)), at + MINUTE)
    told = [w.evidence.text for w in of(book, NODE, at + MINUTE).evidence]
    assert "was until recently: Ready is False (KubeletDown) (the latest of 3)" in told


def test_flapping_alone_never_makes_a_node_unhealthy(book: HealthBook) -> None:
    at = flap(book, 60, MINUTE, "False")
    assert of(book, NODE, at).score == 0.5
    assert of(book, NODE, at + 2 * MINUTE).state is State.DEGRADED


def test_a_node_that_keeps_falling_silent_is_degraded_later_than_one_that_fails(
    book: HealthBook,
) -> None:
    at = flap(book, 3, 10 * MINUTE, "Unknown")
    assert of(book, NODE, at).state is State.HEALTHY
    book = HealthBook(HealthSettings(), RULES)
    at = flap(book, 6, 10 * MINUTE, "Unknown")
    assert of(book, NODE, at).state is State.DEGRADED


def test_a_silent_node_is_unknown_and_scores_three_quarters(book: HealthBook) -> None:
    silent = condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting", at=NOW)
    tell(book, node(silent), NOW)
    found = of(book, DEVICE, NOW + HOUR)
    assert (found.state, found.score, found.since) == (State.UNKNOWN, 0.75, NOW)
    assert "Kubelet stopped posting" in found.evidence[0].evidence.text
    plugged = of(book, UnitId("gpu-1", "nvidia.com/gpu", UUID), NOW + HOUR)
    assert (plugged.state, plugged.score) == (State.UNKNOWN, 0.75)
    for policy in BUILT_IN.values():
        assert complaint(found, policy.placement) is None


def test_the_all_clear_of_one_fault_does_not_end_the_band_that_another_holds(
    book: HealthBook,
) -> None:
    """NVLink errors have faded to where Degraded is neither entered nor left."""
    link = condition("GpuNvlinkWatch", "True", "x", f"ErrorCode:X GPU_UUID:{UUID} x;", at=NOW)
    gpu = UnitId("gpu-1", "nvidia.com/gpu", UUID)
    tell(book, node(link), NOW)
    assert of(book, gpu, NOW).state is State.DEGRADED
    tell(book, node(), NOW)  # its monitor is gone, what it said fades
    at = next(t for m in range(9999) if of(book, gpu, t := NOW + m * MINUTE).score > 0.88)
    assert of(book, gpu, at).score < 0.90
    assert of(book, gpu, at).state is State.DEGRADED

    restarts = condition("FrequentKubeletRestart", "True", at=at)
    tell(book, node(restarts), at)
    assert of(book, gpu, at).state is State.DEGRADED
    tell(book, node(condition("FrequentKubeletRestart", "False", at=at)), at + MINUTE)
    assert of(book, gpu, at + MINUTE).state is State.DEGRADED


def test_what_is_over_and_a_mild_hint_that_stays_leave_a_node_free(book: HealthBook) -> None:
    gap: dict[str, Any] = {
        "capacity": {"nvidia.com/gpu": "8"},
        "allocatable": {"nvidia.com/gpu": "4"},
    }
    tell(book, node(condition("FrequentKubeletRestart", "True"), **gap), NOW)
    assert of(book, NODE, NOW).state is State.DEGRADED
    at = NOW + MINUTE
    tell(book, node(condition("FrequentKubeletRestart", "False", at=at), **gap), at)
    assert (of(book, NODE, at).state, of(book, NODE, at).score) == (State.HEALTHY, 0.8325)


def test_a_withdrawn_gpu_is_a_mild_hint_about_the_others(book: HealthBook) -> None:
    gap = node(capacity={"nvidia.com/gpu": "8"}, allocatable={"nvidia.com/gpu": "7"})
    tell(book, gap, NOW)
    found = of(book, NODE, NOW)
    assert (found.state, found.score) == (State.HEALTHY, 0.95)
    assert "1 of 8 nvidia.com/gpu" in found.evidence[0].evidence.text


def test_gpus_that_are_tested_every_hour_do_not_wear_out_by_it(book: HealthBook) -> None:
    for hour in range(48):
        at = NOW + hour * HOUR
        tell(book, node(labels={"autopilot.ibm.com/gpuhealth": "TESTING"}), at)
        assert of(book, NODE, at).state is State.UNKNOWN
        tell(book, node(labels={"autopilot.ibm.com/gpuhealth": "PASS"}), at + 10 * MINUTE)
        assert of(book, NODE, at + 10 * MINUTE) is SOUND


def test_an_operator_holds_a_node_and_lets_it_go(book: HealthBook) -> None:
    tell(book, node(annotations={"fettle.dev/hold": "fan swap"}), NOW)
    held = of(book, DEVICE, NOW)
    assert (held.state, held.score, held.held) == (State.UNHEALTHY, 0.0, True)
    assert "fan swap" in held.evidence[0].evidence.text
    tell(book, node(), NOW + MINUTE)
    assert of(book, DEVICE, NOW + MINUTE) is SOUND


def test_a_taint_rule_takes_devices_out_until_it_is_deleted(book: HealthBook) -> None:
    rule = taint_rule({"device": "gpu-0"}, taint("example.org/recall", effect="NoExecute"))
    book.ledger.report(report_of_taint_rule(rule, [DEVICE], RULES, NOW), NOW)
    assert of(book, DEVICE, NOW).state is State.UNHEALTHY
    assert book.ledger.vanish(ReporterId("DeviceTaintRule", "rule"), NOW + MINUTE) == {DEVICE}
    assert of(book, DEVICE, NOW + MINUTE).state is State.HEALTHY


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "None"])
def test_a_reservation_that_comes_and_goes_leaves_a_device_sound(
    book: HealthBook, effect: str
) -> None:
    rule = taint_rule({"device": "gpu-0"}, taint("example.com/reserve", "x", effect))
    for minute in range(5):
        at = NOW + minute * MINUTE
        book.ledger.report(report_of_taint_rule(rule, [DEVICE], RULES, at), at)
        assert of(book, DEVICE, at).score < 1.0
        book.ledger.vanish(ReporterId("DeviceTaintRule", "rule"), at + 1)
        assert of(book, DEVICE, at + 1) is SOUND


@pytest.mark.parametrize("key", ["example.com/odd", "gpu.nvidia.com/xid"])
def test_a_taint_of_the_driver_that_comes_and_goes_is_remembered(
    book: HealthBook, key: str
) -> None:
    for minute in range(2):
        at = NOW + minute * MINUTE
        book.ledger.report(report_of_slice(slice_(taint(key, "74")), RULES, at), at)
        book.ledger.report(report_of_slice(slice_(), RULES, at + 1), at + 1)
    assert "was until recently" in of(book, DEVICE, at + 1).evidence[0].evidence.text


def test_a_driver_that_asks_the_gpu_tells_a_crash_that_needs_a_reset_from_one_that_does_not(
    book: HealthBook,
) -> None:
    """As drivers after v0.5.0 do (dra-driver-nvidia-gpu#1441), whatever the XID."""
    xid = "gpu.nvidia.com/xid"
    book.ledger.report(report_of_slice(slice_(taint(xid, "119", "None")), RULES, NOW), NOW)
    assert (of(book, DEVICE, NOW).state, of(book, DEVICE, NOW).score) == (State.HEALTHY, 0.88)
    at = NOW + MINUTE
    book.ledger.report(report_of_slice(slice_(taint(xid, "31")), RULES, at), at)
    assert (of(book, DEVICE, at).state, of(book, DEVICE, at).score) == (State.UNHEALTHY, 0.25)
    at += HOUR
    book.ledger.report(report_of_slice(slice_(), RULES, at), at)
    assert of(book, DEVICE, at).state is State.HEALTHY


def test_a_rule_whose_key_is_known_as_a_fault_is_remembered(book: HealthBook) -> None:
    fault = taint("gaudi.intel.com/unhealthy", "CriticalError", "NoExecute")
    rule = taint_rule({"device": "gpu-0"}, fault)
    book.ledger.report(report_of_taint_rule(rule, [DEVICE], RULES, NOW), NOW)
    book.ledger.vanish(ReporterId("DeviceTaintRule", "rule"), NOW + 1)
    assert "was until recently" in of(book, DEVICE, NOW + 1).evidence[0].evidence.text


def test_a_reservation_does_not_hide_that_the_driver_s_taint_came_and_went(
    book: HealthBook,
) -> None:
    odd = taint("example.com/odd", "x", "NoSchedule")
    book.ledger.report(
        report_of_taint_rule(taint_rule({"device": "gpu-0"}, odd), [DEVICE], RULES, NOW), NOW
    )
    book.ledger.report(report_of_slice(slice_(odd), RULES, NOW), NOW)
    book.ledger.report(report_of_slice(slice_(), RULES, NOW + 1), NOW + 1)
    book.ledger.vanish(ReporterId("DeviceTaintRule", "rule"), NOW + 2)
    assert "was until recently" in of(book, DEVICE, NOW + 2).evidence[0].evidence.text


def test_a_thermal_and_a_link_fault_weigh_more_than_either(book: HealthBook) -> None:
    message = f"ErrorCode:X GPU_UUID:{UUID} x Recommended Action=NONE;"
    tell(
        book,
        node(
            condition("GpuThermalWatch", "True", "x", message),
            condition("GpuNvlinkWatch", "True", "x", message),
        ),
        NOW,
    )
    both = of(book, UnitId("gpu-1", "nvidia.com/gpu", UUID), NOW)
    assert (both.state, both.score) == (State.UNHEALTHY, 0.25)
    assert len(both.evidence) == 2


BOOTS = ("6e43a052-e544-467b-a972-63d7cd2ce80a", "7f11a052-e544-467b-a972-63d7cd2ce80b")


@pytest.mark.parametrize("xid", [63, 74, 79])
def test_what_gkes_plugin_said_is_over_with_the_reboot_and_stays_so(
    book: HealthBook, xid: int
) -> None:
    """It removes its condition some minutes after the node is back, and never sets it to False."""
    said = condition("XidCriticalError", "True", f'{{"{xid}":true}}', BOOTS[0], at=NOW)
    tell(book, node(said, boot=BOOTS[0]), NOW)
    assert of(book, NODE, NOW).score < 1.0
    tell(book, node(said, boot=BOOTS[1]), NOW + HOUR)
    back = of(book, NODE, NOW + HOUR)
    assert back.state is State.HEALTHY
    assert all(w.weight <= 0.05 or "was until recently" in w.evidence.text for w in back.evidence)
    tell(book, node(boot=BOOTS[1]), NOW + HOUR + 5 * MINUTE)
    assert of(book, NODE, NOW + HOUR + 5 * MINUTE).state is State.HEALTHY


@pytest.mark.parametrize("xid", [74, 79])
def test_a_condition_that_nobody_renews_after_a_reboot_is_over(book: HealthBook, xid: int) -> None:
    """The object does not say which boot it is about."""
    said = condition("XIDErrors", "True", "XIDErrors", f"XID {xid}", at=NOW)
    tell(book, node(said), NOW)
    assert of(book, NODE, NOW).state is not State.HEALTHY
    rebooted = NOW + HOUR
    tell(book, node(said, boot="boot-2"), rebooted)  # the monitor does not run yet
    assert of(book, NODE, rebooted).state is State.HEALTHY
    tell(book, node(boot="boot-2"), rebooted + 5 * MINUTE)
    assert of(book, NODE, rebooted + 5 * MINUTE).state is State.HEALTHY


def test_a_fault_that_outlasts_a_reboot_is_not_over_when_its_monitor_is_uninstalled(
    book: HealthBook,
) -> None:
    def said(at: float) -> dict[str, Any]:
        return condition("XIDErrors", "True", "XIDErrors", "XID 79", at=NOW, renewed_at=at)

    tell(book, node(said(NOW)), NOW)
    tell(book, node(said(NOW + HOUR), boot="boot-2"), NOW + HOUR)
    tell(book, node(boot="boot-2"), NOW + 24 * HOUR)
    assert of(book, NODE, NOW + 24 * HOUR).state is State.UNHEALTHY


def test_a_fault_that_came_after_the_reboot_is_not_over_when_its_monitor_is_uninstalled(
    book: HealthBook,
) -> None:
    tell(book, node(), NOW)
    tell(book, node(boot="boot-2"), NOW + HOUR)
    at = NOW + HOUR + MINUTE
    tell(book, node(condition("XIDErrors", "True", "x", "XID 79", at=at), boot="boot-2"), at)
    tell(book, node(boot="boot-2"), at + MINUTE)
    assert of(book, NODE, at + MINUTE).state is State.UNHEALTHY


def test_a_lighter_xid_after_a_heavy_one_does_not_free_a_node_of_eks(book: HealthBook) -> None:
    """Without anything remembered: the first thing that is read is the joined message."""
    message = "detected XID-79 on the instance, review; detected XID-63 on the instance, review"
    joined = condition("AcceleratedHardwareReady", "False", "NvidiaXID63Error", message)
    tell(book, node(joined), NOW)
    lost = of(book, DEVICE, NOW)
    assert (lost.state, lost.score) == (State.UNHEALTHY, 0.0)
    assert [w.evidence.text[:6] for w in lost.evidence] == ["XID 79", "XID 63"]


def test_power_smoothing_that_is_back_frees_the_gpu_in_whatever_order_it_is_told(
    book: HealthBook,
) -> None:
    """A driver has one taint per key, and a monitor may take the first entry back or not."""
    xid = "gpu.nvidia.com/xid"
    book.ledger.report(report_of_slice(slice_(taint(xid, "163")), RULES, NOW), NOW)
    assert of(book, DEVICE, NOW).state is State.UNHEALTHY
    at = NOW + MINUTE
    book.ledger.report(report_of_slice(slice_(taint(xid, "162", "None")), RULES, at), at)
    assert of(book, DEVICE, at).state is State.HEALTHY

    gpu = UnitId("gpu-1", "nvidia.com/gpu", UUID)
    entry = f"ErrorCode:{{}} GPU_UUID:{UUID} x Recommended Action={{}};"
    gone, back = entry.format(163, "COMPONENT_RESET"), entry.format(162, "NONE")
    tell(book, node(condition("SysLogsXIDError", "True", "x", gone)), NOW)
    assert of(book, gpu, NOW).state is State.UNHEALTHY
    for later, message in enumerate((gone + back, back)):
        at = NOW + later * MINUTE
        tell(book, node(condition("SysLogsXIDError", "True", "x", message)), at)
        assert of(book, gpu, at).state is State.HEALTHY


def test_a_monitor_without_its_source_makes_devices_unknown_and_refuses_nothing(
    book: HealthBook,
) -> None:
    tell(book, node(condition("AcceleratedHardwareReady", "False", "DCGMError", "no DCGM")), NOW)
    found = of(book, DEVICE, NOW)
    assert (found.state, found.score) == (State.UNKNOWN, 0.75)
    for policy in BUILT_IN.values():
        assert complaint(found, policy.placement) is None
    ready = condition("AcceleratedHardwareReady", "True", "NvidiaGPUIsReady")
    tell(book, node(ready), NOW + MINUTE)
    assert of(book, DEVICE, NOW + MINUTE).state is State.HEALTHY
