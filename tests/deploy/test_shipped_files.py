"""What is shipped in `deploy/`, as far as it can be checked without a cluster."""

import re
from pathlib import Path
from typing import Any

import yaml

from fettle.config import Settings
from fettle.dra.extended_resources import MARKER, is_device_resource

DEPLOY = Path(__file__).parents[2] / "deploy"


def documents(*parts: str) -> list[Any]:
    return [d for d in yaml.safe_load_all(DEPLOY.joinpath(*parts).read_text()) if d]


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


def test_the_extender_binds_nothing() -> None:
    entry = extender()
    assert "bindVerb" not in entry
    assert {entry[v] for v in ("filterVerb", "prioritizeVerb", "preemptVerb")} == {
        "filter",
        "prioritize",
        "preempt",
    }


def test_pods_with_devices_depend_on_an_extender_that_enforces_and_on_no_other() -> None:
    (enforcing,) = documents("scheduler", "kube-scheduler-config.yaml")
    (observing,) = documents("scheduler", "kube-scheduler-config-observe.yaml")
    assert enforcing["extenders"][0].pop("ignorable") is False
    assert observing["extenders"][0].pop("ignorable") is True
    assert enforcing == observing


def test_the_two_static_pods_share_the_extender_port_and_no_browse_port() -> None:
    first, second = (documents("scheduler", f"static-pod{suffix}.yaml")[0] for suffix in ("", "-b"))
    other = yaml.safe_dump(first).replace("8090", "8091").replace("extender-a", "extender-b")
    assert yaml.safe_load(other.replace("fettle/a", "fettle/b")) == second
    assert first != second


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


def test_every_right_is_for_something_fettle_reads_or_writes() -> None:
    roles = [
        d
        for path in sorted((DEPLOY / "rbac").rglob("*.yaml"))
        for d in yaml.safe_load_all(path.read_text())
        if d and d["kind"] in ("Role", "ClusterRole")
    ]
    assert roles
    for role in roles:
        for rule in role["rules"]:
            assert "*" not in rule["verbs"]
            assert "*" not in rule.get("resources", [])
    cluster_wide = [r for role in roles if role["kind"] == "ClusterRole" for r in role["rules"]]
    written = [r for r in cluster_wide if set(r["verbs"]) - {"get", "list", "watch"}]
    read = [set(r["verbs"]) for r in cluster_wide if r not in written]
    assert read
    # The owner of what that same role lets write, and what controls a ReplicaSet.
    assert [verbs for verbs in read if verbs != {"list", "watch"}] == [{"get"}, {"get"}]
    own = [rule for rule in written if rule["apiGroups"] == ["fettle.dev"]]
    assert [(r["resources"], set(r["verbs"])) for r in own] == [
        (["devicehealths"], {"create", "patch", "delete"})
    ]
    others = [rule for rule in written if rule not in own]
    unnamed = [rule for rule in others if not rule.get("resourceNames")]
    # All but the first are optional.
    events, by_health, tainting, rules, marking, conditions, *others = unnamed
    on_pods, evicting, suspending, waking = others
    assert (marking["resources"], set(marking["verbs"])) == (["nodes"], {"get", "patch"})
    assert (conditions["resources"], conditions["verbs"]) == (["nodes/status"], ["patch"])
    assert (on_pods["resources"], on_pods["verbs"]) == (["pods/status"], ["patch"])
    assert (evicting["resources"], evicting["verbs"]) == (["pods/eviction"], ["create"])
    assert by_health["resources"] == ["devicetaintrules"]
    assert set(by_health["verbs"]) == {"create", "patch", "delete"}
    assert tainting["resources"] == waking["resources"] == ["nodes"]
    assert set(tainting["verbs"]) == {"get", "patch"}
    assert rules["resources"] == ["devicetaintrules"]
    assert set(rules["verbs"]) == {"create", "delete"}
    assert (suspending["resources"], set(suspending["verbs"])) == (["jobs"], {"get", "patch"})
    assert set(waking["verbs"]) == {"patch"}
    assert events["apiGroups"] == ["events.k8s.io"]
    assert events["resources"] == ["events"]
    assert set(events["verbs"]) == {"create", "patch"}


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
    (service,) = [d for d in documents("server", "fettle.yaml") if d["kind"] == "Service"]
    for file in ("mutating.yaml", "validating.yaml"):
        for configuration in documents("webhook", file):
            for webhook in configuration["webhooks"]:
                named = webhook["clientConfig"]["service"]
                assert named["name"] == service["metadata"]["name"] == Settings().webhook.service
                assert named["namespace"] == service["metadata"]["namespace"]
