"""Objects with thousands of entries are answered in time, and so are others meanwhile."""

import asyncio

import pytest

from fettle.config import LintSettings
from fettle.model.annotations import ANNOTATION
from tests.fettle.lint.builders import claim, exactly, knowing
from tests.fettle.lint.builders import pod as claiming_pod
from tests.webhook.conftest import Serve
from tests.webhook.mutations import policy_of
from tests.webhook.reviews import Object, encoded, pod, review

TRAINING = {ANNOTATION: "training"}
TOLERANT = policy_of({"tolerations": {"devices": [{"key": "vendor.example.com/ecc"}]}})
TOO_MANY = claim(exactly(count=40))
TOLERATION = {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}


def job_set(jobs: int) -> Object:
    """Its Jobs share one claim."""
    spec = {"containers": [], "resourceClaims": [{"name": "gpus", "resourceClaimName": "shared"}]}
    template = {"spec": {"template": {"spec": spec}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "large", "namespace": "team", "annotations": TRAINING},
        "spec": {"replicatedJobs": [{"name": f"j{i}", "template": template} for i in range(jobs)]},
    }


async def test_a_job_set_of_thousands_of_jobs_is_judged_within_the_deadline(serve: Serve) -> None:
    served = await serve(knowing(claim(exactly(), name="shared")))
    response = await served.ask("/validate", job_set(2000))
    assert response["allowed"]
    assert all("JobSet team/large" in warning for warning in response["warnings"])
    assert response["warnings"]


@pytest.mark.long
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("large", [job_set(6000), pod(TRAINING, tolerations=[TOLERATION] * 60_000)])
async def test_others_are_answered_while_a_large_object_is_judged(
    serve: Serve, path: str, large: Object
) -> None:
    served = await serve(knowing())
    judging = asyncio.create_task(served.ask(path, large))
    answered = 0
    while not judging.done():
        assert (await served.ask("/validate", TOO_MANY))["allowed"] is False
        answered += 1
        await asyncio.sleep(0.01)
    assert (await judging)["uid"]
    assert answered > 3


async def test_a_review_of_more_parts_than_any_object_is_refused_before_it_is_read(
    serve: Serve,
) -> None:
    served = await serve(knowing())
    large = encoded(review(pod({}, tolerations=[{"key": "a"}] * 199_999)))
    response = await served.post("/mutate", large)
    assert response.status == 413
    assert "more than 400000 parts" in await response.text()


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_the_deadline_holds_for_what_is_too_large(serve: Serve, path: str) -> None:
    served = await serve(knowing(), deadline_seconds=0.02)
    response = await served.ask(path, job_set(3000))
    assert response["allowed"] is True
    assert "patch" not in response
    assert "not checked within 0.02 s" in response["warnings"][0]
    assert served.undecided(path[1:], "deadline") == 1


async def test_what_a_kind_may_lack_is_not_missed(serve: Serve) -> None:
    absent = claim({"name": "gpu", "exactly": {"deviceClassName": "not-there"}})
    strict = LintSettings(strict=True)
    served = await serve(knowing(), lint=strict)
    assert (await served.ask("/validate", absent))["allowed"] is False
    served = await serve(knowing(), lint=strict, incomplete_kinds=frozenset(["DeviceClass"]))
    assert (await served.ask("/validate", absent))["allowed"] is True


async def test_a_pod_with_thousands_of_claims_is_judged(serve: Serve) -> None:
    served = await serve(knowing())
    claims = [{"name": f"g{i}", "resourceClaimTemplateName": f"t{i}"} for i in range(2000)]
    response = await served.ask("/validate", claiming_pod({"resourceClaims": claims}))
    assert response["allowed"] is True
    assert served.reviews("validate", "warned") == 1


# Pythons read to unlike depths, none of them so deep.
ODD = [b"[" * 100_000 + b"]" * 100_000, b'"\xff"', b'"\\ud800"']


def odd(object: Object, json: bytes) -> bytes:
    """The review of a claim with such opaque parameters."""
    parameters = {"driver": "acme.example.com", "parameters": {"odd": "HERE"}}
    object["spec"]["devices"]["config"] = [{"opaque": parameters}]
    return encoded(review(object)).replace(b'"HERE"', json)


@pytest.mark.parametrize("json", ODD)
async def test_odd_json_is_judged_by_all_else(serve: Serve, json: bytes) -> None:
    served = await serve(knowing())
    answer = await (await served.post("/validate", odd(claim(exactly(count=40)), json))).json()
    assert "FTL010" in answer["response"]["status"]["message"]


@pytest.mark.parametrize("json", ODD)
async def test_odd_json_is_left_as_it_is(serve: Serve, json: bytes) -> None:
    """A patch of what was read only in part could cost its author the rest."""
    served = await serve(knowing(), policies=(TOLERANT,))
    made = claim(exactly())
    made["metadata"]["annotations"] = {ANNOTATION: TOLERANT.name}
    assert "patch" in await served.ask("/mutate", made)
    answer = await (await served.post("/mutate", odd(made, json))).json()
    assert answer["response"]["allowed"] is True
    assert "patch" not in answer["response"]
    assert "nests deeper than 100 levels" in answer["response"]["warnings"][0]
