"""The policy reaches pods through the templates of each kind of workload."""

import copy
from typing import Any

import pytest

from fettle.config import WorkloadSettings
from fettle.model.annotations import ANNOTATION, MIN_SCORE_ANNOTATION
from tests.webhook.mutate.workloads import JOBSET, KINDS, TRAINING, T, at, pod_template, workload
from tests.webhook.mutations import (
    CONTEXT,
    cluster,
    context_of,
    injected,
    mutated,
    mutation,
    updated,
)
from tests.webhook.reviews import CLAIMS, Object
from webhook.cluster_features import PreservedFields
from webhook.mutate.annotations import WORKLOADS, with_configured
from webhook.mutate.mutation import Mutation

SCORE = {MIN_SCORE_ANNOTATION: "0.5"}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_policy_is_stamped_on_every_pod_template(kind: str) -> None:
    spec, paths = KINDS[kind]
    before = workload(kind, spec, {**TRAINING, **SCORE, "other": "x"})
    done = await mutated(before)
    for path in paths:
        assert at(done, path)["metadata"]["annotations"] == {**TRAINING, **SCORE}
        assert at(done, path)["spec"] == at(before, path)["spec"]
    stamps = [name for name in injected(done)["values"] if "annotations" in name]
    assert len(stamps) == 2 * len(paths)
    assert injected(done)["policy"] == "training"


def test_all_kinds_of_the_table_are_tried_here_or_below() -> None:
    tried = {tuple(kind.split("/")) for kind in KINDS}
    assert set(WORKLOADS) - tried == {
        ("trainer.kubeflow.org", "TrainJob"),
        ("resource.k8s.io", "ResourceClaimTemplate"),
    }


async def test_a_train_job_hands_the_policy_to_the_jobset_made_of_it() -> None:
    theirs = {"manager": "kueue.x-k8s.io/manager"}
    for before in ({}, {"runtimePatches": [theirs]}):
        spec = {"runtimeRef": {"name": "r"}, **before}
        done = await mutated(workload("trainer.kubeflow.org/TrainJob", spec))
        *others, ours = done["spec"]["runtimePatches"]
        assert others == before.get("runtimePatches", [])
        assert ours["manager"] == "fettle.dev/webhook"
        of_jobset = ours["trainingRuntimeSpec"]["template"]
        assert of_jobset == {"metadata": {"annotations": TRAINING}}
        name = "spec.runtimePatches[fettle.dev/webhook]"
        assert injected(done)["values"] == {name: TRAINING}


async def test_a_train_job_that_is_applied_again_keeps_the_patch_that_hands_the_policy_on() -> None:
    before = workload("trainer.kubeflow.org/TrainJob", {"runtimeRef": {"name": "r"}})
    stored = await mutated(before)
    theirs = {"manager": "kueue.x-k8s.io/manager"}
    spec = {**before["spec"], "trainer": {"numNodes": 3}, "runtimePatches": [theirs]}
    again = {**before, "spec": spec}
    done = await updated(again, stored)
    assert done["spec"]["runtimePatches"] == [theirs, *stored["spec"]["runtimePatches"]]
    assert injected(done) == injected(stored)
    forged = {**stored, "metadata": {**stored["metadata"], "annotations": TRAINING}}
    unrecorded = await mutation(again, operation="UPDATE", oldObject=forged)
    assert "fettle.dev/webhook" not in str(unrecorded.patch)


async def test_a_template_without_metadata_gets_it() -> None:
    done = await mutated(workload("apps/Deployment", {"template": {"spec": T["spec"]}}))
    assert done["spec"]["template"]["metadata"] == {"annotations": TRAINING}


async def test_what_a_template_says_itself_stays() -> None:
    own = {**T, "metadata": {"annotations": {ANNOTATION: "scavenger"}}}
    before = workload("apps/Deployment", {"template": own})
    assert (await mutation(before)).patch == ()


async def test_a_workload_without_annotations_is_left_alone() -> None:
    for kind, (spec, _) in KINDS.items():
        assert await mutation(workload(kind, spec, {"other": "x"})) == Mutation()


async def test_an_unknown_policy_is_a_warning_where_its_author_reads_it() -> None:
    before = workload("apps/Deployment", {"template": T}, {ANNOTATION: "trainig"})
    done = await mutation(before)
    assert "'trainig'" in done.warnings[0]
    assert done.unknown == ("trainig",)


@pytest.mark.parametrize(
    ("kind", "stays"), [("batch/Job", True), (JOBSET, True), ("apps/Deployment", False)]
)
async def test_who_comes_before_its_policy_is_told_what_to_do_where_it_stays_so(
    kind: str, stays: bool
) -> None:
    before = workload(kind, KINDS[kind][0], {ANNOTATION: "new"})
    _, *more = (await mutation(before)).warnings
    name = kind.rpartition("/")[2]
    assert more == stays * [
        f"fettle: a policy takes effect only when the {name} is created: apply the DevicePolicy "
        f"first, then delete and recreate the {name}"
    ]


