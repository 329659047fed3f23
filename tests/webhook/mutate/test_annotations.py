"""Warnings about annotations that have no effect, or not the one that their author may expect."""

from typing import Any

import pytest

from fettle.model import HOLD, JOB_EXIT_CODES, WOKEN_AT
from fettle.model.annotations import (
    ANNOTATION,
    ANNOTATIONS,
    INJECTED,
    KNOWN,
    MIN_SCORE_ANNOTATION,
    ON_DEVICE_FAILURE_ANNOTATION,
)
from tests.webhook.mutate.claims import claim, template
from tests.webhook.mutate.workloads import JOBSET, KINDS, T, workload
from tests.webhook.mutations import cluster, context_of, mutation
from tests.webhook.reviews import Object, job, pod
from webhook.mutate.mutation import Mutation

TRAINING = {ANNOTATION: "training"}
SCAVENGER = {ANNOTATION: "scavenger"}
NONE = {"x": "y"}
TYPO = {"fettle.dev/polcy": "training"}
SAID = (
    "fettle: annotation fettle.dev/polcy: Fettle has no such annotation, so it is ignored; write "
    "fettle.dev/policy if that is meant"
)


def with_template(made: Object, annotations: Object, *path: str) -> Object:
    """The object with annotations in its template at that path."""
    *above, last = path or ("template",)
    at: Any = made["spec"]
    for key in above:
        at = at[key]
    at[last] = {**at[last], "metadata": {"annotations": annotations}}
    return made


def templated(kind: str, annotations: Object, own: Object) -> Object:
    return workload(kind, {"template": {**T, "metadata": {"annotations": annotations}}}, own)


# --- unknown ones


@pytest.mark.parametrize(
    "object",
    [
        pod(TYPO),
        job(TYPO),
        claim(annotations=TYPO),
        template(annotations=TYPO),
        *(workload(kind, spec, TYPO) for kind, (spec, _) in KINDS.items()),
        workload("trainer.kubeflow.org/TrainJob", {"runtimeRef": {"name": "r"}}, TYPO),
    ],
    ids=lambda object: object["kind"],
)
async def test_an_annotation_that_fettle_does_not_have_is_a_warning(object: Object) -> None:
    assert await mutation(object) == Mutation(warnings=(SAID,))


async def test_an_unknown_annotation_in_a_template_is_reported_with_its_path() -> None:
    for made in (
        with_template(job(), TYPO),
        templated("apps/Deployment", TYPO, NONE),
    ):
        (warning,) = (await mutation(made)).warnings
        assert warning.startswith(
            "fettle: annotation fettle.dev/polcy in spec.template.metadata: Fettle has no such"
        )
    cron = workload("batch/CronJob", {"jobTemplate": {"metadata": {"annotations": TYPO}}}, NONE)
    (warning,) = (await mutation(cron)).warnings
    assert "fettle.dev/polcy in spec.jobTemplate.metadata: " in warning


async def test_an_unknown_annotation_in_several_templates_is_reported_once() -> None:
    jobs = [
        {"name": name, "template": {"spec": {"template": {"metadata": {"annotations": TYPO}}}}}
        for name in "ab"
    ]
    (warning,) = (await mutation(workload(JOBSET, {"replicatedJobs": jobs}, NONE))).warnings
    assert (
        "in spec.replicatedJobs[a].template.spec.template.metadata, "
        "spec.replicatedJobs[b].template.spec.template.metadata: " in warning
    )


async def test_where_none_is_near_those_that_there_are_are_named() -> None:
    (warning,) = (await mutation(pod({"fettle.dev/gpus": "8"}))).warnings
    assert warning.endswith(
        "so it is ignored; for this, Fettle reads fettle.dev/policy, fettle.dev/min-score and "
        "fettle.dev/on-device-failure"
    )


async def test_very_many_unknown_annotations_give_a_short_warning() -> None:
    many = {f"fettle.dev/{number}{'x' * 5000}": "" for number in range(30)}
    warnings = (await mutation(pod(many))).warnings
    assert len(warnings) == 6
    assert max(map(len, warnings)) < 400
    assert warnings[-1] == "fettle: 25 more annotations that Fettle does not have are ignored"


async def test_what_fettle_writes_or_reads_itself_is_known() -> None:
    assert {INJECTED, *ANNOTATIONS, HOLD, WOKEN_AT, JOB_EXIT_CODES} < KNOWN
    plain = dict.fromkeys(KNOWN - {*ANNOTATIONS}, "")
    assert await mutation(pod({**plain, "example.com/polcy": "x"})) == Mutation()


async def test_on_an_immutable_object_only_a_new_unknown_annotation_is_reported() -> None:
    how: Object = {"operation": "UPDATE", "oldObject": job()}
    assert (await mutation(job(TYPO), **how)).warnings == (SAID,)
    how["oldObject"] = job(TYPO)
    assert (await mutation(job(TYPO, suspend=True), **how)).warnings == ()


# --- templates that say something else


