"""What is injected into claims and templates, and that applying the original again keeps it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.model.annotations import ANNOTATION
from tests.webhook.mutate.claims import (
    BOTH,
    KEY,
    NO_EXECUTE,
    NO_SCHEDULE,
    OWN,
    TOLERANT,
    claim,
    either,
    exactly,
    knowing_worker,
    owned,
    requests,
    spec,
    template,
)
from tests.webhook.mutations import cluster, context_of, injected, mutated, mutation, updated
from tests.webhook.reviews import Object, review
from webhook.cluster_features import PreservedFields
from webhook.mutate.mutation import Mutation, mutate
from webhook.review import decode

STEERED = context_of({"tolerations": {"degradedAsFallback": True}})
DEGRADED = {"key": "fettle.dev/degraded", "operator": "Exists", "effect": "NoSchedule"}


def tolerated(object: Object) -> list[Object]:
    found: list[Object] = requests(object)[0]["exactly"].get("tolerations", [])
    return found


# --- tolerations


async def test_each_taint_gets_a_toleration_for_each_effect() -> None:
    done = await mutated(claim(), by=TOLERANT)
    assert tolerated(done) == [NO_SCHEDULE, {**NO_EXECUTE, "tolerationSeconds": 60}]
    assert injected(done) == {
        "policy": "own",
        "values": {"spec.devices.requests[gpu].tolerations": tolerated(done)},
    }


async def test_a_toleration_with_a_value_is_for_that_value_only() -> None:
    by = context_of({"tolerations": {"devices": [{"key": KEY, "value": "mild"}]}})
    done = await mutated(claim(), by=by)
    assert tolerated(done) == [
        {"key": KEY, "operator": "Equal", "value": "mild", "effect": effect}
        for effect in ("NoSchedule", "NoExecute")
    ]


async def test_every_request_and_alternative_gets_the_tolerations() -> None:
    done = await mutated(claim(spec(exactly("a"), either("b", "c"))), by=TOLERANT)
    first, second = requests(done)
    options = [first["exactly"], *second["firstAvailable"]]
    assert all(len(option["tolerations"]) == 2 for option in options)


async def test_the_patch_writes_only_the_tolerations() -> None:
    patch = (await mutation(claim(spec(exactly("a"), either("b", "c"))), by=TOLERANT)).patch
    assert [str(operation) for operation in patch] == [
        "add /spec/devices/requests/0/exactly/tolerations",
        "add /spec/devices/requests/1/firstAvailable/0/tolerations",
        "add /spec/devices/requests/1/firstAvailable/1/tolerations",
        "add /metadata/annotations/fettle.dev~1injected",
    ]


@pytest.mark.parametrize(
    ("own", "added"),
    [
        (NO_SCHEDULE, ["NoExecute"]),
        ({**NO_EXECUTE, "tolerationSeconds": 5}, ["NoSchedule"]),
        ({"key": KEY, "operator": "Exists"}, []),
        ({"operator": "Exists"}, []),
        ({"operator": "Exists", "effect": "NoExecute"}, ["NoSchedule"]),
        ({"key": KEY, "operator": "Equal", "value": "x"}, ["NoSchedule", "NoExecute"]),
        ({"key": "other", "operator": "Exists"}, ["NoSchedule", "NoExecute"]),
        ({}, ["NoSchedule", "NoExecute"]),
    ],
)
async def test_a_taint_that_the_author_mentions_gets_no_further_toleration(
    own: Object, added: list[str]
) -> None:
    done = await mutated(claim(spec(exactly(tolerations=[own]))), by=TOLERANT)
    assert tolerated(done)[0] == own
    assert [entry["effect"] for entry in tolerated(done)[1:]] == added


async def test_more_than_sixteen_tolerations_are_not_made() -> None:
    own = [{**NO_SCHEDULE, "key": f"k{i}"} for i in range(15)]
    done = await mutation(claim(spec(exactly(tolerations=own))), by=TOLERANT)
    assert done.patch == ()
    assert "more than 16 tolerations" in done.warnings[0]


# --- whose policy


async def test_without_a_named_policy_nothing_is_injected() -> None:
    assert await mutation(claim(annotations={"other": "x"}), by=TOLERANT) == Mutation()


async def test_the_namespaces_label_applies_to_claims() -> None:
    done = await mutated(claim(annotations={"other": "x"}), cluster(OWN), TOLERANT)
    assert len(tolerated(done)) == 2


async def test_a_claim_made_for_a_pod_follows_the_pods_policy() -> None:
    done = await mutated(owned(), knowing_worker(**OWN), TOLERANT)
    assert len(tolerated(done)) == 2
    assert injected(done)["policy"] == "own"
    assert await mutation(owned(), knowing_worker(), TOLERANT) == Mutation()


async def test_what_a_claim_says_itself_comes_before_its_pod() -> None:
    own = owned(annotations_={})
    own["metadata"]["annotations"] = {ANNOTATION: "training"}
    assert (await mutation(own, knowing_worker(**OWN), TOLERANT)).patch == ()


async def test_a_claim_template_gets_tolerations_and_hands_on_the_policy() -> None:
    done = await mutated(template(), by=TOLERANT)
    assert len(tolerated(done)) == 2
    assert done["spec"]["metadata"]["annotations"] == OWN
    assert set(injected(done)["values"]) == {
        "spec.metadata.annotations[fettle.dev/policy]",
        "spec.spec.devices.requests[gpu].tolerations",
    }


async def test_a_claim_that_the_scheduler_makes_is_left_alone() -> None:
    extended = claim(annotations={**OWN, "resource.kubernetes.io/extended-resource-claim": "true"})
    assert await mutation(extended, by=BOTH) == Mutation()
    by_name: Any = {"userInfo": {"username": "system:kube-scheduler"}}
    assert await mutation(claim(), by=BOTH, **by_name) == Mutation()


# --- what the cluster keeps


async def test_a_cluster_that_drops_tolerations_gets_none_and_a_warning() -> None:
    done = await mutation(claim(), by=BOTH._replace(preserved=PreservedFields()))
    assert done.patch == ()
    assert "drops device tolerations" in done.warnings[0]


async def test_a_cluster_without_alternatives_gets_tolerations_only() -> None:
    by = BOTH._replace(preserved=PreservedFields(tolerations=True))
    assert tolerated(await mutated(claim(), by=by)) == [NO_SCHEDULE, NO_EXECUTE]


async def test_claims_are_undecided_until_the_first_probe_succeeds() -> None:
    done = await mutation(claim(), by=BOTH._replace(preserved=None))
    assert (done.patch, done.undecided) == ((), "gates")


# --- soft steering


async def test_a_request_becomes_sound_first_and_degraded_as_a_fallback() -> None:
    done = await mutated(claim(spec(exactly(count=2))), by=STEERED)
    option = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    assert requests(done) == [
        {
            "name": "gpu",
            "firstAvailable": [
                {"name": "sound", **option},
                {"name": "degraded", **option, "tolerations": [DEGRADED]},
            ],
        }
    ]
    assert injected(done)["values"] == {"spec.devices.requests[gpu].firstAvailable": ["degraded"]}


async def test_tolerations_of_the_policy_are_in_both() -> None:
    (request,) = requests(await mutated(claim(), by=BOTH))
    sound, degraded = request["firstAvailable"]
    assert sound["tolerations"] == [NO_SCHEDULE, NO_EXECUTE]
    assert degraded["tolerations"] == [NO_SCHEDULE, NO_EXECUTE, DEGRADED]


async def test_the_authors_alternatives_come_before_the_fallbacks() -> None:
    (request,) = requests(await mutated(claim(spec(either("big", "small"))), by=STEERED))
    assert [option["name"] for option in request["firstAvailable"]] == [
        "big",
        "small",
        "big-degraded",
        "small-degraded",
    ]
    assert [o.get("tolerations") for o in request["firstAvailable"]] == [
        None,
        None,
        [DEGRADED],
        [DEGRADED],
    ]


async def test_admin_access_that_is_off_has_no_place_in_an_alternative() -> None:
    (request,) = requests(await mutated(claim(spec(exactly(adminAccess=False))), by=STEERED))
    assert not any("adminAccess" in option for option in request["firstAvailable"])


OTHERS = [{"requests": ["gpu/other"]}]


@pytest.mark.parametrize(
    ("spec_", "says"),
    [
        (spec(exactly(adminAccess=True)), "adminAccess"),
        (spec(either("a", "b", "c", "d", "e")), "at most 8 alternatives"),
        (spec(exactly(), config=[{"requests": ["gpu"], "opaque": {}}]), "devices.config[0]"),
        (spec(either("a", "b"), constraints=[{"requests": ["gpu/a"]}]), "devices.constraints[0]"),
        (spec(either("a" * 60)), "no name"),
        (spec(either("a", "a-degraded")), "no name"),
        (spec(either("a", "b", last={"tolerations": [{"key": str(n)} for n in range(16)]})), "16"),
    ],
)
async def test_where_there_must_be_no_fallback_a_warning_says_why(spec_: Object, says: str) -> None:
    done = await mutation(claim(spec_), by=STEERED)
    assert done.patch == ()
    (warning,) = done.warnings
    assert says in warning
    assert "own" in warning


@pytest.mark.parametrize(
    "spec_",
    [
        spec(exactly(), config=[{"requests": ["other"]}, {"opaque": {}}], constraints=OTHERS),
        spec(exactly(), constraints=[{"requests": ["gpu"], "matchAttribute": "a/b"}]),
        spec(either("a", "b", "c", "d")),
    ],
)
async def test_what_refers_to_the_whole_request_holds_for_the_fallback_too(spec_: Object) -> None:
    (request,) = requests(await mutated(claim(spec_), by=STEERED))
    assert len(request["firstAvailable"]) in (2, 8)


@pytest.mark.parametrize("own", [DEGRADED, {"operator": "Exists"}])
async def test_a_request_that_takes_degraded_devices_already_needs_no_fallback(
    own: Object,
) -> None:
    assert await mutation(claim(spec(exactly(tolerations=[own]))), by=STEERED) == Mutation()


# --- applied again


@pytest.mark.parametrize("make", [claim, template])
@pytest.mark.parametrize("by", [TOLERANT, STEERED, BOTH])
async def test_applying_the_original_again_changes_nothing_that_is_stored(
    make: Any, by: Any
) -> None:
    original = make(spec(exactly("a"), exactly("b", tolerations=[NO_SCHEDULE])))
    old = await mutated(original, by=by)
    again = {**original, "metadata": {**original["metadata"], "labels": {"new": "x"}}}
    done = await updated(again, old, by=by)
    assert done["spec"] == old["spec"]
    assert injected(done) == injected(old)
    assert done["metadata"]["labels"] == {"new": "x"}


async def test_an_update_follows_the_stored_record_and_not_the_present_policy() -> None:
    original = claim()
    old = await mutated(original, by=TOLERANT)
    for by in (context_of({}), STEERED, BOTH):
        assert (await updated(original, old, by=by))["spec"] == old["spec"]


async def test_an_unreadable_record_restores_nothing() -> None:
    name = "spec.devices.requests[gpu].tolerations"
    spoilt: list[Object] = [{name: [{}]}, {name: "x"}, {name: [{"key": 1, "effect": 2}]}, {"s": 1}]
    for values in spoilt:
        record = {"fettle.dev/injected": msgspec.json.encode({"values": values}).decode()}
        old = claim(spec(exactly(count=2)), {**OWN, **record})
        assert (await mutation(claim(), operation="UPDATE", oldObject=old)).patch == ()


@pytest.mark.parametrize("odd", [True, "x", {"key": KEY}, 7])
async def test_tolerations_that_are_no_list_are_left_to_the_api_server(odd: Any) -> None:
    assert (await mutation(claim(spec(exactly(tolerations=odd))), by=BOTH)).patch == ()


async def test_an_update_to_another_claim_spec_is_left_to_the_api_server() -> None:
    old = await mutated(claim(), by=TOLERANT)
    other = claim(spec(exactly(count=2)))
    done = await mutation(other, by=TOLERANT, operation="UPDATE", oldObject=old)
    assert done.patch == ()


async def test_the_schedulers_finalizer_is_never_looked_at() -> None:
    old = await mutated(claim(), by=TOLERANT)
    new = {**old, "metadata": {**old["metadata"], "finalizers": ["resource.kubernetes.io/x"]}}
    assert await mutation(new, by=TOLERANT, operation="UPDATE", oldObject=old) == Mutation()


async def test_a_deletion_has_no_object() -> None:
    sent = review(None, operation="DELETE", oldObject=claim())
    assert await mutate(decode(msgspec.json.encode(sent)), cluster(), BOTH) == Mutation()


TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from([KEY, "fettle.dev/degraded", "other", ""]),
            "operator": st.sampled_from(["Exists", "Equal", ""]),
            "value": st.sampled_from(["", "x"]),
            "effect": st.sampled_from(["NoExecute", "NoSchedule", "None", ""]),
            "tolerationSeconds": st.sampled_from([1, 60]),
        },
    ),
    max_size=4,
)


@given(
    listed=st.lists(TOLERATIONS, min_size=1, max_size=3),
    several=st.booleans(),
    admin=st.sampled_from([None, True, False]),
    by=st.sampled_from([TOLERANT, STEERED, BOTH]),
)
async def test_any_claim_is_stable_after_one_pass_and_keeps_what_its_author_wrote(
    listed: list[list[Object]], several: bool, admin: bool | None, by: Any
) -> None:
    more = {} if admin is None else {"adminAccess": admin}
    if several:
        options = [{"name": f"o{i}", "tolerations": t} for i, t in enumerate(listed)]
        made: list[Object] = [{"name": "gpu", "firstAvailable": options}]
    else:
        made = [exactly(f"r{i}", tolerations=t, **more) for i, t in enumerate(listed)]
    original = claim(spec(*made))
    done = await mutated(original, by=by)
    for before, after in zip(made, requests(done), strict=True):
        for i, written in enumerate(before.get("firstAvailable") or [before["exactly"]]):
            option = (after.get("firstAvailable") or [after.get("exactly")])[i]
            own = written["tolerations"]
            assert option["tolerations"][: len(own)] == own
    assert (await updated(original, done, by=by))["spec"] == done["spec"]
