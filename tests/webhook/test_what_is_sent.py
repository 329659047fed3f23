"""The shipped conditions let through all that Fettle would change or refuse, and no pod without
policy and devices.
"""

import copy
import re
from itertools import product
from typing import Any

import msgspec
import pytest

from fettle.cluster import view
from fettle.model.annotations import (
    ANNOTATION,
    INJECTED,
    MIN_SCORE_ANNOTATION,
    ON_DEVICE_FAILURE_ANNOTATION,
)
from tests.webhook.mutate.claims import claim as whole_claim
from tests.webhook.mutate.claims import template
from tests.webhook.mutate.workloads import KINDS, workload
from tests.webhook.mutations import CONTEXT, context_of, mutated
from tests.webhook.reviews import CLAIMS, Object, encoded, job, pod, review
from tests.webhook.sending import ENTRIES, passes, sent
from webhook.mutate.mutation import mutate
from webhook.review import decode

WALK = re.compile(r"(?:size\(([\w.]+)\) > 1000 \|\|\s*)?([\w.]+\.annotations)\.\w+\(a,")
"""A walk through annotations, after the bound that it has."""
RESOURCES: list[Object] = [
    {},
    {"limits": {"cpu": "1", "hugepages-2Mi": "1Gi"}},
    {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
    {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}},
]
CONTAINERS: list[Object] = [{"name": "c", "resources": resources} for resources in RESOURCES]
SPECS: list[Object] = [
    {"containers": [CONTAINERS[0], container], "initContainers": init, "resourceClaims": claims}
    for container in CONTAINERS
    for init in ([], *([container] for container in CONTAINERS))
    for claims in (CLAIMS, [])
]
ANNOTATIONS: list[dict[str, str] | None] = [
    None,
    {},
    {"other": "x"},
    {ANNOTATION: "training"},
    {MIN_SCORE_ANNOTATION: "0.5"},
    {MIN_SCORE_ANNOTATION: "0.99x"},
    {ON_DEVICE_FAILURE_ANNOTATION: "Evikt"},
    {"fettle.dev/polcy": "training"},
]


async def is_answered(object: Object, *, labelled: bool) -> bool:
    """Whether it would be changed, or its author warned."""
    labels = {ANNOTATION: "training"} if labelled else {}
    known = msgspec.structs.replace(view.EMPTY, synced=True, namespaces={"team": labels})
    done = await mutate(decode(encoded(review(object))), known, CONTEXT)
    return bool(done.patch or done.warnings)


@pytest.mark.long
@pytest.mark.parametrize("labelled", [False, True])
async def test_every_pod_that_would_be_changed_or_warned_of_is_sent(labelled: bool) -> None:
    answered = 0
    for spec, annotations in product(SPECS, ANNOTATIONS):
        made = pod(annotations, **spec)
        if await is_answered(made, labelled=labelled):
            assert sent("pods", made, labelled=labelled), made
            answered += 1
    assert 0 < answered < len(SPECS) * len(ANNOTATIONS)


@pytest.mark.long
@pytest.mark.parametrize("labelled", [False, True])
async def test_every_job_that_would_be_changed_or_warned_of_is_sent(labelled: bool) -> None:
    answered = 0
    for spec, annotations, on_template in product(SPECS[::3], ANNOTATIONS, ANNOTATIONS[2:]):
        made = job(annotations, template=spec)
        made["spec"]["template"]["metadata"]["annotations"] = on_template
        if await is_answered(made, labelled=labelled):
            assert sent("jobs", made, labelled=labelled), made
            answered += 1
    assert 0 < answered < len(SPECS[::3]) * len(ANNOTATIONS) * len(ANNOTATIONS[2:])


@pytest.mark.parametrize("labelled", [False, True])
def test_a_pod_or_job_without_policy_and_devices_is_never_sent(labelled: bool) -> None:
    plain = [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]
    for annotations in (None, {}, {"other": "x"}):
        assert not sent("pods", pod(annotations, containers=plain), labelled=labelled)
        assert not sent("jobs", job(annotations, template={"containers": plain}), labelled=labelled)


