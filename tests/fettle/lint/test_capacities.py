"""Capacities that no device can give: the rule and the allocator are of one mind about them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.controlplane import objects as api
from tests.fettle.dra.allocator import cases
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.tables.case import claim, exactly

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
    found = await lint(claim(exactly(device_class="any", capacity=asked)), known)
    slices = [cases.slice_(cases.device("a", **shared))]
    claims = [cases.claim(cases.request(capacity=asked))]
    fractional = [*cases.DEFAULT_GATES, "DRAFractionalCapacityRange"]
    said = {
        cases.asked(claims, slices).kind,
        cases.asked(claims, slices, features=fractional).kind,
    }
    called_too_large = any(finding.rule == "FTL017" for finding in found)
    assert called_too_large == (not said & {"allocated", "undecided"})
