"""Which policy is injected into pods, and how long they stay on lost nodes."""

from typing import Any

import pytest

from fettle.cluster import View, view
from fettle.model import BUILT_IN, Policies
from fettle.model.annotations import ANNOTATION
from fettle.model.policy import Policy, Tolerations
from tests.webhook.mutations import TRAINING, cluster, injected, mutated, mutation
from tests.webhook.reviews import (
    CLAIMS,
    GPU,
    NOT_READY,
    UNREACHABLE,
    Object,
    encoded,
    pod,
    review,
    seconds,
    tolerations,
)
from webhook.mutate.mutation import Mutation, MutationContext, mutate
from webhook.patches import apply
from webhook.review import decode


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


async def test_a_toleration_of_every_taint_counts_as_the_authors() -> None:
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
    own = Policy(name="own", tolerations=Tolerations(not_ready_seconds=300))
    request = decode(encoded(review(pod({ANNOTATION: "own"}))))
    assert (
        await mutate(request, cluster(), MutationContext(Policies({**BUILT_IN, "own": own})))
    ).patch == ()


# --- pods: which policy


async def test_without_a_named_policy_nothing_is_injected() -> None:
    assert await mutation(pod()) == Mutation()
    assert await mutation(pod(containers=[{"name": "main", "resources": GPU}])) == Mutation()


async def test_the_namespaces_label_applies_to_pods_that_use_devices() -> None:
    labelled = cluster({ANNOTATION: "inference"})
    done = await mutated(pod(containers=[{"name": "main", "resources": GPU}]), labelled)
    assert seconds(done) == {NOT_READY: 30, UNREACHABLE: 30}
    assert injected(done)["policy"] == "inference"
    done = await mutated(pod(resourceClaims=CLAIMS), labelled)
    assert seconds(done) == {NOT_READY: 30, UNREACHABLE: 30}
    assert await mutation(pod(), labelled) == Mutation()


async def test_the_pods_annotation_comes_before_the_namespaces_label() -> None:
    done = await mutated(pod(TRAINING, resourceClaims=CLAIMS), cluster({ANNOTATION: "inference"}))
    assert injected(done)["policy"] == "training"


async def test_an_unknown_policy_is_a_warning_and_injects_nothing() -> None:
    done = await mutation(pod({ANNOTATION: "trainign"}))
    assert done.patch == ()
    assert "'trainign'" in done.warnings[0]


@pytest.mark.parametrize("known", [cluster(synced=False), view.EMPTY])
async def test_labels_that_are_not_known_yet_leave_the_policy_undecided(known: View) -> None:
    done = await mutation(pod(resourceClaims=CLAIMS), known)
    assert done.undecided == "namespace"
    assert (await mutation(pod(TRAINING, resourceClaims=CLAIMS), known)).undecided == ""
    assert (await mutation(pod(), known)).undecided == ""
