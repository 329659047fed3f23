"""The served webhook beyond one review: modes and Events, claims that wait for their pod, unknown
policies, fields that the cluster drops, and callers that send garbage.
"""

import asyncio
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from fettle.client import Regarding
from fettle.cluster import View
from fettle.config import LintSettings
from fettle.model.annotations import ANNOTATION
from tests.fettle.lint.builders import claim, exactly, knowing
from tests.fettle.records.building import recorder as remembering
from tests.webhook.conftest import PATIENCE_S, Serve
from tests.webhook.mutate.claims import OWN, knowing_worker, owned
from tests.webhook.mutate.claims import claim as whole_claim
from tests.webhook.mutations import cluster, policy_of
from tests.webhook.reviews import CLAIMS, UID, job, patch_of, pod
from webhook.app import ReviewWaits
from webhook.cluster_features import PreservedFields
from webhook.observing import EventMetrics, RateLimit, ReviewMetrics

TRAINING = {ANNOTATION: "training"}
TOLERANT = policy_of({"tolerations": {"devices": [{"key": "vendor.example.com/ecc"}]}})


# --- claims and their pods


async def test_a_claim_waits_for_the_pod_it_was_made_for(
    serve: Serve,
) -> None:
    served = await serve(cluster(), policies=(TOLERANT,), waits=ReviewWaits(owner_s=20.0))
    asked = asyncio.create_task(served.ask("/mutate", owned()))
    await served.publisher.is_waited_for()
    assert not asked.done()
    served.publish(knowing_worker(**OWN))
    assert len(patch_of(await asked)) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner_wait_s", "deadline_seconds"),
    [(0.05, PATIENCE_S), (PATIENCE_S, 6.0)],
    ids=["for a moment", "for half of the deadline"],
)
async def test_a_claim_whose_pod_never_shows_up_is_allowed_as_it_is(
    serve: Serve, owner_wait_s: float, deadline_seconds: float
) -> None:
    waits = ReviewWaits(owner_s=owner_wait_s)
    served = await serve(
        cluster(), policies=(TOLERANT,), waits=waits, deadline_seconds=deadline_seconds
    )
    assert await served.ask("/mutate", owned()) == {"uid": UID, "allowed": True}
    assert served.undecided("mutate", "owner") == 1


# --- what was applied a moment before


PATIENT = ReviewWaits(applied_s=PATIENCE_S)


async def test_a_class_that_was_applied_just_before_its_claim_is_not_missed(serve: Serve) -> None:
    served = await serve(cluster(), lint=LintSettings(strict=True), waits=PATIENT)
    asked = asyncio.create_task(served.ask("/validate", claim(exactly())))
    await served.publisher.is_waited_for()
    assert not asked.done()
    served.publish(cluster())
    served.publish(knowing())
    assert await asked == {"uid": UID, "allowed": True}


async def test_a_policy_that_was_applied_just_before_its_workload_is_injected(
    serve: Serve,
) -> None:
    served = await serve(cluster(), waits=PATIENT)
    asked = asyncio.create_task(served.ask("/mutate", pod({ANNOTATION: "own"})))
    await served.publisher.is_waited_for()
    assert not asked.done()
    own = policy_of({"tolerations": {"notReadySeconds": 60}})
    served.publish(cluster(policies={"own": own}))
    assert "patch" in await asked
    assert served.counted("unknown_policies") == 0


async def test_what_stays_away_is_told_and_not_waited_for_again(serve: Serve) -> None:
    waits = ReviewWaits(applied_s=0.01)
    served = await serve(cluster(), lint=LintSettings(strict=True), waits=waits)
    first = await served.ask("/validate", claim(exactly()))
    assert "FTL001" in first["status"]["message"]
    waits.applied_s = PATIENCE_S
    async with asyncio.timeout(PATIENCE_S / 2):
        assert await served.ask("/validate", claim(exactly())) == first


# --- policies and features


async def test_names_that_no_policy_has_are_counted(serve: Serve) -> None:
    served = await serve(cluster({ANNOTATION: "nor-this"}))
    response = await served.ask("/mutate", pod({ANNOTATION: "trainig"}))
    assert response["allowed"] is True
    assert served.counted("unknown_policies") == 1
    await served.ask("/mutate", pod({ANNOTATION: "trainig"}, resourceClaims=CLAIMS))
    assert served.counted("unknown_policies") == 3


