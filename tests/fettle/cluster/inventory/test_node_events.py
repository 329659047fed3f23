"""Events about Nodes: warnings of monitors that make no condition."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.api.meta import rfc3339_at
from fettle.cluster.inventory.kept_events import FORGOTTEN_AFTER_S, MOST_OF_ONE_NODE, MOST_UNITS
from fettle.health import load_rules
from fettle.model import State
from tests.fettle.cluster.inventory.fleets import Fleet, node

UUID = "GPU-11111111-2222-3333-4444-555555555555"
GPUS = {"nvidia.com/gpu": "8"}
HOUR = 3600.0

# As eks-node-monitoring-agent writes them: pkg/manager/node_exporter.go, func Warning, and
# monitors/nvidia/monitor.go (commit 51af549)
EKS = "AcceleratedHardwareReady"
HOT = "NvidiaThermalError: detected GPU thermals outside of thresholds with severity code 1"
POWER = "NvidiaPowerError: detected power usage outside of thresholds with severity code 412"
CODE = "DCGMHealthCode{0}: DCGM detected issues in health check system with error code {0}"
XID = (
    "NvidiaXID{0}Warning: detected unknown XID-{0} on the instance, review kernel logs for "
    "additional information."
)


def event(
    reason: str,
    message: str = "",
    *,
    at: float,
    on: str = "n",
    name: str = "n.1",
    namespace: str = "default",
) -> Any:
    return {
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": rfc3339_at(at)},
        "involvedObject": {"kind": "Node", "name": on},
        "reason": reason,
        "message": message,
        "lastTimestamp": rfc3339_at(at),
    }


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    for name in "nm":
        fleet.put(kinds.NODE, node(name, status={"capacity": GPUS, "allocatable": GPUS}))
    return fleet


def score(fleet: Fleet, name: str = "n") -> float:
    return fleet.look().nodes[name].health.score


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        (EKS, HOT, 0.7),
        (EKS, XID.format(31), 1.0),
        (EKS, XID.format(94), 0.9),
        (EKS, XID.format(79), 0.65),  # no more than its namespace may take
        (EKS, CODE.format(3), 0.9),
        (EKS, CODE.format(122), 1.0),
        (EKS, POWER, 1.0),
        (EKS, "NvidiaFutureWarning: something", 1.0),
        ("Starting", "Starting kubelet.", 1.0),
        ("GpuThermalWatchIsHealthy", "No Health Failures", 1.0),
    ],
)
def test_a_warning_that_a_rule_names_lowers_its_node_within_bounds(
    fleet: Fleet, reason: str, message: str, expected: float
) -> None:
    fleet.put(kinds.NODE_EVENT, event(reason, message, at=fleet.now))
    assert score(fleet) == expected
    health = fleet.view.nodes["n"].health
    assert (health.proven, health.state, score(fleet, "m")) == (1.0, State.HEALTHY, 1.0)


def test_an_event_that_is_no_warning_counts_for_nothing(fleet: Fleet) -> None:
    fleet.put(kinds.NODE_EVENT, {**event(EKS, HOT, at=fleet.now), "type": "Normal"})
    assert score(fleet) == 1.0
    fleet.put(kinds.NODE_EVENT, {**event(EKS, HOT, at=fleet.now), "type": "Warning"})
    assert score(fleet) == 0.7


def test_gkes_event_of_an_xid_is_read_from_its_plugin_only(fleet: Fleet) -> None:
    said = event("XIDError", "Caught XID error, XID=63", at=fleet.now)
    fleet.put(kinds.NODE_EVENT, said)
    assert score(fleet) == 1.0
    fleet.put(kinds.NODE_EVENT, {**said, "source": {"component": "nvidia-gpu-device-plugin"}})
    assert score(fleet) == 0.9


def test_the_drivers_own_line_is_read_whatever_the_reason_is_and_not_from_ourselves(
    fleet: Fleet,
) -> None:
    line = "kernel: NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus."
    said = event("KernelOops", line, at=fleet.now)
    ours = {"reportingComponent": "fettle.dev/scheduler-extender"}
    fleet.put(kinds.NODE_EVENT, {**said, **ours})
    assert fleet.look().nodes["n"].plugins["nvidia.com/gpu"].units == ()
    fleet.put(kinds.NODE_EVENT, said)
    (unit,) = fleet.look().nodes["n"].plugins["nvidia.com/gpu"].units
    assert (unit.unit, unit.health.score, unit.health.proven) == ("pci:0000:c1:00.0", 0.65, 1.0)
    fleet.put(kinds.NODE_EVENT, event("KernelOops", "XID 79 here", at=fleet.now, on="m", name="m"))
    assert score(fleet, "m") == 1.0


def test_nvsentinels_warning_is_about_the_device_that_it_names(fleet: Fleet) -> None:
    said = f"ErrorCode:DCGM_FR_PCI_REPLAY_RATE GPU_UUID:{UUID} replays Recommended Action=NONE;"
    fleet.put(kinds.NODE_EVENT, event("GpuPcieWatchIsNotHealthy", said, at=fleet.now))
    assert score(fleet) == 1.0
    (unit,) = fleet.view.nodes["n"].plugins["nvidia.com/gpu"].units
    assert (unit.unit, unit.health.score) == (UUID, 0.85)


def test_it_counts_once_however_often_it_is_repeated_and_fades_once_it_is_gone(
    fleet: Fleet,
) -> None:
    for _ in range(20):
        fleet.now += 300.0
        fleet.put(kinds.NODE_EVENT, event(EKS, HOT, at=fleet.now))
    assert score(fleet) == 0.7
    fleet.inventory.remove(kinds.NODE_EVENT, "default/n.1", fleet.now)
    fleet.now += HOUR
    assert 0.7 < score(fleet) < 1.0
    fleet.now += 400 * HOUR
    assert score(fleet) == 1.0


def test_one_that_a_new_list_does_not_name_is_gone(fleet: Fleet) -> None:
    fleet.put(kinds.NODE_EVENT, event(EKS, HOT, at=fleet.now))
    fleet.inventory.begin_list(kinds.NODE_EVENT)
    fleet.inventory.end_list(kinds.NODE_EVENT, fleet.now)
    fleet.now += 400 * HOUR
    assert score(fleet) == 1.0


def test_an_old_one_in_a_snapshot_has_faded_by_its_age(fleet: Fleet) -> None:
    fleet.put(kinds.EVENT, event(EKS, HOT, at=fleet.now - 3 * HOUR))
    assert 0.7 < score(fleet) < 1.0


def test_two_of_one_namespace_are_one_word(fleet: Fleet) -> None:
    for number, said in enumerate((HOT, "NvidiaPCIeError: detected 12 PCIe replays")):
        fleet.put(kinds.NODE_EVENT, event(EKS, said, at=fleet.now, name=f"n.{number}"))
    assert score(fleet) >= 0.4


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=80), st.booleans()), max_size=8))
def test_whatever_an_event_says_nothing_breaks_and_nothing_is_proven(
    said: list[tuple[str, str, bool]],
) -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    for number, (reason, message, known) in enumerate(said):
        reason, message = (EKS, XID.format(79)) if known else (reason, message)
        fleet.put(kinds.NODE_EVENT, event(reason, message, at=fleet.now, name=f"n.{number}"))
    assert score(fleet) >= 0.4 - 1e-9
    assert fleet.view.nodes["n"].health.proven == 1.0


LINE = "kernel: NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("namespace", "counts"),
    [("default", True), ("kube-system", True), ("tenant", False), ("nvsentinel", False)],
)
@pytest.mark.parametrize(("reason", "message"), [(EKS, HOT), ("KernelOops", LINE)])
def test_an_event_counts_only_from_where_events_about_nodes_are(
    fleet: Fleet, namespace: str, counts: bool, reason: str, message: str
) -> None:
    fleet.put(kinds.NODE_EVENT, event(reason, message, at=fleet.now, namespace=namespace))
    assert (score(fleet) < 1.0 or bool(named(fleet))) is counts


def test_a_row_may_name_the_namespace_of_its_monitor(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "events: [{name: mine, reason: GpuFan*, family: thermal, weight: 0.25, source: us,"
        " namespaces: [monitoring]}]"
    )
    fleet = Fleet(rules=load_rules(rules))
    fleet.put(kinds.NODE, node("n", status={"capacity": GPUS, "allocatable": GPUS}))
    for namespace, expected in (("default", 1.0), ("monitoring", 0.75)):
        fleet.put(kinds.NODE_EVENT, event("GpuFanSlow", at=fleet.now, namespace=namespace))
        assert score(fleet) == expected


def test_a_number_of_nvsentinel_is_no_error_code_of_dcgm(tmp_path: Path) -> None:
    """DCGM's 122 weighs nothing; NVSentinel writes DCGM's codes by name and XIDs by number."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "events: [{name: mine, reason: Gpu*, family: driver, weight: 0.15, source: us,"
        " format: nvsentinel}]"
    )
    fleet = Fleet(rules=load_rules(rules))
    fleet.put(kinds.NODE, node("n", status={"capacity": GPUS, "allocatable": GPUS}))
    for code, expected in (("122", 0.85), ("DCGM_FR_IMEX_UNHEALTHY", 1.0)):
        said = f"ErrorCode:{code} GPU_UUID:{UUID} x Recommended Action=NONE;"
        fleet.put(kinds.NODE_EVENT, event("GpuWatch", said, at=fleet.now))
        fleet.look()
        (unit,) = fleet.view.nodes["n"].plugins["nvidia.com/gpu"].units
        assert unit.health.score == expected


def named(fleet: Fleet) -> list[str]:
    return [unit.unit for unit in fleet.look().nodes["n"].plugins["nvidia.com/gpu"].units]


def flood(fleet: Fleet, *, deleted: bool) -> None:
    for i in range(1000):
        said = event("FanIsNotHealthy", f"GPU:{i} slow", at=fleet.now, name=f"n.{i}")
        fleet.put(kinds.NODE_EVENT, said)
        if deleted:
            fleet.inventory.remove(kinds.NODE_EVENT, f"default/n.{i}", fleet.now)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_flood_of_events_names_few_units_of_a_node(fleet: Fleet, deleted: bool) -> None:
    flood(fleet, deleted=deleted)
    assert 0 < len(named(fleet)) <= MOST_UNITS
    said = event("FanIsNotHealthy", "GPU:0 slow", at=fleet.now, name="again")
    fleet.put(kinds.NODE_EVENT, said)
    assert "index:0" in named(fleet), "what was named before goes on to count"


def test_a_day_after_a_flood_other_units_count_again(fleet: Fleet) -> None:
    flood(fleet, deleted=True)
    fleet.now += FORGOTTEN_AFTER_S
    fleet.put(kinds.NODE_EVENT, event("FanIsNotHealthy", "GPU:7777 slow", at=fleet.now))
    assert "index:7777" in named(fleet)


def test_events_that_give_way_leave_no_trace(fleet: Fleet) -> None:
    """They are about the node, so each would add to what the others said."""
    for i in range(MOST_OF_ONE_NODE + 5):
        reason = f"Fan{i}IsNotHealthy"
        fleet.put(kinds.NODE_EVENT, event(reason, "GPU:3 slow", at=fleet.now, name=f"n.{i}"))
    before = score(fleet)
    fleet.put(kinds.NODE_EVENT, event("FanIsNotHealthy", "GPU:3 slow", at=fleet.now, name="n.last"))
    assert score(fleet) == before
