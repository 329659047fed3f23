"""Others have their turn while an allocation is looked for, however wild the claim."""

import gc
import sys
from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import Any, TypeVar

import msgspec
import pytest

from fettle.api import resource
from fettle.api.resource import DeviceAttribute, DeviceTaint, DeviceToleration
from fettle.cel import Outcome
from fettle.cel.runtime.protocol import MATCH, NO_MATCH
from fettle.dra.allocator import AllocationStatus, Budget, allocate, explain_shortfall
from fettle.dra.allocator.features import CURRENT, Profile, profile_of_version
from fettle.dra.claims import ALL, Alternative, Claim, Constraint, Request
from fettle.dra.pools import DeviceView, PoolView, PublishedDevice
from fettle.model import DeviceId
from fettle.pacing import taking_turns
from tests.fettle import building as b
from tests.fettle.building import as_text
from tests.fettle.dra.allocator import pairs

T = TypeVar("T")

CALLS = 1000
"""Of functions, of Python's too: in a tenth of a millisecond there are some more."""
PATIENT = Budget(steps=150, seconds=inf)

Pools = tuple[PoolView, ...]
Asked = tuple[Sequence[Claim], Pools]


def longest(work: Callable[[], T]) -> tuple[T, int]:
    """What it comes to, and the most calls that were made between two pauses.

    Garbage is not collected meanwhile: finalizers of what other tests left would count.
    """
    calls = most = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def paused() -> float:
        nonlocal calls, most
        calls, most = 0, max(most, calls)
        return 0.0

    before = sys.getprofile()
    gc.disable()
    try:
        with taking_turns(clock=paused):
            sys.setprofile(profile)
            try:
                found = work()
            finally:
                sys.setprofile(before)
            return found, max(most, calls)
    finally:
        gc.enable()


def match(expression: str, device: DeviceView) -> Outcome:
    return NO_MATCH if device.id.driver == "other.example.com" else MATCH