def test_a_pod_with_gpus_and_no_policy_is_sent_only_where_the_namespace_names_one() -> None:
    gpu = pod(containers=[{"name": "c", "resources": RESOURCES[2]}])
    assert not sent("pods", gpu, labelled=False)
    assert sent("pods", gpu, labelled=True)


def test_a_static_pods_mirror_is_never_sent() -> None:
    mirror = pod({ANNOTATION: "training", "kubernetes.io/config.mirror": "x"})
    assert not sent("pods", mirror, labelled=False)
    assert not sent("pods", mirror, labelled=True)


def claim(**metadata: Any) -> Object:
    return {"metadata": {"name": "gpus", **metadata}, "spec": {"devices": {"requests": []}}}


def test_claims_are_judged_when_they_are_made_or_their_spec_changes() -> None:
    name = "claims.validate.fettle.dev"
    assert passes(name, claim())
    assert not passes(name, claim(finalizers=["x"]), old=claim())
    changed = {**claim(), "spec": {"devices": {"requests": [{"name": "x"}]}}}
    assert passes(name, changed, old=claim())
    assert not passes(name, {**changed, **claim(deletionTimestamp="now")}, old=changed)


def test_the_clusters_own_claims_are_not_sent() -> None:
    name = "claims.validate.fettle.dev"
    assert not passes(name, claim(), user="system:kube-scheduler")
    assert not passes(name, claim(annotations={"resource.kubernetes.io/pod-claim-name": "g"}))
    assert passes(name, claim(annotations={"other": "x"}))


# --- mutated claims

OWN = {ANNOTATION: "own"}
TOLERANT = context_of({"tolerations": {"devices": [{"key": "x"}]}})
SCHEDULER = "system:kube-scheduler"


@pytest.mark.parametrize("labelled", [False, True])
def test_claims_that_name_a_policy_are_sent_and_templates_that_hand_one_on(labelled: bool) -> None:
    assert sent("resourceclaims", whole_claim(), labelled=labelled)
    assert sent("resourceclaimtemplates", template(), labelled=labelled)
    handing = template(annotations={})
    handing["spec"]["metadata"] = {"annotations": OWN}
    assert sent("resourceclaimtemplates", handing, labelled=labelled)


@pytest.mark.parametrize("labelled", [False, True])
def test_claims_made_for_pods_are_sent_since_the_pod_may_name_a_policy(labelled: bool) -> None:
    made = whole_claim(annotations={"resource.kubernetes.io/pod-claim-name": "gpus"})
    assert sent("resourceclaims", made, labelled=labelled)


def test_other_claims_are_sent_only_where_the_namespace_names_a_policy() -> None:
    for plain in (whole_claim(annotations={"x": "y"}), claim()):
        assert not sent("resourceclaims", plain, labelled=False)
        assert sent("resourceclaims", plain, labelled=True)


@pytest.mark.parametrize("labelled", [False, True])
async def test_the_life_of_a_claim_is_not_sent_but_its_original_applied_again_is(
    labelled: bool,
) -> None:
    original = whole_claim()
    stored = await mutated(original, by=TOLERANT)
    reserved = {**stored, "metadata": {**stored["metadata"], "finalizers": ["x"]}}
    assert not sent("resourceclaims", reserved, labelled=labelled, old=stored, user=SCHEDULER)
    assert not sent("resourceclaims", reserved, labelled=labelled, old=stored)
    assert not sent("resourceclaims", original, labelled=labelled, user=SCHEDULER)
    assert sent("resourceclaims", original, labelled=labelled, old=stored)
    untouched = whole_claim(annotations={"x": "y"})
    changed = {**untouched, "spec": {"devices": {}}}
    assert not sent("resourceclaims", changed, labelled=labelled, old=untouched)


# --- mutated workloads

