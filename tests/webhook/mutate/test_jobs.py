"""What is injected into Jobs and JobSets, and what stays as its author wrote it."""

import pytest

from fettle.model.annotations import ANNOTATION, MIN_SCORE_ANNOTATION
from fettle.model.policy import DEVICE_FAILED
from tests.webhook.mutations import (
    OWN,
    TRAINING,
    cluster,
    context_of,
    injected,
    mutated,
    mutation,
    updated,
)
from tests.webhook.reviews import CLAIMS, Object, job
from webhook.mutate.mutation import Mutation

RULES = [
    {"action": "Ignore", "onPodConditions": [{"type": condition, "status": "True"}]}
    for condition in ("DisruptionTarget", "fettle.dev/DeviceFailed")
]


async def test_a_training_job_gets_a_pod_failure_policy_and_its_pods_the_annotation() -> None:
    done = await mutated(job(TRAINING, parallelism=8, completions=8))
    assert done["spec"]["podFailurePolicy"] == {"rules": RULES}
    assert done["spec"]["podReplacementPolicy"] == "Failed"
    assert done["spec"]["backoffLimit"] == 54
    assert done["spec"]["template"]["metadata"]["annotations"] == TRAINING
    assert injected(done) == {
        "policy": "training",
        "values": {
            "spec.podFailurePolicy": {"rules": RULES},
            "spec.podReplacementPolicy": "Failed",
            "spec.backoffLimit": 54,
            "spec.template.metadata.annotations[fettle.dev/policy]": "training",
        },
    }


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ({}, 12),
        ({"backoffLimit": 0, "parallelism": 8, "completions": 8}, 0),
        ({"backoffLimit": 7, "parallelism": 8, "completions": 8}, 7),
        ({"parallelism": 8, "completions": 2}, 18),
        ({"parallelism": 8, "completions": None}, 54),
        ({"parallelism": 0}, 12),
        ({"parallelism": 2**31 - 1, "completions": None}, 2**31 - 1),
        ({"parallelism": 8, "completions": 8, "backoffLimitPerIndex": 1}, 6),
        ({"backoffLimit": 2**31 - 1, "backoffLimitPerIndex": 1}, 2**31 - 1),
    ],
)
async def test_the_backoff_limit_is_six_for_each_parallel_pod_and_six_unless_it_was_written(
    spec: Object, limit: int
) -> None:
    assert (await mutated(job(TRAINING, **spec)))["spec"]["backoffLimit"] == limit


@pytest.mark.parametrize(
    ("limit", "who"), [(0, "one pod that its kubelet refuses"), (1, "2 such pods")]
)
async def test_a_written_limit_that_a_few_refusals_by_kubelets_reach_is_warned_of(
    limit: int, who: str
) -> None:
    (said,) = (await mutation(job(TRAINING, backoffLimit=limit))).warnings
    assert said.endswith(
        f"spec.backoffLimit is {limit}: a pod that its kubelet refuses counts against it, whatever "
        f"podFailurePolicy says, so {who} can fail the Job"
    )


GANG: Object = {"parallelism": 8, "completions": 8}


@pytest.mark.parametrize(
    ("limit", "more", "who"),
    [
        (1, {}, "2 such pods can fail the Job, and 8 run at once"),
        (7, {}, "8 such pods can fail the Job, and 8 run at once"),
        (
            6,
            {"podFailurePolicy": {"rules": RULES}},
            "7 such pods can fail the Job, and 8 run at once",
        ),
    ],
)
async def test_so_is_a_limit_that_all_pods_of_a_gang_can_reach_before_the_first_is_refused(
    limit: int, more: Object, who: str
) -> None:
    gang = job(TRAINING, **GANG, backoffLimit=limit, **more)
    assert (await mutation(gang)).warnings[-1].endswith(who)