async def test_kinds_of_the_settings_come_beside_those_known() -> None:
    row = WorkloadSettings(
        group="example.com", kind="Gang", templates=("spec.members.*.pods.template",)
    )
    by = CONTEXT._replace(workloads=with_configured([row]))
    gang = workload("example.com/Gang", {"members": [{"pods": {"template": T}}, {"pods": {}}]})
    done = await mutated(gang, by=by)
    assert done["spec"]["members"][0]["pods"]["template"]["metadata"]["annotations"] == TRAINING
    assert done["spec"]["members"][1] == {"pods": {}}
    assert await mutation(gang) == Mutation()


# --- made by controllers


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_controller_made_is_not_made_different_from_its_makers_template(
    kind: str,
) -> None:
    """A Deployment whose ReplicaSet differs from its template makes one after another."""
    made = workload(kind, KINDS[kind][0])
    made["metadata"]["ownerReferences"] = [{"kind": "Maker", "controller": True}]
    done = await mutation(made)
    assert bool(done.patch) is (kind in ("batch/Job", "jobset.x-k8s.io/JobSet"))


async def test_an_owner_that_is_no_controller_does_not_matter() -> None:
    owned = workload("apps/ReplicaSet", {"template": T})
    owned["metadata"]["ownerReferences"] = [{"kind": "Application", "name": "x"}]
    assert (await mutation(owned)).patch


# --- changed


async def test_a_stamp_follows_the_workloads_annotation() -> None:
    old = await mutated(workload("apps/Deployment", {"template": T}))
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][ANNOTATION] = "inference"
    done = await updated(new, old)
    assert done["spec"]["template"]["metadata"]["annotations"] == {ANNOTATION: "inference"}
    assert injected(done)["policy"] == "inference"


async def test_the_record_names_no_policy_once_the_workload_names_one_that_nobody_has() -> None:
    old = await mutated(workload("apps/Deployment", {"template": T}))
    assert injected(old)["policy"] == "training"
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][ANNOTATION] = "trainig"
    done = await updated(new, old)
    assert injected(done)["policy"] is None
    assert [*injected(done)["values"].values()] == ["trainig"]


async def test_a_stamp_goes_when_the_workloads_annotation_does() -> None:
    old = await mutated(workload("apps/Deployment", {"template": T}))
    new = copy.deepcopy(old)
    del new["metadata"]["annotations"][ANNOTATION]
    done = await updated(new, old)
    assert done["spec"]["template"]["metadata"]["annotations"] == {}
    assert "fettle.dev/injected" not in done["metadata"]["annotations"]


async def test_replacing_a_workload_by_its_original_starts_no_rollout() -> None:
    original = workload("apps/Deployment", {"template": T, "replicas": 2})
    old = await mutated(original)
    done = await updated({**original, "spec": {**original["spec"], "replicas": 3}}, old)
    assert done["spec"]["template"] == old["spec"]["template"]
    assert injected(done) == injected(old)


async def test_an_author_who_takes_over_a_stamp_keeps_it() -> None:
    old = await mutated(workload("apps/Deployment", {"template": T}))
    new = copy.deepcopy(old)
    new["spec"]["template"]["metadata"]["annotations"][ANNOTATION] = "scavenger"
    assert (await mutation(new, operation="UPDATE", oldObject=old)).patch == ()


async def test_a_workload_that_names_a_policy_later_is_stamped_then() -> None:
    old = workload("apps/Deployment", {"template": T}, {"other": "x"})
    done = await updated(workload("apps/Deployment", {"template": T}), old)
    assert done["spec"]["template"]["metadata"]["annotations"] == TRAINING


@pytest.mark.parametrize("kind", ["apps/Deployment", "apps/StatefulSet", "apps/DaemonSet"])
async def test_a_workload_that_nothing_was_stamped_on_starts_no_rollout_by_itself(
    kind: str,
) -> None:
    """It was made in mode `observe`, or while the webhook was away. Whatever is changed of it once
    Fettle enforces, its pods run on until somebody changes their template."""
    old = workload(kind, {"template": T, "replicas": 2})
    new = copy.deepcopy(old)
    new["spec"]["replicas"] = 3
    new["metadata"]["annotations"]["changed-by"] = "somebody"
    assert (await mutation(new, operation="UPDATE", oldObject=old)).patch == ()
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "newer"
    done = await updated(new, old)
    assert done["spec"]["template"]["metadata"]["annotations"] == TRAINING


