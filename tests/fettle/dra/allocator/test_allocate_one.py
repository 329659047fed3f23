"""The search, held against one written down as plainly as can be."""

from collections.abc import Iterator, Sequence
from itertools import combinations, count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.cel import Outcome
from fettle.cel.runtime.protocol import MATCH, NO_MATCH
from fettle.dra.allocator import AllocationStatus, Budget, allocate
from fettle.dra.claims import Alternative, Claim, Request
from fettle.dra.pools import DeviceView
from fettle.pacing import taking_turns
from tests.fettle import building as b

NAMES = "abcdef"


Wanted = Sequence[tuple[str, int]]
"""(letters of the devices that match, count) by request."""


def claim(wanted: Wanted) -> Claim:
    alternatives = [
        Alternative(f"r{i}", b.DRIVER, (letters,), count=n) for i, (letters, n) in enumerate(wanted)
    ]
    return Claim("c", tuple(Request(a.name, (a,)) for a in alternatives))


def by_letter(expression: str, device: DeviceView) -> Outcome:
    return MATCH if device.id.device in expression else NO_MATCH


def taken(*wanted: tuple[str, int], busy: str = "") -> str | None:
    """The devices taken in order, or None."""
    devices = [b.device(name, allocated=name in busy) for name in NAMES]
    found = allocate([claim(wanted)], (b.pool(*devices),), by_letter)
    if found.found is AllocationStatus.NONE:
        return None
    assert found.found is AllocationStatus.FITS
    return "".join(one.device.id.device for one in found.devices)


def plainly(asked: Wanted, free: str) -> Iterator[str]:
    """Every allocation, in the allocator's order."""
    if not asked:
        yield ""
        return
    letters, count = asked[0]
    for chosen in combinations([name for name in free if name in letters], count):
        rest = "".join(name for name in free if name not in chosen)
        for others in plainly(asked[1:], rest):
            yield "".join(chosen) + others


def test_each_request_starts_again_at_the_first_device() -> None:
    assert taken(("b", 1), ("a", 1)) == "ba"


def test_a_device_that_leaves_none_for_the_next_request_is_rolled_back() -> None:
    assert taken(("ab", 1), ("a", 1)) == "ba"
    assert taken(("abc", 2), ("a", 1)) == "bca"


def test_nothing_is_found_if_nothing_fits() -> None:
    assert taken(("ab", 1), ("ab", 2)) is None


def test_devices_in_use_are_skipped() -> None:
    assert taken(("abc", 2), busy="a") == "bc"


@pytest.mark.parametrize(
    ("seconds", "found"), [(1.0, AllocationStatus.UNDECIDED), (1e9, AllocationStatus.NONE)]
)
def test_a_search_that_exceeds_its_seconds_is_undecided(
    seconds: float, found: AllocationStatus
) -> None:
    with taking_turns(clock=count(0.0, 0.1).__next__):
        said = allocate(
            [claim([(NAMES, 3), (NAMES, 3), (NAMES, 1)])],
            (b.pool(*map(b.device, NAMES)),),
            by_letter,
            budget=Budget(steps=10**9, seconds=seconds, prune_after=None),
        )
    assert (said.found, said.bounded) == (found, found is AllocationStatus.UNDECIDED)


WANTED = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES), min_size=1).map("".join), st.integers(1, 3)),
    min_size=1,
    max_size=3,
)


@given(WANTED, st.sets(st.sampled_from(NAMES)).map("".join))
def test_it_finds_the_first_allocation_that_exists(
    wanted: list[tuple[str, int]], busy: str
) -> None:
    free = "".join(name for name in NAMES if name not in busy)
    assert taken(*wanted, busy=busy) == next(plainly(wanted, free), None)
