"""An authority that callers read only when they start: its successor is announced early."""

import asyncio

import pytest

from certs import issuing
from certs.issuing import DAY_S, Pair
from certs.rotating import Lifetimes, LongLivedSigner
from tests.certs.replicas import (
    NAME,
    Clock,
    MemoryStore,
    Shared,
    content,
)

ROOT_S, LEAF_S = 1000 * DAY_S, 7 * DAY_S


def long_lived(shared: Shared, clock: Clock) -> LongLivedSigner:
    lifetimes = Lifetimes(root_s=ROOT_S, leaf_s=LEAF_S)
    return LongLivedSigner(
        MemoryStore(shared), [NAME], clock=clock, server_clock=clock, lifetimes=lifetimes
    )


async def test_a_long_lived_authority_is_left_alone_until_nine_tenths_of_its_life_are_over(
    shared: Shared, clock: Clock
) -> None:
    one = long_lived(shared, clock)
    await one.refresh()
    clock.now_s += 899 * DAY_S
    await one.refresh()
    assert shared.version == 1
    assert one.handover_at is None
    clock.now_s += 2 * DAY_S
    await one.refresh()
    assert set(content(shared)) == {"ca.crt", "ca.key", "next.crt", "next.key"}
    assert one.handover_at == 1_800_000_000 + ROOT_S - LEAF_S


async def test_replicas_that_announce_together_announce_one(shared: Shared, clock: Clock) -> None:
    replicas = [long_lived(shared, clock) for _ in range(4)]
    await asyncio.gather(*(one.refresh() for one in replicas))
    clock.now_s += 950 * DAY_S
    await asyncio.gather(*(one.refresh() for one in replicas))
    assert shared.version == 2
    assert len({one.bundle for one in replicas}) == 1


async def test_callers_given_both_authorities_in_time_accept_every_leaf_from_then_on(
    shared: Shared, clock: Clock
) -> None:
    one = long_lived(shared, clock)
    await one.refresh()
    first = content(shared)["ca.crt"]
    clock.now_s += 901 * DAY_S
    await one.refresh()
    given = one.bundle or b""
    seen = []
    while clock.now_s < 1_800_000_000 + 1300 * DAY_S:
        assert one.rejection(given) == ""
        assert one.leaf is not None
        lives_s = issuing.expires_at(one.leaf.certificate) - issuing.starts_at(one.leaf.certificate)
        assert lives_s == LEAF_S
        trusts_first_only = one.rejection(first) == ""
        assert trusts_first_only or one.handover_at is None or clock.now_s >= one.handover_at
        seen.append(trusts_first_only)
        clock.now_s += DAY_S / 2
        await one.refresh()
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {True, False}
    assert content(shared)["ca.crt"] != first
    assert set(content(shared)) == {"ca.crt", "ca.key"}
    assert one.handover_at is None


async def test_a_long_lived_authority_is_made_again_once_its_secret_is_empty(
    shared: Shared, clock: Clock
) -> None:
    one = long_lived(shared, clock)
    before = await one.refresh()
    old, shared.content = content(shared), {}
    after = await one.refresh()
    assert after not in (None, before)
    assert content(shared)["ca.crt"] != old["ca.crt"]
    assert one.rejection(old["ca.crt"])
    assert one.rejection(content(shared)["ca.crt"]) == ""


async def test_short_lived_leaves_are_refreshed_more_often(shared: Shared, clock: Clock) -> None:
    """At a life of 10 s, the next leaf is there before the last one has expired."""
    lifetimes = Lifetimes(root_s=ROOT_S, leaf_s=10)
    one = LongLivedSigner(
        MemoryStore(shared), [NAME], clock=clock, server_clock=clock, lifetimes=lifetimes
    )
    await one.refresh()
    served: list[Pair] = []

    async def sleep(seconds: float) -> None:
        clock.now_s += seconds
        assert one.rejection(one.bundle or b"") == ""
        if len(served) == 5:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await one.keep(served.append, sleep=sleep)
    assert clock.now_s <= 1_800_000_000 + 5 * 8 + 1
