"""Waits for something newer, and which of them are skipped."""

from collections.abc import Hashable, Mapping

from fettle.pacing.backoff import MOST, Patience


def test_a_wait_that_brought_nothing_is_skipped_for_each_of_its_keys_as_long_as_that_says() -> None:
    now = 0.0
    patience = Patience(lambda: now)
    assert patience.allows("this pod", "this namespace")
    patience.skip({"this pod": 60.0, "this namespace": 1.5})
    assert not patience.allows("this pod")
    assert not patience.allows("other pod", "this namespace")
    assert patience.allows("other pod", "other namespace")
    now = 1.5
    assert not patience.allows("this pod", "this namespace")
    assert patience.allows("other pod", "this namespace")
    now = 60.0
    assert patience.allows("this pod", "this namespace")


def test_only_the_latest_waits_that_brought_nothing_are_remembered() -> None:
    patience = Patience(lambda: 0.0)
    for number in range(MOST + 1):
        patience.skip({number: 60.0})
    assert [number for number in (0, 1, MOST) if patience.allows(number)] == [0]


class Arriving:
    """Names come one after another; all of `wanted` are to be found."""

    def __init__(self, *names: str) -> None:
        self.left = list(names)
        self.asked = 0

    def missing(self, found: frozenset[str]) -> Mapping[Hashable, float]:
        return dict.fromkeys(sorted({"a", "b"} - found), 10.0)

    async def newer(self, found: frozenset[str]) -> frozenset[str] | None:
        self.asked += 1
        return found | {self.left.pop(0)} if self.left else None


NOTHING: frozenset[str] = frozenset()


async def test_where_nothing_is_missing_nothing_is_waited_for() -> None:
    arriving, patience = Arriving(), Patience()
    found = frozenset("ab")
    assert await patience.wait(found, arriving.missing, arriving.newer) == (found, "no_wait")
    assert arriving.asked == 0


async def test_a_wait_lasts_until_nothing_is_missing_any_more() -> None:
    arriving, patience = Arriving("other", "b", "a", "later"), Patience()
    waited = await patience.wait(NOTHING, arriving.missing, arriving.newer)
    assert waited == (frozenset({"other", "a", "b"}), "caught_up")
    assert patience.allows("a", "b")


async def test_a_wait_that_brought_only_a_part_skips_the_next_one_for_the_rest() -> None:
    arriving, patience = Arriving("a"), Patience()
    waited = await patience.wait(NOTHING, arriving.missing, arriving.newer)
    assert waited == (frozenset({"a"}), "in_vain")
    assert patience.allows("a")
    asked = arriving.asked
    assert await patience.wait(NOTHING, arriving.missing, arriving.newer) == (NOTHING, "no_wait")
    assert arriving.asked == asked


async def test_a_wait_ends_once_another_one_for_the_same_brought_nothing() -> None:
    arriving, patience = Arriving("a", "b"), Patience()

    async def newer(found: frozenset[str]) -> frozenset[str] | None:
        patience.skip({"b": 10.0})
        return await arriving.newer(found)

    waited = await patience.wait(NOTHING, arriving.missing, newer)
    assert waited == (frozenset({"a"}), "in_vain")
