"""What is shipped in `deploy/`, as far as it can be checked without a cluster."""

import re
from typing import Any

import pytest
import yaml

from fettle.config import Settings
from fettle.dra.extended_resources import MARKER, is_device_resource
from tests.deploy.shipped import DEPLOY, documents, roles, written
from tests.fettle.cli.linted import called


def extender() -> Any:
    (configuration,) = documents("scheduler", "kube-scheduler-config.yaml")
    (entry,) = configuration["extenders"]
    return entry


def test_the_scheduler_sends_names_only_and_only_pods_with_devices() -> None:
    entry = extender()
    assert entry["nodeCacheCapable"] is True
    names = {r["name"]: r.get("ignoredByScheduler", False) for r in entry["managedResources"]}
    assert names[MARKER] is True
    assert all(is_device_resource(n) for n in names if n != MARKER)


def test_shared_and_divided_gpus_are_sent_too_and_no_resource_is_listed_twice() -> None:
    """A scheduler does not start with a name that is there twice."""
    names = [r["name"] for r in extender()["managedResources"]]
    assert len(set(names)) == len(names)
    assert "nvidia.com/gpu.shared" in names
    divided = [name for name in names if name.startswith("nvidia.com/mig-")]
    assert {"nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.10gb"} <= set(divided)
    whole_profile = re.compile(r"nvidia\.com/mig-[1-7]g\.\d+gb")
    assert all(whole_profile.fullmatch(name) for name in divided)


@pytest.mark.parametrize(("suffix", "mode"), [("", "observe"), ("-enforce", "enforce")])
def test_a_schedulers_configuration_is_what_the_command_prints(suffix: str, mode: str) -> None:
    """`make manifests` writes it."""
    shipped = DEPLOY / "scheduler" / f"kube-scheduler-config{suffix}.yaml"
    assert called("scheduler-config", "--mode", mode).stdout == shipped.read_text()


def test_the_extender_binds_nothing() -> None:
    entry = extender()
    assert "bindVerb" not in entry
    assert {entry[v] for v in ("filterVerb", "prioritizeVerb", "preemptVerb")} == {
        "filter",
        "prioritize",
        "preempt",
    }


def test_pods_with_devices_depend_on_an_extender_that_enforces_and_on_no_other() -> None:
    (enforcing,) = documents("scheduler", "kube-scheduler-config-enforce.yaml")
    (observing,) = documents("scheduler", "kube-scheduler-config.yaml")
    assert enforcing["extenders"][0].pop("ignorable") is False
    assert observing["extenders"][0].pop("ignorable") is True
    assert enforcing == observing


def test_the_two_static_pods_share_the_extender_port_and_no_browse_port() -> None:
    first, second = (documents("scheduler", f"static-pod{suffix}.yaml")[0] for suffix in ("", "-b"))
    other = yaml.safe_dump(first).replace("8090", "8091").replace("extender-a", "extender-b")
    assert yaml.safe_load(other.replace("fettle/a", "fettle/b")) == second
    assert first != second


def test_the_static_pods_have_a_user_of_their_own() -> None:
    """Any process of their user on the host can listen on the extender's port, too."""
    (pod,) = documents("scheduler", "static-pod.yaml")
    user = pod["spec"]["securityContext"]["runAsUser"]
    assert 65_536 <= user < 524_288  # neither a person, nor what images and systemd hand out
    text = (DEPLOY / "scheduler" / "static-pod.yaml").read_text()
    assert re.findall(r"(?:chown -R|-o) (\d+)", text) == [str(user)] * 2


def test_webhooks_fail_open_in_time_and_leave_our_own_namespace_alone() -> None:
    for file in ("mutating.yaml", "validating.yaml"):
        for configuration in documents("webhook", file):
            assert configuration["metadata"]["name"] == Settings().webhook.configuration
            for webhook in configuration["webhooks"]:
                assert webhook["failurePolicy"] == "Ignore"
                assert webhook["timeoutSeconds"] > Settings().webhook.deadline_seconds
                assert webhook["sideEffects"] == "NoneOnDryRun"
                selector = str(webhook["namespaceSelector"])
                assert "kube-system" in selector
                assert "fettle-system" in selector


