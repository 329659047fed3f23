"""What the shipped webhook configurations promise."""

import pytest
from prometheus_client import CollectorRegistry

from fettle.cluster import Publisher
from fettle.config import Settings
from fettle.config.settings import API_SERVER_WAITS_S
from tests.webhook.sending import BY_NAME, MUTATING, VALIDATING
from webhook.app import make_app
from webhook.mutate.annotations import WORKLOADS

NAMES = sorted(BY_NAME)
OTHER_VERSIONS = {
    "jobset.x-k8s.io": "v1alpha2",
    "trainer.kubeflow.org": "v1alpha1",
    "fettle.dev": "v1alpha1",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_fails_open_fast_and_leaves_dry_runs_without_a_trace(name: str) -> None:
    entry = BY_NAME[name]
    assert entry["failurePolicy"] == "Ignore"
    assert entry["sideEffects"] == "NoneOnDryRun"
    assert entry["matchPolicy"] == "Equivalent"
    assert entry["timeoutSeconds"] == 2
    assert entry["timeoutSeconds"] == API_SERVER_WAITS_S > Settings().webhook.deadline_seconds
    assert entry["admissionReviewVersions"] == ["v1"]
    for rule in entry["rules"]:
        (group, *_) = rule["apiGroups"]
        assert rule["apiVersions"] == [OTHER_VERSIONS.get(group, "v1")]
        assert not any("/" in resource or "*" in resource for resource in rule["resources"])


@pytest.mark.parametrize("name", NAMES)
def test_the_systems_and_our_own_namespaces_are_excluded(name: str) -> None:
    (excluded,) = [
        expression["values"]
        for expression in BY_NAME[name]["namespaceSelector"]["matchExpressions"]
        if expression["key"] == "kubernetes.io/metadata.name" and expression["operator"] == "NotIn"
    ]
    assert excluded == ["kube-system", "fettle-system"]


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_calls_a_path_that_is_served(name: str) -> None:
    service = BY_NAME[name]["clientConfig"]["service"]
    assert (service["name"], service["namespace"]) == ("fettle-webhook", "fettle-system")
    assert service["name"] == Settings().webhook.service
    app = make_app(Publisher(), Settings(), registry=CollectorRegistry())
    served = {route.resource.canonical for route in app.router.routes() if route.resource}
    assert service["path"] in served


def test_the_configurations_have_the_name_under_which_caBundle_is_kept() -> None:  # noqa: N802
    for configuration in (MUTATING, VALIDATING):
        assert configuration["metadata"]["name"] == Settings().webhook.configuration


def test_of_pods_only_the_creation_is_mutated() -> None:
    for entry in MUTATING["webhooks"]:
        assert entry["reinvocationPolicy"] == "IfNeeded"
        for rule in entry["rules"]:
            changed = ["CREATE"] if rule["resources"] == ["pods"] else ["CREATE", "UPDATE"]
            assert rule["operations"] == changed


def test_every_kind_of_the_table_is_in_the_rules() -> None:
    ruled = {
        (group, resource)
        for entry in MUTATING["webhooks"]
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert ruled == {
        ("", "pods"),
        ("resource.k8s.io", "resourceclaims"),
        *((group, f"{kind.lower()}s") for group, kind in WORKLOADS),
    }


def test_every_kind_of_the_table_with_templates_is_judged_too() -> None:
    """Of ReplicaSets, the Deployment is."""
    ruled = {
        (group, resource)
        for entry in VALIDATING["webhooks"]
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    made = {kind for kind, workload in WORKLOADS.items() if workload.annotated}
    wanted = {(group, f"{kind.lower()}s") for group, kind in made - {("apps", "ReplicaSet")}}
    assert wanted <= ruled