TRAINING = {ANNOTATION: "training"}
TYPO = {"fettle.dev/polcy": "training"}


def resource_of(kind: str) -> str:
    return kind.rpartition("/")[2].lower() + "s"


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_workload_that_names_a_policy_is_sent_once(kind: str, labelled: bool) -> None:
    made = workload(kind, KINDS[kind][0])
    assert sent(resource_of(kind), made, labelled=labelled)


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_workload_without_policy_and_devices_is_never_sent(kind: str, labelled: bool) -> None:
    made = workload(kind, KINDS[kind][0], {"x": "y"})
    assert not sent(resource_of(kind), made, labelled=labelled)


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "trainer.kubeflow.org/TrainJob"])
def test_a_workload_or_claim_with_an_annotation_that_fettle_does_not_have_is_sent_once(
    kind: str, labelled: bool
) -> None:
    spec = KINDS[kind][0] if kind in KINDS else {}
    made = workload(kind, spec, TYPO)
    assert sent(resource_of(kind), made, labelled=labelled)
    without = workload(kind, spec, {"x": "y"})
    assert sent(resource_of(kind), made, labelled=labelled, old=without)
    assert not sent(resource_of(kind), {**made, "status": {}}, labelled=labelled, old=made)
    assert sent("resourceclaims", whole_claim(annotations=TYPO), labelled=labelled)


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize(
    ("kind", "around"),
    [
        *((kind, ["template"]) for kind, (spec, _) in KINDS.items() if "template" in spec),
        ("batch/CronJob", ["jobTemplate"]),
        ("batch/CronJob", ["jobTemplate", "spec", "template"]),
    ],
)
def test_a_workload_of_kubernetes_is_sent_for_what_only_its_template_says(
    kind: str, around: list[str], labelled: bool
) -> None:
    for said, expected in ((TYPO, True), ({MIN_SCORE_ANNOTATION: "x"}, True), ({}, False)):
        made = workload(kind, copy.deepcopy(KINDS[kind][0]), {"x": "y"})
        template_ = made["spec"]
        for key in around:
            template_ = template_[key]
        template_["metadata"] = {"annotations": {"x": "y", **said}}
        assert sent(resource_of(kind), made, labelled=labelled) is expected


async def test_a_jobset_that_got_its_policy_by_label_is_sent_once_when_it_is_applied_again() -> (
    None
):
    kind = "jobset.x-k8s.io/JobSet"
    template_ = {"spec": {"containers": [CONTAINERS[2]]}}
    jobs = [{"name": "a", "template": {"spec": {"template": template_}}}]
    made = workload(kind, {"replicatedJobs": jobs}, {"x": "y"})
    record = {"x": "y", INJECTED: "{}"}
    old = {**made, "metadata": {**made["metadata"], "annotations": record}}
    changed = {**old, "spec": {**made["spec"], "suspend": True}}
    assert sent("jobsets", changed, labelled=True, old=old)
    replaced = {**changed, "metadata": made["metadata"]}
    assert sent("jobsets", replaced, labelled=True, old=old)
    assert passes("labelled-jobsets.mutate.fettle.dev", old)  # called again in the same request


@pytest.mark.parametrize("labelled", [False, True])
def test_another_policy_for_a_job_is_sent_and_its_controllers_updates_are_not(
    labelled: bool,
) -> None:
    old = workload("batch/Job", KINDS["batch/Job"][0])
    other = workload("batch/Job", KINDS["batch/Job"][0], {ANNOTATION: "inference"})
    assert sent("jobs", other, labelled=labelled, old=old)
    assert not sent("jobs", {**old, "status": {"active": 1}}, labelled=labelled, old=old)


def test_a_jobset_that_uses_devices_is_sent_where_the_namespace_names_a_policy() -> None:
    kind = "jobset.x-k8s.io/JobSet"
    template_ = {"spec": {"containers": [CONTAINERS[2]]}}
    jobs = [{"name": "a", "template": {"spec": {"template": template_}}}]
    made = workload(kind, {"replicatedJobs": jobs}, {"x": "y"})
    assert sent("jobsets", made, labelled=True)
    assert not sent("jobsets", made, labelled=False)


