"""Webhook configurations fitted to what a cluster serves."""

from typing import Any

import pytest

from fettle.client import ServedKind
from fettle.config import WorkloadSettings
from tests.webhook.reviews import Object
from webhook.fitting import Served, fitted, groups


def rule(group: str, version: str, *resources: str, **more: Any) -> Object:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE"],
        "resources": list(resources),
        **more,
    }


def entry(name: str, *rules: Object) -> Object:
    return {"name": name, "failurePolicy": "Ignore", "rules": list(rules)}


def configuration(*entries: Object) -> Object:
    return {"kind": "MutatingWebhookConfiguration", "webhooks": list(entries)}


def served(**groups: list[tuple[str, str]]) -> Served:
    """By group, (version, plural) in the server's order; `_` is the core group."""
    return {
        group.replace("__", ".").strip("_"): [
            ServedKind(version, plural.title().removesuffix("s"), plural)
            for version, plural in kinds
        ]
        for group, kinds in groups.items()
    }


def rules_of(done: Object) -> list[list[Any]]:
    return [
        [r["apiGroups"], r["apiVersions"], r["resources"]]
        for entry in done["webhooks"]
        for r in entry["rules"]
    ]


@pytest.mark.parametrize(
    ("versions", "best"),
    [
        (["v1", "v1beta2", "v1beta1"], "v1"),
        (["v1beta1", "v1beta2"], "v1beta2"),
        (["v1beta1"], "v1beta1"),
        (["v1alpha3", "v1beta1"], "v1beta1"),
    ],
)
def test_claims_are_asked_for_in_the_best_version_that_is_served(
    versions: list[str], best: str
) -> None:
    shipped = configuration(entry("claims", rule("resource.k8s.io", "v1", "resourceclaims")))
    there = served(resource__k8s__io=[(version, "resourceclaims") for version in versions])
    assert rules_of(fitted(shipped, there, ())) == [
        [["resource.k8s.io"], [best], ["resourceclaims"]]
    ]


def test_what_is_not_served_is_left_out_and_all_else_stays_as_it_is() -> None:
    many = rule("ray.io", "v1", "rayjobs", "rayclusters", scope="Namespaced")
    many["apiGroups"] = ["ray.io", "kubeflow.org"]
    shipped = configuration(
        entry("pods", rule("", "v1", "pods")), entry("gangs", many), entry("other", rule("x", "v1"))
    )
    there = served(_=[("v1", "pods")], ray__io=[("v1", "rayjobs"), ("v1alpha1", "rayclusters")])
    done = fitted(shipped, there, ())
    assert rules_of(done) == [[[""], ["v1"], ["pods"]], [["ray.io"], ["v1"], ["rayjobs"]]]
    assert done["webhooks"][0] == shipped["webhooks"][0]
    assert done["webhooks"][1]["rules"][0]["scope"] == "Namespaced"
    assert groups([shipped], ()) == {"", "ray.io", "kubeflow.org", "x"}


def test_workloads_of_the_settings_get_rules_where_they_are_served() -> None:
    own = [
        WorkloadSettings(group="apps.example.com", kind="Train", templates=("spec.template",)),
        WorkloadSettings(group="apps.example.com", kind="Absent", templates=("spec.template",)),
        WorkloadSettings(group="apps", kind="Deployment", templates=("spec.template",)),
    ]
    shipped = configuration(
        entry("workloads.mutate.fettle.dev", rule("apps", "v1", "deployments")),
        entry("pods", rule("", "v1", "pods")),
    )
    there = served(
        _=[("v1", "pods")],
        apps=[("v1", "deployments")],
        apps__example__com=[("v2", "trains"), ("v1", "trains")],
    )
    assert rules_of(fitted(shipped, there, own)) == [
        [["apps"], ["v1"], ["deployments"]],
        [["apps.example.com"], ["v2"], ["trains"]],
        [[""], ["v1"], ["pods"]],
    ]
    judged = configuration(
        entry("workloads.validate.fettle.dev", rule("apps", "v1", "deployments")),
        entry("gangs.validate.fettle.dev", rule("jobset.x-k8s.io", "v1alpha2", "jobsets")),
    )
    assert rules_of(fitted(judged, there, own)) == [
        [["apps"], ["v1"], ["deployments"]],
        [["apps.example.com"], ["v2"], ["trains"]],
    ]
    assert groups([shipped], own) == {"", "apps", "apps.example.com"}
