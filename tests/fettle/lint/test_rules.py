"""All rules together."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.lint.findings import Severity
from fettle.lint.rules import RULES
from tests.fettle.lint.builders import (
    Object,
    alternative,
    alternatives,
    claim,
    context,
    exactly,
    pod,
    pod_spec,
    template,
)
from tests.fettle.lint.wild import ANYTHING, spoilt

REQUESTS = [
    exactly("a", count=30, tolerations=[{"operator": "Equal", "value": "hot"}]),
    alternatives(
        alternative("b", count=40), alternative("c", allocationMode="All", tolerations=[])
    ),
]
SPEC = pod_spec({"name": "gpus", "request": "typo"}, {"name": "gpus", "request": "gpu"})
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": "team"},
    "spec": {"template": {"spec": SPEC}},
}
OBJECTS = st.sampled_from([claim(*REQUESTS), template(*REQUESTS), pod(SPEC), JOB])


def test_ids_are_unique_and_in_order() -> None:
    ids = [rule.id for rule in RULES]
    assert ids == sorted(set(ids))
    assert all(len(i) == 6 and i.startswith("FTL") for i in ids)


def test_every_rule_has_a_name_that_can_be_typed() -> None:
    for rule in RULES:
        assert set(rule.name) <= set(string.ascii_lowercase + "-")


@given(OBJECTS.flatmap(spoilt))
def test_spoilt_objects_are_judged_without_a_crash(spoiled: Any) -> None:
    if not isinstance(spoiled, dict):
        return
    known = context(template(exactly("gpu")))
    for rule in RULES:
        for finding in rule.check(spoiled, known):
            assert finding.rule == rule.id
            assert finding.field.startswith("spec.")
            assert finding.message


@given(st.dictionaries(st.text(), ANYTHING))
def test_an_object_of_no_kind_is_not_judged(value: Object) -> None:
    assert all(not list(rule.check(value, context())) for rule in RULES)


@pytest.mark.parametrize("severity", Severity)
def test_severities_are_written_as_policies_write_them(severity: Severity) -> None:
    assert severity.value == severity.name.capitalize()
