"""Generated objects of every kind, sound and malformed: each patch fits, a second pass changes
nothing, and without a named policy nothing is injected.
"""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from fettle.model import BUILT_IN, BadInput, Policies, Policy
from fettle.model.annotations import ANNOTATION
from tests.fettle.lint.wild import spoilt
from tests.webhook.conftest import Serve
from tests.webhook.mutants import try_many
from tests.webhook.mutate.claims import claim, either, exactly, spec, template
from tests.webhook.mutate.workloads import KINDS, workload
from tests.webhook.mutations import cluster, policy_of
from tests.webhook.reviews import CLAIMS, Object, encoded, job, patch_of, pod, review, stored
from webhook.cluster_features import ALL_PRESERVED, PreservedFields
from webhook.mutate.mutation import MutationContext, mutate
from webhook.patches import Operation, apply
from webhook.review import decode

NAMES = st.sampled_from(["training", "inference", "own", "none", ""])
CODES = st.lists(st.integers(1, 127), max_size=3, unique=True)
SECONDS = st.none() | st.sampled_from([0, 30, 300])


@st.composite
def policies(draw: DrawFn) -> Policy:
    """Any policy `own`."""
    keys = draw(st.lists(st.sampled_from(["a.example.com/b", "c"]), max_size=2, unique=True))
    rules = [{"name": "lost", "action": "RestartJobSet"}] * draw(st.integers(0, 1))
    made: Object = {
        "placement": {"affinity": draw(st.sampled_from(["Required", "Preferred", "None"]))},
        "tolerations": {
            "notReadySeconds": draw(SECONDS),
            "unreachableSeconds": draw(SECONDS),
            "devices": [{"key": key, "seconds": draw(SECONDS)} for key in keys],
            "degradedAsFallback": draw(st.booleans()),
        },
        "failure": {
            "ignoreDisruptions": draw(st.booleans()),
            "failJobOnExitCodes": draw(CODES),
            "backoffLimitPerIndex": draw(st.none() | st.integers(0, 2)),
            "restartContainerOnExitCodes": [code + 128 for code in draw(CODES)],
            "jobSet": {"maxRestarts": draw(st.integers(0, 2)), "rules": rules},
        },
    }
    return policy_of(made)


@st.composite
def objects(draw: DrawFn) -> Object:
    """An object of any kind, defaulted, that may name a policy and use devices."""
    annotations = draw(st.none() | st.just({}) | NAMES.map(lambda n: {ANNOTATION: n}))
    kind = draw(st.sampled_from(["Pod", "Job", "ResourceClaim", "Template", *KINDS]))
    if kind == "Pod":
        restart = draw(st.sampled_from(["Always", "OnFailure", "Never"]))
        claims = {"resourceClaims": CLAIMS} if draw(st.booleans()) else {}
        return pod(annotations, restartPolicy=restart, **claims)
    if kind == "Job":
        mode = draw(st.sampled_from(["Indexed", "NonIndexed"]))
        return job(annotations, completionMode=mode, parallelism=draw(st.integers(0, 9)))
    if kind in ("ResourceClaim", "Template"):
        requests = [exactly("a", count=draw(st.integers(1, 9))), either("b", "c")]
        made = (claim if kind == "ResourceClaim" else template)(spec(*requests))
        made["metadata"]["annotations"] = annotations
        return made
    made = workload(kind, copy.deepcopy(KINDS[kind][0]))
    made["metadata"]["annotations"] = annotations
    return made


PRESERVED = st.sampled_from(
    [ALL_PRESERVED, PreservedFields(), PreservedFields(tolerations=True), None]
)


async def once(
    object: Object, context: MutationContext, known: Any, **request: Any
) -> tuple[Object, bool]:
    """What is stored after one pass, and whether the pass changed anything."""
    mutation = await mutate(decode(encoded(review(object, **request))), known, context)
    done = apply(object, mutation.patch)
    assert (done != object) is bool(mutation.patch)
    return (stored(done) if "containers" in done.get("spec", {}) else done), bool(mutation.patch)


@given(object=objects(), own=policies(), preserved=PRESERVED, label=st.none() | NAMES)
async def test_a_second_pass_changes_nothing_and_neither_does_the_original_again(
    object: Object, own: Policy, preserved: PreservedFields | None, label: str | None
) -> None:
    context = MutationContext(Policies({**BUILT_IN, "own": own}), preserved=preserved)
    known = cluster({ANNOTATION: label} if label is not None else {})
    original = copy.deepcopy(object)
    done, changed = await once(object, context, known)
    assert object == original
    assert await once(done, context, known) == (done, False)
    named = {*(object["metadata"].get("annotations") or {}).values(), label} & {*BUILT_IN, "own"}
    marked = object["kind"] == "Pod" and "resourceClaims" in object["spec"]
    stamped = ANNOTATION in (object["metadata"].get("annotations") or {})
    assert not changed or named or marked or stamped
    if object["kind"] != "Pod":
        again: Object = {"operation": "UPDATE", "oldObject": done}
        carried, _ = await once(object, context, known, **again)
        assert carried["spec"] == done["spec"]


@given(
    sent=objects().flatmap(spoilt),
    old=objects(),
    own=policies(),
    update=st.booleans(),
    preserved=PRESERVED,
)
async def test_patches_of_malformed_objects_fit_and_a_second_pass_adds_nothing(
    sent: Any, old: Object, own: Policy, update: bool, preserved: PreservedFields | None
) -> None:
    context, known = (
        MutationContext(Policies({**BUILT_IN, "own": own}), preserved=preserved),
        cluster(),
    )
    how: Object = {"operation": "UPDATE", "oldObject": old} if update else {}
    sent_review = review(old, **how)
    sent_review["request"]["object"] = sent
    try:
        request = decode(encoded(sent_review))
        mutation = await mutate(request, known, context)
    except BadInput:
        return  # answered as allowed, without a patch
    done = apply(request.object, mutation.patch)
    sent_review["request"]["object"] = done
    assert (await mutate(decode(encoded(sent_review)), known, context)).patch == ()


@given(
    path=st.sampled_from(["/mutate", "/validate"]),
    sent=st.builds(review, objects()).flatmap(spoilt),
)
async def test_no_review_of_any_kind_gets_a_5xx_or_a_patch_that_does_not_fit(
    serve: Serve, path: str, sent: Any
) -> None:
    served = await serve(cluster())
    reply = await served.post(path, encoded(sent))
    if reply.status == 400:
        assert (await reply.json())["error"].startswith("fettle: ")
        return
    assert reply.status == 200
    response = (await reply.json())["response"]
    assert response["uid"] == sent["request"]["uid"]
    assert "allowed unchecked" not in str(response.get("warnings"))
    if operations := [Operation(**operation) for operation in patch_of(response)]:
        apply(sent["request"]["object"], operations)


@pytest.mark.long
async def test_thousands_of_malformed_reviews_are_answered_with_patches_that_fit() -> None:
    results = await try_many(5000, seed=2)
    assert results["changed"] > 500
    assert results["unchanged"] > 500
    assert sum(results.values()) == 5000