@pytest.mark.parametrize(
    "spec",
    [{"backoffLimit": 6}, {"backoffLimit": 7}, {}, GANG, {**GANG, "backoffLimit": 8}],
    ids=repr,
)
async def test_a_limit_that_leaves_room_is_not_warned_of(spec: Object) -> None:
    assert not (await mutation(job(TRAINING, **spec))).warnings


async def test_the_limit_of_a_cron_jobs_jobs_is_warned_of_and_that_of_a_job_sets_is_not() -> None:
    spec = {**job()["spec"], "backoffLimit": 0}
    for kind, group, jobs in (
        ("CronJob", "batch/v1", {"jobTemplate": {"spec": spec}}),
        (
            "JobSet",
            "jobset.x-k8s.io/v1alpha2",
            {"replicatedJobs": [{"name": "w", "template": {"spec": spec}}]},
        ),
    ):
        metadata = {"name": "x", "namespace": "default", "annotations": TRAINING}
        made = {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": jobs}
        said = [w for w in (await mutation(made)).warnings if "backoffLimit is 0" in w]
        assert len(said) == (kind == "CronJob")


async def test_a_replacement_policy_that_is_right_already_is_not_touched() -> None:
    patch = (await mutation(job(TRAINING, podReplacementPolicy="Failed"))).patch
    assert "/spec/podReplacementPolicy" not in [operation.path for operation in patch]


async def test_a_job_whose_pods_may_restart_by_now_loses_the_injected_failure_policy() -> None:
    """The API server asks again after the other one changed the Job, and takes a podFailurePolicy
    and a backoffLimitPerIndex only with restartPolicy Never."""
    by = context_of({"failure": {"ignoreDisruptions": True, "backoffLimitPerIndex": 1}})
    before = job(OWN, completionMode="Indexed", parallelism=8, completions=8)
    done = await mutated(before, by=by)
    assert {"podFailurePolicy", "backoffLimitPerIndex"} <= done["spec"].keys()
    done["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    again = await mutated(done, by=by)
    left = {"podFailurePolicy", "backoffLimitPerIndex", "podReplacementPolicy", "backoffLimit"}
    assert not left & again["spec"].keys()
    assert list(injected(again)["values"]) == [
        "spec.template.metadata.annotations[fettle.dev/policy]"
    ]


async def test_a_job_with_a_pod_failure_policy_of_its_own_is_left_as_it_was_written() -> None:
    own = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}
    before = job(TRAINING, podFailurePolicy=own, podReplacementPolicy="Failed", parallelism=8)
    done = await mutated(before)
    template = done["spec"].pop("template")
    before["spec"].pop("template")
    assert done["spec"] == before["spec"]
    assert template["metadata"]["annotations"] == TRAINING


IGNORES = [
    {"action": "Ignore", "onPodConditions": [{"type": condition, "status": "True"}]}
    for condition in ("DisruptionTarget", DEVICE_FAILED)
]
FAILS = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 42]}}


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([FAILS], ["does not ignore DisruptionTarget and fettle.dev/DeviceFailed"]),
        (IGNORES[:1], ["does not ignore fettle.dev/DeviceFailed", "not fail the Job on 42"]),
        ([{"action": "Ignore", "onExitCodes": {"values": "odd"}}, *IGNORES], ["Job on 42"]),
        ([*IGNORES, FAILS], []),
    ],
)
async def test_a_warning_names_what_the_authors_pod_failure_policy_lacks(
    rules: list[Object], says: list[str]
) -> None:
    by = context_of({"failure": {"ignoreDisruptions": True, "failJobOnExitCodes": [42]}})
    own = job({ANNOTATION: "own"}, podFailurePolicy={"rules": rules})
    warnings = (await mutation(own, by=by)).warnings
    assert len(warnings) == bool(says)
    for text in says:
        assert text in warnings[0]


async def test_a_pod_failure_policy_that_was_injected_is_no_reason_to_warn() -> None:
    done = await mutated(job(TRAINING))
    assert (await mutation(done)).warnings == ()


