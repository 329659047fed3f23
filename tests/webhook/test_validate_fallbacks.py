"""Claims are judged as their author wrote them, without injected fallbacks."""

import copy

import pytest

from fettle.lint import Linter
from fettle.model import Policies
from tests.fettle.lint.builders import knowing
from tests.webhook.mutate.claims import claim, either, exactly, requests, spec, template
from tests.webhook.mutations import context_of, mutated
from tests.webhook.reviews import Object, encoded, review
from webhook.review import decode
from webhook.validate import ValidationContext, ValidationResult, validate, without_fallbacks

STEERED = context_of({"tolerations": {"devices": [{"key": "ecc"}], "degradedAsFallback": True}})
CLAIM, TEMPLATE = ("resource.k8s.io", "ResourceClaim"), ("resource.k8s.io", "ResourceClaimTemplate")


async def validation(object: Object) -> ValidationResult:
    asked = decode(encoded(review(object)))
    levels = Policies().by_name["training"].validation
    return await validate(asked, knowing(), ValidationContext(Linter(), Policies(), levels))


async def test_a_mistake_in_a_steered_claim_is_told_once_at_the_authors_field() -> None:
    absent = spec(exactly(deviceClassName="gpu.nvidia.con"))
    for made, prefix in ((claim(absent), "spec"), (template(absent), "spec.spec")):
        found = await validation(await mutated(made, by=STEERED))
        (finding,) = (*found.denied, *found.warned)
        assert finding.rule == "FTL001"
        assert finding.field == f"{prefix}.devices.requests[0].exactly.deviceClassName"


async def test_alternatives_of_the_author_stay() -> None:
    stored = await mutated(claim(spec(either("big", "small"), exactly("other"))), by=STEERED)
    first, second = requests(without_fallbacks(stored, CLAIM))
    assert [option["name"] for option in first["firstAvailable"]] == ["big", "small"]
    assert "exactly" in second


async def test_the_stored_object_itself_is_not_changed() -> None:
    stored = await mutated(template(), by=STEERED)
    before = copy.deepcopy(stored)
    assert without_fallbacks(stored, TEMPLATE) != stored
    assert stored == before


@pytest.mark.parametrize("forged", [{"deviceClassName": "absent"}, {"tolerations": []}])
async def test_a_forged_record_hides_no_alternative(forged: Object) -> None:
    stored = await mutated(claim(), by=STEERED)
    requests(stored)[0]["firstAvailable"][1] |= forged
    assert without_fallbacks(stored, CLAIM) == stored


async def test_without_a_record_everything_is_the_authors() -> None:
    stored = await mutated(claim(), by=STEERED)
    del stored["metadata"]["annotations"]["fettle.dev/injected"]
    assert without_fallbacks(stored, CLAIM) == stored
