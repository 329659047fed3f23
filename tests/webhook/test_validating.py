"""What is refused, what is warned of, and what is left undecided."""

from collections.abc import Iterator
from typing import ClassVar

from fettle.lint.findings import Context, Finding, Severity
from fettle.lint.raw import Raw
from fettle.lint.rules import RULES
from fettle.view import EMPTY, View
from tests.fettle.lint.builders import (
    Object,
    claim,
    exactly,
    knowing,
    pod,
    pod_spec,
    template,
)
from tests.webhook.reviews import encoded, review
from webhook.review import decode
from webhook.validating import Validation, validate

TOO_MANY = claim(exactly(count=40))
KEYLESS = template(exactly(tolerations=[{"operator": "Equal", "value": "hot"}]))
TYPO = pod(pod_spec({"name": "gpus", "request": "typo"}))


async def validation(object: Object | None, known: View = EMPTY, **request: object) -> Validation:
    return await validate(decode(encoded(review(object, **request))), known, RULES)  # type: ignore[arg-type]


async def test_each_mistake_is_denied_with_rule_field_figures_and_fix() -> None:
    for object, rule, field in (
        (TOO_MANY, "FTL010", "spec.devices.requests[0].exactly.count"),
        (KEYLESS, "FTL026", "spec.spec.devices.requests[0].exactly.tolerations[0]"),
        (TYPO, "FTL035", "spec.containers[0].resources.claims[0].request"),
    ):
        found = await validation(object, knowing(template(exactly("gpu"))))
        (finding,) = found.denied
        assert (finding.rule, finding.field) == (rule, field)
        assert found.message == f"{rule} {field}: {finding.message}; {finding.fix}"


async def test_good_objects_pass_in_silence() -> None:
    known = knowing(template(exactly("gpu")))
    spec = pod_spec({"name": "gpus", "request": "gpu"})
    for object in (claim(exactly(count=8)), template(exactly()), pod(spec)):
        assert await validation(object, known) == Validation()


async def test_several_mistakes_are_told_at_once() -> None:
    found = await validation(claim(exactly(count=40, tolerations=[{}])))
    assert [finding.rule for finding in found.denied] == ["FTL010", "FTL026"]
    assert " | FTL026 " in found.message


async def test_a_message_of_very_many_mistakes_is_cut() -> None:
    found = await validation(claim(exactly(tolerations=[{}] * 16)))
    assert len(found.denied) == 16
    assert found.message.endswith(" | and 6 more")


async def test_what_is_not_known_is_undecided_and_not_denied() -> None:
    for known in (EMPTY, knowing(), knowing(template(exactly("gpu")), synced=False)):
        found = await validation(TYPO, known)
        assert (found.denied, found.warned) == ((), ())
        assert [finding.rule for finding in found.undecided] == ["FTL035"]


async def test_a_mistake_that_is_stored_already_only_warns() -> None:
    found = await validation(TOO_MANY, operation="UPDATE", oldObject=TOO_MANY)
    assert found.denied == ()
    assert [finding.rule for finding in found.warned] == ["FTL010"]


async def test_a_new_mistake_beside_a_stored_one_is_denied() -> None:
    worse = claim(exactly(count=40, tolerations=[{}]))
    found = await validation(worse, operation="UPDATE", oldObject=TOO_MANY)
    assert [finding.rule for finding in found.denied] == ["FTL026"]
    assert [finding.rule for finding in found.warned] == ["FTL010"]


async def test_deletions_and_subresources_are_not_judged() -> None:
    assert await validation(None, operation="DELETE", oldObject=TOO_MANY) == Validation()
    assert await validation(TOO_MANY, subResource="status") == Validation()
    assert await validation(TOO_MANY, operation="CONNECT") == Validation()


async def test_an_object_is_judged_as_the_kind_that_was_asked_about() -> None:
    """The API server converts; what the object says of itself does not matter."""
    nameless = {"metadata": {}, "spec": TOO_MANY["spec"]}
    kind = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}
    found = await validation(nameless, kind=kind)
    assert [finding.rule for finding in found.denied] == ["FTL010"]


class Doubtful:
    """A rule that is never sure."""

    id: ClassVar[str] = "FTL999"
    name: ClassVar[str] = "doubtful"
    severity: ClassVar[Severity] = Severity.WARN

    def check(self, object: Raw, context: Context) -> Iterator[Finding]:
        for severity in (Severity.WARN, Severity.UNDECIDED):
            yield Finding(rule=self.id, severity=severity, field="spec", message="maybe")


async def test_only_denials_deny() -> None:
    found = await validate(decode(encoded(review(TOO_MANY))), EMPTY, [Doubtful()])
    assert (len(found.denied), len(found.warned), len(found.undecided)) == (0, 1, 1)
    assert found.message == ""
