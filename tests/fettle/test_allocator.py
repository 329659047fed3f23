"""The search, held against one written down as plainly as can be."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from fettle.allocator import Found, allocate
from fettle.asks import Request
from fettle.selectors.outcomes import MATCH, NO_MATCH, Outcome
from fettle.view import DeviceView
from tests.fettle import building as b

NAMES = "abcdef"


def requests(*wanted: tuple[str, int | None]) -> list[Request]:
    """(letters of the devices that match, count)."""
    return [Request(f"r{i}", b.DRIVER, (letters,), n) for i, (letters, n) in enumerate(wanted)]


def by_letter(expression: str, device: DeviceView) -> Outcome:
    return MATCH if device.id.device in expression else NO_MATCH


def taken(asked: Sequence[Request], *, busy: str = "") -> str | None:
    """The devices taken in order, or None."""
    devices = [b.device(name, allocated=name in busy) for name in NAMES]
    found = allocate(asked, (b.pool(*devices),), by_letter)
    if found.found is Found.NONE:
        return None
    assert found.found is Found.FITS
    return "".join(device.id.device for _, device in found.devices)


def plainly(asked: Sequence[Request], free: str) -> Iterator[str]:
    """Every allocation, in the allocator's order."""
    if not asked:
        yield ""
        return
    matching = [name for name in free if name in asked[0].selectors[0]]
    for chosen in combinations(matching, asked[0].count or 0):
        rest = "".join(name for name in free if name not in chosen)
        for others in plainly(asked[1:], rest):
            yield "".join(chosen) + others


def test_each_request_begins_again_at_the_first_device() -> None:
    assert taken(requests(("b", 1), ("a", 1))) == "ba"


def test_a_choice_that_leaves_nothing_for_the_next_request_is_taken_back() -> None:
    assert taken(requests(("ab", 1), ("a", 1))) == "ba"
    assert taken(requests(("abc", 2), ("a", 1))) == "bca"


def test_when_nothing_fits_it_says_so() -> None:
    assert taken(requests(("ab", 1), ("ab", 2))) is None


def test_devices_in_use_are_passed_over() -> None:
    assert taken(requests(("abc", 2)), busy="a") == "bc"


WANTED = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES), min_size=1).map("".join), st.integers(1, 3)),
    min_size=1,
    max_size=3,
)


@given(WANTED, st.sets(st.sampled_from(NAMES)).map("".join))
def test_it_finds_the_first_allocation_that_there_is(
    wanted: list[tuple[str, int]], busy: str
) -> None:
    asked = requests(*wanted)
    free = "".join(name for name in NAMES if name not in busy)
    assert taken(asked, busy=busy) == next(plainly(asked, free), None)
