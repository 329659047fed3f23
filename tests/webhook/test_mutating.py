"""What is injected into pods and Jobs, and what is left alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle import policy, view
from fettle.policies import Policies
from fettle.policy import BUILT_IN
from fettle.view import View
from tests.webhook.mutations import cluster, injected, means, mutated, mutation, updated
from tests.webhook.reviews import (
    CLAIMS,
    NOT_READY,
    UNREACHABLE,
    Object,
    encoded,
    job,
    pod,
    review,
    tolerations,
)
from webhook.gates import Gates
from webhook.mutating import Means, Mutation, mutate
from webhook.patches import apply
from webhook.review import decode

TRAINING = {policy.ANNOTATION: "training"}
OWN = {policy.ANNOTATION: "own"}
GPU = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}


def seconds(object: Object) -> dict[str, int]:
    return {e["key"]: e["tolerationSeconds"] for e in object["spec"]["tolerations"]}


# --- pods: node tolerations


async def test_the_defaults_tolerations_are_edited_in_place() -> None:
    done = await mutated(pod(TRAINING))
    assert done["spec"]["tolerations"] == tolerations(60)
    assert injected(done) == {
        "policy": "training",
        "values": {
            f"spec.tolerations[{NOT_READY}].tolerationSeconds": 60,
            f"spec.tolerations[{UNREACHABLE}].tolerationSeconds": 60,
        },
    }


async def test_the_patch_is_minimal_and_leaves_unknown_fields_alone() -> None:
    before = pod(TRAINING)
    patch = (await mutation(before)).patch
    assert [str(operation) for operation in patch] == [
        "replace /spec/tolerations/0/tolerationSeconds",
        "replace /spec/tolerations/1/tolerationSeconds",
        "add /metadata/annotations/fettle.dev~1injected",
    ]
    done = apply(before, patch)
    assert done["spec"]["fieldOfTheFuture"] == ["kept"]
    assert done["spec"]["containers"] == before["spec"]["containers"]


@pytest.mark.parametrize("absent", [[], None])
async def test_where_nobody_added_tolerations_they_are_appended(absent: Any) -> None:
    done = await mutated(pod(TRAINING, tolerations=absent))
    assert seconds(done) == {NOT_READY: 60, UNREACHABLE: 60}


async def test_tolerations_of_other_taints_stay_where_they_are() -> None:
    other = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    done = await mutated(pod(TRAINING, tolerations=[other, *tolerations()]))
    assert done["spec"]["tolerations"] == [other, *tolerations(60)]


@pytest.mark.parametrize(
    "written",
    [
        {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"},
        {"key": NOT_READY, "operator": "Exists", "tolerationSeconds": 300},
        {"key": NOT_READY, "operator": "Equal", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": NOT_READY, "effect": "NoExecute"},
    ],
)
async def test_what_the_author_wrote_wins(written: Object) -> None:
    other = tolerations()[1]
    done = await mutated(pod(TRAINING, tolerations=[written, other]))
    assert done["spec"]["tolerations"] == [written, {**other, "tolerationSeconds": 60}]


async def test_a_toleration_of_everything_is_the_authors_word_too() -> None:
    everything = {"operator": "Exists"}
    assert (await mutation(pod(TRAINING, tolerations=[everything]))).patch == ()


@pytest.mark.parametrize(
    "beside",
    [
        {"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"},
        {"key": NOT_READY, "operator": "Equal", "value": "x", "effect": "NoExecute"},
        {"key": NOT_READY, "operator": "Gt", "value": "1", "effect": "NoExecute"},
    ],
)
async def test_a_toleration_that_does_not_match_the_taint_says_nothing_about_it(
    beside: Object,
) -> None:
    done = await mutated(pod(TRAINING, tolerations=[beside]))
    assert done["spec"]["tolerations"] == [beside, *tolerations(60)]


async def test_a_policy_that_names_the_default_or_nothing_injects_nothing() -> None:
    own = policy.Policy(name="own", tolerations=policy.Tolerations(not_ready_seconds=300))
    request = decode(encoded(review(pod({policy.ANNOTATION: "own"}))))
    assert (await mutate(request, cluster(), Means(Policies({**BUILT_IN, "own": own})))).patch == ()


# --- pods: which policy


async def test_without_a_named_policy_nothing_is_injected() -> None:
    assert await mutation(pod()) == Mutation()
    assert await mutation(pod(containers=[{"name": "main", "resources": GPU}])) == Mutation()


async def test_the_namespaces_label_speaks_for_pods_that_use_devices() -> None:
    labelled = cluster({policy.ANNOTATION: "inference"})
    done = await mutated(pod(containers=[{"name": "main", "resources": GPU}]), labelled)
    assert seconds(done) == {NOT_READY: 30, UNREACHABLE: 30}
    assert injected(done)["policy"] == "inference"
    done = await mutated(pod(resourceClaims=CLAIMS), labelled)
    assert seconds(done) == {NOT_READY: 30, UNREACHABLE: 30}
    assert await mutation(pod(), labelled) == Mutation()


async def test_the_pods_annotation_comes_before_the_namespaces_label() -> None:
    done = await mutated(
        pod(TRAINING, resourceClaims=CLAIMS), cluster({policy.ANNOTATION: "inference"})
    )
    assert injected(done)["policy"] == "training"


async def test_an_unknown_policy_is_a_warning_and_injects_nothing() -> None:
    done = await mutation(pod({policy.ANNOTATION: "trainign"}))
    assert done.patch == ()
    assert "'trainign'" in done.warnings[0]


@pytest.mark.parametrize("known", [cluster(synced=False), view.EMPTY])
async def test_labels_that_are_not_known_yet_leave_the_policy_undecided(known: View) -> None:
    done = await mutation(pod(resourceClaims=CLAIMS), known)
    assert done.undecided == "namespace"
    assert (await mutation(pod(TRAINING, resourceClaims=CLAIMS), known)).undecided == ""
    assert (await mutation(pod(), known)).undecided == ""


# --- pods: the marker


async def test_a_pod_with_claims_gets_the_marker_as_limit_and_request() -> None:
    done = await mutated(pod(resourceClaims=CLAIMS))
    marker = {"fettle.dev/claims": "1"}
    assert done["spec"]["containers"][0]["resources"] == {"limits": marker, "requests": marker}
    assert done["spec"]["containers"][1]["resources"] == {}
    assert injected(done) == {
        "policy": None,
        "values": {
            f"spec.containers[0].resources.{part}[fettle.dev/claims]": "1"
            for part in ("limits", "requests")
        },
    }


async def test_other_resources_of_the_container_stay() -> None:
    resources = {"limits": {"cpu": "4"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    done = await mutated(
        pod(resourceClaims=CLAIMS, containers=[{"name": "main", "resources": resources}])
    )
    assert done["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "4", "fettle.dev/claims": "1"},
        "requests": {"cpu": "1", "memory": "1Gi", "fettle.dev/claims": "1"},
    }


async def test_a_container_without_resources_gets_them() -> None:
    done = await mutated(pod(resourceClaims=CLAIMS, containers=[{"name": "main"}]))
    assert done["spec"]["containers"][0]["resources"]["limits"] == {"fettle.dev/claims": "1"}


async def test_an_extended_resource_by_class_name_needs_the_marker_too() -> None:
    limits = {"deviceclass.resource.kubernetes.io/gpu": "1"}
    done = await mutated(pod(containers=[{"name": "main", "resources": {"limits": limits}}]))
    assert done["spec"]["containers"][0]["resources"]["limits"]["fettle.dev/claims"] == "1"


async def test_a_marker_on_another_container_is_enough() -> None:
    marked = {"limits": {"fettle.dev/claims": "1"}, "requests": {"fettle.dev/claims": "1"}}
    containers = [{"name": "main"}, {"name": "side", "resources": marked}]
    assert await mutation(pod(resourceClaims=CLAIMS, containers=containers)) == Mutation()


async def test_policy_and_marker_together_are_one_record() -> None:
    done = await mutated(pod(TRAINING, resourceClaims=CLAIMS))
    assert len(injected(done)["values"]) == 4


async def test_an_earlier_record_is_added_to() -> None:
    """As when another webhook adds a claim, and the API server asks again."""
    first = await mutated(pod(TRAINING))
    first["spec"]["resourceClaims"] = CLAIMS
    second = await mutated(first)
    assert injected(second)["policy"] == "training"
    assert len(injected(second)["values"]) == 4


async def test_a_record_that_somebody_spoilt_is_replaced() -> None:
    done = await mutated(pod({**TRAINING, "fettle.dev/injected": "[1"}))
    assert injected(done)["policy"] == "training"


async def test_a_static_pods_mirror_is_left_alone() -> None:
    mirror = pod({**TRAINING, "kubernetes.io/config.mirror": "x"}, resourceClaims=CLAIMS)
    assert await mutation(mirror) == Mutation()


# --- pods: containers that start again

RESTARTING = means({"failure": {"restartContainerOnExitCodes": [42, 3]}})


async def test_containers_of_a_pod_that_never_restarts_start_again_on_the_policys_codes() -> None:
    done = await mutated(pod(OWN, restartPolicy="Never"), by=RESTARTING)
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3, 42]}}]
    for container in done["spec"]["containers"]:
        assert container["restartPolicy"] == "Never"
        assert container["restartPolicyRules"] == rules
    assert injected(done)["values"]["spec.containers[main].restartPolicyRules"] == rules


async def test_a_container_that_says_itself_when_it_restarts_is_left_alone() -> None:
    containers = [{"name": "main", "restartPolicy": "OnFailure"}, {"name": "side"}]
    done = await mutated(pod(OWN, restartPolicy="Never", containers=containers), by=RESTARTING)
    assert done["spec"]["containers"][0] == containers[0]
    assert "restartPolicyRules" in done["spec"]["containers"][1]


@pytest.mark.parametrize("restart", ["Always", "OnFailure", None])
async def test_where_containers_restart_anyway_there_is_nothing_to_inject(
    restart: str | None,
) -> None:
    assert (await mutation(pod(OWN, restartPolicy=restart), by=RESTARTING)).patch == ()


async def test_a_cluster_too_old_for_restart_rules_gets_none() -> None:
    old = RESTARTING._replace(gates=Gates(tolerations=True, alternatives=True))
    assert (await mutation(pod(OWN, restartPolicy="Never"), by=old)).patch == ()
    unknown = await mutation(pod(OWN, restartPolicy="Never"), by=RESTARTING._replace(gates=None))
    assert (unknown.patch, unknown.undecided) == ((), "gates")


# --- Jobs

RULES = [
    {"action": "Ignore", "onPodConditions": [{"type": condition, "status": "True"}]}
    for condition in ("DisruptionTarget", "fettle.dev/DeviceFailed")
]


async def test_a_training_job_gets_the_transaction_and_its_pods_the_policy() -> None:
    done = await mutated(job(TRAINING, parallelism=8, completions=8))
    assert done["spec"]["podFailurePolicy"] == {"rules": RULES}
    assert done["spec"]["podReplacementPolicy"] == "Failed"
    assert done["spec"]["backoffLimit"] == 48
    assert done["spec"]["template"]["metadata"]["annotations"] == TRAINING
    assert injected(done) == {
        "policy": "training",
        "values": {
            "spec.podFailurePolicy": {"rules": RULES},
            "spec.podReplacementPolicy": "Failed",
            "spec.backoffLimit": 48,
            "spec.template.metadata.annotations[fettle.dev/policy]": "training",
        },
    }


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ({}, 6),
        ({"backoffLimit": 0, "parallelism": 8, "completions": 8}, 0),
        ({"backoffLimit": 7, "parallelism": 8, "completions": 8}, 7),
        ({"parallelism": 8, "completions": 2}, 12),
        ({"parallelism": 8, "completions": None}, 48),
        ({"parallelism": 0}, 6),
        ({"parallelism": 2**31 - 1, "completions": None}, 2**31 - 1),
        ({"parallelism": 8, "completions": 8, "backoffLimitPerIndex": 1}, 6),
        ({"backoffLimit": 2**31 - 1, "backoffLimitPerIndex": 1}, 2**31 - 1),
    ],
)
async def test_the_backoff_limit_is_six_for_each_pod_at_a_time_unless_it_was_written(
    spec: Object, limit: int
) -> None:
    assert (await mutated(job(TRAINING, **spec)))["spec"]["backoffLimit"] == limit


async def test_a_replacement_policy_that_is_right_already_is_not_touched() -> None:
    patch = (await mutation(job(TRAINING, podReplacementPolicy="Failed"))).patch
    assert "/spec/podReplacementPolicy" not in [operation.path for operation in patch]


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
    for condition in ("DisruptionTarget", policy.DEVICE_FAILED)
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
async def test_a_pod_failure_policy_of_its_own_is_told_what_it_does_without(
    rules: list[Object], says: list[str]
) -> None:
    by = means({"failure": {"ignoreDisruptions": True, "failJobOnExitCodes": [42]}})
    own = job({policy.ANNOTATION: "own"}, podFailurePolicy={"rules": rules})
    warnings = (await mutation(own, by=by)).warnings
    assert len(warnings) == bool(says)
    for text in says:
        assert text in warnings[0]


async def test_a_pod_failure_policy_that_was_injected_is_no_reason_to_warn() -> None:
    done = await mutated(job(TRAINING))
    assert (await mutation(done)).warnings == ()


@pytest.mark.parametrize("restart", ["OnFailure", None])
async def test_another_restart_policy_is_a_warning_and_no_transaction(
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
    done = await mutated(job({policy.ANNOTATION: "inference", policy.MIN_SCORE_ANNOTATION: "0.5"}))
    assert "podFailurePolicy" not in done["spec"]
    assert done["spec"]["template"]["metadata"]["annotations"] == {
        policy.ANNOTATION: "inference",
        policy.MIN_SCORE_ANNOTATION: "0.5",
    }


async def test_what_the_template_says_itself_stays() -> None:
    before = job(TRAINING)
    before["spec"]["template"]["metadata"]["annotations"] = {policy.ANNOTATION: "scavenger"}
    done = await mutated(before)
    assert done["spec"]["template"]["metadata"]["annotations"][policy.ANNOTATION] == "scavenger"
    assert "podFailurePolicy" in done["spec"]


async def test_a_policy_named_only_on_the_template_is_the_jobs_too() -> None:
    before = job()
    before["spec"]["template"]["metadata"]["annotations"] = TRAINING
    assert "podFailurePolicy" in (await mutated(before))["spec"]


async def test_the_namespaces_label_speaks_for_jobs_that_use_devices() -> None:
    labelled = cluster({policy.ANNOTATION: "training"})
    done = await mutated(job(template={"resourceClaims": CLAIMS}), labelled)
    assert "podFailurePolicy" in done["spec"]
    assert "annotations" not in done["spec"]["template"]["metadata"]
    assert await mutation(job(), labelled) == Mutation()


FAILING = means({"failure": {"ignoreDisruptions": True, "failJobOnExitCodes": [42, 3]}})


async def test_exit_codes_come_after_disruptions_since_an_evicted_pod_has_one_too() -> None:
    done = await mutated(job(OWN), by=FAILING)
    codes = {"operator": "In", "values": [3, 42]}
    assert done["spec"]["podFailurePolicy"]["rules"] == [
        *RULES,
        {"action": "FailJob", "onExitCodes": codes},
    ]


async def test_exit_codes_alone_are_a_transaction_without_more_tries() -> None:
    by = means({"failure": {"failJobOnExitCodes": [42]}})
    done = await mutated(job(OWN, parallelism=8, completions=8), by=by)
    (rule,) = done["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert done["spec"]["podReplacementPolicy"] == "Failed"
    assert done["spec"]["backoffLimit"] == 6


PER_INDEX = means({"failure": {"backoffLimitPerIndex": 2}})


@pytest.mark.parametrize(
    ("spec", "per_index", "limit"),
    [
        ({"completionMode": "Indexed"}, 2, 2**31 - 1),
        ({"completionMode": "Indexed", "backoffLimit": 9}, 2, 9),
        ({"completionMode": "Indexed", "backoffLimitPerIndex": 0}, 0, 6),
        ({"completionMode": "NonIndexed"}, None, 6),
    ],
)
async def test_each_index_gets_its_own_limit_where_there_are_indexes(
    spec: Object, per_index: int | None, limit: int
) -> None:
    done = await mutated(job(OWN, **spec), by=PER_INDEX)
    assert done["spec"].get("backoffLimitPerIndex") == per_index
    assert done["spec"]["backoffLimit"] == limit


async def test_a_limit_per_index_leaves_the_tries_of_the_whole_job_unlimited() -> None:
    by = means({"failure": {"ignoreDisruptions": True, "backoffLimitPerIndex": 2}})
    done = await mutated(job(OWN, completionMode="Indexed", parallelism=4, completions=4), by=by)
    assert done["spec"]["backoffLimit"] == 2**31 - 1
    assert done["spec"]["podFailurePolicy"] == {"rules": RULES}


async def test_to_apply_the_original_job_again_keeps_what_was_injected() -> None:
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


async def test_a_job_whose_spec_is_unchanged_is_not_touched() -> None:
    old = await mutated(job(TRAINING))
    bare = {**old, "metadata": {**old["metadata"], "annotations": TRAINING}}
    assert await mutation(bare, operation="UPDATE", oldObject=old) == Mutation()


@pytest.mark.parametrize("annotations", [{policy.ANNOTATION: "inference"}, {}])
async def test_another_policy_for_a_job_that_runs_is_a_warning(annotations: Object) -> None:
    old = await mutated(job(TRAINING))
    new = {**old, "metadata": {**old["metadata"], "annotations": annotations}}
    done = await mutation(new, operation="UPDATE", oldObject=old)
    assert done.patch == ()
    (warning,) = done.warnings
    assert warning.startswith("fettle: fettle.dev/policy changed, but this Job goes on as it was")


# --- everything else


@pytest.mark.parametrize(
    ("object", "request_fields"),
    [
        (pod(TRAINING, resourceClaims=CLAIMS), {"operation": "UPDATE"}),
        (job(TRAINING), {"operation": "UPDATE"}),
        (pod(TRAINING, resourceClaims=CLAIMS), {"subResource": "status"}),
        ({**pod(TRAINING), "kind": "Podlike"}, {}),
        ({**job(TRAINING), "apiVersion": "example.com/v1"}, {}),
        (job(TRAINING), {"operation": "CONNECT"}),
        (job(TRAINING), {"userInfo": {"username": "system:kube-scheduler"}}),
    ],
)
async def test_what_is_not_ours_to_change_is_left_alone(
    object: Object, request_fields: Object
) -> None:
    operation = request_fields.pop("operation", "CREATE")
    assert await mutation(object, operation=operation, **request_fields) == Mutation()


@given(
    name=st.sampled_from(["training", "inference", "scavenger", "none", ""]),
    listed=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "key": st.sampled_from([NOT_READY, UNREACHABLE, "other", ""]),
                "operator": st.sampled_from(["Exists", "Equal", ""]),
                "effect": st.sampled_from(["NoExecute", "NoSchedule", ""]),
                "tolerationSeconds": st.sampled_from([300, 60, 1]),
            },
        ),
        max_size=4,
    ),
    claims=st.booleans(),
)
async def test_any_pod_is_stable_after_one_pass(
    name: str, listed: list[Object], claims: bool
) -> None:
    spec: Object = {"tolerations": listed, **({"resourceClaims": CLAIMS} if claims else {})}
    done = await mutated(pod({policy.ANNOTATION: name}, **spec))
    after = done["spec"]["tolerations"]
    assert len(after) <= len(listed) + 2
    for old, new in zip(listed, after, strict=False):
        assert new == old or old in tolerations()  # only the API's own defaults are edited
