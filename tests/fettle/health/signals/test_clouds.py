"""What clouds and their tools say of Nodes, in the forms in which they write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fettle.api import kinds
from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.rule_files import load_rules
from fettle.model import SOUND, EvidenceKind, Family, Source, SourceKind, UnitId
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.cluster.inventory.test_unit_placement import gpu, mig, slice_
from tests.fettle.health.incidents import HOUR
from tests.fettle.health.signals.objects import NOW, condition, node
from tests.fettle.health.signals.reading import NODE, only, report

RULES = load_rules()


@pytest.mark.parametrize(
    ("type_", "reason", "family", "weight"),
    [
        ("NeuronHealth", "NeuronHasError_HBM_UNCORRECTABLE_ERROR", Family.MEMORY, 0.9),
        ("NeuronHealth", "NeuronHasError_SRAM_UNCORRECTABLE_ERROR", Family.MEMORY, 0.9),
        ("NeuronHealth", "NeuronHasError_NC_UNCORRECTABLE_ERROR", Family.DRIVER, 0.9),
        ("NeuronHealth", "NeuronHasError_DMA_ERROR", Family.DRIVER, 0.75),
        ("NeuronHealth", "NeuronHasError_HANG_ON_COLLECTIVES", Family.LINK, 0.3),
        ("NeuronHealth", "NeuronHasError_OF_TOMORROW", Family.DRIVER, 0.75),
        ("HardwareIssuesSuspected", "GPUHealthCheckFailedSoperator", Family.DRIVER, 0.75),
        ("SoperatorChecksNodeDegraded", "NodeNeedReboot", Family.NODE, 0.75),
        ("SoperatorChecksNodeMaintenance", "NodeDraining", Family.MAINTENANCE, 0.5),
        ("SlurmNodeDrain", "NodeNeedDrain", Family.MAINTENANCE, 0.5),
        ("SlurmNodeReboot", "NodeNeedReboot", Family.MAINTENANCE, 0.5),
        ("PendingPhaseState", "production-reboot", Family.MAINTENANCE, 0.5),
        ("GPUECCRemapFailure", "x", Family.MEMORY, 0.9),
        ("GPUECCRemapPending", "x", Family.MEMORY, 0.3),
        ("GPUECCSingleVolatileRate", "x", Family.MEMORY, 0.1),
        ("GPUThrottle", "x", Family.THERMAL, 0.1),
        ("NVLinkB200Inactive", "x", Family.LINK, 0.5),
        ("IBLinkDown", "x", Family.LINK, 0.5),
        ("RoCELinkIssue", "x", Family.LINK, 0.5),
        ("XIDError79", "x", Family.BUS, 1.0),
        ("XIDError63", "x", Family.MEMORY, 0.1),
        ("XIDError119", "x", Family.DRIVER, 1.0),
        ("XIDError31", "XID_ERR_31", Family.DRIVER, 0.0),
        ("GPUDriverProblem", "x", Family.DRIVER, 0.1),
    ],
)
def test_true_is_a_fault_and_false_an_all_clear(
    type_: str, reason: str, family: Family, weight: float
) -> None:
    bad = only(report(condition(type_, "True", reason)))
    assert (bad.subject, bad.family, bad.weight) == (NODE, family, weight)
    good = report(condition(type_, "False", "NeuronHasNoError"))
    assert good.evidence == ()
    assert Source(SourceKind.CONDITION, type_) in good.settled


@pytest.mark.parametrize("type_", ["UnhealthyNvidiaDCGMServices", "DcgmExporterUnavailable"])
def test_a_monitor_in_trouble_says_only_that_nothing_is_known(type_: str) -> None:
    assert only(report(condition(type_, "True"))).kind is EvidenceKind.UNKNOWN


PREDICTED = "gke.google.com/recommended-to-run-large-training-workload"
HYPERPOD = "sagemaker.amazonaws.com/node-health-status"
SCHEDULED = "cloud.google.com/scheduled-maintenance-time"


@pytest.mark.parametrize(
    ("key", "value", "weight"),
    [
        (PREDICTED, "true", None),
        (PREDICTED, "True", None),
        (PREDICTED, "false", 0.25),
        ("gke.io/recommended-to-run-large-training-workload", "False", 0.25),
        (SCHEDULED, str(int(NOW + 30 * 24 * HOUR)), 0.0),
        (SCHEDULED, str(int(NOW + 23 * HOUR)), 0.3),
        (SCHEDULED, str(int(NOW - HOUR)), 0.3),
        (SCHEDULED, str(int(NOW - 25 * HOUR)), None),
        (SCHEDULED, "2026-09-21T20", 0.3),
        (SCHEDULED, "20260921T200000Z", 0.3),
        (SCHEDULED, "20261221T200000Z", 0.0),
        ("cloud.google.com/active-node-maintenance", "ONGOING", 0.75),
        ("node.coreweave.cloud/state", "production", None),
        ("node.coreweave.cloud/state", "triage", 0.5),
        ("node.coreweave.cloud/state", "", None),
        (HYPERPOD, "Schedulable", None),
        (HYPERPOD, "Unschedulable", 0.5),
        (HYPERPOD, "UnschedulablePendingReboot", 0.9),
        (HYPERPOD, "UnschedulablePendingReplacement", 1.0),
        ("sagemaker.amazonaws.com/deep-health-check-status", "Passed", None),
        ("sagemaker.amazonaws.com/deep-health-check-status", "Failed", 0.9),
    ],
)
def test_a_label_counts_by_its_value(key: str, value: str, weight: float | None) -> None:
    said = report_of_node(node(labels={key: value}), RULES, NOW)
    assert [evidence.weight for evidence in said.evidence] == ([] if weight is None else [weight])
    assert said.unknown_signals == ()


@pytest.mark.parametrize("value", ["nan", "soon", "", "9" * 40, "-1", "1e9", "99999-01-01"])
def test_a_time_that_cannot_be_read_counts_for_nothing_and_is_listed(value: str) -> None:
    said = report_of_node(node(labels={SCHEDULED: value}), RULES, NOW)
    assert said.evidence == ()
    (listed,) = said.unknown_signals
    assert (listed.type, listed.status) == (f"label {SCHEDULED}", value)


@pytest.mark.parametrize(
    ("kind", "current", "expected", "weight"),
    [
        ("gpu", "7", "8", 0.1),
        ("gpu", "8", "8", None),
        ("gpu", "9", "8", None),
        ("gpu", "10", "9", None),
        ("gpu", "7", None, None),
        ("gpu", "seven", "8", None),
        ("nic", "7", "8", 0.3),
    ],
)
def test_fewer_devices_than_nvsentinel_expects_count(
    kind: str, current: str, expected: str | None, weight: float | None
) -> None:
    key = f"nvsentinel.dgxc.nvidia.com/{kind}.count"
    labels = {f"{key}.current": current}
    if expected is not None:
        labels[f"{key}.expected"] = expected
    said = report_of_node(node(labels=labels), RULES, NOW)
    assert [evidence.weight for evidence in said.evidence] == ([] if weight is None else [weight])
    assert all(f"less than {key}.expected=8" in evidence.text for evidence in said.evidence)


def test_of_a_maintenance_it_is_said_when_it_is() -> None:
    said = report_of_node(node(labels={SCHEDULED: "1733083200"}), RULES, 1733080000.0)
    assert only(said).text == f"label {SCHEDULED}=1733083200: 2024-12-01T20:00:00Z"


def cordoning(*uuids: str, apart: str = ",") -> dict[str, Any]:
    annotations = {"hami.io/device-cordon": apart.join(uuids)}
    units = {"nvidia.com/gpu": "8"}
    return {
        "metadata": {"name": "n", "annotations": annotations},
        "status": {"capacity": units, "allocatable": units},
    }


def test_a_gpu_that_is_cordoned_for_hami_is_held_and_the_others_are_not() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, cordoning(" GPU-u0", "", "GPU-u2 ", apart=" ,"))
    seen = fleet.look().nodes["n"]
    held = {unit.unit: unit for unit in seen.plugins["nvidia.com/gpu"].units}
    assert {name: unit.health.held for name, unit in held.items()} == {
        "GPU-u0": True,
        "GPU-u2": True,
    }
    assert not any(unit.withdrawn for unit in held.values())
    assert seen.health is SOUND
    fleet.put(kinds.NODE, cordoning())
    units = fleet.look().nodes["n"].plugins["nvidia.com/gpu"].units
    assert {unit.health for unit in units} == {SOUND}


@pytest.mark.parametrize(
    "value", ['["GPU-u0", "GPU-u2"]', '{"GPU-u0": true}', "Ascend910B-0", "0,1", "all"]
)
def test_what_hami_cannot_read_as_uuids_of_gpus_is_no_unit_and_is_listed(value: str) -> None:
    said = report_of_node(node(annotations={"hami.io/device-cordon": value}), RULES, NOW)
    assert said.evidence == ()
    assert [one.type for one in said.unknown_signals] == ["annotation hami.io/device-cordon"]


def test_a_cordon_for_hami_reaches_the_dra_device_and_its_parts() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, cordoning("GPU-u0"))
    fleet.put(kinds.SLICE, slice_(gpu(0), gpu(1), mig(2, 0), mig(3, 1)))
    (pool,) = fleet.look().nodes["n"].pools
    assert [device.health.held for device in pool.devices] == [True, False, True, False]


def test_a_cordon_for_hami_names_gpus_of_its_own_node_only() -> None:
    said = only(report_of_node(node(annotations={"hami.io/device-cordon": "GPU-1"}), RULES, NOW))
    assert said.subject == UnitId("gpu-1", "nvidia.com/gpu", "GPU-1")


@pytest.mark.parametrize(
    ("labels", "listed"),
    [
        ({"nvidia.com/gpu.product": "H100", "nvidia.com/gpu.count": "8"}, []),
        ({"nvidia.com/cuda.driver.major": "580", "nvidia.com/mig.strategy": "none"}, []),
        ({"cloud.google.com/gke-nodepool": "a", "kubernetes.azure.com/agentpool": "b"}, []),
        ({"nvidia.com/health": "bad"}, ["label nvidia.com/health=bad"]),
        ({"gpu.nebius.com/state": "odd"}, ["label gpu.nebius.com/state=odd"]),
        ({"autopilot.ibm.com/dcgm.level.3": "ERR"}, ["label autopilot.ibm.com/dcgm.level.3=ERR"]),
        ({"autopilot.ibm.com/gpuhealth": "PASS"}, []),
        # what tells of health is never a description, whatever else the vendor describes so
        ({"nvidia.com/gpu.health": "bad"}, ["label nvidia.com/gpu.health=bad"]),
        ({"gpu.nvidia.com/isFaulty": "yes"}, ["label gpu.nvidia.com/isFaulty=yes"]),
        ({"nvidia.com/vgpu.default-config": "x"}, []),
        ({"cloud.google.com/gke-gpu-health": "x"}, ["label cloud.google.com/gke-gpu-health=x"]),
        ({"amd.com/gpu.health": "x"}, ["label amd.com/gpu.health=x"]),
        (
            {"metricsexporter.amd.com.gpu.0.fault": "x"},
            ["label metricsexporter.amd.com.gpu.0.fault=x"],
        ),
        ({"nebius.com/gpu-health": "x"}, ["label nebius.com/gpu-health=x"]),
        ({"hami.io/node-unhealthy": "x"}, ["label hami.io/node-unhealthy=x"]),
        ({"node.gke.io/maintenance": "x"}, ["label node.gke.io/maintenance=x"]),
        ({"gpu.coreweave.cloud/drain": "x"}, ["label gpu.coreweave.cloud/drain=x"]),
        ({"slurm.nebius.ai/node-degraded": "x"}, ["label slurm.nebius.ai/node-degraded=x"]),
        ({"slurm.nebius.ai/nodeset-name": "worker", "slurm.nebius.ai/workload": "gpu"}, []),
        (
            {
                "k8saas.nvidia.com/cordon-by": "NVSentinel",
                "cloud.google.com/perform-maintenance": "x",
            },
            [],
        ),
    ],
)
def test_labels_of_vendors_that_no_row_names_are_listed_unless_they_only_describe(
    labels: dict[str, str], listed: list[str]
) -> None:
    said = report_of_node(node(labels=labels), RULES, NOW)
    assert said.evidence == ()
    assert [f"{one.type}={one.status}" for one in said.unknown_signals] == listed


@pytest.mark.parametrize(
    ("key", "sound", "new"),
    [
        ("autopilot.ibm.com/gpuhealth", ["PASS"], "FAIL"),
        ("dgxc.nvidia.com/nvsentinel-state", [], "awaiting-field-engineer"),
        ("sagemaker.amazonaws.com/node-health-status", ["Schedulable"], "UnschedulableBroken"),
        ("sagemaker.amazonaws.com/deep-health-check-status", ["Passed", "InProgress"], "Timeout"),
        ("cloud.google.com/active-node-maintenance", [], "PENDING"),
        ("metricsexporter.amd.com.gpu.3.state", ["healthy"], "degraded"),
        ("gke.google.com/recommended-to-run-large-training-workload", ["true"], "maybe"),
        ("node.coreweave.cloud/state", ["production"], ""),
    ],
)
def test_a_value_that_no_row_of_a_known_label_knows_is_listed(
    key: str, sound: list[str], new: str
) -> None:
    for value in sound:
        assert report_of_node(node(labels={key: value}), RULES, NOW).unknown_signals == ()
    said = report_of_node(node(labels={key: new}), RULES, NOW)
    assert said.evidence == ()
    listed = [(one.type, one.status) for one in said.unknown_signals]
    assert listed == ([(f"label {key}", new)] if new else [])


def test_other_values_of_a_label_of_ones_own_are_all_clears_unless_sound_ones_are_named(
    tmp_path: Path,
) -> None:
    own = tmp_path / "rules.yaml"
    row = "  - {{name: {0}, key: example.com/{0}, value: bad, weight: 0.5, source: ours{1}}}\n"
    own.write_text("labels:\n" + row.format("a", "") + row.format("b", ", sound: [ok]"))
    rules = load_rules(own)
    said = report_of_node(node(labels={"example.com/a": "odd", "example.com/b": "ok"}), rules, NOW)
    assert said.unknown_signals == ()
    said = report_of_node(node(labels={"example.com/b": "odd"}), rules, NOW)
    assert [one.type for one in said.unknown_signals] == ["label example.com/b"]


def test_annotations_of_vendors_are_listed_without_their_values() -> None:
    annotations = {
        "nvidia.com/last-fault": "x" * 9000,
        "hami.io/node-nvidia-register": "[]",
        "example.com/a": "b",
    }
    said = report_of_node(node(annotations=annotations), RULES, NOW)
    assert [(one.type, one.status) for one in said.unknown_signals] == [
        ("annotation nvidia.com/last-fault", "set")
    ]


@pytest.mark.parametrize(
    ("type_", "message", "heaviest"),
    [
        # Azure/TauGrid charts/gpu-monitoring, scripts
        ("GPUThrottle", "Warning: GPU 0 throttled, reason=0x0000000000000002", 0.1),
        ("GPUThrottle", "Warning: GPU 0 throttled, reason=0x0000000000000040", 0.5),
        ("GPUThrottle", "Warning: GPU 0 throttled, reason=0x0000000000000008", 0.5),
        ("GPUDriverProblem", "'CreateImexChannel0' is 0 (expected 1 for this profile)", 0.1),
        ("GPUDriverProblem", "'nvidia' driver not loaded", 0.75),
        # karpenter-provider-azure, as AKS's node-problem-detector writes
        ("VMEventScheduled", "Freeze Scheduled: Mon, 02 Mar 2026 19:01:45 GMT.", 0.3),
        ("VMEventScheduled", "Preempt Scheduled: Mon, 02 Mar 2026 19:01:45 GMT.", 0.75),
        ("XIDErrors", "XID error-codes found: 48, 56. FaultCode: NHC2001", 1.0),
    ],
)
def test_what_a_check_found_decides_and_not_that_it_found_something(
    type_: str, message: str, heaviest: float
) -> None:
    found = report(condition(type_, "True", type_, message))
    assert max(one.weight for one in found.evidence) == heaviest
