"""The served application over HTTP, called as the API server calls it."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.config import WorkloadSettings
from fettle.config.settings import SchedulerSettings
from fettle.lint import RULES, Finding, Manifest, Rule, Severity
from fettle.lint.cluster import Cluster
from fettle.model.annotations import ANNOTATION
from tests.fettle.lint.builders import claim, exactly, knowing, pod_spec, template
from tests.fettle.lint.builders import pod as claiming_pod
from tests.fettle.lint.wild import ANYTHING, spoilt
from tests.webhook.conftest import Serve
from tests.webhook.reviews import CLAIMS, UID, Object, encoded, job, patch_of, pod, review
from webhook.app import MAX_BODY_BYTES, last_reviews
from webhook.patches import Operation, apply

TRAINING = {ANNOTATION: "training"}
TOO_MANY = claim(exactly(count=40))


async def test_a_pod_is_patched(serve: Serve) -> None:
    served = await serve(knowing())
    before = pod(TRAINING, resourceClaims=CLAIMS)
    response = await served.ask("/mutate", before)
    operations = [Operation(**operation) for operation in patch_of(response)]
    after = apply(before, operations)
    assert after["spec"]["tolerations"][0]["tolerationSeconds"] == 60
    assert after["spec"]["containers"][0]["resources"]["limits"] == {"fettle.dev/claims": "0"}
    assert served.reviews("mutate", "patched") == 1
    again = await served.ask("/mutate", after)
    assert again == {"uid": UID, "allowed": True}
    assert served.reviews("mutate", "allowed") == 1


async def test_the_settings_name_the_schedulers_whose_pods_are_marked(serve: Serve) -> None:
    served = await serve(knowing(), scheduler=SchedulerSettings(names=("second",)))
    assert "patch" in await served.ask(
        "/mutate", pod(resourceClaims=CLAIMS, schedulerName="second")
    )
    assert "patch" not in await served.ask("/mutate", pod(resourceClaims=CLAIMS))


async def test_a_dry_run_is_answered_like_any_other(serve: Serve) -> None:
    served = await serve(knowing())
    assert "patch" in await served.ask("/mutate", job(TRAINING), dryRun=True)


async def test_warnings_reach_the_author(serve: Serve) -> None:
    served = await serve(knowing())
    response = await served.ask("/mutate", pod({ANNOTATION: "trainign"}))
    assert "'trainign'" in response["warnings"][0]
    assert served.reviews("mutate", "warned") == 1


async def test_a_broken_claim_is_denied_with_a_message(serve: Serve) -> None:
    served = await serve(knowing())
    response = await served.ask("/validate", TOO_MANY)
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert response["status"]["message"].startswith(
        "fettle: FTL010 spec.devices.requests[0].exactly.count: the claim asks for at least 40"
    )
    assert served.reviews("validate", "denied") == 1


GANG = WorkloadSettings(group="example.com", kind="Gang", templates=("spec.members.*.template",))


async def test_kinds_of_the_settings_are_changed_and_judged(serve: Serve) -> None:
    served = await serve(knowing(template(exactly("gpu"))), workloads=(GANG,))
    wrong = claiming_pod(pod_spec({"name": "gpus", "request": "typo"}))
    gang = {
        "apiVersion": "example.com/v1",
        "kind": "Gang",
        "metadata": {"name": "g", "namespace": "team", "annotations": TRAINING},
        "spec": {"members": [{"template": {"metadata": {}, "spec": wrong["spec"]}}]},
    }
    (stamp, *_) = patch_of(await served.ask("/mutate", gang))
    assert stamp["path"].startswith("/spec/members/0/template/metadata/annotations")
    response = await served.ask("/validate", gang)
    assert response["allowed"] is False
    assert "FTL035 spec.members[0].template.spec" in response["status"]["message"]


async def test_an_unsynced_view_denies_nothing_that_depends_on_it(serve: Serve) -> None:
    served = await serve()
    response = await served.ask(
        "/validate", claiming_pod(pod_spec({"name": "gpus", "request": "typo"}))
    )
    assert response == {"uid": UID, "allowed": True}
    assert served.reviews("validate", "undecided") == 1
    assert served.undecided("validate", "FTL035") == 1


async def test_the_newest_view_answers(serve: Serve) -> None:
    served = await serve(knowing(template(exactly("gpu"))))
    wrong = claiming_pod(pod_spec({"name": "gpus", "request": "typo"}))
    assert (await served.ask("/validate", wrong))["allowed"] is False


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_a_deletion_is_allowed(serve: Serve, path: str) -> None:
    served = await serve(knowing())
    response = await served.ask(path, None, operation="DELETE", oldObject=TOO_MANY)
    assert response == {"uid": UID, "allowed": True}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_what_is_not_judged_in_time_is_allowed_and_counted_undecided(
    serve: Serve, path: str
) -> None:
    served = await serve(knowing(), deadline_seconds=1e-9)
    for object in (TOO_MANY, pod(TRAINING)):
        response = await served.ask(path, object)
        assert response["allowed"] is True
        assert "not checked within 1e-09 s" in response["warnings"][0]
    assert served.reviews(path[1:], "undecided") == 2
    assert served.undecided(path[1:], "deadline") == 2


class Broken(Rule):
    """A rule with a bug."""

    id = "FTL999"
    name = "broken"
    severity = Severity.DENY
    today = "unknown"

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        raise ZeroDivisionError("a bug")


async def test_an_internal_error_allows_the_object_and_echoes_the_uid(serve: Serve) -> None:
    served = await serve(knowing(), rules=(Broken(), *RULES))
    response = await served.ask("/validate", TOO_MANY)
    assert response["allowed"] is True
    assert "a bug" not in str(response)
    assert served.reviews("validate", "failed") == 1


@pytest.mark.parametrize(
    "spoiled",
    [
        {**pod(TRAINING), "metadata": {"annotations": TRAINING, "name": "x"}, "spec": "text"},
        pod(resourceClaims=CLAIMS, containers=[]),
        pod(resourceClaims=CLAIMS, containers=None),
        pod(resourceClaims=CLAIMS, containers={"a": 1}),
        pod(resourceClaims=CLAIMS, containers=["text"]),
        pod(resourceClaims=CLAIMS, containers=[None]),
        pod(resourceClaims=CLAIMS, containers=[{"resources": {"limits": "all"}}]),
        pod(TRAINING, tolerations={"key": "x"}),
    ],
)
async def test_where_no_patch_fits_the_object_is_allowed_without_one(
    serve: Serve, spoiled: Object
) -> None:
    served = await serve(knowing())
    response = await served.ask("/mutate", spoiled)
    assert response["allowed"] is True
    assert "patch" not in response
    assert "nothing was injected" in response["warnings"][0]
    assert served.reviews("mutate", "inapplicable") == 1


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"kind":"AdmissionReview"}'])
async def test_what_is_no_review_gets_a_400_that_says_why(
    serve: Serve, path: str, body: bytes
) -> None:
    served = await serve()
    reply = await served.post(path, body)
    assert reply.status == 400
    text = (await reply.json())["error"]
    assert text.startswith("fettle: ")
    assert "Traceback" not in text
    assert served.reviews(path[1:], "bad_input") == 1


async def test_a_body_of_64_mebibytes_gets_a_413_and_the_next_request_an_answer(
    serve: Serve,
) -> None:
    served = await serve(knowing())
    reply = await served.client.post("/mutate", data=io.BytesIO(b" " * 64 * 2**20))
    assert reply.status == 413
    assert "8 MiB" in await reply.text()
    assert (await served.ask("/mutate", pod()))["allowed"] is True


async def test_a_large_body_without_a_length_gets_a_413_too(serve: Serve) -> None:
    async def chunks() -> Any:
        for _ in range(MAX_BODY_BYTES // 2**20 + 1):
            yield b" " * 2**20

    served = await serve(knowing())
    reply = await served.client.post("/validate", data=chunks())
    assert reply.status == 413
    assert "8 MiB" in await reply.text()


async def test_a_body_that_cannot_be_unpacked_gets_a_400(serve: Serve) -> None:
    served = await serve()
    reply = await served.client.post(
        "/mutate", data=b"not gzip", headers={"Content-Encoding": "gzip"}
    )
    assert reply.status == 400
    assert "Traceback" not in await reply.text()


async def test_other_methods_and_paths_are_not_served(serve: Serve) -> None:
    served = await serve()
    for answer, status in (
        (await served.client.get("/mutate"), 405),
        (await served.client.post("/elsewhere"), 404),
    ):
        assert answer.status == status
    assert (await served.client.get("/mutate")).headers["Allow"] == "POST"


REVIEWS = st.sampled_from(
    [
        review(pod(TRAINING, resourceClaims=CLAIMS)),
        review(job(TRAINING, parallelism=4)),
        review(TOO_MANY),
        review(template(exactly(count=40)), operation="UPDATE", oldObject=template(exactly())),
        review(claiming_pod(pod_spec({"name": "gpus", "request": "typo"}))),
    ]
)


@given(
    path=st.sampled_from(["/mutate", "/validate"]),
    sent=REVIEWS.flatmap(spoilt)
    | ANYTHING
    | st.builds(review, st.dictionaries(st.text(), ANYTHING)),
)
async def test_no_json_gets_a_5xx_or_a_patch_that_does_not_fit(
    serve: Serve, path: str, sent: Any
) -> None:
    served = await serve(knowing(template(exactly("gpu"))))
    reply = await served.post(path, encoded(sent))
    if reply.status == 400:
        assert (await reply.json())["error"].startswith("fettle: ")
        return
    assert reply.status == 200
    response = (await reply.json())["response"]
    assert response["uid"] == sent["request"]["uid"]
    operations = [Operation(**operation) for operation in patch_of(response)]
    if operations:
        assert path == "/mutate"
        after = apply(sent["request"]["object"], operations)
        again = {**sent, "request": {**sent["request"], "object": after}}
        reply = await served.post(path, encoded(again))
        assert patch_of((await reply.json())["response"]) == []


async def test_a_note_says_when_each_webhook_was_last_called(serve: Serve) -> None:
    last = last_reviews()
    served = await serve(knowing(), last=last)
    assert last.note() == "webhook: the API server has not asked yet"
    await served.ask("/validate", pod())
    assert last.note() == "webhook: last asked: mutate never, validate 0 s ago"
    await served.ask("/mutate", pod())
    assert last.note() == "webhook: last asked: mutate 0 s ago, validate 0 s ago"


async def test_a_malformed_request_does_not_count_as_a_call_of_the_api_server(serve: Serve) -> None:
    last = last_reviews()
    served = await serve(knowing(), last=last)
    await served.post("/mutate", b"{}")
    await served.post("/elsewhere", b"{}")
    assert last.note() == "webhook: the API server has not asked yet"
