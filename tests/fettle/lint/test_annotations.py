"""What objects tell Fettle by annotations and labels that is not heard."""

from typing import Any

import pytest

from fettle.config import HealthSettings, WorkloadSettings
from fettle.lint import workload_kinds
from fettle.lint.checks import run_checks
from fettle.lint.findings import Finding, Severity
from fettle.lint.manifests import Manifest
from fettle.model import Policies, Validation
from tests.fettle.lint.builders import Object

ABOUT = {"FTL101", "FTL109", "FTL114", "FTL115"}
POD = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}


def made(kind: str, metadata: Object, spec: Any = None) -> Object:
    api_version, _, name = kind.rpartition("/")
    return {
        "apiVersion": api_version,
        "kind": name,
        "metadata": {"name": "x", **metadata},
        "spec": spec or {},
    }


def found(object: Object) -> list[Finding]:
    manifest = Manifest(object)
    every = run_checks(manifest, Policies(), {}, None, Validation(), HealthSettings())
    return [finding for finding in every if finding.rule in ABOUT]


def annotated(key: str, value: str = "training") -> Object:
    return {"annotations": {key: value}}


def labelled(key: str, value: str = "training") -> Object:
    return {"labels": {key: value}}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("fettle.io/policy", "fettle.dev/policy"),
        ("fettle/policy", "fettle.dev/policy"),
        ("fettel.dev/policy", "fettle.dev/policy"),
        ("fetle.dev/policy", "fettle.dev/policy"),
        ("Fettle.dev/policy", "fettle.dev/policy"),
        ("fettle.x-k8s.io/min-score", "fettle.dev/min-score"),
        ("fettle.k8s.io/minScore", "fettle.dev/min-score"),
        ("fettle-policy", "fettle.dev/policy"),
        ("fettle.dev.policy", "fettle.dev/policy"),
        ("fettle.io/polcy", "fettle.dev/policy"),
        ("fettle.io/on-device-failure", "fettle.dev/on-device-failure"),
    ],
)
def test_a_misspelt_annotation_is_found_on_a_pod_and_in_a_template(key: str, meant: str) -> None:
    (one,) = found(made("v1/Pod", annotated(key), POD))
    assert (one.rule, one.severity, one.field) == (
        "FTL115",
        Severity.WARN,
        f"metadata.annotations[{key}]"
        if "." in key or "/" in key
        else f"metadata.annotations.{key}",
    )
    assert one.message == f"Fettle does not read it; did you mean {meant}?"
    assert one.fix == f"write {meant}"
    job = {"template": {"metadata": annotated(key), "spec": POD}}
    (one,) = found(made("batch/v1/Job", {}, job))
    assert one.rule == "FTL115"
    assert one.field.startswith("spec.template.metadata.annotations")


@pytest.mark.parametrize(
    "key",
    [
        "kettle.io/policy",
        "settle.dev/policy",
        "nettle/policy",
        "fettle.io/team",
        "fettle.io/network-policy",
        "example.com/fettle-policy",
        "policy",
        "fettled",
        "fettle",
        "fettle.io/",
        "fettle.dev/policy",
        "fettle.dev/hold-riser",
        f"fettle.io/{'policy' * 50}",
    ],
)
def test_a_name_of_another_project_is_none_of_ours(key: str) -> None:
    assert found(made("v1/Pod", annotated(key), POD)) == []


@pytest.mark.parametrize(
    ("kind", "key", "fix"),
    [
        ("v1/Namespace", "fettle.dev/polcy", "write fettle.dev/policy"),
        ("v1/Namespace", "fettle.io/policy", "write fettle.dev/policy"),
        ("v1/Namespace", "fettle.dev/mod", "write fettle.dev/mode"),
        ("v1/Namespace", "fettle.io/mode", "write fettle.dev/mode"),
        ("batch/v1/Job", "fettle.dev/polcy", "write fettle.dev/policy under metadata.annotations"),
        ("batch/v1/Job", "fettle.io/policy", "write fettle.dev/policy under metadata.annotations"),
        ("v1/Node", "fettle.dev/hodl", "write fettle.dev/hold under metadata.annotations"),
        (
            "v1/Pod",
            "fettle.io/mode",
            "label the Namespace, or mode in the spec of a DevicePolicy",
        ),
    ],
)
def test_a_misspelt_label_is_found(kind: str, key: str, fix: str) -> None:
    (one,) = found(made(kind, labelled(key)))
    assert (one.rule, one.fix) == ("FTL115", fix)


