"""Each right that the chart gives has a test that fails without it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.controlplane.needed_rights import NEEDED, ROOT, Right, copy_without, without
from tests.deploy import charting
from tests.deploy.rendering import MATRIX

pytestmark = [pytest.mark.helm, pytest.mark.usefixtures("helm")]


def rights() -> set[Right]:
    """Each rule of each role, over all renderings."""
    return {
        Right(one["metadata"]["name"], ", ".join(rule["resources"]), ", ".join(rule["verbs"]))
        for values in MATRIX.values()
        for one in charting.objects(values)
        if one["kind"] in ("Role", "ClusterRole")
        for rule in one["rules"]
    }


def test_each_right_names_a_test() -> None:
    assert rights() == {*NEEDED}


@pytest.mark.parametrize("test", sorted({*NEEDED.values()}))
def test_each_of_these_tests_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {one.name for one in tree.body if isinstance(one, ast.AsyncFunctionDef)}


def test_taking_a_right_away_takes_that_rule_and_nothing_else() -> None:
    text = (ROOT / "deploy" / "rbac" / "namespace.yaml").read_text()
    left = without(Right("fettle-steward", "leases", "get, update"), text)
    assert len(text.splitlines()) - len(left.splitlines()) == 4
    assert "resourceNames: [fettle-certificates]" in left


@pytest.mark.parametrize("right", NEEDED, ids=lambda one: f"{one.role}-{one.resources[:20]}")
def test_each_right_can_be_taken_away(right: Right, tmp_path: Path) -> None:
    copy_without(right, tmp_path)
