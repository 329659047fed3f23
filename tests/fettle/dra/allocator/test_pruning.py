"""That a search is in vain is known early, and only where it is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.resource import DeviceAttribute
from fettle.cel.runtime.protocol import MATCH
from fettle.dra.allocator import AllocationStatus, Budget, allocate
from fettle.dra.allocator.features import CURRENT, Features, Profile
from fettle.dra.claims import Alternative, Claim, Constraint, Request
from fettle.dra.pools import PoolView
from tests.fettle import building as b
from tests.fettle.building import as_text

RACK = f"{b.DRIVER}/rack"
PROFILES = (CURRENT, Profile(Features(list_type_attributes=True)))
EXHAUSTIVE = Budget(steps=100_000, seconds=60.0, prune_after=None)
HASTY = Budget(steps=100_000, seconds=60.0, prune_after=1)

RACKS = st.sampled_from(
    [
        {"rack": DeviceAttribute(int_=1)},
        {"rack": DeviceAttribute(int_=2)},
        {"rack": DeviceAttribute(string="1")},
        {"rack": DeviceAttribute(ints=(1,))},
        {"rack": DeviceAttribute(ints=(1, 2))},
        {"rack": DeviceAttribute(ints=(2, 3))},
        {"rack": DeviceAttribute()},
        {},
    ]
)


def pool(*racks: dict[str, Any]) -> PoolView:
    return b.pool(*(b.device(f"d{at}", attributes=rack) for at, rack in enumerate(racks)))


def claim(*counts: int, distinct: bool) -> Claim:
    requests = (
        Request(f"r{at}", (Alternative(f"r{at}", b.DRIVER, ("x",), count=count),))
        for at, count in enumerate(counts)
    )
    return Claim("k", tuple(requests), (Constraint(RACK, distinct=distinct),))


@pytest.mark.parametrize("profile", PROFILES, ids=["single values", "lists"])
@pytest.mark.parametrize(("distinct", "wanted"), [(True, 10), (False, 4)])
def test_a_constraint_that_too_few_devices_meet_is_found_at_once(
    profile: Profile, distinct: bool, wanted: int
) -> None:
    racks = ({"rack": DeviceAttribute(int_=at // 3)} for at in range(27))
    found = allocate([claim(wanted, distinct=distinct)], (pool(*racks),), lambda *_: MATCH, profile)
    assert found.found is AllocationStatus.NONE
    assert "too few devices satisfy the constraint" in as_text(found.reasons)
    assert found.steps < 200


@given(
    st.sampled_from(PROFILES),
    st.lists(RACKS, min_size=2, max_size=7),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.booleans(),
)
def test_pruning_says_the_same_as_a_full_search(
    profile: Profile, racks: list[dict[str, Any]], counts: list[int], distinct: bool
) -> None:
    claims, pools = [claim(*counts, distinct=distinct)], (pool(*racks),)
    whole, early = (
        allocate(claims, pools, lambda *_: MATCH, profile, budget=budget)
        for budget in (EXHAUSTIVE, HASTY)
    )
    assert (early.found, early.devices) == (whole.found, whole.devices)
