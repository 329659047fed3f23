"""Objects that the suite on the real control plane does not create: kinds of other projects, old
versions of the API, and special cases."""

from typing import Any

import pytest

from fettle.config import WorkloadSettings
from fettle.lint import workload_kinds
from fettle.lint.annotations import ignored_references
from fettle.lint.findings import Finding, Severity
from fettle.lint.manifests import Manifest
from fettle.lint.refusals import REFUSALS
from fettle.lint.structure import mistakes_in_structure
from fettle.model import Policies, Validation
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.fleets import GPU
from tests.fettle.lint.tables.case import FLEET, claim, device, exactly, opaque
from tests.fettle.lint.tables.configs import nvidia
from tests.fettle.lint.tables.counts import limited, quota


async def of_rule(rule: str, object: Object, known: tuple[Object, ...] = FLEET) -> list[Finding]:
    return [finding for finding in await lint(object, known) if finding.rule == rule]


def sharing() -> Object:
    """A pod template whose pod holds the one claim."""
    return api.pod_template(restart_policy="Always", claims={"gpu": "c"})


def leader_workers(replicas: int, size: int, *, leader: bool = False) -> Object:
    groups: Object = {"size": size, "workerTemplate": sharing()}
    if leader:
        groups["leaderTemplate"] = api.pod_template(restart_policy="Always")
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "lws", "namespace": "default"},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": groups},
    }


def torch(**replicas: int) -> Object:
    roles = {role: {"replicas": n, "template": sharing()} for role, n in replicas.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "torch", "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": roles},
    }


def ray(replicas: int, hosts: int = 1) -> Object:
    workers = {"groupName": "w", "replicas": replicas, "numOfHosts": hosts, "template": sharing()}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray", "namespace": "default"},
        "spec": {"workerGroupSpecs": [workers]},
    }


@pytest.mark.parametrize(
    ("object", "pods"),
    [
        (leader_workers(100, 4), 400),
        (leader_workers(100, 4, leader=True), 300),
        (torch(Master=1, Worker=300), 301),
        (ray(150, hosts=2), 300),
    ],
    ids=["LeaderWorkerSet", "LeaderWorkerSet with leaders", "PyTorchJob", "RayCluster"],
)
async def test_pods_of_other_projects_kinds_are_counted(object: Object, pods: int) -> None:
    (found,) = await of_rule("FTL039", object)
    assert found.message.startswith(f"up to {pods} pods")


def with_template(path: workload_kinds.Path, template: Object) -> Object:
    """An object in which this path leads to a template; `*` is one entry."""
    below: Any = template
    for step in reversed(path):
        below = [below] if step == "*" else {step: below}
    made: Object = below
    return made


OWN = WorkloadSettings(group="example.com", kind="Gang", templates=("spec.parts.*.pods",))
TEMPLATES = workload_kinds.with_settings([OWN])


@pytest.mark.parametrize(
    ("group", "kind", "path"),
    [(*kind, path) for kind, paths in TEMPLATES.items() for path in paths],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else value,
)
def test_every_pod_template_of_every_kind_is_checked(
    group: str, kind: str, path: workload_kinds.Path
) -> None:
    metadata = {"annotations": {"fettle.dev/policy": "none"}}
    object = with_template(path, {"metadata": metadata, "spec": {"containers": [{"name": 5}]}})
    made = {"apiVersion": f"{group}/v1".removeprefix("/"), "kind": kind, **object}
    manifest = Manifest(made, templates=TEMPLATES)
    where = ".".join(path).replace(".*", "[0]")
    (pod,) = manifest.pods
    assert pod.field.path == f"{where}.spec"
    assert f"{where}.spec.containers[0].name" in [
        found.field for found in mistakes_in_structure(manifest)
    ]
    named = [found.field for found in ignored_references(manifest, Policies(), {})]
    assert named == [f"{where}.metadata.annotations[fettle.dev/policy]"]


def of_form(api_version: str, kind: str, path: str, spec: Object) -> Manifest:
    below = with_template(tuple(path.split(".")), {"spec": spec})
    return Manifest({"apiVersion": api_version, "kind": kind, **below})


FOREIGN = [
    ("kubeflow.org/v2beta1", "MPIJob", "spec.mpireplicaspecs.Worker.template"),
    ("batch.volcano.sh/v1alpha1", "Job", "spec.tasks.*.template"),
    ("ray.io/v1", "RayService", "spec.rayClusterConfig.workerGroupSpecs.*.template"),
    ("argoproj.io/v1alpha1", "Rollout", "spec.template"),
    ("example.com/v1", "Server", "spec.podTemplate"),
]