async def test_a_forged_record_restores_only_fields_that_fettle_injects() -> None:
    """As when an author wants to keep what an administrator takes away."""
    kind = "kubeflow.org/PyTorchJob"
    spec, _ = KINDS[kind]
    forged = '{"values":{"spec.runPolicy.hostNetwork":true,"spec.suspend":true}}'
    metadata = {ANNOTATION: "training", "fettle.dev/injected": forged}
    old = workload(kind, {**spec, "runPolicy": {"hostNetwork": True}, "suspend": True}, metadata)
    new = workload(kind, {**spec, "runPolicy": {}}, metadata)
    assert (await mutation(new, operation="UPDATE", oldObject=old)).patch == ()


# --- JobSets

RULE = {
    "name": "lost",
    "action": "RestartJobAndIgnoreMaxRestarts",
    "onJobFailureReasons": ["PodFailurePolicy"],
    "onJobFailureMessagePatterns": ["exit code (7|8)"],
}
RESTARTED = context_of({"failure": {"jobSet": {"maxRestarts": 3, "rules": [RULE]}}})
OWN = {ANNOTATION: "own"}


async def test_a_jobset_gets_the_policys_failure_policy_and_nothing_else_in_it() -> None:
    done = await mutated(workload(JOBSET, KINDS[JOBSET][0], OWN), by=RESTARTED)
    assert done["spec"]["failurePolicy"] == {"maxRestarts": 3, "rules": [RULE]}
    assert injected(done)["values"]["spec.failurePolicy"] == done["spec"]["failurePolicy"]


@pytest.mark.parametrize(
    ("written", "replaced"),
    [
        (None, True),
        ({}, True),
        ({"maxRestarts": 0}, True),
        ({"maxRestarts": 0, "restartStrategy": "Recreate"}, True),
        ({"maxRestarts": 1}, False),
        ({"maxRestarts": 0, "restartStrategy": "BlockingRecreate"}, False),
        ({"maxRestarts": 0, "rules": [{"name": "x", "action": "FailJobSet"}]}, False),
    ],
)
async def test_a_failure_policy_of_default_values_counts_as_not_written(
    written: Object | None, replaced: bool
) -> None:
    spec = {**KINDS[JOBSET][0], "failurePolicy": written}
    done = await mutated(workload(JOBSET, spec, OWN), by=RESTARTED)
    assert (done["spec"]["failurePolicy"] == {"maxRestarts": 3, "rules": [RULE]}) is replaced
    assert replaced or done["spec"]["failurePolicy"] == written


ON = {"name": "of_some", "action": "FailJobSet"}


@pytest.mark.parametrize(
    ("targets", "kept", "says"),
    [
        (["a"], ["a"], ""),
        (["a", "b"], ["a", "b"], ""),
        (["b", "workers"], ["b"], "there is no replicated Job workers"),
        (["workers"], None, "its rule of_some is left out"),
    ],
)
async def test_a_jobset_rule_names_only_jobs_that_exist_and_is_dropped_without_any(
    targets: list[str], kept: list[str] | None, says: str
) -> None:
    """JobSet refuses other names, and takes an empty list for all of its Jobs."""
    rules = [{**ON, "targetReplicatedJobs": targets}, RULE]
    by = context_of({"failure": {"jobSet": {"maxRestarts": 3, "rules": rules}}})
    before = workload(JOBSET, KINDS[JOBSET][0], OWN)
    done = await mutated(before, by=by)
    expected = [] if kept is None else [{**ON, "targetReplicatedJobs": kept}]
    assert done["spec"]["failurePolicy"]["rules"] == [*expected, RULE]
    warnings = (await mutation(before, by=by)).warnings
    assert [says in warning for warning in warnings] == [True] * bool(says)


AGENT: Object = {
    "name": "agent",
    "env": [{"name": "JOBSET_NAME", "value": "x"}, {"name": "POD_NAME", "value": "x"}],
}
IN_PLACE: Object = {
    "completions": 2,
    "parallelism": 2,
    "backoffLimit": 2147483647,
    "podReplacementPolicy": "Failed",
}
IN_PLACE_POLICY: Object = {"maxRestarts": 3, "restartStrategy": "InPlaceRestart", "rules": [RULE]}


def restarting(agent: Object | None = AGENT, **job: Any) -> Object:
    """JobSet's examples have the agent as an init container, or start the worker by it."""
    template = pod_template(restartPolicy="Never", initContainers=[agent] if agent else [])
    spec = {"template": template, **IN_PLACE, **job}
    return workload(JOBSET, {"replicatedJobs": [{"name": "a", "template": {"spec": spec}}]}, OWN)


