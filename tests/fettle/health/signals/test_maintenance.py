"""Work on nodes that is planned or under way, in the forms in which its producers write it."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.rule_rows import AnnotationRow, ConditionRow, LabelRow
from fettle.model import SOUND, EvidenceKind, Family, State
from tests.fettle.health.incidents import HOUR, MINUTE, NODE, RULES, of, tell
from tests.fettle.health.signals.objects import NOW, condition, node, stamp
from tests.fettle.health.signals.reading import only, report

DRIVER_UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
SCHEDULED = "cloud.google.com/scheduled-maintenance-time"
PAUSED = "paused-for-driver-upgrade"


@pytest.mark.parametrize(
    ("type_", "weight", "begins_in_s"),
    [
        ("MaintenancePlanned", 0.15, 3600.0),
        ("MaintenanceInProgress", 0.65, None),
        ("DrainInProgress", 0.65, None),
        ("Drained", 0.15, 0.0),
        ("GracefulNodeShutdownInProgress", 0.65, None),
    ],
)
def test_a_lifecycle_condition_counts_while_it_is_true(
    type_: str, weight: float, begins_in_s: float | None
) -> None:
    found = only(report(condition(type_, "True", "AdminRequested")))
    assert (found.family, found.weight) == (Family.MAINTENANCE, weight)
    assert found.begins_in_s == begins_in_s
    assert found.planned
    for status in ("False", "Unknown"):
        said = report(condition(type_, status, "AdminRequested"))
        assert (said.evidence, said.unknown_signals) == ((), ())


@pytest.mark.parametrize(
    ("at", "begins_in_s"),
    [
        (format_datetime(datetime.fromtimestamp(NOW + 5 * HOUR, UTC), usegmt=True), 5 * HOUR),
        (format_datetime(datetime.fromtimestamp(NOW - HOUR, UTC), usegmt=True), 0.0),
        ("", 0.0),
        ("soon", 0.0),
        ("Mon, 99 Mar 2026 19:01:45 GMT", 0.0),
        ("Mon, 02 Mar 0000 19:01:45 GMT", 0.0),
    ],
)
def test_aks_says_in_its_message_when_a_machine_is_rebooted(at: str, begins_in_s: float) -> None:
    said = f"Reboot Scheduled: {at}. DurationInSeconds: -1. For more information, see x"
    found = only(report(condition("VMEventScheduled", "True", "VMEventScheduled", said)))
    assert (found.planned, found.begins_in_s, found.weight) == (True, begins_in_s, 0.3)


@pytest.mark.parametrize(
    ("key", "value", "weight"),
    [
        (DRIVER_UPGRADE, "upgrade-required", None),
        (DRIVER_UPGRADE, "cordon-required", 0.65),
        (DRIVER_UPGRADE, "wait-for-jobs-required", 0.65),
        (DRIVER_UPGRADE, "pod-deletion-required", 0.65),
        (DRIVER_UPGRADE, "drain-required", 0.65),
        (DRIVER_UPGRADE, "node-maintenance-required", 0.65),
        (DRIVER_UPGRADE, "post-maintenance-required", 0.65),
        (DRIVER_UPGRADE, "pod-restart-required", 0.65),
        (DRIVER_UPGRADE, "validation-required", 0.65),
        (DRIVER_UPGRADE, "uncordon-required", None),
        (DRIVER_UPGRADE, "upgrade-done", None),
        (DRIVER_UPGRADE, "upgrade-failed", 0.5),
        ("nvidia.com/gpu.deploy.device-plugin", "true", None),
        ("nvidia.com/gpu.deploy.device-plugin", PAUSED, 0.65),
        ("nvidia.com/gpu.deploy.dcgm", "paused-for-mig-change", 0.65),
        ("nvidia.com/mig.config.state", "success", None),
        ("nvidia.com/mig.config.state", "pending", 0.65),
        ("nvidia.com/mig.config.state", "rebooting", 0.65),
        ("nvidia.com/mig.config.state", "failed", 0.1),
        ("dcm.amd.com/gpu-config-profile-state", "success", None),
        ("dcm.amd.com/gpu-config-profile-state", "failure", 0.1),
    ],
)
def test_nvidias_operators_say_in_labels_what_they_do_to_a_node(
    key: str, value: str, weight: float | None
) -> None:
    said = report_of_node(node(labels={key: value}), RULES, NOW)
    assert [evidence.weight for evidence in said.evidence] == ([] if weight is None else [weight])
    assert said.unknown_signals == ()


def test_a_state_of_an_upgrade_that_no_row_knows_is_listed() -> None:
    said = report_of_node(node(labels={DRIVER_UPGRADE: "rollback-needed"}), RULES, NOW)
    assert said.evidence == ()
    assert [one.type for one in said.unknown_signals] == [f"label {DRIVER_UPGRADE}"]


def test_components_that_are_all_paused_are_one_piece_of_evidence() -> None:
    labels = {f"nvidia.com/gpu.deploy.{part}": PAUSED for part in ("dcgm", "driver", "nvsm")}
    assert only(report_of_node(node(labels=labels), RULES, NOW)).weight == 0.65


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("weave.works/kured-reboot-in-progress", "2026-09-21T04:58:47Z"),
        ("kured.dev/kured-reboot-in-progress", "2026-09-21T04:58:47Z"),
        ("machineconfiguration.openshift.io/state", "Working"),
        ("flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress", "true"),
    ],
)
def test_reboots_and_updates_of_an_operating_system_are_read_from_annotations(
    annotation: str, value: str
) -> None:
    found = only(report_of_node(node(annotations={annotation: value}), RULES, NOW))
    assert (found.family, found.planned, found.begins_in_s) == (Family.MAINTENANCE, True, None)


@pytest.mark.parametrize(
    ("at", "weight", "begins_in_s"),
    [
        (NOW + 72 * HOUR, 0.0, 72 * HOUR),
        (NOW + 23 * HOUR + 9 * MINUTE, 0.3, 23 * HOUR),
        (NOW + 9 * MINUTE, 0.3, 0.0),
        (NOW - HOUR, 0.3, 0.0),
    ],
)
def test_a_stated_time_comes_nearer_in_steps_of_ten_minutes(
    at: float, weight: float, begins_in_s: float
) -> None:
    found = only(report_of_node(node(labels={SCHEDULED: str(int(at))}), RULES, NOW))
    assert (found.weight, found.begins_in_s) == (weight, begins_in_s)
    assert stamp(at) in found.said


@pytest.mark.parametrize("value", ["99999999999", "9999-12-31T23:59:59Z"])
def test_a_time_beyond_all_plans_weighs_nothing(value: str) -> None:
    found = only(report_of_node(node(labels={SCHEDULED: value}), RULES, NOW))
    assert found.weight == 0.0
    assert found.begins_in_s is not None
    assert found.begins_in_s > 1e9


@pytest.mark.parametrize("removed", [True, False])
def test_maintenance_that_is_over_leaves_nothing_behind(removed: bool) -> None:
    book = HealthBook(HealthSettings(), RULES)
    tell(book, node(condition("MaintenanceInProgress", "True", "AdminRequested")), NOW)
    assert of(book, NODE, NOW).state is State.DEGRADED
    over = [] if removed else [condition("MaintenanceInProgress", "False", "AdminRequested")]
    tell(book, node(*over), NOW + MINUTE)
    assert of(book, NODE, NOW + MINUTE) == SOUND


def test_no_shipped_row_about_planned_work_makes_a_node_unhealthy_that_pods_may_still_use() -> None:
    rows: list[ConditionRow | LabelRow | AnnotationRow] = [
        *RULES.conditions.values(),
        *RULES.labels.values(),
        *RULES.annotations.values(),
    ]
    of_family = [row for row in rows if row.family is Family.MAINTENANCE]
    heavy = {row.name for row in of_family if row.weight > 0.65}
    assert heavy == {"gke-maintenance-ongoing", "aks-vm-leaves"}
    assert {row.kind for row in of_family} == {EvidenceKind.LEVEL}
