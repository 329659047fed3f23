"""FTL026: a toleration that tolerates less than it seems to."""

from typing import Any

import pytest

from fettle.lint.findings import Finding, Severity
from fettle.lint.rules.placement import TolerationWithoutKey
from tests.fettle.lint import builders
from tests.fettle.lint.builders import (
    Object,
    alternative,
    alternatives,
    claim,
    exactly,
    pod,
    template,
)


def findings(object: Object) -> list[Finding]:
    return builders.findings(TolerationWithoutKey(), object)


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "", "operator": "Exists", "effect": "NoExecute"},
        {"key": "gpu.example.com/hot"},
        {"key": "gpu.example.com/hot", "operator": "Equal", "value": "yes"},
        {"key": 5},
        {"operator": ["Equal"]},
        "garbage",
    ],
)
def test_other_tolerations_pass(toleration: Any) -> None:
    assert findings(claim(exactly(tolerations=[toleration]))) == []


@pytest.mark.parametrize(
    ("toleration", "matched"),
    [
        ({}, "only taints without a value"),
        ({"operator": "Equal"}, "only taints without a value"),
        ({"key": "", "operator": "Equal", "value": "hot"}, "the value 'hot', whatever its key"),
        ({"value": "hot", "effect": "NoSchedule"}, "the value 'hot', whatever its key"),
        ({"effect": "NoExecute"}, "only taints without a value"),
        ({"key": None, "operator": None}, "only taints without a value"),
    ],
)
def test_an_empty_key_with_equal_is_warned_of(toleration: Object, matched: str) -> None:
    (finding,) = findings(claim(exactly(tolerations=[toleration])))
    assert finding.severity is Severity.WARN
    assert matched in finding.message
    assert "operator: Exists" in finding.fix


def test_each_place_that_holds_tolerations_is_read() -> None:
    bad = {"operator": "Equal", "value": "hot"}
    requests = [
        exactly("a", tolerations=[{"key": "x"}, bad]),
        alternatives(alternative("y"), alternative("z", tolerations=[bad]), name="b"),
    ]
    paths = ["[0].exactly.tolerations[1]", "[1].firstAvailable[1].tolerations[0]"]
    found = [finding.field for finding in findings(claim(*requests))]
    assert found == [f"spec.devices.requests{path}" for path in paths]
    found = [finding.field for finding in findings(template(*requests))]
    assert found == [f"spec.spec.devices.requests{path}" for path in paths]


def test_tolerations_of_pods_are_left_to_other_rules() -> None:
    assert findings(pod({"tolerations": [{"operator": "Equal"}]})) == []