WRITTEN_IN_THE_CLUSTER = {
    "fettle": {("create", "tokenreviews"), ("create", "subjectaccessreviews")},
    "fettle-reader": set[tuple[str, str]](),
    "fettle-editor": {
        (verb, "devicepolicies")
        for verb in ("create", "update", "patch", "delete", "deletecollection")
    },
    "fettle-webhook": {
        ("patch", "mutatingwebhookconfigurations"),
        ("patch", "validatingwebhookconfigurations"),
        ("create", "events"),
        ("patch", "events"),
    },
    "fettle-steward": {
        ("create", "devicehealths"),
        ("patch", "devicehealths"),
        ("delete", "devicehealths"),
        ("patch", "devicepolicies/status"),
        ("create", "events"),
        ("patch", "events"),
    },
}
WRITTEN_BY_CHOICE = {
    "fettle-health-taints": {
        ("write", "healthtaints"),
        ("create", "devicetaintrules"),
        ("patch", "devicetaintrules"),
        ("delete", "devicetaintrules"),
    },
    "fettle-dry-run": {("create", "resourceclaims")},
    "fettle-hold-taints": {
        ("patch", "nodes"),
        ("write", "holdtaints"),
        ("create", "devicetaintrules"),
        ("delete", "devicetaintrules"),
    },
    "fettle-kueue": {("patch", "workloads/status"), ("patch", "admissionchecks/status")},
    "fettle-lint": set[tuple[str, str]](),
    "fettle-node-leases": set[tuple[str, str]](),
    "fettle-node-marks": {("patch", "nodes"), ("write", "nodemarks"), ("patch", "nodes/status")},
    "fettle-object-rules": set[tuple[str, str]](),
    "fettle-pod-conditions": {("patch", "pods/status")},
    "fettle-pod-evictions": {("create", "pods/eviction")},
    "fettle-pod-force-deletes": {("delete", "pods")},
    "fettle-suspend-jobs": {("patch", "jobs")},
    "fettle-wake-by-node": {("patch", "nodes"), ("write", "nodewakeups")},
    "fettle-wake-preemptors": {("patch", "pods/status")},
}


def test_every_right_is_for_something_fettle_reads_or_writes() -> None:
    everywhere = [role for role in roles() if role["kind"] == "ClusterRole"]
    assert {r["metadata"]["name"]: written(r) for r in everywhere} == WRITTEN_IN_THE_CLUSTER
    assert {r["metadata"]["name"]: written(r) for r in roles("optional")} == WRITTEN_BY_CHOICE
    for role in roles() + roles("optional"):
        for rule in role["rules"]:
            assert "*" not in rule["verbs"]
            assert "*" not in rule["resources"]


def test_each_deployment_has_one_role_and_its_account() -> None:
    files = (("server", "webhook"), ("server", "steward"), ("extender", "extender"))
    for folder, role in files:
        (found,) = [d for d in documents(folder, f"{role}.yaml") if d["kind"] == "Deployment"]
        pod = found["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == f"fettle-{role}"
        assert pod["containers"][0]["args"][:2] == ["serve", role]
        assert pod["containers"][0]["args"][2].startswith("--")


def test_the_pod_that_wakes_preemptors_never_runs_and_only_its_status_may_be_written() -> None:
    shipped = documents("rbac", "optional", "wake-preemptors.yaml")
    of = {document["kind"]: document for document in shipped}
    pod, level, role = of["Pod"], of["PriorityClass"], of["Role"]
    assert pod["metadata"]["name"] == Settings().steward.wake_pod
    assert pod["spec"]["schedulingGates"]
    assert pod["spec"]["priorityClassName"] == level["metadata"]["name"]
    assert level["value"] == 10**9, "it wakes pods up to this priority: the highest of a user's"
    (rule,) = role["rules"]
    assert rule["resourceNames"] == [pod["metadata"]["name"]]
    assert (rule["resources"], rule["verbs"]) == (["pods/status"], ["patch"])


def test_the_service_is_the_one_that_the_webhook_configurations_name() -> None:
    (service,) = documents("server", "service.yaml")
    for file in ("mutating.yaml", "validating.yaml"):
        for configuration in documents("webhook", file):
            for webhook in configuration["webhooks"]:
                named = webhook["clientConfig"]["service"]
                assert named["name"] == service["metadata"]["name"] == Settings().webhook.service
                assert named["namespace"] == service["metadata"]["namespace"]