@pytest.mark.parametrize(
    "key",
    [
        "fettle.dev/health",
        "fettle.dev/health.node",
        "fettle.dev/health.nvidia.com_gpu",
        "fettle.dev/strict",
    ],
)
def test_labels_that_fettle_writes_or_an_administrator_chose_pass(key: str) -> None:
    assert found(made("v1/Node", labelled(key, "healthy"))) == []
    assert found(made("v1/Namespace", labelled(key))) == []


def test_a_mode_that_is_none_is_found_on_a_namespace() -> None:
    for value, fix in (
        ("enforced", "write enforce"),
        ("Observe", "write observe"),
        ("audit", "write observe or steer or enforce"),
    ):
        (one,) = found(made("v1/Namespace", labelled("fettle.dev/mode", value)))
        assert (one.rule, one.fix) == ("FTL101", fix)
        assert f"'{value}' is not one of observe, steer, enforce" in one.message
    for value in ("observe", "steer", "enforce"):
        assert found(made("v1/Namespace", labelled("fettle.dev/mode", value))) == []


def test_a_mode_elsewhere_than_in_the_label_of_a_namespace_is_found() -> None:
    (label,) = found(made("v1/Pod", labelled("fettle.dev/mode", "observe"), POD))
    assert (label.rule, label.field) == ("FTL101", "metadata.labels[fettle.dev/mode]")
    (annotation,) = found(made("v1/Namespace", annotated("fettle.dev/mode", "observe")))
    assert (annotation.rule, annotation.field) == (
        "FTL109",
        "metadata.annotations[fettle.dev/mode]",
    )
    assert annotation.fix.startswith("write it as a label of the Namespace")


def test_a_value_that_is_none_is_found_with_the_one_that_is_meant() -> None:
    (one,) = found(made("v1/Pod", annotated("fettle.dev/on-device-failure", "mark"), POD))
    assert (one.rule, one.fix) == ("FTL101", "write Mark")
    (one,) = found(made("v1/Pod", annotated("fettle.dev/min-score", "80%"), POD))
    assert (
        one.message
        == "annotation fettle.dev/min-score: '80%' is not a number between 0 and 1; ignored"
    )
    (one,) = found(made("v1/Pod", annotated("fettle.dev/policy", "trainig"), POD))
    assert (one.rule, one.fix) == ("FTL101", "write training")
    (one,) = found(made("v1/Node", annotated("fettle.dev/expected-devices", "8")))
    assert (one.rule, one.field) == ("FTL101", "metadata.annotations[fettle.dev/expected-devices]")
    assert (
        found(made("v1/Node", annotated("fettle.dev/expected-devices", "nvidia.com/gpu=8"))) == []
    )


@pytest.mark.parametrize(
    "label",
    [
        "nvidia.com/gpu.count",
        "nvsentinel.dgxc.nvidia.com/gpu.count.expected",
        "karpenter.k8s.aws/instance-gpu-count",
    ],
)
def test_a_count_on_a_node_that_is_none_is_found(label: str) -> None:
    (one,) = found(made("v1/Node", {"labels": {label: "eight"}}))
    assert (one.rule, one.field) == ("FTL101", f"metadata.labels[{label}]")
    assert one.message == "it cannot be read, so it counts for nothing"
    assert found(made("v1/Node", {"labels": {label: "8"}})) == []


def test_what_fettle_wrote_itself_is_known() -> None:
    job = {"template": {"spec": POD}}
    assert found(made("batch/v1/Job", annotated("fettle.dev/suspended", "why"), job)) == []