@pytest.mark.parametrize(("api_version", "kind", "path"), FOREIGN, ids=[row[1] for row in FOREIGN])
async def test_pods_are_known_by_their_form_in_kinds_that_are_not(
    api_version: str, kind: str, path: str
) -> None:
    container = {"name": "a", "image": "x", "resources": {"limit": {"nvidia.com/gpu": 1}}}
    spec = {"containers": [container], "nodeselector": {}, "restartPolicy": "never"}
    manifest = of_form(api_version, kind, path, spec)
    where = path.replace(".*", "[0]")
    assert {
        (one.rule, one.severity, one.field.removeprefix(f"{where}.spec."))
        for one in mistakes_in_structure(manifest)
    } == {
        ("FTL201", Severity.WARN, "containers[0].resources.limit"),
        ("FTL201", Severity.WARN, "nodeselector"),
        ("FTL202", Severity.WARN, "restartPolicy"),
    }
    half = {"name": "a", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}
    manifest = of_form(api_version, kind, path, {"containers": [half]})
    found = [(one.rule, one.severity) for rule in REFUSALS for one in rule.check(manifest)]
    assert found == [("FTL222", Severity.WARN)]


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        # knative/serving, pkg/apis/serving/v1/revision_types.go: RevisionSpec
        ("spec.template", {"containerConcurrency": 1, "idleTimeoutSeconds": 5}),
        ("spec.template", {"containers": [{"name": "a"}]}),  # its controller adds the image
        ("spec.template", {"containers": "a"}),
        ("spec.pods", {"nodeselector": {}}),
    ],
    ids=["more fields", "to be completed", "no containers", "another name"],
)
def test_what_only_resembles_a_pod_in_another_kind_is_left_alone(path: str, spec: Object) -> None:
    made = {"containers": [{"image": "x"}], **spec}
    manifest = of_form("example.com/v1", "Thing", path, made)
    assert list(mistakes_in_structure(manifest)) == []
    assert [one for rule in REFUSALS for one in rule.check(manifest)] == []


def test_pods_are_looked_for_only_so_far_into_an_object() -> None:
    deep = of_form("example.com/v1", "Thing", ".".join(["a"] * 40 + ["template"]), CONTAINERS)
    many = [{"template": {"spec": CONTAINERS}}] * 200
    wide = Manifest({"apiVersion": "example.com/v1", "kind": "Thing", "spec": many})
    assert (len(deep.pods), len(wide.pods)) == (0, 64)


CONTAINERS: Object = {"containers": [{"name": "a", "image": "x"}]}


async def test_a_leader_counts_once_for_each_group() -> None:
    leading = leader_workers(300, 4)
    groups = leading["spec"]["leaderWorkerTemplate"]
    groups["leaderTemplate"], groups["workerTemplate"] = sharing(), api.pod_template()
    (found,) = await of_rule("FTL039", leading)
    assert found.message.startswith("up to 300 pods")


@pytest.mark.parametrize(
    "object",
    [leader_workers(64, 4), torch(Master=1, Worker=255), ray(256)],
    ids=["LeaderWorkerSet", "PyTorchJob", "RayCluster"],
)
async def test_256_pods_of_other_projects_kinds_may_share_a_claim(object: Object) -> None:
    assert await of_rule("FTL039", object) == []


FLAT = claim({"name": "gpu", "deviceClassName": GPU, "count": 50})


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
async def test_requests_of_old_versions_are_read(version: str) -> None:
    old = {**FLAT, "apiVersion": f"resource.k8s.io/{version}"}
    (found,) = await of_rule("FTL010", old)
    assert found.field == "spec.devices.requests[0].count"
    (aged,) = await of_rule("FTL034", old)
    assert "served" in aged.message


async def test_taint_rules_are_still_served_in_v1alpha3() -> None:
    rule = api.device_taint_rule("r", "example.com/bad", "NoSchedule")
    assert await of_rule("FTL034", {**rule, "apiVersion": "resource.k8s.io/v1alpha3"}) == []


@pytest.mark.parametrize(
    "object",
    [
        {**api.claim("c"), "spec": {}},
        {**api.claim("c"), "spec": {"devices": {}}},
        {**api.claim_template("t"), "spec": {}},
        {**api.claim_template("t"), "spec": {"spec": {}}},
        {key: value for key, value in api.claim("c").items() if key != "spec"},
    ],
)
async def test_a_claim_with_an_empty_spec_requests_no_device(object: Object) -> None:
    (found,) = await of_rule("FTL033", object)
    assert "asks for no device" in found.message


async def test_a_quota_of_zero_is_not_suggested_as_a_count() -> None:
    known = (*FLEET, api.device_class("limited.example.com", driver=GPU), quota(0))
    (found,) = await of_rule("FTL055", limited(exactly(device_class="limited.example.com")), known)
    assert (found.message[-8:], found.fix) == ("allows 0", "raise the quota, or use another class")


ABSENT = f"{device('numaNode')} == 0"


async def severities(rule: str, object: Object, *, strict: bool) -> list[Severity]:
    found = await lint(object, FLEET, levels=Validation(strict=strict))
    return [finding.severity for finding in found if finding.rule == rule]


async def test_a_selector_that_fails_where_others_match_is_not_denied_in_strict_mode() -> None:
    nowhere = claim(exactly(selectors=[ABSENT]))
    assert await severities("FTL005", nowhere, strict=False) == [Severity.DENY]
    somewhere = claim(exactly(selectors=[f"{device('index')} < 1 || {ABSENT}"]))
    assert await severities("FTL005", somewhere, strict=True) == [Severity.WARN]


async def test_device_types_known_only_from_the_inventory_do_not_deny() -> None:
    config = opaque(GPU, nvidia("MigDeviceConfig"), "gpu")
    of_type = [f'device.driver == "{GPU}"', device('type == "gpu"')]
    known = (*FLEET, api.device_class("whole", selectors=of_type))
    for name, severity in (("whole", Severity.DENY), (GPU, Severity.WARN)):
        asked = claim(exactly(device_class=name), config=[config])
        assert [f.severity for f in await of_rule("FTL021", asked, known)] == [severity]
