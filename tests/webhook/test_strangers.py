"""A webhook without a client CA answers whoever reaches its port: what its texts tell them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from fettle.lint import Linter
from fettle.lint.drivers import Drivers
from fettle.model import Policies
from fettle.model.annotations import ANNOTATION
from tests.fettle.lint.clusters import InProcess, view_of
from tests.fettle.lint.fleets import GPU, fleet
from tests.fettle.lint.tables.case import Case, claim, exactly
from tests.fettle.lint.test_tables import CASES
from tests.fettle.records.building import recorder as remembering
from tests.webhook.conftest import Serve
from tests.webhook.reviews import Object, encoded, pod, review
from webhook.review import decode
from webhook.validate import MISTAKES_OF_THE_CLUSTER, ValidationContext, ValidationResult, validate

CAUGHT = [case for case in CASES if case.caught]
WORDS_OF_KUBERNETES = {"kubernetes.io/hostname"}


async def told(case: Case, *, to_strangers: bool) -> str:
    linter = Linter(
        evaluator=InProcess(), drivers=Drivers(features=case.features), disabled=case.disabled
    )
    context = ValidationContext(linter, Policies(), to_strangers=to_strangers)
    asked = decode(encoded(review(case.object, namespace="default")))
    found: ValidationResult = await validate(asked, view_of(case.known), context)
    return "\n".join(map(str, (*found.denied, *found.warned)))


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield str(key)
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, str):
        yield value


def secrets(case: Case) -> set[str]:
    """What the cluster's objects outside of the namespace say, and the object and its namespace do
    not."""
    own = [o for o in case.known if o.get("metadata", {}).get("namespace") == "default"]
    shown = json.dumps([case.object, *own])
    others = (o for o in case.known if o not in own)
    found = {leaf for other in others for leaf in leaves(without_its_kind(other))}
    long = {leaf for leaf in found if len(leaf) > 4 and not leaf.isalpha()}
    others_only = long.union(named(case.known)) - WORDS_OF_KUBERNETES
    return {leaf for leaf in others_only if leaf not in shown}


def named(objects: Sequence[Object]) -> set[str]:
    return {o["metadata"]["name"] for o in objects if o["metadata"].get("namespace") != "default"}


def without_its_kind(object: Object) -> Object:
    return {key: value for key, value in object.items() if key not in ("apiVersion", "kind")}


async def test_no_finding_says_what_others_have() -> None:
    for case in CAUGHT:
        said = await told(case, to_strangers=True)
        found = [one for one in secrets(case) if re.search(rf"\b{re.escape(one)}\b", said)]
        assert (str(case), found) == (str(case), [])


@pytest.mark.long
async def test_findings_for_the_api_server_alone_do() -> None:
    spoken = [case for case in CAUGHT if secrets(case)]
    says = [await told(case, to_strangers=False) for case in spoken]
    assert sum(any(s in text for s in secrets(c)) for c, text in zip(spoken, says, strict=True)) > 9


async def test_a_finding_for_strangers_says_what_is_wrong_and_who_says_more(serve: Serve) -> None:
    served = await serve(view_of(fleet()), evaluator=InProcess(), to_strangers=True)
    answer = await served.ask("/validate", claim(exactly(device_class="gpu.nvidia.con")))
    (said,) = answer.get("warnings") or [answer["status"]["message"]]
    assert "FTL" in said
    assert GPU not in said
    assert "`fettle lint --kubeconfig FILE` says more" in said


async def test_a_policy_that_does_not_exist_is_told_without_those_that_do(serve: Serve) -> None:
    served = await serve(view_of(fleet()), to_strangers=True)
    answer = await served.ask("/mutate", pod({ANNOTATION: "trainig"}))
    (warning,) = answer["warnings"]
    assert "there is no policy 'trainig'; the next policy that applies is used" in warning


@pytest.mark.parametrize("anybody", [True, False])
async def test_strangers_have_no_event_and_no_record_written(serve: Serve, anybody: bool) -> None:
    recorder = remembering(None)
    observed = {"team": {"fettle.dev/mode": "observe"}}
    served = await serve(
        msgspec.structs.replace(view_of(fleet()), namespaces=observed),
        evaluator=InProcess(),
        recorder=recorder,
        to_strangers=anybody,
        events=True,
    )
    await served.ask("/validate", claim(exactly(count=33)))
    assert served.reviews("validate", "would_be_denied") == 1
    assert bool(served.events) is not anybody
    assert bool(recorder.all()) is not anybody


@pytest.mark.parametrize("field", ["uid", "namespace", "name"])
async def test_a_review_writes_no_more_than_a_line_into_the_log(serve: Serve, field: str) -> None:
    served = await serve(view_of(fleet()), evaluator=InProcess(), to_strangers=True)
    asked = review(claim(exactly(count=33)), **{field: "x" * 1_000_000})
    with capture_logs() as logs:
        reply = await served.post("/validate", encoded(asked))
    assert not (await reply.json())["response"]["allowed"]
    assert [log["event"] for log in logs] == ["denied"]
    assert len(json.dumps(logs)) < 2000


def test_what_strangers_are_told_of_a_mistake_is_one_clause() -> None:
    assert [text for text in MISTAKES_OF_THE_CLUSTER.values() if ";" in text] == []
