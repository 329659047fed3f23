"""FTL106: values of a wrong type, with field and fix; what the API server accepts passes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.lint.manifests import Manifest
from fettle.lint.structure import WRONG_TYPE, mistakes_in_structure
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.tables.case import claim, exactly, template
from tests.fettle.lint.test_tables import CASES
from tests.fettle.lint.wild import spoilt

OBJECTS = st.sampled_from(sorted((case.object for case in CASES), key=str))


def wrong(object: Object) -> list[tuple[str, str, str]]:
    found = mistakes_in_structure(Manifest(object))
    return [(f.field, f.message, f.fix) for f in found if f.rule == WRONG_TYPE.id]


def job(**spec: Any) -> Object:
    made = api.job("j")
    return {**made, "spec": {**made["spec"], **spec}}


def pod(**spec: Any) -> Object:
    made = api.pod("p")
    return {**made, "spec": {**made["spec"], **spec}}


REQUEST = "spec.devices.requests[0].exactly"
WRONG: list[tuple[Object, str, str, str]] = [
    (claim(exactly(count="40")), f"{REQUEST}.count", "a whole number", "write 40, without quotes"),
    (claim(exactly(count="9" * 10_000)), f"{REQUEST}.count", "a whole number", ""),
    (claim(exactly(count=10**20)), f"{REQUEST}.count", "a whole number", ""),
    (claim(exactly(count=1.5)), f"{REQUEST}.count", "a whole number", ""),
    (claim(exactly(count=True)), f"{REQUEST}.count", "a whole number", ""),
    (
        claim(exactly(adminAccess="True")),
        f"{REQUEST}.adminAccess",
        "true or false",
        "write true, without quotes",
    ),
    (
        claim(exactly(tolerations=[{"value": 1}])),
        f"{REQUEST}.tolerations[0].value",
        "text",
        "put it in quotes",
    ),
    (claim(exactly(tolerations={})), f"{REQUEST}.tolerations", "a list", ""),
    (claim(exactly(tolerations=["x"])), f"{REQUEST}.tolerations[0]", "an object", ""),
    (
        claim(exactly(capacity={"requests": {"memory": True}})),
        f"{REQUEST}.capacity.requests.memory",
        "a quantity",
        "",
    ),
    (
        template(exactly(count="2")),
        "spec.spec.devices.requests[0].exactly.count",
        "a whole number",
        "write 2, without quotes",
    ),
    (
        {**claim(exactly()), "spec": []},
        "spec",
        "an object",
        "",
    ),
    (job(backoffLimit="3"), "spec.backoffLimit", "a whole number", "write 3, without quotes"),
    (
        job(podFailurePolicy={"rules": [{"onExitCodes": {"values": ["42"]}}]}),
        "spec.podFailurePolicy.rules[0].onExitCodes.values[0]",
        "a whole number",
        "write 42, without quotes",
    ),
    (
        pod(nodeSelector={"gpu": True}),
        "spec.nodeSelector.gpu",
        "text",
        "put it in quotes: without them true, yes, on and y mean true",
    ),
    (
        {**pod(), "metadata": {"name": "p", "annotations": {"fettle.dev/min-score": 0.7}}},
        "metadata.annotations[fettle.dev/min-score]",
        "text",
        "put it in quotes",
    ),
    (
        job(parallelism="two"),
        "spec.parallelism",
        "a whole number",
        "",
    ),
]


@pytest.mark.parametrize(("object", "field", "must_be", "fix"), WRONG, ids=lambda v: str(v)[:50])
def test_a_value_of_a_wrong_type_is_found(
    object: Object, field: str, must_be: str, fix: str
) -> None:
    ((where, message, how),) = wrong(object)
    assert where == field
    assert message.startswith(f"must be {must_be}, and is ")
    assert how == fix


def test_a_very_long_number_is_reported_in_short() -> None:
    ((_, message, _),) = wrong(claim(exactly(count=10**10_000)))
    assert message == "must be a whole number, and is one larger than 64 bits"


@pytest.mark.parametrize(
    "mark", ["__NUM_NODES__", "${NODES}", "$NODES", "<nodes>", "{{ nodes }}", "NUM_NODES"]
)
def test_a_mark_that_is_replaced_before_is_not_of_a_wrong_type(mark: str) -> None:
    assert wrong(job(parallelism=mark)) == []
    assert wrong(job(parallelism=f"{mark} of them"))


def test_a_capability_where_a_list_of_them_is_due_is_no_mark() -> None:
    caps = {"add": "IPC_LOCK", "drop": "NET_RAW"}
    found = wrong(pod(containers=[{"name": "c", "securityContext": {"capabilities": caps}}]))
    at = "spec.containers[0].securityContext.capabilities"
    assert [field for field, _, _ in found] == [f"{at}.add", f"{at}.drop"]
    assert found[0][1] == 'must be a list, and is "IPC_LOCK"'


def test_an_allowed_value_in_capitals_is_no_mark() -> None:
    for policy, count in (("ON_FAILURE", 1), ("RESTART_POLICY", 0)):
        found = [*mistakes_in_structure(Manifest(pod(restartPolicy=policy)))]
        assert [f.field for f in found] == ["spec.restartPolicy"] * count


@pytest.mark.parametrize("mark", ["${SELECTOR}", "{{ selector }}", "__SELECTOR__"])
def test_a_mark_with_signs_may_stand_for_an_object(mark: str) -> None:
    assert wrong(pod(nodeSelector=mark)) == []
    assert wrong(pod(nodeSelector="NODE_SELECTOR"))


def test_what_the_api_server_accepts_has_no_wrong_types() -> None:
    assert {str(case): found for case in CASES if (found := wrong(case.object))} == {}


@pytest.mark.parametrize(
    "object",
    [
        claim(exactly(count=None, tolerations=None)),
        claim(exactly(capacity={"requests": {"memory": 0.5, "cores": 2, "a": "1Gi"}})),
        pod(containers=[{"name": "c", "resources": {"limits": {"cpu": 0.5, "nvidia.com/gpu": 1}}}]),
        {"kind": "Thing", "spec": {"count": "40"}},
    ],
)
def test_null_quantities_as_numbers_and_unknown_kinds_are_not_wrong(object: Object) -> None:
    assert wrong(object) == []


@given(OBJECTS.flatmap(spoilt))
def test_no_object_makes_the_check_crash(spoiled: Any) -> None:
    if isinstance(spoiled, dict):
        assert all(field and message for field, message, _ in wrong(spoiled))