@pytest.mark.parametrize("restart", ["OnFailure", None])
async def test_a_job_that_restarts_its_pods_gets_a_warning_and_no_failure_policy(
    restart: str | None,
) -> None:
    before = job(TRAINING, template={"restartPolicy": restart})
    done = await mutated(before)
    assert "podFailurePolicy" not in done["spec"]
    assert done["spec"]["podReplacementPolicy"] == "TerminatingOrFailed"
    (warning,) = (await mutation(before)).warnings
    assert "restartPolicy" in warning
    assert "training" in warning


async def test_a_policy_that_does_not_ignore_disruptions_only_stamps_its_name() -> None:
    done = await mutated(job({ANNOTATION: "inference", MIN_SCORE_ANNOTATION: "0.5"}))
    assert "podFailurePolicy" not in done["spec"]
    assert done["spec"]["template"]["metadata"]["annotations"] == {
        ANNOTATION: "inference",
        MIN_SCORE_ANNOTATION: "0.5",
    }


async def test_what_the_template_says_itself_stays() -> None:
    before = job(TRAINING)
    before["spec"]["template"]["metadata"]["annotations"] = {ANNOTATION: "scavenger"}
    done = await mutated(before)
    assert done["spec"]["template"]["metadata"]["annotations"][ANNOTATION] == "scavenger"
    assert "podFailurePolicy" in done["spec"]


async def test_a_policy_named_only_on_the_template_is_the_jobs_too() -> None:
    before = job()
    before["spec"]["template"]["metadata"]["annotations"] = TRAINING
    assert "podFailurePolicy" in (await mutated(before))["spec"]


async def test_the_namespaces_label_applies_to_jobs_that_use_devices() -> None:
    labelled = cluster({ANNOTATION: "training"})
    done = await mutated(job(template={"resourceClaims": CLAIMS}), labelled)
    assert "podFailurePolicy" in done["spec"]
    assert "annotations" not in done["spec"]["template"]["metadata"]
    assert await mutation(job(), labelled) == Mutation()


FAILING = context_of({"failure": {"ignoreDisruptions": True, "failJobOnExitCodes": [42, 3]}})


async def test_rules_for_exit_codes_come_after_those_for_disruptions() -> None:
    done = await mutated(job(OWN), by=FAILING)
    codes = {"operator": "In", "values": [3, 42]}
    assert done["spec"]["podFailurePolicy"]["rules"] == [
        *RULES,
        {"action": "FailJob", "onExitCodes": codes},
    ]


async def test_a_failure_policy_for_exit_codes_alone_leaves_the_backoff_limit() -> None:
    by = context_of({"failure": {"failJobOnExitCodes": [42]}})
    done = await mutated(job(OWN, parallelism=8, completions=8), by=by)
    (rule,) = done["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert done["spec"]["podReplacementPolicy"] == "Failed"
    assert done["spec"]["backoffLimit"] == 6


PER_INDEX = context_of({"failure": {"backoffLimitPerIndex": 2}})


@pytest.mark.parametrize(
    ("spec", "per_index", "limit"),
    [
        ({"completionMode": "Indexed"}, 2, 2**31 - 1),
        ({"completionMode": "Indexed", "backoffLimit": 9}, 2, 9),
        ({"completionMode": "Indexed", "backoffLimitPerIndex": 0}, 0, 6),
        ({"completionMode": "NonIndexed"}, None, 6),
    ],
)
async def test_an_indexed_job_gets_a_backoff_limit_per_index(
    spec: Object, per_index: int | None, limit: int
) -> None:
    done = await mutated(job(OWN, **spec), by=PER_INDEX)
    assert done["spec"].get("backoffLimitPerIndex") == per_index
    assert done["spec"]["backoffLimit"] == limit


async def test_a_limit_per_index_comes_with_no_effective_limit_for_the_whole_job() -> None:
    by = context_of({"failure": {"ignoreDisruptions": True, "backoffLimitPerIndex": 2}})
    done = await mutated(job(OWN, completionMode="Indexed", parallelism=4, completions=4), by=by)
    assert done["spec"]["backoffLimit"] == 2**31 - 1
    assert done["spec"]["podFailurePolicy"] == {"rules": RULES}


RESTARTING = context_of({"failure": {"restartContainerOnExitCodes": [75, 76]}})


def own_rule(action: str, operator: str, *codes: int) -> Object:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes)}}


