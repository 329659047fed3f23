"""Pools of which it cannot be told what they offer: what may come of them is left undecided."""

from typing import Any

import msgspec
import pytest

from fettle.api.resource import DeviceAttribute
from fettle.cel import Outcome
from fettle.cel.runtime.outcomes import MATCH
from fettle.dra.allocator import Allocated, AllocationStatus, allocate
from fettle.dra.allocator.features import CURRENT, Profile, profile_of_version
from fettle.dra.claims import ALL, Alternative, Claim, Constraint, Request
from fettle.dra.pools import DeviceView, PoolView
from tests.fettle import building as b
from tests.fettle.building import as_text

A, B = b.device("a"), b.device("b")
TAKEN = b.device("a", allocated=True)


def match(_expression: str, _device: DeviceView) -> Outcome:
    return MATCH


def unclear(name: str, *devices: DeviceView) -> PoolView:
    return msgspec.structs.replace(b.pool(*devices, name=name), unclear="a slice cannot be read")


def request(name: str = "r", count: int = 1, **fields: Any) -> Request:
    return Request(name, (msgspec.structs.replace(wanted(name, count), **fields),))


def wanted(name: str, count: int = 1) -> Alternative:
    return Alternative(name, "gpu", ("true",), count=count)


def asked(*pools: PoolView, requests: tuple[Request, ...], profile: Profile = CURRENT) -> Allocated:
    return allocate([Claim("c", requests)], pools, match, profile)


def given(*pools: PoolView, requests: tuple[Request, ...] = (request(),)) -> list[str]:
    """The devices that are found, or why it is undecided."""
    found = asked(*pools, requests=requests)
    if found.found is AllocationStatus.FITS:
        return [taken.device.id.device for taken in found.devices]
    assert found.found is AllocationStatus.UNDECIDED
    return [as_text(found.reasons)]


WHY = [f"pool {b.DRIVER}/net: a slice cannot be read"]


def test_a_pool_without_devices_may_have_offered_one_before_the_others() -> None:
    assert given(unclear("net"), b.pool(A)) == WHY


def test_what_is_found_before_it_is_found_whatever_it_may_offer() -> None:
    assert given(b.pool(A), unclear("net")) == ["a"]


def test_it_may_have_what_the_pools_before_it_lack() -> None:
    assert given(b.pool(A), unclear("net"), requests=(request(count=2),)) == WHY
    assert given(b.pool(TAKEN), unclear("net"), b.pool(B, name="z")) == WHY


def test_an_alternative_gives_way_to_none_that_comes_after_while_it_may_be_met() -> None:
    listed = Request("r", (wanted("r/two", 2), wanted("r/one")), listed=True)
    assert given(b.pool(A), unclear("net"), requests=(listed,)) == WHY


def test_all_devices_of_which_some_are_not_seen_are_not_known() -> None:
    assert given(b.pool(A), unclear("net"), requests=(request(mode=ALL),)) == WHY


def test_a_pool_of_which_only_devices_in_use_are_seen_may_have_others() -> None:
    assert given(unclear("net", TAKEN), b.pool(B, name="z")) == WHY


def test_who_asks_for_nothing_gets_it() -> None:
    assert given(unclear("net"), requests=(request(count=0),)) == []


def test_a_search_that_goes_back_and_forth_ends_there_too() -> None:
    values = [b.device(n, attributes={"x": DeviceAttribute(string=n)}) for n in "abcdefgh"]
    claim = Claim("c", (request(count=8),), (Constraint("gpu.example.com/x"),))
    found = allocate([claim], [b.pool(*values), unclear("net")], match)
    assert (found.found, [as_text(found.reasons)]) == (AllocationStatus.UNDECIDED, WHY)


@pytest.mark.parametrize("pools", [(b.pool(A), unclear("net")), (unclear("net"), b.pool(A))])
def test_where_pools_come_in_no_order_it_may_come_first(pools: tuple[PoolView, ...]) -> None:
    found = asked(*pools, requests=(request(),), profile=profile_of_version("v1.35.0"))
    assert found.found is AllocationStatus.UNDECIDED
    assert "a slice cannot be read" in as_text(found.reasons)
