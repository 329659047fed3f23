"""How much of a capacity a requestPolicy gives, and the words for where that is the cause."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds, resource
from fettle.cel.runtime.protocol import MATCH
from fettle.dra.allocator import (
    AMPLE,
    AllocationOutcome,
    AllocationStatus,
    allocate,
    explain_shortfall,
)
from fettle.dra.claims import Alternative, Claim, Request
from fettle.dra.pools import DeviceView, read_slice
from fettle.dra.quantities import amount
from tests.fettle import building as b
from tests.fettle.building import as_text


def asking(quantity: str) -> tuple[Claim, ...]:
    asked = Alternative("g", b.DRIVER, capacity=(("bw", amount(quantity)),))
    return (Claim("k", (Request("g", (asked,)),)),)


def given_to(quantity: str, device: DeviceView) -> AllocationOutcome:
    """What the allocator makes of a request for so much of it."""
    return allocate(asking(quantity), (b.pool(device),), lambda *_: MATCH, budget=AMPLE)


def why(quantity: str, device: DeviceView) -> str:
    """What is said where it gives nothing."""
    return as_text(explain_shortfall(asking(quantity), (b.pool(device),), lambda *_: MATCH))


def shares(value: str, **policy: Any) -> DeviceView:
    """A shared device with this much, and what its slice says of how much a request may have."""
    capacity = {"bw": {"value": value, "requestPolicy": policy}}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    device = {"name": "s", "allowMultipleAllocations": True, "capacity": capacity}
    spec = {"driver": b.DRIVER, "nodeName": "n", "pool": pool, "devices": [device]}
    slice_ = kinds.SLICE.decode(msgspec.json.encode({"metadata": {"name": "s"}, "spec": spec}))
    assert isinstance(slice_, resource.ResourceSlice)
    (found,) = read_slice(slice_).devices
    return DeviceView(found, (), b.health(1.0))


AT_MOST = "whose requestPolicy gives a request at most {} of bw"
UP = "whose requestPolicy rounds the request up to more of bw than it gives"


@pytest.mark.parametrize(
    ("device", "wanted", "said"),
    [
        (shares("80Gi", validRange={"min": "10Gi", "max": "60Gi"}), "61Gi", AT_MOST.format("60Gi")),
        (shares("80Gi", validRange={"min": "10Gi", "max": "60Gi"}), "81Gi", "with too little"),
        (shares("4", default="1", validValues=["1", "2"]), "3", AT_MOST.format("2")),
        (shares("65", validRange={"min": "10", "step": "10"}), "61", UP),
        (shares("80", validRange={"min": "10", "step": "20", "max": "60"}), "55", UP),
        (shares("5", default="1", validValues=["1", "10"]), "3", AT_MOST.format("1")),
    ],
)
def test_a_request_policy_that_allows_less_than_there_is_is_reported(
    device: DeviceView, wanted: str, said: str
) -> None:
    assert given_to(wanted, device).found is AllocationStatus.NONE
    assert why(wanted, device).startswith(f"k/g: 1 requested, 1 device matches: 1 {said}")


QUANTITIES = st.sampled_from(["0", "500m", "700m", "1", "1500m", "2", "2500m", "3", "7", "9"])
STEPS = QUANTITIES.filter(lambda quantity: quantity != "0")
RANGES = st.fixed_dictionaries({"min": QUANTITIES}, optional={"max": QUANTITIES, "step": STEPS})
VALUES = st.lists(QUANTITIES, min_size=1, max_size=3)


@given(
    QUANTITIES,
    st.fixed_dictionaries({"validRange": RANGES}) | st.fixed_dictionaries({"validValues": VALUES}),
    QUANTITIES,
)
def test_the_largest_amount_that_is_reported_can_be_requested(
    value: str, policy: dict[str, Any], wanted: str
) -> None:
    device = shares(value, **policy)
    if given_to(wanted, device).found is not AllocationStatus.NONE:
        return
    said = why(wanted, device)
    assert ("with too little capacity" in said) == (amount(wanted).nano > amount(value).nano)
    if (most := re.search("gives a request at most ([0-9m]+) of bw", said)) is not None:
        assert amount(most[1]).nano < amount(wanted).nano
        assert given_to(most[1], device).found is AllocationStatus.FITS
