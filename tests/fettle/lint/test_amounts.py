"""How many devices a claim may hold (FTL010), and capacities that no device can give (FTL017)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.lint.findings import Finding, Severity
from fettle.lint.rules.amounts import OversizedClaim
from tests.controlplane import objects as api
from tests.fettle.dra.allocator import cases
from tests.fettle.lint import builders
from tests.fettle.lint.builders import (
    Object,
    alternative,
    alternatives,
    claim,
    exactly,
    template,
)
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.tables import case


def findings(object: Object) -> list[Finding]:
    return builders.findings(OversizedClaim(), object)


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
def test_claims_that_can_be_allocated_pass(requests: list[Object]) -> None:
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


QUANTITIES = st.sampled_from(["0", "500m", "700m", "1", "1200m", "1500m", "2", "2500m", "3", "7"])
RANGES = st.fixed_dictionaries(
    {"min": QUANTITIES}, optional={"max": QUANTITIES, "step": QUANTITIES.filter(lambda q: q != "0")}
)
POLICIES = st.fixed_dictionaries({"default": QUANTITIES, "validRange": RANGES}) | (
    st.fixed_dictionaries({"default": QUANTITIES, "validValues": st.lists(QUANTITIES, min_size=1)})
)
CAPACITIES = st.fixed_dictionaries({"value": QUANTITIES}, optional={"requestPolicy": POLICIES})


@given(CAPACITIES, QUANTITIES)
async def test_a_capacity_is_called_too_large_if_and_only_if_the_allocator_does_not_give_it(
    capacity: dict[str, Any], wanted: str
) -> None:
    shared: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": {"memory": capacity}}
    asked = {"requests": {"memory": wanted}}
    known = (
        api.node("n"),
        api.resource_slice("n", [{"name": "a", **shared}], driver=cases.DRIVER),
        api.device_class("any", driver=cases.DRIVER),
    )
    found = await lint(case.claim(case.exactly(device_class="any", capacity=asked)), known)
    slices = [cases.slice_(cases.device("a", **shared))]
    claims = [cases.claim(cases.request(capacity=asked))]
    fractional = [*cases.DEFAULT_GATES, "DRAFractionalCapacityRange"]
    said = {
        cases.asked(claims, slices).kind,
        cases.asked(claims, slices, features=fractional).kind,
    }
    called_too_large = any(finding.rule == "FTL017" for finding in found)
    assert called_too_large == (not said & {"allocated", "undecided"})