async def test_of_a_workload_only_changes_of_spec_and_policy_are_sent() -> None:
    kind = "apps/Deployment"
    old = await mutated(workload(kind, KINDS[kind][0]))
    metadata = old["metadata"]

    def annotated(**annotations: str) -> Object:
        all_of_them = {**metadata["annotations"], **annotations}
        return {**old, "metadata": {**metadata, "annotations": all_of_them}}

    revision = annotated(**{"deployment.kubernetes.io/revision": "2"})
    assert not sent("deployments", revision, labelled=False, old=old)
    assert sent("deployments", annotated(**{ANNOTATION: "x"}), labelled=False, old=old)
    scaled = {**old, "spec": {**old["spec"], "replicas": 3}}
    assert sent("deployments", scaled, labelled=False, old=old)
    withdrawn = {**old, "metadata": {"annotations": {}}}
    assert sent("deployments", withdrawn, labelled=False, old=old)


@pytest.mark.parametrize(
    ("name", "around"),
    [
        ("pods.validate.fettle.dev", []),
        ("workloads.validate.fettle.dev", ["spec", "template"]),
        ("cronjobs.validate.fettle.dev", ["spec", "jobTemplate", "spec", "template"]),
    ],
)
def test_workloads_are_sent_only_if_they_have_claims(name: str, around: list[str]) -> None:
    for claims, expected in ((CLAIMS, True), ([], False)):
        object: Object = {"spec": {"containers": [], "resourceClaims": claims}}
        for key in reversed(around):
            object = {key: object}
        assert passes(name, {"metadata": {}, **object}) is expected


def test_pods_and_workloads_with_extended_resources_are_judged_too() -> None:
    for resources, expected in ((RESOURCES[2], True), (RESOURCES[1], False)):
        spec: Object = {"containers": [{"name": "c", "resources": resources}]}
        assert passes("pods.validate.fettle.dev", {"metadata": {}, "spec": spec}) is expected
        deployment = {"metadata": {}, "spec": {"template": {"spec": spec}}}
        assert passes("workloads.validate.fettle.dev", deployment) is expected


def test_a_workload_that_names_a_policy_is_judged_whatever_it_uses() -> None:
    plain: Object = {"spec": {"template": {"spec": {"containers": []}}}}
    assert not passes("workloads.validate.fettle.dev", {"metadata": {}, **plain})
    named = {"metadata": {"annotations": TRAINING}, **plain}
    assert passes("workloads.validate.fettle.dev", named)
    assert not passes("workloads.validate.fettle.dev", named, old=named)


def test_classes_are_judged_when_their_spec_is_new() -> None:
    old, new = {"metadata": {}, "spec": {"a": 1}}, {"metadata": {}, "spec": {"a": 2}}
    assert passes("classes.validate.fettle.dev", new)
    assert passes("classes.validate.fettle.dev", new, old=old)
    assert not passes("classes.validate.fettle.dev", new, old=new)


@pytest.mark.long
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("kind", ["batch/Job", "jobset.x-k8s.io/JobSet", "apps/Deployment"])
def test_of_very_many_annotations_it_is_the_webhook_that_looks_for_ours(
    kind: str, labelled: bool
) -> None:
    """The API server's CEL would take seconds for it."""
    many = {f"example.com/{number}": "" for number in range(1001)}
    made = workload(kind, KINDS[kind][0], many)
    assert sent(f"{kind.partition('/')[2].lower()}s", made, labelled=labelled)


def test_no_condition_walks_through_annotations_that_may_be_very_many() -> None:
    walks = [
        (bound, of)
        for entry in ENTRIES
        for condition in entry["matchConditions"]
        for bound, of in WALK.findall(condition["expression"])
    ]
    assert walks
    assert all(bound == of for bound, of in walks)
