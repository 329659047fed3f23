"""FTL035: a container that names a request which its claim does not have."""

import pytest

from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Severity
from fettle.lint.rules.references import UnknownRequest
from tests.fettle.lint import builders
from tests.fettle.lint.builders import (
    Object,
    alternative,
    alternatives,
    claim,
    cluster,
    exactly,
    pod,
    pod_spec,
    template,
)

USE = {"name": "gpus", "request": "gpu"}
TYPO = {"name": "gpus", "request": "gpus"}
BY_NAME = [{"name": "gpus", "resourceClaimName": "gpus"}]


def findings(object: Object, known: Cluster) -> list[Finding]:
    return builders.findings(UnknownRequest(), object, known)


@pytest.mark.parametrize(
    "spec",
    [
        pod_spec(USE),
        pod_spec(USE, claims=BY_NAME),
        pod_spec({"name": "gpus"}),
        pod_spec({"name": "gpus", "request": ""}),
        pod_spec(),
        pod_spec(USE, group="initContainers"),
        # a claim that the pod does not list, or an entry without a source, the API server refuses
        pod_spec({"name": "other", "request": "x"}),
        pod_spec(TYPO, claims=[{"name": "gpus"}]),
    ],
)
def test_containers_that_get_their_devices_pass(spec: Object) -> None:
    known = cluster(template(exactly("gpu")), claim(exactly("gpu")))
    assert findings(pod(spec), known) == []


def test_an_unknown_request_of_a_template_is_denied_with_the_nearest_name() -> None:
    known = cluster(template(exactly("gpu"), exactly("nic")))
    (finding,) = findings(pod(pod_spec({"name": "gpus"}, TYPO)), known)
    assert finding == Finding(
        rule="FTL035",
        severity=Severity.DENY,
        field="spec.containers[0].resources.claims[1].request",
        message="ResourceClaimTemplate team/gpus has no request 'gpus' (has only: gpu, nic); "
        "the container gets no device",
        fix="write request: gpu",
    )


def test_an_unknown_request_of_a_claim_is_denied() -> None:
    spec = pod_spec({"name": "gpus", "request": "tpu9"}, claims=BY_NAME)
    (finding,) = findings(pod(spec), cluster(claim(exactly("nic"))))
    assert "ResourceClaim team/gpus has no request 'tpu9' (has only: nic)" in finding.message
    assert "leave request out" in finding.fix


def test_init_containers_are_read_too() -> None:
    (finding,) = findings(
        pod(pod_spec(TYPO, group="initContainers")), cluster(template(exactly("gpu")))
    )
    assert finding.field == "spec.initContainers[0].resources.claims[0].request"


def test_a_claim_without_requests_has_none_to_name() -> None:
    (finding,) = findings(pod(pod_spec(TYPO)), cluster(template()))
    assert finding.severity is Severity.DENY
    assert "has no requests" in finding.message


def test_the_main_request_of_alternatives_is_known_and_an_alternative_only_warns() -> None:
    known = cluster(template(alternatives(alternative("big"), alternative("small"), name="gpu")))
    assert findings(pod(pod_spec(USE)), known) == []
    (finding,) = findings(pod(pod_spec({"name": "gpus", "request": "gpu/big"})), known)
    assert finding.severity is Severity.WARN
    assert finding.fix == "write request: gpu"
    (finding,) = findings(pod(pod_spec({"name": "gpus", "request": "gpu/none"})), known)
    assert finding.severity is Severity.DENY


@pytest.mark.parametrize(
    "known",
    [
        cluster(),
        cluster(template(exactly("gpu"), namespace="elsewhere")),
        cluster(template(exactly("gpu")), synced=False),
    ],
    ids=["absent", "in another namespace", "view not synced"],
)
def test_a_claim_that_is_not_known_is_undecided(known: Cluster) -> None:
    (finding,) = findings(pod(pod_spec(TYPO)), known)
    assert finding.severity is Severity.UNDECIDED


def test_a_pod_without_a_namespace_is_in_that_of_the_request() -> None:
    nameless = pod(pod_spec(TYPO))
    del nameless["metadata"]["namespace"]
    (finding,) = findings(nameless, cluster(template(exactly("gpu"))))
    assert finding.severity is Severity.DENY


@pytest.mark.parametrize(
    ("api_version", "kind", "wrapped", "path"),
    [
        ("apps/v1", "Deployment", ["spec", "template"], "spec.template"),
        ("apps/v1", "StatefulSet", ["spec", "template"], "spec.template"),
        ("apps/v1", "DaemonSet", ["spec", "template"], "spec.template"),
        ("batch/v1", "Job", ["spec", "template"], "spec.template"),
        (
            "batch/v1",
            "CronJob",
            ["spec", "jobTemplate", "spec", "template"],
            "spec.jobTemplate.spec.template",
        ),
    ],
)
def test_the_pod_templates_of_workloads_are_read(
    api_version: str, kind: str, wrapped: list[str], path: str
) -> None:
    body: Object = {"spec": pod_spec(TYPO)}
    for key in reversed(wrapped):
        body = {key: body}
    workload = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "w", "namespace": "team"},
        **body,
    }
    (finding,) = findings(workload, cluster(template(exactly("gpu"))))
    assert finding.field == f"{path}.spec.containers[0].resources.claims[0].request"


def test_each_job_of_a_job_set_is_read() -> None:
    jobs = [{"template": {"spec": {"template": {"spec": pod_spec(use)}}}} for use in (USE, TYPO)]
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"namespace": "team"},
        "spec": {"replicatedJobs": jobs},
    }
    (finding,) = findings(job_set, cluster(template(exactly("gpu"))))
    assert finding.field.startswith("spec.replicatedJobs[1].template.spec.template.spec.containers")
