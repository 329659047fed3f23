"""What the API server refuses, by objects that lint must catch and near misses that it must not."""

import pytest

from fettle.config import HealthSettings
from fettle.lint.checks import run_checks
from fettle.lint.findings import Finding, Severity
from fettle.lint.manifests import Manifest
from fettle.model import Policies, Validation
from tests.fettle.lint.builders import Object
from tests.fettle.lint.tables.refused import STRUCTURE, Refused
from tests.fettle.lint.test_tables import CASES

ROWS = [*STRUCTURE]


def checked(object: Object) -> list[Finding]:
    manifest = Manifest(object)
    return list(run_checks(manifest, Policies(), {}, None, Validation(), HealthSettings()))


@pytest.mark.parametrize("row", [row for row in ROWS if row.says], ids=str)
def test_what_the_api_server_refuses_is_denied(row: Refused) -> None:
    found = [f for f in checked(row.object) if f.rule == row.rule]
    assert any(row.says in f.message for f in found), found
    assert {f.severity for f in found} == {Severity.DENY}


@pytest.mark.parametrize("row", [row for row in ROWS if not row.says], ids=str)
def test_a_near_miss_that_it_accepts_passes(row: Refused) -> None:
    assert [f for f in checked(row.object) if f.severity is Severity.DENY] == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_it_accepts_and_other_rules_catch_is_sound_in_structure(case: object) -> None:
    rules = {row.rule for row in ROWS}
    found = checked(case.object)  # type: ignore[attr-defined]
    assert [f for f in found if f.rule in rules and f.severity is Severity.DENY] == []
