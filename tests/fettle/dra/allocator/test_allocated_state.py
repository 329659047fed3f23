"""Once claims let go of their devices, a node is as if they had never held them."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.dra.allocator.features import CURRENT
from fettle.dra.allocator.results import with_released, with_unreleased
from fettle.dra.claims import held_devices
from fettle.dra.pools import PoolView
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, node

Raw = dict[str, Any]
CLAIMS = st.sampled_from(("x", "y", "z"))


def slices() -> list[Raw]:
    """`a` and `b` are held alone, `s` and `u` in shares, which `u` has no capacity for. All but `b`
    draw on a counter."""
    draws = {"consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "2"}}}]}
    several = {"allowMultipleAllocations": True}
    devices = [
        {"name": "a", **draws},
        {"name": "b"},
        {"name": "s", "capacity": {"memory": {"value": "80"}}, **several, **draws},
        {"name": "u", **several, **draws},
    ]
    counters = [{"name": "c", "counters": {"m": {"value": "20"}}}]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": b.DRIVER, "nodeName": "n", "pool": pool}
    return [
        {"metadata": {"name": "devices"}, "spec": {**spec, "devices": devices}},
        {"metadata": {"name": "counters"}, "spec": {**spec, "sharedCounters": counters}},
    ]


def results(device: str, *, share: int = 0, memory: int = 0, admin: bool = False) -> Raw:
    made: Raw = {"request": "r", "driver": b.DRIVER, "pool": "n", "device": device}
    if share:
        made["shareID"] = f"share-{share}"
    if device == "s":
        made["consumedCapacity"] = {"memory": str(memory)}
    return made | ({"adminAccess": True} if admin else {})


@st.composite
def allocations(draw: st.DrawFn) -> dict[str, list[Raw]]:
    """Results by claim: a device is held alone by one claim at most."""
    by_claim: dict[str, list[Raw]] = {"x": [], "y": [], "z": []}
    for device in draw(st.sets(st.sampled_from("ab"))):
        by_claim[draw(CLAIMS)].append(results(device))
    for share in range(1, draw(st.integers(1, 6))):
        memory = draw(st.integers(0, 9))
        one = results(draw(st.sampled_from("su")), share=share, memory=memory)
        by_claim[draw(CLAIMS)].append(one)
    for device in draw(st.sets(st.sampled_from("as"))):
        by_claim[draw(CLAIMS)].append(results(device, admin=True))
    return by_claim


def fleet(by_claim: dict[str, list[Raw]], *, shares: bool = True) -> Fleet:
    fleet = Fleet(features=msgspec.structs.replace(CURRENT.features, consumable_capacity=shares))
    fleet.put(kinds.NODE, node())
    for slice_ in slices():
        fleet.put(kinds.SLICE, slice_)
    for name, given_ in by_claim.items():
        status = {"allocation": {"devices": {"results": given_}}}
        metadata = {"name": name, "namespace": "d"}
        fleet.put(kinds.CLAIM, {"metadata": metadata, "spec": {}, "status": status})
    return fleet


def undigested(pools: tuple[PoolView, ...]) -> list[PoolView]:
    return [
        msgspec.structs.replace(pool, fingerprint=b"", attribute_fingerprints={}) for pool in pools
    ]


@given(allocations(), st.sets(CLAIMS))
def test_releasing_devices_undoes_their_allocation(
    by_claim: dict[str, list[Raw]], gone: set[str]
) -> None:
    view = fleet(by_claim).look()
    let_go = [held for name in gone for held in held_devices(view.claims[f"d/{name}"]) or ()]
    left = with_released(view.nodes["n"].pools, let_go)
    rest = {name: given_ for name, given_ in by_claim.items() if name not in gone}
    assert undigested(left) == undigested(fleet(rest).look().nodes["n"].pools)


@given(allocations(), st.sets(CLAIMS))
def test_what_was_released_is_held_again_without_the_release(
    by_claim: dict[str, list[Raw]], gone: set[str]
) -> None:
    before = fleet(by_claim).look().nodes["n"].pools
    rest = {name: given_ for name, given_ in by_claim.items() if name not in gone}
    after = fleet(rest).look().nodes["n"].pools
    unreleased = with_unreleased(after, before)
    assert undigested(after if unreleased is None else unreleased) == undigested(before)


def test_without_the_gate_releasing_a_share_releases_the_device() -> None:
    share = {"x": [results("s", share=1, memory=3)]}
    view = fleet(share, shares=False).look()
    (pool,) = view.nodes["n"].pools
    assert [device.allocated for device in pool.devices] == [False, False, True, False]
    left = with_released(view.nodes["n"].pools, held_devices(view.claims["d/x"]) or ())
    assert undigested(left) == undigested(fleet({}, shares=False).look().nodes["n"].pools)
