"""FTL010: more devices than one claim can hold."""

from typing import Any

import pytest

from fettle.lint.findings import Finding, Severity
from fettle.lint.rules.amounts import ClaimTooLarge
from tests.fettle.lint import builders
from tests.fettle.lint.builders import (
    Object,
    alternative,
    alternatives,
    claim,
    exactly,
    template,
)


def findings(object: Object) -> list[Finding]:
    return builders.findings(ClaimTooLarge(), object)


@pytest.mark.parametrize(
    "requests",
    [
        [exactly(count=32)],
        [exactly("a", count=16), exactly("b", count=16)],
        [exactly()],
        [exactly(allocationMode="ExactCount", count=32)],
        [exactly("a", count=31), exactly("b", allocationMode="All")],
        # the least a claim can get is one of the alternatives
        [exactly("a", count=31), alternatives(alternative("x", count=33), alternative("y"))],
        [],
    ],
)
def test_what_can_be_allocated_passes(requests: list[Object]) -> None:
    assert findings(claim(*requests)) == []
    assert findings(template(*requests)) == []


@pytest.mark.parametrize(
    ("requests", "field", "figures"),
    [
        ([exactly(count=33)], "[0].exactly.count", "at least 33 devices"),
        (
            [exactly("a", count=17), exactly("b", count=17)],
            "[1].exactly.count",
            "at least 34 (17 + 17) devices",
        ),
        ([exactly("a", count=32), exactly("b")], "[1].exactly.count", "33 (32 + 1)"),
        (
            [exactly("a", count=32), exactly("b", allocationMode="All")],
            "[1].exactly.allocationMode",
            "33 (32 + 1)",
        ),
        (
            [alternatives(alternative("x", count=40), alternative("y", count=64))],
            "[0].firstAvailable",
            "at least 40 devices",
        ),
        ([exactly(count=2**63 - 1)], "[0].exactly.count", "at least 9223372036854775807"),
        ([exactly(count=33, adminAccess=True)], "[0].exactly.count", "at least 33"),
    ],
)
def test_a_claim_for_more_than_32_devices_is_denied(
    requests: list[Object], field: str, figures: str
) -> None:
    (finding,) = findings(claim(*requests))
    assert finding.severity is Severity.DENY
    assert finding.rule == "FTL010"
    assert finding.field == f"spec.devices.requests{field}"
    assert figures in finding.message
    assert "at most 32" in finding.fix


def test_in_a_template_the_field_path_is_that_of_the_template() -> None:
    (finding,) = findings(template(exactly(count=33)))
    assert finding.field == "spec.spec.devices.requests[0].exactly.count"


def test_an_allocation_mode_of_the_future_is_undecided() -> None:
    (finding,) = findings(claim(exactly(allocationMode="Half", count=99)))
    assert finding.severity is Severity.UNDECIDED


def test_beside_an_undecided_request_the_others_can_still_be_too_many() -> None:
    (finding,) = findings(claim(exactly("a", allocationMode="Half"), exactly("b", count=33)))
    assert finding.severity is Severity.DENY


@pytest.mark.parametrize("count", ["40", 40.5, True, [40], {}, -40])
def test_a_count_of_a_wrong_type_is_for_the_api_server_to_refuse(count: Any) -> None:
    assert findings(claim(exactly(count=count))) == []
