"""All rules together."""

import asyncio
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fettle.cluster import EMPTY
from fettle.lint.drivers import Drivers
from fettle.lint.findings import Severity
from fettle.lint.linter import Linter
from fettle.lint.manifests import Manifest
from fettle.lint.rules import RULES
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import InProcess, view_of
from tests.fettle.lint.tables.case import FLEET, claim, exactly, template
from tests.fettle.lint.test_tables import CASES
from tests.fettle.lint.wild import ANYTHING, spoilt

KNOWN = view_of([*FLEET, template(exactly()), claim(exactly())])
LINTER = Linter(evaluator=InProcess(), drivers=Drivers(), survey_wait_s=10)
OBJECTS = st.sampled_from(sorted((case.object for case in CASES), key=str))


def test_ids_are_unique_and_in_order() -> None:
    ids = [rule.id for rule in RULES]
    assert ids == sorted(set(ids))
    assert all(len(i) == 6 and i.startswith("FTL") for i in ids)


def test_every_rule_has_a_name_that_can_be_typed() -> None:
    for rule in RULES:
        assert set(rule.name) <= set(string.ascii_lowercase + "-")


@pytest.mark.long
@settings(max_examples=400)
@given(OBJECTS.flatmap(spoilt), st.booleans())
def test_no_spoilt_object_makes_a_rule_crash(spoiled: Any, known: bool) -> None:
    if not isinstance(spoiled, dict):
        return
    manifest = Manifest(spoiled)
    for finding in asyncio.run(LINTER.lint(manifest, KNOWN if known else EMPTY)):
        assert finding.rule in {rule.id for rule in RULES}
        assert finding.field
        assert finding.message


@given(st.dictionaries(st.text(), ANYTHING))
def test_an_object_without_a_kind_has_no_findings(value: Object) -> None:
    assert asyncio.run(LINTER.lint(Manifest(value), KNOWN)) == []


@pytest.mark.parametrize("severity", Severity)
def test_severities_are_written_as_policies_write_them(severity: Severity) -> None:
    assert severity.value == severity.name.capitalize()
