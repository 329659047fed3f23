"""Which claim a pod's entry stands for: none at all, one that is another pod's, one left over."""

from typing import Any

import pytest

from fettle.api import core, resource
from fettle.cluster import View
from fettle.config import Settings
from fettle.explain.wording import texts
from fettle.scheduling.demand import demand_of
from tests.fettle import building as b

POLICIES = Settings().all_policies()
CLASS = b.device_class(extendedResourceName=b.RESOURCE)
REQUESTS = [{"name": "r", "exactly": {"deviceClassName": b.DRIVER}}]
TEMPLATE = b.template(
    {
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": REQUESTS}}},
    }
)
EXTENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}


def view(*claims: resource.ResourceClaim) -> View:
    return b.view(
        templates={"default/t": TEMPLATE},
        classes={b.DRIVER: CLASS},
        claims={claim.metadata.key: claim for claim in claims},
        extended_claims={
            claim.metadata.controller_identity: claim
            for claim in claims
            if claim.metadata.annotations == EXTENDED
        },
    )


def pod(*statuses: dict[str, str], units: int = 0, **spec: Any) -> core.Pod:
    """With a template's claim named gpu, unless `spec` says otherwise."""
    container = {"name": "c", "resources": {"limits": {b.RESOURCE: str(units)}}}
    entries = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    return b.pod(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "mine"},
            "spec": {"containers": [container], "resourceClaims": entries, **spec},
            "status": {"resourceClaimStatuses": statuses},
        }
    )


def claim(
    uid: str = "mine",
    *,
    name: str = "p",
    kind: str = "Pod",
    controller: bool | None = True,
    requests: list[Any] = REQUESTS,
    **metadata: Any,
) -> resource.ResourceClaim:
    owner = {"kind": kind, "name": name, "uid": uid, "controller": controller}
    named = {"name": "made", "namespace": "default", "ownerReferences": [owner]}
    return b.claim({"metadata": named | metadata, "spec": {"devices": {"requests": requests}}})


def barred(pod: core.Pod, *claims: resource.ResourceClaim) -> str:
    ask = demand_of(pod, view(*claims), POLICIES)
    assert ask is not None
    return "; ".join(texts(ask.barred))


def test_a_claim_that_the_pods_status_does_not_need_is_no_part_of_the_demand() -> None:
    skipped = {"name": "gpu"}
    assert demand_of(pod(skipped), view(), POLICIES) is None
    ask = demand_of(pod(skipped, units=1), view(), POLICIES)
    assert ask is not None
    assert (ask.claims, ask.unsettled, len(ask.units)) == ((), (), 1)


def test_the_other_claims_of_a_pod_are_still_needed() -> None:
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("gpu", "nic")]
    ask = demand_of(pod({"name": "gpu"}, resourceClaims=entries), view(), POLICIES)
    assert ask is not None
    assert [wanted.name for wanted in ask.claims] == ["nic"]


def test_a_claim_that_the_spec_names_is_needed_whatever_the_status_says() -> None:
    entries = [{"name": "gpu", "resourceClaimName": "made"}]
    ask = demand_of(pod({"name": "gpu"}, resourceClaims=entries), view(claim()), POLICIES)
    assert ask is not None
    assert [wanted.name for wanted in ask.claims] == ["gpu"]


MADE = {"name": "gpu", "resourceClaimName": "made"}


def test_a_claim_created_for_the_pod_is_used() -> None:
    assert barred(pod(MADE), claim()) == ""


@pytest.mark.parametrize(
    "other",
    [claim("theirs"), claim(controller=False), claim(controller=None), claim("theirs", name="q")],
    ids=["an earlier pod of that name", "owned only", "owned only, unsaid", "another pod"],
)
def test_a_pod_cannot_use_a_claim_created_for_another_pod(other: resource.ResourceClaim) -> None:
    assert "ResourceClaim default/made was not made for this pod" in barred(pod(MADE), other)


def test_a_claim_that_the_spec_names_may_belong_to_anybody() -> None:
    entries = [{"name": "gpu", "resourceClaimName": "made"}]
    assert barred(pod(resourceClaims=entries), claim("theirs")) == ""


def test_a_claim_created_for_a_pod_group_can_be_used() -> None:
    assert barred(pod(MADE), claim("group", kind="PodGroup")) == ""


def test_a_left_over_claim_for_extended_resources_keeps_its_pod_off_all_nodes() -> None:
    left = claim(annotations=EXTENDED)
    waiting = pod(units=1, resourceClaims=None)
    assert "ResourceClaim default/made" in barred(waiting, left)
    assert barred(waiting) == ""


@pytest.mark.parametrize(
    "other",
    [
        claim("theirs", annotations=EXTENDED),
        claim(controller=False, annotations=EXTENDED),
        claim(name="q", annotations=EXTENDED),
        claim(requests=[], annotations=EXTENDED),
    ],
    ids=["another pod's", "owned only", "another name", "nothing requested"],
)
def test_a_claim_that_only_resembles_a_left_over_one_keeps_no_pod_off(
    other: resource.ResourceClaim,
) -> None:
    assert barred(pod(units=1, resourceClaims=None), other) == ""


def test_the_claim_of_a_bound_pod_is_not_left_over() -> None:
    bound = pod(units=1, resourceClaims=None, nodeName="n")
    assert barred(bound, claim(annotations=EXTENDED)) == ""


def test_without_a_class_behind_a_resource_a_left_over_claim_does_not_count() -> None:
    waiting = pod(units=1, resourceClaims=None)
    ask = demand_of(waiting, view(claim(annotations=EXTENDED)), POLICIES, backed=False)
    assert ask is not None
    assert ask.barred == ()
