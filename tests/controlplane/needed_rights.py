"""Each rule of the roles that the chart has, and a test that fails without it.
`python -m tests.controlplane.needed_rights [ROLE ...]` takes one rule after another away, all or of
these roles, in a copy of deploy/, and says whose test passes all the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
HERE = "tests/controlplane"
_ANY_KIND = (
    f"{HERE}/test_unstamped_pods.py::test_each_kind_of_workload_is_asked_which_policy_it_names"
)
_SUSPENDS = (
    f"{HERE}/test_hopeless.py"
    "::test_a_controller_whose_pods_no_node_or_device_suits_is_told_and_a_job_is_suspended"
)
_HEALTH_TAINTS = (
    f"{HERE}/test_health_taints.py"
    "::test_a_burst_lands_on_no_failed_device_and_a_healed_one_is_used_within_seconds"
)
_HELD_DEVICE = (
    f"{HERE}/test_holds.py::test_the_steward_makes_and_removes_the_rule_of_a_device_held_by_hand"
)
_HELD_NODE = (
    f"{HERE}/test_holds.py"
    "::test_pods_wait_for_held_nodes_while_fettle_is_gone_and_go_there_once_released"
)
_MARKS = f"{HERE}/test_node_marks.py::test_marks_follow_the_health_of_devices_and_cordons_a_budget"
_REPORTED = (
    f"{HERE}/test_direct_reading.py"
    "::test_the_account_of_the_scheduled_reports_reads_all_that_is_checked_and_writes_them"
)
_SEE_LEADER = f"{HERE}/test_rights.py::test_webhook_and_extender_may_see_whether_a_steward_leads"
_SECOND = (
    f"{HERE}/test_second_scheduler.py"
    "::test_pods_of_a_policy_that_names_it_go_by_a_second_scheduler_and_no_others"
)
_SEES = (
    f"{HERE}/test_browse_access.py"
    "::test_a_tenant_sees_their_own_namespace_a_reader_devices_and_a_stranger_nothing"
)
_WATCHED = (
    f"{HERE}/test_rules_watching.py"
    "::test_compute_domains_and_quotas_are_known_where_they_are_watched"
)
_OBJECTS = (
    f"{HERE}/test_objects.py"
    "::test_what_objects_say_refuses_their_nodes_until_they_say_something_else"
)
_UNINSTALL = (
    f"{HERE}/test_chart.py::test_before_it_is_uninstalled_the_steward_takes_back_what_it_wrote"
)
_CHECK = f"{HERE}/test_chart.py::test_helm_test_says_what_is_missing_and_passes_once_it_is_set_up"
_THREE = f"{HERE}/test_rights.py::test_three_processes_do_their_work_each_with_its_own_account"
_CREATES = (
    f"{HERE}/test_rights.py"
    "::test_what_the_webhooks_account_creates_has_its_own_names_or_is_a_dry_run"
)
_CA_BUNDLES = (
    f"{HERE}/test_webhook_rights.py::test_fettle_itself_keeps_its_ca_bundles_under_that_policy"
)
_READERS = f"{HERE}/test_rights.py::test_readers_read_and_whoever_edits_the_cluster_writes_policies"
_OF_NODES = (
    f"{HERE}/test_rights.py"
    "::test_an_optional_file_lets_the_steward_write_of_nodes_what_it_says_and_no_more"
)
_FORCES = (
    f"{HERE}/test_lost_nodes.py"
    "::test_a_job_goes_on_once_its_pod_on_a_lost_node_may_be_deleted_by_force"
)
_KUEUE = (
    f"{HERE}/test_admission_checks.py"
    "::test_a_workload_starts_once_there_are_enough_sound_devices_for_all_of_its_pods"
)
_WAKES = f"{HERE}/test_policies.py::test_a_loosened_policy_wakes_the_pods_that_it_kept_waiting"


class Right(NamedTuple):
    """One rule, as a template has it."""

    role: str
    resources: str
    verbs: str


NEEDED: Mapping[Right, str] = {
    Right("fettle", "nodes, pods, namespaces", "list, watch"): _SEES,
    Right(
        "fettle",
        "resourceslices, deviceclasses, resourceclaims, resourceclaimtemplates, devicetaintrules",
        "list, watch",
    ): f"{HERE}/test_steering.py"
    "::test_a_dra_pod_avoids_the_node_whose_allocation_would_take_a_refused_device",
    Right("fettle", "devicepolicies", "list, watch"): _WAKES,
    Right("fettle", "devicehealths", "list, watch"): f"{HERE}/test_memory.py"
    "::test_a_restart_keeps_what_was_seen_of_refused_pods",
    Right("fettle", "events", "list, watch"): f"{HERE}/test_failed_starts.py"
    "::test_the_next_pods_of_a_job_leave_a_node_whose_dra_driver_prepares_nothing",
    Right("fettle", "replicationcontrollers", "get"): _ANY_KIND,
    Right("fettle", "deployments, replicasets, statefulsets, daemonsets", "get"): _ANY_KIND,
    Right("fettle", "jobs, cronjobs", "get"): _ANY_KIND,
    Right("fettle", "jobsets", "get"): _ANY_KIND,
    Right("fettle", "leaderworkersets", "get"): _ANY_KIND,
    Right("fettle", "pytorchjobs", "get"): _ANY_KIND,
    Right("fettle", "trainjobs", "get"): _ANY_KIND,
    Right("fettle", "rayclusters, rayjobs", "get"): _ANY_KIND,
    Right("fettle", "tokenreviews", "create"): _SEES,
    Right("fettle", "subjectaccessreviews", "create"): _SEES,
    Right(
        "fettle-webhook",
        "mutatingwebhookconfigurations, validatingwebhookconfigurations",
        "get, list, watch, patch",
    ): _CA_BUNDLES,
    Right("fettle-webhook", "events", "create, patch"): f"{HERE}/test_mutation.py"
    "::test_in_observe_events_say_what_would_have_been_changed_and_refused",
    Right("fettle-webhook", "secrets", "get, update"): _CA_BUNDLES,
    Right("fettle-webhook", "leases", "create"): _CREATES,
    Right("fettle-webhook", "leases", "get, update"): _CREATES,
    Right("fettle-webhook", "leases", "get"): _SEE_LEADER,
    Right("fettle-webhook", "resourceclaims", "create"): _CREATES,
    Right("fettle-steward", "devicehealths", "create, patch, delete"): f"{HERE}/test_memory.py"
    "::test_what_somebody_edits_or_deletes_counts_for_nothing_and_is_written_again",
    Right("fettle-steward", "devicepolicies/status", "get, patch"): f"{HERE}/test_policies.py"
    "::test_each_policy_says_whether_it_is_read_and_what_is_wrong_with_it",
    Right("fettle-steward", "events", "create, patch"): f"{HERE}/test_patience.py"
    "::test_a_pod_takes_a_degraded_device_when_its_patience_ends_and_says_so_before",
    Right("fettle-steward", "leases", "create"): _WAKES,
    Right("fettle-steward", "leases", "get, update"): _WAKES,
    Right("fettle-steward", "resourceclaims", "create"): _WAKES,
    Right("fettle-steward", "resourceclaims", "patch"): _WAKES,
    Right("fettle-extender", "leases", "get"): _SEE_LEADER,
    Right("fettle-extender", "secrets", "get, update"): f"{HERE}/test_extender_tls.py"
    "::test_the_scheduler_is_answered_over_tls_and_steered",
    Right("fettle-scheduler", "leases", "create"): _SECOND,
    Right("fettle-scheduler", "leases", "get, update"): _SECOND,
    Right("fettle-scheduler", "leases", "get"): _SECOND,
    Right("fettle-reader", "devicehealths, devicepolicies", "get, list, watch"): _READERS,
    Right("fettle-reader", "pods", "get, list, watch"): _READERS,
    Right(
        "fettle-editor", "devicepolicies", "create, update, patch, delete, deletecollection"
    ): _READERS,
    Right(
        "fettle-withdraw",
        "mutatingwebhookconfigurations, validatingwebhookconfigurations",
        "delete",
    ): _UNINSTALL,
    Right("fettle-withdraw", "nodes, pods", "list"): _UNINSTALL,
    Right("fettle-withdraw", "devicetaintrules", "list"): _UNINSTALL,
    Right("fettle-withdraw", "configmaps", "get, patch"): _UNINSTALL,
    Right("fettle-withdraw", "admissionchecks", "list"): f"{HERE}/test_chart.py"
    "::test_it_is_not_uninstalled_while_kueue_waits_for_its_answers",
    Right("fettle-check", "devicepolicies", "create"): _CHECK,
    Right("fettle-check", "pods", "list"): _CHECK,
    Right("fettle-health-taints", "devicetaintrules", "create, patch, delete"): _HEALTH_TAINTS,
    Right("fettle-health-taints", "healthtaints", "write"): _HEALTH_TAINTS,
    Right("fettle-health-taints", "clusterroles", "get"): f"{HERE}/test_health_taints.py"
    "::test_the_rules_go_with_the_right_to_write_them_and_that_is_said_once",
    Right("fettle-hold-taints", "nodes", "get, patch"): _HELD_NODE,
    Right("fettle-hold-taints", "holdtaints", "write"): _HELD_NODE,
    Right("fettle-hold-taints", "devicetaintrules", "create, delete"): _HELD_DEVICE,
    Right("fettle-lint", "resourcequotas", "list, watch"): _WATCHED,
    Right("fettle-lint", "computedomains", "list, watch"): _WATCHED,
    Right(
        "fettle-lint-reports",
        "nodes, namespaces, pods, podtemplates, replicationcontrollers",
        "list",
    ): _REPORTED,
    Right(
        "fettle-lint-reports",
        "resourceslices, deviceclasses, resourceclaims, resourceclaimtemplates, devicetaintrules",
        "list",
    ): _REPORTED,
    Right("fettle-lint-reports", "devicepolicies", "list"): _REPORTED,
    Right(
        "fettle-lint-reports",
        "deployments, replicasets, statefulsets, daemonsets, jobs, cronjobs",
        "list",
    ): _REPORTED,
    Right(
        "fettle-lint-reports",
        "jobsets, leaderworkersets, pytorchjobs, rayclusters, rayjobs",
        "list",
    ): _REPORTED,
    Right(
        "fettle-lint-reports",
        "reports, clusterreports, policyreports, clusterpolicyreports",
        "list",
    ): _REPORTED,
    Right(
        "fettle-lint-reports",
        "reports, clusterreports, policyreports, clusterpolicyreports",
        "create, patch, delete",
    ): _REPORTED,
    Right("fettle-object-rules", "gpuresets", "list, watch"): _OBJECTS,
    Right("fettle-object-rules", "machines", "list, watch"): _OBJECTS,
    Right("fettle-object-rules", "nodemodulesconfigs", "list, watch"): _OBJECTS,
    Right("fettle-object-rules", "computedomains", "list, watch"): _OBJECTS,
    Right("fettle-node-marks", "nodes", "get, patch"): _MARKS,
    Right("fettle-node-marks", "nodemarks", "write"): _MARKS,
    Right("fettle-node-marks", "nodes/status", "patch"): _MARKS,
    Right("fettle-kueue", "workloads", "get, list, watch"): _KUEUE,
    Right("fettle-kueue", "admissionchecks, resourceflavors", "list, watch"): _KUEUE,
    Right("fettle-kueue", "workloads/status", "patch"): _KUEUE,
    Right("fettle-kueue", "admissionchecks/status", "patch"): _KUEUE,
    Right("fettle-pod-conditions", "pods/status", "patch"): f"{HERE}/test_device_failures.py"
    "::test_a_mark_goes_when_the_device_heals_and_where_nothing_may_be_written",
    Right("fettle-pod-evictions", "pods/eviction", "create"): f"{HERE}/test_device_failures.py"
    "::test_a_job_whose_device_fails_goes_on_elsewhere_and_spends_no_retry",
    Right("fettle-pod-force-deletes", "pods", "delete"): _FORCES,
    Right("fettle-pod-force-deletes", "nodes", "get"): _FORCES,
    Right("fettle-node-leases", "leases", "get"): _FORCES,
    Right("fettle-suspend-jobs", "jobs", "get, patch"): _SUSPENDS,
    Right("fettle-wake-by-node", "nodes", "patch"): _OF_NODES,
    Right("fettle-wake-by-node", "nodewakeups", "write"): _OF_NODES,
    Right("fettle-dry-run", "resourceclaims", "create"): f"{HERE}/test_health_taints.py"
    "::test_sound_devices_of_a_node_come_first_and_degraded_ones_are_its_fallback",
    Right("fettle-wake-preemptors", "pods/status", "patch"): f"{HERE}/test_preemption.py"
    "::test_a_pod_that_was_let_preempt_nobody_preempts_once_the_devices_are_sound",
}


def without(right: Right, text: str) -> str:
    """A template or a file of deploy/, of whose roles this one lacks the right."""
    rule = re.compile(
        r"^  - apiGroups: .*\n    resources: \["
        + re.escape(right.resources)
        + r"\]\n(    resourceNames: .*\n)?    verbs: \["
        + re.escape(right.verbs)
        + r"\]\n",
        re.MULTILINE,
    )
    documents = text.split("---\n")
    for at, document in enumerate(documents):
        if re.search(rf"^  name: {right.role}$", document, re.MULTILINE):
            documents[at] = rule.sub("", document)
    return "---\n".join(documents)


def copy_without(right: Right, folder: Path) -> Path:
    """A copy of deploy/ in which the rule is nowhere."""
    deploy = folder / "deploy"
    shutil.copytree(ROOT / "deploy", deploy)
    changed = 0
    for file in deploy.rglob("*.yaml"):
        before = file.read_text()
        if (after := without(right, before)) != before:
            file.write_text(after)
            changed += 1
    assert changed, f"{right} is nowhere"
    return deploy


def is_missed(right: Right, test: str) -> bool:
    """Whether the test fails without the right."""
    with tempfile.TemporaryDirectory() as folder:
        deploy = copy_without(right, Path(folder))
        env = {**os.environ, "FETTLE_TESTED_DEPLOY": str(deploy)}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=600)
    return done.returncode == 1


def main(roles: list[str]) -> int:
    not_missed = 0
    for right, test in NEEDED.items():
        if roles and right.role not in roles:
            continue
        missed = is_missed(right, test)
        not_missed += not missed
        said = "fails" if missed else "PASSES"
        print(f"{said} without {right.role}: {right.verbs} {right.resources}: {test}", flush=True)
    return 1 if not_missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