async def test_a_policy_of_the_cluster_applies_as_soon_as_it_is_seen(serve: Serve) -> None:
    served = await serve(cluster())
    named = job({ANNOTATION: "own"})
    assert "'own'" in (await served.ask("/mutate", named))["warnings"][0]
    served.publish(cluster(policies={"own": policy_of({"failure": {"ignoreDisruptions": True}})}))
    paths = [operation["path"] for operation in patch_of(await served.ask("/mutate", named))]
    assert "/spec/podFailurePolicy" in paths


@pytest.mark.parametrize("preserved", [None, PreservedFields()])
async def test_fields_that_the_cluster_may_drop_are_not_injected(
    serve: Serve, preserved: Any
) -> None:
    served = await serve(cluster(), policies=(TOLERANT,), preserved=preserved)
    response = await served.ask("/mutate", whole_claim())
    assert "patch" not in response
    assert served.undecided("mutate", "gates") == (preserved is None)


# --- rubbish


async def test_a_caller_that_sends_rubbish_fills_neither_the_log_nor_the_answer(
    serve: Serve,
) -> None:
    served = await serve()
    rubbish = b'{"kind":"' + b"x" * 2**19 + b'"}'
    with capture_logs() as logs:
        answers = [await served.post("/mutate", rubbish) for _ in range(50)]
    assert all(answer.status == 400 for answer in answers)
    assert len(await answers[0].read()) < 500
    assert len([entry for entry in logs if entry["event"] == "review not readable"]) == 1
    assert len(str(logs)) < 1000
    assert served.reviews("mutate", "bad_input") == 50


def test_what_was_held_back_is_counted_in_the_next_turn() -> None:
    now = 0.0
    sparing = RateLimit(10.0, lambda: now)
    assert [sparing.admit() for _ in range(3)] == [0, None, None]
    now = 10.0
    assert [sparing.admit() for _ in range(2)] == [2, None]


# --- counting


@pytest.mark.parametrize("webhook", ["mutate", "validate"])
def test_results_worth_an_alert_are_counted_from_zero(webhook: str) -> None:
    registry = CollectorRegistry()
    ReviewMetrics(registry)
    EventMetrics(registry)
    name = "fettle_webhook_reviews_total"
    for result in ("bad_input", "failed", "undecided", "allowed"):
        assert registry.get_sample_value(name, {"webhook": webhook, "result": result}) == 0.0
    assert registry.get_sample_value(name, {"webhook": "mutate", "result": "denied"}) is None
    assert registry.get_sample_value("fettle_webhook_events_total", {"result": "failed"}) == 0.0


async def test_no_review_has_a_result_that_was_not_counted_from_zero(serve: Serve) -> None:
    served = await serve(cluster(), policies=(TOLERANT,))
    before = served.series("reviews")
    await served.ask("/mutate", whole_claim())
    await served.ask("/validate", whole_claim())
    await served.post("/mutate", b"{")
    assert served.series("reviews") == before


# --- modes


def labelled(mode: str) -> View:
    namespaces = {"team": {"fettle.dev/mode": mode}, "default": {"fettle.dev/mode": mode}}
    return msgspec.structs.replace(knowing(), namespaces=namespaces)


async def test_observe_neither_changes_nor_denies_nor_warns(serve: Serve) -> None:
    served = await serve(labelled("observe"))
    assert await served.ask("/mutate", pod(TRAINING, resourceClaims=CLAIMS)) == {
        "uid": UID,
        "allowed": True,
    }
    assert await served.ask("/validate", claim(exactly(count=40))) == {"uid": UID, "allowed": True}
    assert served.reviews("mutate", "would_be_patched") == 1
    assert served.reviews("validate", "would_be_denied") == 1


# --- Events in observe


async def test_a_new_object_has_its_event_on_its_namespace(serve: Serve) -> None:
    served = await serve(labelled("observe"), events=True)
    refused_claim, changed_pod = claim(exactly(count=40)), pod(TRAINING, resourceClaims=CLAIMS)
    allowed = {"uid": UID, "allowed": True}
    assert await served.ask("/validate", refused_claim, name="gpus") == allowed
    assert await served.ask("/mutate", changed_pod, name="worker") == allowed
    refused, changed = served.events
    assert refused.regarding == changed.regarding == Regarding("v1", "Namespace", "team", "team")
    assert (refused.reason, refused.type) == ("WouldBeRefused", "Warning")
    assert refused.note.startswith("ResourceClaim gpus: would be refused: FTL010")
    assert (changed.reason, changed.type) == ("WouldBeChanged", "Normal")
    assert "would be changed: replace /spec/tolerations/0/tolerationSeconds" in changed.note