@pytest.mark.parametrize("kind", ["example.com/v1/Training", "serving.kserve.io/v1beta1/Other"])
def test_templates_in_kinds_that_fettle_does_not_know_are_read_too(kind: str) -> None:
    workers = [{"template": {"metadata": annotated("fettle.io/policy"), "spec": POD}}]
    object = made(kind, annotated("fettle.dev/policy", "trainig"), {"workers": workers})
    assert [(one.rule, one.field) for one in found(object)] == [
        ("FTL101", "metadata.annotations[fettle.dev/policy]"),
        ("FTL115", "spec.workers[0].template.metadata.annotations[fettle.io/policy]"),
        ("FTL114", "metadata.annotations[fettle.dev/policy]"),
    ]
    workers[0]["template"]["metadata"] = annotated("fettle.dev/policy")
    assert len(found(object)) == 1


def test_a_deep_object_of_an_unknown_kind_is_read_to_its_end() -> None:
    deep: Object = {"metadata": annotated("fettle.io/policy")}
    for _ in range(500):
        deep = {"metadata": {}, "below": [deep]}
    assert len(found(made("example.com/v1/Deep", {}, deep))) == 1


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("kubeflow.org/v2beta1/MPIJob", "spec.mpiReplicaSpecs.*.template.metadata.annotations"),
        ("batch.volcano.sh/v1alpha1/Job", "spec.tasks.*.template.metadata.annotations"),
        ("argoproj.io/v1alpha1/Workflow", "spec.podMetadata.annotations"),
        ("example.com/v1/Training", "the metadata of its pod templates"),
    ],
)
def test_a_policy_on_what_passes_nothing_on_says_where_to_write_it(kind: str, where: str) -> None:
    (one,) = found(made(kind, annotated("fettle.dev/policy")))
    assert (one.rule, one.severity) == ("FTL114", Severity.WARN)
    assert one.fix == f"write it in {where}, or name the kind in webhook.workloads of the settings"


def test_a_policy_on_what_makes_no_pods_is_found() -> None:
    (one,) = found(made("v1/Service", annotated("fettle.dev/min-score", "0.5")))
    assert (one.rule, one.fix) == ("FTL114", "write it on what makes them")


@pytest.mark.parametrize(
    "kind",
    [
        "v1/Pod",
        "apps/v1/Deployment",
        "resource.k8s.io/v1/ResourceClaim",
        "resource.k8s.io/v1/ResourceClaimTemplate",
        "trainer.kubeflow.org/v1alpha1/TrainJob",
        "ray.io/v1/RayCluster",
        "ray.io/v1/RayService",
        "serving.kserve.io/v1beta1/InferenceService",
    ],
)
def test_what_passes_a_policy_on_or_follows_it_itself_passes(kind: str) -> None:
    assert found(made(kind, annotated("fettle.dev/policy"))) == []


def test_a_policy_that_stands_on_the_pods_too_passes() -> None:
    workflow = {"podMetadata": annotated("fettle.dev/policy")}
    policy = annotated("fettle.dev/policy")
    assert found(made("argoproj.io/v1alpha1/Workflow", policy, workflow)) == []
    tasks = {"tasks": [{"template": {"metadata": annotated("fettle.dev/policy", "scavenger")}}]}
    assert found(made("batch.volcano.sh/v1alpha1/Job", policy, tasks)) == []


def test_a_kind_that_the_settings_name_passes_a_policy_on() -> None:
    row = WorkloadSettings(group="example.com", kind="Training", templates=("spec.template",))
    table = workload_kinds.with_settings([row])
    spec = {"template": {"spec": POD}}
    known = Manifest(
        made("example.com/v1/Training", annotated("fettle.dev/policy"), spec), templates=table
    )
    every = run_checks(known, Policies(), {}, None, Validation(), HealthSettings())
    assert "FTL114" not in {finding.rule for finding in every}
