"""Claims of resource.k8s.io/v1beta1, whose requests are flat: some clusters serve nothing newer."""

from typing import Any

from tests.webhook.mutate.claims import (
    BOTH,
    KEY,
    NO_EXECUTE,
    NO_SCHEDULE,
    OWN,
    TOLERANT,
    claim,
    either,
    requests,
    spec,
)
from tests.webhook.mutations import mutated, mutation, updated
from tests.webhook.reviews import Object

VERSION = "resource.k8s.io/v1beta1"


def flat(**more: Any) -> Object:
    option = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return {"name": "gpu", **option, **more}


def old(*wanted: Object) -> Object:
    return {**claim(spec(*wanted)), "apiVersion": VERSION}


async def test_a_flat_request_gets_its_tolerations_where_it_has_them() -> None:
    done = await mutated(old(flat(selectors=[{"cel": {"expression": "true"}}])), by=BOTH)
    (request,) = requests(done)
    assert request["tolerations"] == [NO_SCHEDULE, NO_EXECUTE]
    assert set(request) == {*flat(), "selectors", "tolerations"}


async def test_what_its_author_said_of_a_taint_stays() -> None:
    own = {"key": KEY, "operator": "Exists"}
    assert (await mutation(old(flat(tolerations=[own])), by=TOLERANT)).patch == ()


async def test_a_flat_request_gets_no_fallback_and_a_warning_says_why() -> None:
    (warning,) = (await mutation(old(flat()), by=BOTH)).warnings
    assert "gets no degraded device as a fallback: a v1beta1" in warning


async def test_alternatives_are_what_they_are_in_newer_versions() -> None:
    done = await mutated(old(either("a")), by=BOTH)
    (request,) = requests(done)
    assert [option["name"] for option in request["firstAvailable"]] == ["a", "a-degraded"]


async def test_applying_the_original_again_changes_nothing() -> None:
    original = old(flat())
    stored = await mutated(original, by=TOLERANT)
    bare = {**original, "metadata": {**original["metadata"], "annotations": dict(OWN)}}
    assert await updated(bare, stored, by=TOLERANT) == stored


async def test_a_request_with_exactly_and_alternatives_is_left_to_the_api_server() -> None:
    both = {**flat(), "firstAvailable": []}
    assert (await mutation(old(both), by=BOTH)).patch == ()
