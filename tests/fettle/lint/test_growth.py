"""The cost of a rule grows linearly with the object."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from fettle.lint.cluster import Cluster
from fettle.lint.findings import Rule
from fettle.lint.manifests import Manifest
from fettle.lint.rules import RULES
from tests.fettle.lint.builders import Object, claim, exactly, knowing, pod, template

SMALL, LARGE = 60, 240
DRIVER = "gpu.nvidia.com"


def _job_set(count: int) -> Object:
    spec = {"containers": [], "resourceClaims": [{"name": "g", "resourceClaimName": "shared"}]}
    jobs = [
        {"name": f"j{i}", "template": {"spec": {"template": {"spec": spec}}}} for i in range(count)
    ]
    return _of("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})


def _ray(count: int) -> Object:
    spec = {"containers": [], "resourceClaims": [{"name": "g", "resourceClaimName": "shared"}]}
    groups = [{"replicas": 1, "template": {"spec": spec}}] * count
    return _of("ray.io/v1", "RayCluster", {"workerGroupSpecs": groups})


def _codes(count: int) -> Object:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": list(range(count))}}
    restart = {"action": "Restart", "exitCodes": {"operator": "In", "values": [count + 1]}}
    containers = [{"name": f"c{i}", "restartPolicyRules": [restart]} for i in range(count)]
    spec = {"containers": containers, "restartPolicy": "Never"}
    failure = {"rules": [rule] + [{**rule, "onExitCodes": {}}] * count}
    return _of("batch/v1", "Job", {"podFailurePolicy": failure, "template": {"spec": spec}})


def _of(api_version: str, kind: str, spec: Object) -> Object:
    metadata = {"name": "large", "namespace": "team"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _claim(count: int, **each: Callable[[int], Any]) -> Object:
    made = claim(*(exactly(f"r{i}") for i in range(count)))
    made["spec"]["devices"].update({k: [of(i) for i in range(count)] for k, of in each.items()})
    return made


def _constraint(index: int) -> Object:
    return {"requests": [f"r{index}"], "matchAttribute": f"{DRIVER}/x"}


def _config(index: int) -> Object:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
    opaque = {"driver": DRIVER, "parameters": parameters}
    return {"requests": [f"r{index}"], "opaque": opaque}


OBJECTS: dict[str, Callable[[int], Object]] = {
    "Jobs of a JobSet": _job_set,
    "groups of a RayCluster": _ray,
    "exit codes and containers": _codes,
    "constraints": lambda n: _claim(n, constraints=_constraint),
    "configurations": lambda n: _claim(n, config=_config),
    "tolerations": lambda n: pod({"containers": [], "tolerations": [{"key": "a"}] * n}),
    "containers": lambda n: pod(
        {
            "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpus"}],
            "containers": [{"resources": {"claims": [{"name": "g", "request": "gpu"}]}}] * n,
        }
    ),
    "claims of a pod": lambda n: pod(
        {
            "resourceClaims": [{"name": f"g{i}", "resourceClaimName": f"c{i}"} for i in range(n)],
            "containers": [{"resources": {"claims": [{"name": f"g{i}"} for i in range(n)]}}],
        }
    ),
}
KNOWN = knowing(
    template(exactly()), claim(exactly(), name="shared"), *(claim(name=f"k{i}") for i in range(50))
)


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_steps_of_every_rule_are_linear_in_the_object(kind: str) -> None:
    small, large = OBJECTS[kind](SMALL), OBJECTS[kind](LARGE)
    steps = {rule.id: (_steps(rule, small), _steps(rule, large)) for rule in RULES}
    allowed = 2 * (LARGE / SMALL)
    assert {id: s for id, s in steps.items() if s[1] >= allowed * s[0] + 2000} == {}


def _steps(rule: Rule, object: Object) -> int:
    """Calls of functions and turns of generators."""
    steps = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    manifest, cluster = Manifest(object, "team"), Cluster(KNOWN)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for _ in rule.check(manifest, cluster):
            pass
    finally:
        sys.setprofile(before)
    return steps