async def test_a_job_whose_pods_follow_another_policy_is_told_which_applies_to_what() -> None:
    done = await mutation(with_template(job(TRAINING), dict(SCAVENGER)))
    assert done.warnings == (
        "fettle: fettle.dev/policy is 'training' on this Job but 'scavenger' in "
        "spec.template.metadata: the Job itself (podFailurePolicy, backoffLimit) follows "
        "'training', and its pods follow 'scavenger'; unless that is meant, remove one of them "
        "and recreate the Job",
    )
    assert any(operation.path == "/spec/podFailurePolicy" for operation in done.patch)


async def test_a_workload_whose_template_overrules_it_is_told_that_it_has_no_effect() -> None:
    done = await mutation(templated("apps/Deployment", SCAVENGER, TRAINING))
    assert done == Mutation(
        warnings=(
            "fettle: fettle.dev/policy is 'training' on this Deployment but 'scavenger' in "
            "spec.template.metadata: its pods follow 'scavenger', and 'training' has no effect on "
            "them; unless that is meant, remove one of them",
        )
    )


@pytest.mark.parametrize(
    ("key", "own", "theirs"),
    [
        (MIN_SCORE_ANNOTATION, "0.7", "0.9"),
        (ON_DEVICE_FAILURE_ANNOTATION, "None", "Mark"),
    ],
)
async def test_a_single_value_that_a_template_overrules_is_reported_too(
    key: str, own: str, theirs: str
) -> None:
    for made in (
        with_template(job({key: own}), {key: theirs}),
        templated("apps/StatefulSet", {key: theirs}, {key: own}),
    ):
        told = [text for text in (await mutation(made)).warnings if " but " in text]
        (warning,) = told
        assert f"{key} is {own!r} on this {made['kind']} but {theirs!r} in " in warning
        assert f"its pods follow {theirs!r}, and {own!r} has no effect on them" in warning


async def test_what_a_template_says_wrongly_is_told_though_the_workload_says_it_right() -> None:
    wrong = {ANNOTATION: "trainig", MIN_SCORE_ANNOTATION: "0.99x"}
    right = {**TRAINING, MIN_SCORE_ANNOTATION: "0.9"}
    done = await mutation(with_template(job(right), wrong))
    told = " | ".join(done.warnings)
    assert "there is no policy 'trainig'" in told
    assert "'0.99x' is not a number" in told
    assert done.unknown == ("trainig",)


async def test_templates_that_say_the_same_or_nothing_are_no_reason_to_warn() -> None:
    for kind, (spec, _) in KINDS.items():
        assert (await mutation(workload(kind, spec))).warnings == ()
    assert (await mutation(with_template(job(TRAINING), dict(TRAINING)))).warnings == ()
    more = {MIN_SCORE_ANNOTATION: "0.9"}
    assert (await mutation(with_template(job(TRAINING), more))).warnings == ()


async def test_a_warning_tells_a_jobset_from_its_pods() -> None:
    jobs = [
        {"name": name, "template": {"spec": {"template": {**T, "metadata": {"annotations": said}}}}}
        for name, said in (("a", SCAVENGER), ("b", {}), ("c", SCAVENGER))
    ]
    (warning,) = (await mutation(workload(JOBSET, {"replicatedJobs": jobs}))).warnings
    assert (
        "'scavenger' in spec.replicatedJobs[a].template.spec.template.metadata, "
        "spec.replicatedJobs[c].template.spec.template.metadata: the JobSet itself (failurePolicy) "
        "follows 'training', and its pods follow 'scavenger'; unless that is meant, remove one of "
        "them and recreate the JobSet"
    ) in warning


@pytest.mark.parametrize("on_pods", [SCAVENGER, {}])
async def test_a_warning_tells_the_jobs_of_a_cron_job_from_their_pods(on_pods: Object) -> None:
    """Where the pods say nothing, they get what the CronJob says."""
    jobs = {
        "metadata": {"annotations": TRAINING},
        "spec": {"template": {**T, "metadata": {"annotations": on_pods}}},
    }
    cron = workload("batch/CronJob", {"jobTemplate": jobs}, SCAVENGER)
    (warning,) = (await mutation(cron)).warnings
    assert warning == (
        "fettle: fettle.dev/policy is 'training' in spec.jobTemplate.metadata but 'scavenger' in "
        "spec.jobTemplate.spec.template.metadata: its Jobs (podFailurePolicy, backoffLimit) follow "
        "'training', and its pods follow 'scavenger'; unless that is meant, remove one of them"
    )


async def test_a_warning_tells_a_claim_template_from_its_claims() -> None:
    made = template(annotations=TRAINING)
    made["spec"]["metadata"] = {"annotations": SCAVENGER}
    (warning,) = (await mutation(made)).warnings
    assert "the ResourceClaimTemplate itself (device tolerations) follows 'training'" in warning
    assert "and its claims follow 'scavenger'; " in warning


async def test_an_overruled_name_that_is_very_long_is_cut() -> None:
    by = context_of({})
    long = {ANNOTATION: "x" * 5000}
    warnings = (await mutation(with_template(job(long), dict(SCAVENGER)), by=by)).warnings
    assert all(len(text) < 700 for text in warnings if " but " in text)


async def test_the_namespaces_label_overrules_no_template() -> None:
    known = cluster(TRAINING)
    made = templated("apps/Deployment", SCAVENGER, NONE)
    assert await mutation(made, known) == Mutation()
