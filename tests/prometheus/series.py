"""For each shipped rule, series for which it must fire, and the nearest for which it must not."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

MINUTE, HOUR = 60.0, 3600.0

Shape = Callable[[float], float | None]
"""A value by how many seconds before the end it is; None while there is none."""


def steady(value: float) -> Shape:
    return lambda _: value


def growing(per_second: float, start: float = 1000.0) -> Shape:
    """A counter that has counted before, so that only its growth can matter."""
    return lambda ago: start - per_second * ago


def stepped(before: float, after: float, ago_s: float) -> Shape:
    return lambda ago: after if ago <= ago_s else before


def restarted(per_second: float, ago_s: float) -> Shape:
    """A counter that began again."""
    return lambda ago: per_second * (ago_s - ago) if ago <= ago_s else 5000 - per_second * ago


def began(value: float, ago_s: float) -> Shape:
    return lambda ago: value if ago <= ago_s else None


class Case(NamedTuple):
    """Series of one device that is faulty (0), and of five peers that are not."""

    faulty: Mapping[str, Shape]
    sound: Mapping[str, Shape]
    labels: Mapping[str, str] = {}


D = "DCGM_FI_DEV_"
LOAD = {f"{D}GPU_UTIL": steady(97)}
IDLE = {f"{D}GPU_UTIL": steady(0)}

FIRST_XIDS: Mapping[str, Case] = {
    rule: Case(
        {name: began(value, 5 * MINUTE), f"{D}GPU_TEMP": steady(50)},
        {name: began(value, 5 * MINUTE), f"{D}GPU_TEMP": began(50, 5 * MINUTE)},
        more,
    )
    for rule, name, value, more in (
        ("dcgm-xid", f"{D}XID_ERRORS", 79, {}),
        ("dcgm-xid-total", "DCGM_EXP_XID_ERRORS_TOTAL", 1, {"xid": "79"}),
    )
}
"""Series that begin with the first XID: of a GPU that was there before, and of others that were
not."""

CASES: Mapping[str, Case] = {
    "dcgm-ecc-uncorrectable": Case(
        {f"{D}ECC_DBE_VOL_TOTAL": stepped(3, 4, 4 * MINUTE)},
        {f"{D}ECC_DBE_VOL_TOTAL": steady(7)},
    ),
    "dcgm-ecc-correctable": Case(
        {f"{D}ECC_SBE_VOL_TOTAL": growing(1.0, 1e5)},
        {f"{D}ECC_SBE_VOL_TOTAL": growing(0.01)},
    ),
    "dcgm-row-remap-failed": Case(
        {f"{D}ROW_REMAP_FAILED": steady(1)}, {f"{D}ROW_REMAP_FAILURE": steady(0)}
    ),
    "dcgm-row-remap-pending": Case(
        {f"{D}ROW_REMAP_PENDING": steady(1)}, {f"{D}ROW_REMAP_PENDING": steady(0)}
    ),
    "dcgm-rows-remapped": Case(
        {f"{D}UNCORRECTABLE_REMAPPED_ROWS": steady(512)},
        {f"{D}UNCORRECTABLE_REMAPPED_ROWS": steady(511)},
    ),
    "dcgm-row-remapped-lately": Case(
        {f"{D}UNCORRECTABLE_REMAPPED_ROWS": stepped(2, 3, 2 * HOUR)},
        {f"{D}UNCORRECTABLE_REMAPPED_ROWS": steady(3)},
    ),
    "dcgm-pages-retired": Case(
        {f"{D}RETIRED_SBE": steady(50), f"{D}RETIRED_DBE": steady(13)},
        {f"{D}RETIRED_SBE": steady(50), f"{D}RETIRED_DBE": steady(12)},
    ),
    "dcgm-pages-retired-uncorrectable": Case(
        {f"{D}RETIRED_DBE": steady(16)}, {f"{D}RETIRED_DBE": steady(15)}
    ),
    "dcgm-page-retirement-pending": Case(
        {f"{D}RETIRED_PENDING": steady(1)}, {f"{D}RETIRED_PENDING": steady(0)}
    ),
    "dcgm-pcie-replay": Case(
        {f"{D}PCIE_REPLAY_TOTAL": growing(1.0, 1e6)},
        {f"{D}PCIE_REPLAY_COUNTER": restarted(0.4, 2 * MINUTE)},
    ),
    "dcgm-pcie-replay-by-generation": Case(
        {
            f"{D}PCIE_REPLAY_COUNTER": growing(0.2, 1e6),  # 12 a minute; generation 3 may have 8
            f"{D}PCIE_LINK_GEN": steady(3),
            f"{D}PCIE_LINK_WIDTH": steady(16),
        },
        {
            f"{D}PCIE_REPLAY_COUNTER": growing(0.2, 1e6),
            f"{D}PCIE_LINK_GEN": steady(4),
            f"{D}PCIE_LINK_WIDTH": steady(16),
        },
    ),
    "dcgm-pcie-width": Case(
        {f"{D}PCIE_LINK_WIDTH": steady(8), f"{D}PCIE_MAX_LINK_WIDTH": steady(16)},
        {f"{D}PCIE_LINK_WIDTH": steady(16), f"{D}PCIE_MAX_LINK_WIDTH": steady(16)},
    ),
    "dcgm-pcie-generation": Case(
        {f"{D}PCIE_LINK_GEN": steady(3), f"{D}PCIE_MAX_LINK_GEN": steady(5), **LOAD},
        {f"{D}PCIE_LINK_GEN": steady(1), f"{D}PCIE_MAX_LINK_GEN": steady(5), **IDLE},
    ),
    "dcgm-nvlink-replay": Case(
        {f"{D}NVLINK_REPLAY_ERROR_COUNT_TOTAL": stepped(4, 6, 5 * MINUTE)},
        {f"{D}NVLINK_REPLAY_ERROR_COUNT_TOTAL": steady(6)},
    ),
    "dcgm-nvlink-recovery": Case(
        {f"{D}NVLINK_RECOVERY_ERROR_COUNT_TOTAL": stepped(4, 6, 5 * MINUTE)},
        {f"{D}NVLINK_RECOVERY_ERROR_COUNT_TOTAL": steady(6)},
    ),
    "dcgm-nvlink-crc-flit": Case(
        {f"{D}NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": growing(150, 1e9)},
        {f"{D}NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": steady(9000)},
    ),
    "dcgm-nvlink-crc-data": Case(
        {f"{D}NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": growing(0.01)},
        {f"{D}NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": steady(9000)},
    ),
    "dcgm-thermal-violation": Case(
        {f"{D}THERMAL_VIOLATION": growing(0.4e9, 1e15)},
        {f"{D}THERMAL_VIOLATION": growing(0.05e9, 1e15)},
    ),
    "dcgm-power-violation": Case(
        {f"{D}POWER_VIOLATION": growing(0.9e9, 1e15)},
        {f"{D}POWER_VIOLATION": growing(0.4e9, 1e15)},
    ),
    "dcgm-clock-events": Case(
        {"DCGM_EXP_CLOCK_EVENTS_COUNT": steady(12)},
        {"DCGM_EXP_CLOCK_EVENTS_COUNT": steady(2)},
        {"clock_event": "hw_thermal"},
    ),
    "dcgm-clock-events-total": Case(
        {"DCGM_EXP_CLOCK_EVENTS_TOTAL": growing(0.05)},
        {"DCGM_EXP_CLOCK_EVENTS_TOTAL": growing(0.005)},
        {"clock_event": "sw_thermal"},
    ),
    "dcgm-temperature": Case(
        {f"{D}GPU_TEMP": steady(91), f"{D}SLOWDOWN_TEMP": steady(90)},
        {f"{D}GPU_TEMP": steady(88), f"{D}SLOWDOWN_TEMP": steady(90)},
    ),
    "dcgm-sm-clock": Case(
        {f"{D}SM_CLOCK": steady(1100), **LOAD}, {f"{D}SM_CLOCK": steady(1900), **LOAD}
    ),
    "dcgm-memory-clock": Case(
        {f"{D}MEM_CLOCK": steady(1500), **LOAD}, {f"{D}MEM_CLOCK": steady(2600), **LOAD}
    ),
    "dcgm-xid": Case(
        {f"{D}XID_ERRORS": stepped(31, 79, 20 * MINUTE)}, {f"{D}XID_ERRORS": steady(79)}
    ),
    "dcgm-xid-count": Case(
        {"DCGM_EXP_XID_ERRORS_COUNT": steady(2)},
        {"DCGM_EXP_XID_ERRORS_COUNT": steady(0)},
        {"xid": "48", "window_size_in_ms": "300000"},
    ),
    "dcgm-xid-total": Case(
        {"DCGM_EXP_XID_ERRORS_TOTAL": stepped(1, 2, 3 * MINUTE)},
        {"DCGM_EXP_XID_ERRORS_TOTAL": steady(2)},
        {"xid": "95"},
    ),
    "dcgm-health": Case(
        {"DCGM_EXP_GPU_HEALTH_STATUS": steady(20)},
        {"DCGM_EXP_GPU_HEALTH_STATUS": steady(0)},
        {"health_watch": "PCIE", "health_error_code": "DCGM_FR_PCI_REPLAY_RATE"},
    ),
    "amd-health": Case({"amd_gpu_health": steady(0)}, {"gpu_health": steady(1)}),
    "amd-ecc-uncorrectable": Case(
        {"gpu_ecc_uncorrect_total": stepped(1, 2, 10 * MINUTE)},
        {"gpu_ecc_uncorrect_total": steady(2)},
    ),
    "amd-ecc-correctable": Case(
        {"gpu_ecc_correct_total": growing(1.0, 1e5)}, {"gpu_ecc_correct_total": growing(0.01)}
    ),
    "amd-pcie-replay": Case(
        {"pcie_replay_count": growing(1.0, 1e6)}, {"pcie_replay_count": growing(0.4, 1e6)}
    ),
    "amd-pcie-speed": Case(
        {"pcie_speed": steady(16), "pcie_max_speed": steady(32), "gpu_gfx_activity": steady(95)},
        {"pcie_speed": steady(16), "pcie_max_speed": steady(32), "gpu_gfx_activity": steady(3)},
    ),
    "amd-thermal-violation": Case(
        {"gpu_violation_socket_thermal_residency_percentage": steady(40)},
        {"gpu_violation_socket_thermal_residency_percentage": steady(2)},
    ),
    "node-infiniband-down": Case(
        {"node_infiniband_link_downed_total": stepped(1, 3, 30 * MINUTE)},
        {"node_infiniband_link_downed_total": steady(3)},
        {"device": "mlx5_0", "port": "1"},
    ),
    "node-infiniband-recovery": Case(
        {"node_infiniband_link_error_recovery_total": growing(0.2)},
        {"node_infiniband_link_error_recovery_total": growing(0.01)},
        {"device": "mlx5_0", "port": "1"},
    ),
    "node-infiniband-symbols": Case(
        {"node_infiniband_symbol_error_total": growing(20, 1e9)},
        {"node_infiniband_symbol_error_total": growing(2, 1e9)},
        {"device": "mlx5_0", "port": "1"},
    ),
    "node-carrier-changes": Case(
        {"node_network_carrier_changes_total": growing(12 / HOUR)},
        {"node_network_carrier_changes_total": growing(1 / HOUR)},
        {"device": "ens1f0"},
    ),
    "node-temperature": Case(
        {"node_hwmon_temp_celsius": steady(101), "node_hwmon_temp_crit_celsius": steady(100)},
        {"node_hwmon_temp_celsius": steady(70), "node_hwmon_temp_crit_celsius": steady(0)},
        {"chip": "platform_coretemp_0", "sensor": "temp1"},
    ),
    "node-processor-throttled": Case(
        {"node_cpu_package_throttles_total": growing(5, 1e6)},
        {"node_cpu_package_throttles_total": growing(0.1)},
        {"package": "0"},
    ),
    "node-memory-uncorrectable": Case(
        {"node_edac_uncorrectable_errors_total": stepped(0, 1, 20 * MINUTE)},
        {"node_edac_uncorrectable_errors_total": steady(4)},
        {"controller": "0"},
    ),
}


def device_labels(rule: str, number: int) -> dict[str, str]:
    """The labels of one of the six devices of a rule's case. They are on a node of that name, and
    peers of each other only; of node_exporter, each is a node of its own."""
    if rule.startswith("node-"):
        return {"instance": f"{rule}-{number}:9100", "job": "node", "node": f"{rule}-{number}"}
    if rule.startswith("amd-"):
        return {"gpu_id": str(number), "hostname": rule, "card_model": rule}
    return {
        "gpu": str(number),
        "UUID": f"GPU-{rule}-{number}",
        "hostname" if number % 2 else "Hostname": rule,
        "modelName": rule,
    }