def racks(number: int, of: int) -> Pools:
    attributes = [{"rack": DeviceAttribute(int_=i // of)} for i in range(number)]
    return (b.pool(*(b.device(f"d{i}", attributes=a) for i, a in enumerate(attributes))),)


def many(number: int, **fields: Any) -> tuple[Request, ...]:
    return tuple(
        Request(f"r{i}", (Alternative(f"r{i}", b.DRIVER, **{"selectors": ("x",), **fields}),))
        for i in range(number)
    )


RACK = f"{b.DRIVER}/rack"


def more_pairs_than_nics() -> Asked:
    return (pairs.claim(8),), pairs.node(range(8), [1, 3, 4, 5, 6, 7])


def pairs_on_other_roots() -> Asked:
    return (pairs.claim(7),), pairs.node([0, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 7])


def pairs_on_the_last_roots() -> Asked:
    return (pairs.claim(6),), pairs.node(range(8), [2, 3, 4, 5, 6, 7])


def many_devices() -> Asked:
    return (Claim("k", many(8, count=4), (Constraint(RACK),)),), racks(2000, 16)


def many_constraints() -> Asked:
    constraints = tuple(
        Constraint(RACK, distinct=i % 2 == 0, requests=frozenset((f"r{i}", f"r{31 - i}")))
        for i in range(32)
    )
    return (Claim("k", many(32), constraints),), racks(300, 3)


def many_claims() -> Asked:
    one = many(1, count=2)
    return [Claim(f"k{i}", one, (Constraint(RACK),)) for i in range(40)], racks(400, 1)


def many_selectors() -> Asked:
    wanted = many(8, selectors=tuple(f"x{i}" for i in range(64)), count=4)
    return (Claim("k", wanted),), racks(31, 1)


def many_alternatives() -> Asked:
    listed = tuple(
        Alternative(f"r/{i}", b.DRIVER, ("x",), tolerations=(DeviceToleration(key=f"k{i}"),))
        for i in range(8)
    )
    wanted = tuple(Request(f"r{i}", listed, listed=True) for i in range(16))
    return (Claim("k", wanted, (Constraint(RACK),)),), racks(200, 2)


def everything() -> Asked:
    return (Claim("k", (*many(1, mode=ALL), *many(1))),), racks(20, 1)


def many_counters() -> Asked:
    counters = tuple((("set", f"c{i}"), 5) for i in range(200))
    consumes = (resource.DeviceCounterConsumption(counter_set="set"),)
    devices = [
        DeviceView(
            PublishedDevice(
                id=DeviceId(b.DRIVER, "n", f"d{i}"),
                device=resource.Device(name=f"d{i}", consumes_counters=consumes),
                consumes=counters,
            ),
            (),
            b.health(1.0),
        )
        for i in range(200)
    ]
    left = {counter: 30 for counter, _ in counters}
    pool = msgspec.structs.replace(b.pool(*devices), counters=left)
    return (Claim("k", many(8)),), (pool,)


def many_taints() -> Asked:
    taints = tuple(DeviceTaint(key=f"t{i}", effect="NoSchedule") for i in range(16))
    tolerations = tuple(DeviceToleration(key=f"x{i}", operator="Exists") for i in range(16))
    devices = (b.device(f"d{i}", taints=taints) for i in range(200))
    wanted = many(4, tolerations=tolerations)
    return (Claim("k", wanted),), (b.pool(b.device("a"), *devices),)


def nothing_of_the_kind() -> Asked:
    other = PoolView(
        "o", "o", tuple(b.device(f"o{i}", driver="other.example.com") for i in range(2000))
    )
    return (Claim("k", many(32)),), (other, *racks(4, 1))


WILD = [
    more_pairs_than_nics,
    pairs_on_other_roots,
    pairs_on_the_last_roots,
    many_devices,
    many_constraints,
    many_claims,
    many_selectors,
    many_alternatives,
    everything,
    many_counters,
    many_taints,
    nothing_of_the_kind,
]


def of(asked: Asked) -> Any:
    return pairs.match if asked[1][0].driver == pairs.GPU and len(asked[1]) == 2 else match


@pytest.mark.long
@pytest.mark.parametrize("wild", WILD, ids=lambda wild: wild.__name__)
@pytest.mark.parametrize("profile", [CURRENT, profile_of_version("v1.35.0")], ids=["1.37", "1.35"])
def test_a_search_is_never_long_without_a_pause(
    wild: Callable[[], Asked], profile: Profile
) -> None:
    claims, pools = asked = wild()
    found, calls = longest(lambda: allocate(claims, pools, of(asked), profile, budget=PATIENT))
    assert calls < CALLS, found


@pytest.mark.parametrize("wild", WILD, ids=lambda wild: wild.__name__)
def test_an_explanation_is_never_long_without_a_pause(wild: Callable[[], Asked]) -> None:
    claims, pools = asked = wild()
    words, calls = longest(
        lambda: as_text(explain_shortfall(claims, pools, of(asked), budget=PATIENT))
    )
    assert words
    assert calls < CALLS, words


@pytest.mark.parametrize("wild", WILD, ids=lambda wild: wild.__name__)
def test_a_search_that_takes_too_long_is_undecided(wild: Callable[[], Asked]) -> None:
    """By a clock that goes on whenever it is looked at: no part of the work is free of charge."""
    claims, pools = asked = wild()
    ticks = count(0.0, 0.001).__next__
    with taking_turns(clock=ticks):
        found = allocate(claims, pools, of(asked), budget=Budget(seconds=0.002))
    assert (found.found, as_text(found.reasons)) == (
        AllocationStatus.UNDECIDED,
        "no result within 0.002 s",
    )
    assert ticks() < 0.01


@pytest.mark.parametrize("wild", WILD, ids=lambda wild: wild.__name__)
def test_an_explanation_that_takes_too_long_is_a_short_one(
    wild: Callable[[], Asked],
) -> None:
    claims, pools = asked = wild()
    ticks = count(0.0, 0.001).__next__
    with taking_turns(clock=ticks):
        words = as_text(explain_shortfall(claims, pools, of(asked), budget=Budget(seconds=0.002)))
    assert words == "no combination of devices satisfies all requests"
    assert ticks() < 0.01


def test_a_search_continues_if_pruning_takes_too_long() -> None:
    """A quarter of its time is for that, which would not suffice; the rest does."""
    in_vain = (pairs.claim(3),), pairs.node([0, 1, 2], [3, 1, 2])
    nothing = "no combination of devices satisfies all requests"
    agreeing = f"too few groups of requests find devices that agree on {pairs.ROOT}"
    for seconds, reason in ((0.3, nothing), (10.0, agreeing)):
        ticks = count(0.0, 0.001).__next__
        budget = Budget(seconds=seconds, prune_after=3)
        with taking_turns(clock=ticks):
            found = allocate(*in_vain, pairs.match, budget=budget)
        assert (found.found, as_text(found.reasons)) == (AllocationStatus.NONE, reason)
