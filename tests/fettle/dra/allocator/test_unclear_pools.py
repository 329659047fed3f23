"""Pools of which it cannot be told what they offer: what may come of them is left undecided."""

from typing import Any

import msgspec
import pytest

from fettle.api.resource import DeviceAttribute
from fettle.cel import Outcome
from fettle.cel.runtime.protocol import MATCH
from fettle.dra.allocator import AllocationOutcome, AllocationStatus, allocate
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


def asked(
    *pools: PoolView, requests: tuple[Request, ...], profile: Profile = CURRENT
) -> AllocationOutcome:
    return allocate([Claim("c", requests)], pools, match, profile)


def given(*pools: PoolView, requests: tuple[Request, ...] = (request(),)) -> list[str]:
    """The devices that are found, or why it is undecided."""
    found = asked(*pools, requests=requests)
    if found.found is AllocationStatus.FITS:
        return [taken.device.id.device for taken in found.devices]
    assert found.found is AllocationStatus.UNDECIDED
    return [as_text(found.reasons)]


WHY = [f"pool {b.DRIVER}/net: a slice cannot be read"]


def test_an_unclear_pool_without_devices_may_have_one_before_the_others() -> None:
    assert given(unclear("net"), b.pool(A)) == WHY


def test_devices_of_earlier_pools_are_found_whatever_an_unclear_pool_has() -> None:
    assert given(b.pool(A), unclear("net")) == ["a"]


def test_an_unclear_pool_may_have_what_the_pools_before_it_lack() -> None:
    assert given(b.pool(A), unclear("net"), requests=(request(count=2),)) == WHY
    assert given(b.pool(TAKEN), unclear("net"), b.pool(B, name="z")) == WHY


def test_no_later_alternative_is_chosen_while_an_unclear_pool_may_meet_an_earlier_one() -> None:
    listed = Request("r", (wanted("r/two", 2), wanted("r/one")), listed=True)
    assert given(b.pool(A), unclear("net"), requests=(listed,)) == WHY


def test_mode_all_is_undecided_with_an_unclear_pool() -> None:
    assert given(b.pool(A), unclear("net"), requests=(request(mode=ALL),)) == WHY


def test_an_unclear_pool_with_only_devices_in_use_may_have_others() -> None:
    assert given(unclear("net", TAKEN), b.pool(B, name="z")) == WHY


def test_a_claim_without_requests_is_decided_whatever_is_unclear() -> None:
    assert given(unclear("net"), requests=(request(count=0),)) == []


def test_a_search_with_rollbacks_ends_at_an_unclear_pool_too() -> None:
    values = [b.device(n, attributes={"x": DeviceAttribute(string=n)}) for n in "abcdefgh"]
    claim = Claim("c", (request(count=8),), (Constraint("gpu.example.com/x"),))
    found = allocate([claim], [b.pool(*values), unclear("net")], match)
    assert (found.found, [as_text(found.reasons)]) == (AllocationStatus.UNDECIDED, WHY)


@pytest.mark.parametrize("pools", [(b.pool(A), unclear("net")), (unclear("net"), b.pool(A))])
def test_without_an_order_of_pools_an_unclear_one_may_come_first(
    pools: tuple[PoolView, ...],
) -> None:
    found = asked(*pools, requests=(request(),), profile=profile_of_version("v1.35.0"))
    assert found.found is AllocationStatus.UNDECIDED
    assert "a slice cannot be read" in as_text(found.reasons)