async def test_a_changed_object_has_its_event_on_itself(serve: Serve) -> None:
    served = await serve(labelled("observe"), events=True)
    old, new = claim(exactly()), claim(exactly(count=40))
    new["metadata"]["uid"] = "some-uid"
    await served.ask("/validate", new, operation="UPDATE", oldObject=old, name="gpus")
    (event,) = served.events
    assert event.regarding == Regarding(
        "resource.k8s.io/v1", "ResourceClaim", "gpus", "team", "some-uid"
    )


async def test_pods_of_one_workload_are_told_as_alike(serve: Serve) -> None:
    served = await serve(labelled("observe"), events=True)
    for number in range(2):
        await served.ask("/mutate", pod(TRAINING), name=f"worker-{number}")
    first, second = served.events
    assert first._replace(note="") == second._replace(note="")


async def test_findings_that_only_warn_have_an_event_too(serve: Serve) -> None:
    served = await serve(labelled("observe"), events=True)
    await served.ask("/mutate", pod({ANNOTATION: "trainig"}), name="worker")
    (event,) = served.events
    assert event.reason == "Warned"
    assert "'trainig'" in event.note


async def test_a_dry_run_leaves_no_event(serve: Serve) -> None:
    served = await serve(labelled("observe"), events=True)
    await served.ask("/validate", claim(exactly(count=40)), dryRun=True)
    assert served.events == []


async def test_where_there_is_nothing_to_do_there_is_no_event(serve: Serve) -> None:
    served = await serve(labelled("observe"), events=True)
    assert await served.ask("/mutate", pod()) == {"uid": UID, "allowed": True}
    assert served.reviews("mutate", "allowed") == 1
    assert served.events == []


@pytest.mark.parametrize("mode", ["steer", "enforce"])
async def test_where_fettle_acts_there_are_no_events(serve: Serve, mode: str) -> None:
    served = await serve(labelled(mode), events=True)
    await served.ask("/validate", claim(exactly(count=40)))
    await served.ask("/mutate", pod(TRAINING))
    assert served.events == []


# --- other modes


async def test_steer_injects_and_warns_of_what_it_would_refuse(serve: Serve) -> None:
    served = await serve(labelled("steer"))
    assert patch_of(await served.ask("/mutate", pod(TRAINING, resourceClaims=CLAIMS)))
    response = await served.ask("/validate", claim(exactly(count=40)))
    assert response["allowed"] is True
    assert "fettle (steer): would be refused: FTL010" in response["warnings"][0]


async def test_a_policy_that_only_observes_is_not_injected(serve: Serve) -> None:
    policies = {"training": policy_of({"mode": "observe"}, name="training")}
    served = await serve(msgspec.structs.replace(knowing(), policies=policies))
    assert "patch" not in await served.ask("/mutate", pod(TRAINING, resourceClaims=CLAIMS))


async def test_affinity_that_would_be_written_is_recorded_and_in_steer_nothing_is_required(
    serve: Serve,
) -> None:
    required = {"own": policy_of({"placement": {"affinity": "Required"}})}
    recorder = remembering(None)
    for mode, written in (("observe", ""), ("steer", "preferred"), ("enforce", "required")):
        known = msgspec.structs.replace(labelled(mode), policies=required)
        served = await serve(known, recorder=recorder)
        answer = await served.ask("/mutate", pod(OWN, resourceClaims=CLAIMS))
        values = {one["path"]: one["value"] for one in patch_of(answer)}
        made = values.get("/spec/affinity", {}).get("nodeAffinity", {})
        assert [*made] == [f"{written}DuringSchedulingIgnoredDuringExecution"] * bool(written)
    told = [(str(one.mode), "add /spec/affinity" in one.why) for one in recorder.all()]
    assert sorted(told) == [("enforce", True), ("observe", True), ("steer", True)]


async def test_a_label_that_is_no_mode_warns(serve: Serve) -> None:
    served = await serve(labelled("audit"))
    response = await served.ask("/mutate", pod(TRAINING, resourceClaims=CLAIMS))
    said = " ".join(response["warnings"])
    assert "namespace label fettle.dev/mode: 'audit' is not one of observe, steer, enforce" in said
