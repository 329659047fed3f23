"""What is denied, what is warned of, and what stays undecided."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from fettle.api.annotations import POD_CLAIM_NAME
from fettle.cluster import EMPTY, View
from fettle.lint import DEFAULT_LEVELS, Finding, Linter, Manifest, Rule, Severity
from fettle.lint.cluster import Cluster
from fettle.model import INFERENCE, Policies, RuleSeverity
from fettle.model import Validation as Levels
from tests.fettle.lint.builders import (
    Object,
    claim,
    exactly,
    knowing,
    pod,
    pod_spec,
    template,
)
from tests.hostile.pauses import noted, slowness
from tests.webhook.reviews import encoded, review
from webhook.review import decode
from webhook.validate import ValidationContext, ValidationResult, validate

TOO_MANY = claim(exactly(count=40))
PCIE = "resource.kubernetes.io/pcieRoot"


def apart(times: int = 1, count: int = 2) -> Object:
    """A claim whose devices are to have the same root, and `times` a different one."""
    constraints = [{"matchAttribute": PCIE}, *([{"distinctAttribute": PCIE}] * times)]
    made = claim(exactly(count=count))
    made["spec"]["devices"]["constraints"] = constraints
    return made


APART = template(exactly(count=2))
APART["spec"]["spec"]["devices"]["constraints"] = apart()["spec"]["devices"]["constraints"]
TYPO = pod(pod_spec({"name": "gpus", "request": "typo"}))


async def validation(
    object: Object | None,
    known: View = EMPTY,
    *,
    linter: Linter | None = None,
    levels: Levels = DEFAULT_LEVELS,
    **request: Any,
) -> ValidationResult:
    asked = decode(encoded(review(object, **request)))
    return await validate(asked, known, ValidationContext(linter or Linter(), Policies(), levels))


async def test_each_mistake_is_denied_with_rule_field_figures_and_fix() -> None:
    for object, rule, field in (
        (TOO_MANY, "FTL010", "spec.devices.requests[0].exactly.count"),
        (APART, "FTL058", "spec.spec.devices.constraints[1].distinctAttribute"),
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
        assert await validation(object, known) == ValidationResult()


async def test_several_mistakes_are_told_at_once() -> None:
    found = await validation(apart(count=40))
    assert [finding.rule for finding in found.denied] == ["FTL010", "FTL058"]
    assert " | FTL058 " in found.message


async def test_a_message_of_very_many_mistakes_is_cut() -> None:
    found = await validation(apart(16))
    assert len(found.denied) == 16
    assert found.message.endswith(" | and 6 more")


@pytest.mark.long
async def test_of_very_many_mistakes_of_one_kind_some_tens_are_told() -> None:
    claims = [{"name": f"g{i}", "resourceClaimTemplateName": "t"} for i in range(15_000)]
    idle = {"containers": [{"name": "c"}], "resourceClaims": claims}
    async with noted() as pauses:
        found = await validation(pod(idle), knowing(template(exactly("gpu"), name="t")))
    told = Counter(finding.rule for finding in found.warned)
    assert told["FTL036"] == 64
    assert pauses.longest_s < 0.1 * slowness()


@pytest.mark.long
async def test_very_many_requests_keep_nobody_waiting_while_the_view_is_not_complete() -> None:
    made = claim(*(exactly(name=f"r{number}") for number in range(20_000)))
    asked = decode(encoded(review(made)))
    context = ValidationContext(Linter(), Policies(), DEFAULT_LEVELS)
    async with noted() as pauses:
        await validate(asked, EMPTY, context._replace(incomplete_kinds=frozenset({"DeviceClass"})))
    assert pauses.longest_s < 0.1 * slowness()


async def test_a_stored_object_with_very_many_mistakes_may_change() -> None:
    before, after = apart(200), apart(199)
    assert (await validation(before)).denied
    assert not (await validation(after, operation="UPDATE", oldObject=before)).denied


async def test_what_is_not_known_is_undecided_and_not_denied() -> None:
    for known in (EMPTY, knowing(template(exactly("gpu")), synced=False)):
        found = await validation(TYPO, known)
        assert (found.denied, found.warned) == ((), ())
        assert [finding.rule for finding in found.undecided] == ["FTL035"]


async def test_a_mistake_that_is_stored_already_only_warns() -> None:
    changed = claim(exactly(count=40), exactly("other"))
    found = await validation(changed, operation="UPDATE", oldObject=TOO_MANY)
    assert found.denied == ()
    assert [finding.rule for finding in found.warned] == ["FTL010"]


async def test_a_new_mistake_beside_a_stored_one_is_denied() -> None:
    worse = apart(count=40)
    found = await validation(worse, operation="UPDATE", oldObject=TOO_MANY)
    assert [finding.rule for finding in found.denied] == ["FTL058"]
    assert [finding.rule for finding in found.warned] == ["FTL010"]


async def test_deletions_and_subresources_are_not_judged() -> None:
    assert await validation(None, operation="DELETE", oldObject=TOO_MANY) == ValidationResult()
    assert await validation(TOO_MANY, subResource="status") == ValidationResult()
    assert await validation(TOO_MANY, operation="CONNECT") == ValidationResult()


async def test_an_object_is_judged_as_the_kind_that_was_asked_about() -> None:
    """The API server converts; what the object says of itself does not matter."""
    nameless = {"metadata": {}, "spec": TOO_MANY["spec"]}
    kind = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}
    found = await validation(nameless, kind=kind)
    assert [finding.rule for finding in found.denied] == ["FTL010"]


class Doubtful(Rule):
    """A rule that is never sure."""

    id = "FTL999"
    name = "doubtful"
    severity = Severity.WARN
    today = "unknown"

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for severity in (Severity.WARN, Severity.UNDECIDED):
            yield self.finding(manifest.root.at("spec"), "maybe", severity=severity)


async def test_only_denials_deny() -> None:
    found = await validation(TOO_MANY, linter=Linter([Doubtful()]))
    assert (len(found.denied), len(found.warned), len(found.undecided)) == (0, 1, 1)
    assert found.message == ""


async def test_what_the_scheduler_writes_is_not_judged() -> None:
    scheduler = {"username": "system:kube-scheduler"}
    assert await validation(TOO_MANY, userInfo=scheduler) == ValidationResult()


async def test_an_unchanged_spec_is_not_judged_again() -> None:
    finalized = {**TOO_MANY, "metadata": {**TOO_MANY["metadata"], "finalizers": ["x"]}}
    found = await validation(finalized, operation="UPDATE", oldObject=TOO_MANY)
    assert found == ValidationResult()


async def test_a_claim_made_from_a_template_only_warns() -> None:
    """Its template was the place to refuse; here only a controller would hear of it."""
    metadata = {**TOO_MANY["metadata"], "annotations": {POD_CLAIM_NAME: "gpus"}}
    found = await validation({**TOO_MANY, "metadata": metadata})
    assert (len(found.denied), len(found.warned)) == (0, 1)


async def test_a_beta_version_is_told_as_it_was_sent() -> None:
    sent = {"group": "resource.k8s.io", "version": "v1beta1", "kind": "ResourceClaim"}
    found = await validation(claim(exactly()), requestKind=sent)
    assert [finding.rule for finding in found.warned] == ["FTL034"]


@pytest.mark.parametrize(
    ("levels", "denied", "warned"),
    [
        (Levels(rules={"FTL010": RuleSeverity.WARN}), [], ["FTL010"]),
        (Levels(rules={"FTL010": RuleSeverity.OFF}), [], []),
        (Levels(rules={"FTL033": RuleSeverity.DENY}), ["FTL010"], []),
    ],
)
async def test_the_cluster_says_how_severe_a_rule_is(
    levels: Levels, denied: list[str], warned: list[str]
) -> None:
    found = await validation(TOO_MANY, levels=levels)
    assert [finding.rule for finding in found.denied] == denied
    assert [finding.rule for finding in found.warned] == warned


async def test_the_policy_of_a_namespace_overrides_the_cluster() -> None:
    loose = Levels(rules={"FTL010": RuleSeverity.OFF})
    policy = msgspec.structs.replace(INFERENCE, name="loose", validation=loose)
    known = msgspec.structs.replace(
        knowing(), policies={"loose": policy}, namespaces={"team": {"fettle.dev/policy": "loose"}}
    )
    assert (await validation(TOO_MANY, known)) == ValidationResult()
    elsewhere = claim(exactly(count=40), namespace="other")
    assert [f.rule for f in (await validation(elsewhere, known)).denied] == ["FTL010"]


async def test_an_annotation_that_means_one_of_fettles_is_a_warning_and_never_a_denial() -> None:
    """Also where the rule is set to deny: what is ignored is no reason to refuse an object."""
    made = template(exactly())
    made["metadata"]["annotations"] = {"fettle.io/policy": "training"}
    denies = Levels(rules={"FTL115": RuleSeverity.DENY})
    found = await validation(made, levels=denies)
    assert found.denied == ()
    assert [(f.rule, f.field) for f in found.warned] == [
        ("FTL115", "metadata.annotations[fettle.io/policy]")
    ]
    late = pod(pod_spec())
    late["metadata"]["annotations"] = {"fettle.io/policy": "training"}
    assert (await validation(late)).warned == ()