@pytest.mark.parametrize(
    ("rules", "restarted"),
    [
        ([own_rule("FailJob", "In", 75)], [76]),
        ([own_rule("Ignore", "In", 75), own_rule("Count", "In", 76)], []),
        ([own_rule("FailJob", "NotIn", 76)], [76]),
        ([own_rule("FailJob", "In", 1)], [75, 76]),
        (RULES, [75, 76]),
        ([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": "odd"}}], [75, 76]),
    ],
)
async def test_containers_restart_on_no_exit_code_that_the_jobs_own_rules_act_on(
    rules: list[Object], restarted: list[int]
) -> None:
    """The rule would never see the code of a container that starts again."""
    before = job(OWN, podFailurePolicy={"rules": rules})
    made = await mutated(before, by=RESTARTING)
    template = made["spec"]["template"]
    its_pod = {"kind": "Pod", "apiVersion": "v1", **template}
    done = await mutated(its_pod, by=RESTARTING)
    found = {
        code
        for container in done["spec"]["containers"]
        for rule in container.get("restartPolicyRules", ())
        for code in rule["exitCodes"]["values"]
    }
    assert found == set(restarted)
    warnings = (await mutation(before, by=RESTARTING)).warnings
    spared = sorted({75, 76} - {*restarted})
    assert len(warnings) == bool(spared)
    assert all(f"not restarted on {', '.join(map(str, spared))}" in text for text in warnings)


async def test_applying_a_job_again_keeps_the_exit_codes_annotation_of_its_pods() -> None:
    original = job(OWN, podFailurePolicy={"rules": [own_rule("FailJob", "In", 75)]})
    old = await mutated(original, by=RESTARTING)
    changed = {**original, "spec": {**original["spec"], "suspend": True}}
    assert (await updated(changed, old, by=RESTARTING))["spec"]["template"] == old["spec"][
        "template"
    ]


async def test_applying_the_original_job_again_keeps_the_injected_values() -> None:
    original = job(TRAINING, parallelism=8, completions=8)
    old = await mutated(original)
    changed = job(TRAINING, parallelism=8, completions=8, suspend=True)
    done = await updated(changed, old)
    assert done["spec"] == {**old["spec"], "suspend": True}
    assert injected(done) == injected(old)


async def test_what_an_author_changes_later_is_not_put_back() -> None:
    old = await mutated(job(TRAINING, parallelism=8, completions=8))
    done = await updated(job(TRAINING, parallelism=8, completions=8, backoffLimit=3), old)
    assert done["spec"]["backoffLimit"] == 3
    assert done["spec"]["podFailurePolicy"] == old["spec"]["podFailurePolicy"]
    again = await updated(job(TRAINING, parallelism=8, completions=8), done)
    assert again["spec"]["backoffLimit"] == 6, "neither what was injected nor what replaced it"


async def test_a_job_whose_spec_is_unchanged_is_not_touched() -> None:
    old = await mutated(job(TRAINING))
    bare = {**old, "metadata": {**old["metadata"], "annotations": TRAINING}}
    assert await mutation(bare, operation="UPDATE", oldObject=old) == Mutation()


@pytest.mark.parametrize("annotations", [{ANNOTATION: "inference"}, {}])
async def test_another_policy_for_a_job_that_runs_is_a_warning(annotations: Object) -> None:
    old = await mutated(job(TRAINING))
    new = {**old, "metadata": {**old["metadata"], "annotations": annotations}}
    done = await mutation(new, operation="UPDATE", oldObject=old)
    assert done.patch == ()
    (warning,) = done.warnings
    assert warning.startswith(
        "fettle: fettle.dev/policy changed, but this Job keeps what it was created"
    )
