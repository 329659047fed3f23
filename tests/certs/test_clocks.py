"""A replica whose clock is wrong harms nobody, and what it would have done is healed."""

import pytest

from certs import issuing
from certs.issuing import DAY_S
from certs.rotating import LeafSigner, LongLivedSigner
from fettle.model import AuthorityError
from tests.certs.replicas import (
    LIFETIMES,
    NAME,
    Clock,
    MemoryStore,
    Shared,
    content,
    leader,
    replica,
)

DISAGREE = r"this machine's clock is 400 days (ahead of|behind) the API server's: set the clock"


def off(clock: Clock, days: float) -> Clock:
    return Clock(clock.now_s + days * DAY_S)


@pytest.mark.parametrize("days", [400, 2, -2, -400])
async def test_a_replica_whose_clock_is_wrong_signs_by_the_api_servers_and_replaces_nothing(
    shared: Shared, clock: Clock, days: float
) -> None:
    await replica(shared, clock).refresh()
    before = content(shared)
    wrong = replica(shared, off(clock, days), server=clock)
    made = await wrong.refresh()
    assert made is not None
    assert content(shared) == before
    assert issuing.rejection(made.certificate, before["ca.crt"], NAME, now_s=clock()) == ""
    assert wrong.rejection(before["ca.crt"]) == ""


@pytest.mark.parametrize("days", [400, -400])
async def test_while_the_clocks_disagree_no_authority_is_made(
    shared: Shared, clock: Clock, days: float
) -> None:
    with pytest.raises(AuthorityError, match=DISAGREE):
        await replica(shared, off(clock, days), server=clock).refresh()
    assert content(shared) == {}
    await replica(shared, clock).refresh()
    before = content(shared)
    with pytest.raises(AuthorityError, match=DISAGREE):
        await replica(shared, clock, server=off(clock, -days)).refresh()
    assert content(shared) == before


async def test_the_authority_of_a_replica_whose_clock_was_ahead_is_replaced_by_the_next_to_look(
    shared: Shared, clock: Clock
) -> None:
    ahead = off(clock, 2)
    await replica(shared, ahead).refresh()
    of_the_future = content(shared)["ca.crt"]
    right = replica(shared, clock)
    assert await right.refresh() is not None
    assert content(shared)["ca.crt"] != of_the_future
    assert right.rejection(content(shared)["ca.crt"]) == ""


async def test_a_leader_replaces_an_authority_of_the_future_too(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, off(clock, 2)).refresh()
    live = await leader(shared, clock).advance(None)
    right = replica(shared, clock)
    await right.refresh()
    assert right.rejection(live or b"") == ""


@pytest.mark.parametrize("minutes", [50, -50])
async def test_clocks_that_differ_by_less_than_an_hour_replace_nothing_of_each_other(
    shared: Shared, clock: Clock, minutes: float
) -> None:
    one = replica(shared, off(clock, minutes / 1440), server=clock)
    other = replica(shared, off(clock, -minutes / 1440), server=clock)
    await one.refresh()
    before = content(shared)
    await other.refresh()
    await one.refresh()
    assert content(shared) == before
    assert one.rejection(before["ca.crt"]) == other.rejection(before["ca.crt"]) == ""


async def test_a_leader_whose_clock_is_wrong_rotates_nothing_and_still_publishes(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, clock).refresh()
    before = content(shared)
    for wrong in (off(clock, 250), off(clock, 400)):
        assert await leader(shared, wrong, server=clock).advance(None) == before["ca.crt"]
        assert await leader(shared, clock, server=wrong).advance(None) == before["ca.crt"]
    assert content(shared) == before


def of_the_future(shared: Shared, clock: Clock) -> None:
    """The next authority, by a replica whose clock was ahead."""
    made = issuing.root("next", now_s=clock.now_s + 30 * DAY_S, lifetime_s=LIFETIMES.root_s)
    shared.write({**content(shared), "next.crt": made.certificate, "next.key": made.key})


async def test_a_next_authority_of_the_future_never_signs(shared: Shared, clock: Clock) -> None:
    await replica(shared, clock).refresh()
    before = content(shared)
    of_the_future(shared, clock)
    assert await leader(shared, clock).advance(None) == before["ca.crt"]
    assert content(shared) == before


@pytest.mark.parametrize("days", [10, 350])
async def test_a_long_lived_next_authority_of_the_future_is_dropped_and_made_when_due(
    shared: Shared, clock: Clock, days: float
) -> None:
    one = LongLivedSigner(
        MemoryStore(shared), [NAME], clock=clock, server_clock=clock, lifetimes=LIFETIMES
    )
    await one.refresh()
    clock.now_s += days * DAY_S
    of_the_future(shared, clock)
    wrong = content(shared)["next.crt"]
    for _ in range(2):
        await one.refresh()
    assert content(shared).get("next.crt") != wrong
    assert ("next.crt" in content(shared)) is (days == 350)


async def test_a_leaf_of_the_future_is_signed_anew_once_the_clock_is_right(
    shared: Shared, clock: Clock
) -> None:
    """Where no API server says what time it is."""
    await replica(shared, clock).refresh()
    own = off(clock, 3)
    one = LeafSigner(
        MemoryStore(shared), [NAME], clock=own, server_clock=lambda: None, lifetimes=LIFETIMES
    )
    assert await one.refresh() is not None
    own.now_s = clock.now_s
    assert await one.refresh() is not None
    assert one.rejection(content(shared)["ca.crt"]) == ""