async def test_a_jobset_that_may_restart_in_place_does_if_its_policy_says_so() -> None:
    by = context_of({"failure": {"jobSet": IN_PLACE_POLICY}})
    done = await mutated(restarting(), by=by)
    assert done["spec"]["failurePolicy"] == IN_PLACE_POLICY


@pytest.mark.parametrize(
    ("jobset", "says"),
    [
        (restarting(backoffLimit=6), "spec.backoffLimit is 6: write backoffLimit: 2147483647"),
        (restarting(podReplacementPolicy=None), "podReplacementPolicy is not set"),
        (restarting(completions=4), "completions is 4, parallelism 2"),
        (restarting(agent=None), "has no container of JobSet's in-place-restart-agent"),
        (restarting(agent={"name": "agent"}), "has no container of"),
    ],
)
async def test_a_jobset_that_would_be_refused_in_place_is_restarted_as_a_whole(
    jobset: Object, says: str
) -> None:
    by = context_of({"failure": {"jobSet": IN_PLACE_POLICY}})
    done = await mutated(jobset, by=by)
    assert done["spec"]["failurePolicy"] == {"maxRestarts": 3, "rules": [RULE]}
    warnings = (await mutation(jobset, by=by)).warnings
    (warning,) = (one for one in warnings if "restartStrategy" in one)
    assert "restartStrategy: InPlaceRestart is left out: " in warning
    assert says in warning


async def test_a_jobset_whose_agent_is_switched_off_is_restarted_as_a_whole() -> None:
    jobset = restarting()
    jobset["metadata"]["annotations"]["jobset.sigs.k8s.io/disable-in-place-restart"] = "true"
    done = await mutated(jobset, by=context_of({"failure": {"jobSet": IN_PLACE_POLICY}}))
    assert "restartStrategy" not in done["spec"]["failurePolicy"]


@pytest.mark.parametrize("preserved", [None, PreservedFields()])
async def test_no_jobset_restarts_in_place_where_that_is_not_served(
    preserved: PreservedFields | None,
) -> None:
    by = context_of({"failure": {"jobSet": IN_PLACE_POLICY}})._replace(preserved=preserved)
    done = await mutated(restarting(), by=by)
    assert done["spec"]["failurePolicy"] == {"maxRestarts": 3, "rules": [RULE]}
    assert any("serves does not have it" in one for one in (await mutation(restarting(), by=by))[1])


async def test_a_failure_policy_whose_rules_are_all_for_absent_jobs_is_not_injected() -> None:
    rules = [{**ON, "targetReplicatedJobs": ["workers"]}]
    by = context_of({"failure": {"jobSet": {"rules": rules}}})
    done = await mutated(workload(JOBSET, KINDS[JOBSET][0], OWN), by=by)
    assert "failurePolicy" not in done["spec"]


async def test_a_policy_that_asks_for_what_is_the_default_injects_nothing() -> None:
    by = context_of({"failure": {"jobSet": {"maxRestarts": 0}}})
    done = await mutated(workload(JOBSET, KINDS[JOBSET][0], OWN), by=by)
    assert "failurePolicy" not in done["spec"]


async def test_the_namespaces_label_applies_to_jobsets_that_use_devices() -> None:
    template = pod_template(resourceClaims=CLAIMS, restartPolicy="Never")
    jobs = [{"name": "a", "template": {"spec": {"template": template}}}]
    done = await mutated(
        workload(JOBSET, {"replicatedJobs": jobs}, {"x": "y"}), cluster(OWN), RESTARTED
    )
    assert done["spec"]["failurePolicy"]["maxRestarts"] == 3


async def test_jobs_that_restart_their_containers_are_warned_of_where_they_are_written() -> None:
    template = pod_template(restartPolicy="OnFailure")
    jobs = [{"name": "a", "template": {"spec": {"template": template}}}]
    (warning,) = (await mutation(workload(JOBSET, {"replicatedJobs": jobs}))).warnings
    assert "spec.replicatedJobs[a].template.spec" in warning
    assert "restartPolicy is OnFailure" in warning
    cron = workload("batch/CronJob", {"jobTemplate": {"spec": {"template": template}}})
    (warning,) = (await mutation(cron)).warnings
    assert "spec.jobTemplate.spec" in warning


async def test_applying_the_original_jobset_again_keeps_the_injected_values() -> None:
    original = workload(JOBSET, KINDS[JOBSET][0], OWN)
    old = await mutated(original, by=RESTARTED)
    old["spec"]["failurePolicy"]["restartStrategy"] = "Recreate"  # as the API's defaulting adds
    done = await updated({**original, "spec": {**original["spec"], "suspend": True}}, old)
    assert done["spec"] == {**old["spec"], "suspend": True}
