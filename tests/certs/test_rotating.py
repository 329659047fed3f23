"""One leader rotates an authority, while replicas sign and callers trust."""

import asyncio

import pytest

from certs import authority, issuing
from certs.authority import DROP_SLACK_S, PUBLISH_S
from certs.issuing import DAY_S
from certs.rotating import POLL_S
from tests.certs.replicas import (
    LIFETIMES,
    Clock,
    Shared,
    content,
    leader,
    replica,
)


class Cluster:
    """Leader, replicas and API server together: each tick the leader writes what the bundle must
    hold, the API server has it, and all replicas look at the Secret."""

    def __init__(self, shared: Shared, clock: Clock) -> None:
        self.clock = clock
        self.leader = leader(shared, clock)
        self.replicas = [replica(shared, clock) for _ in range(2)]
        self.live: bytes | None = None

    async def tick(self, seconds: float = POLL_S) -> None:
        self.clock.now_s += seconds
        for one in self.replicas:
            await one.refresh()
        self.live = await self.leader.advance(self.live)

    def rejections(self) -> list[str]:
        assert self.live is not None
        return [why for one in self.replicas if (why := one.rejection(self.live))]


async def test_a_whole_rotation_never_has_a_replica_that_the_bundle_rejects(
    shared: Shared, clock: Clock
) -> None:
    cluster = Cluster(shared, clock)
    await cluster.tick()
    first = content(shared)["ca.crt"]
    seen = []
    while clock.now_s < 1_800_000_000 + 270 * DAY_S:
        in_rotation = len(content(shared)) > 2
        await cluster.tick(POLL_S if "next.crt" in content(shared) else DAY_S / 2)
        assert cluster.rejections() == []
        bundle = issuing.certificates(cluster.live or b"")
        if in_rotation or len(bundle) > 1:
            seen.append((len(bundle), "next.crt" in content(shared)))
    assert (2, True) in seen
    assert (2, False) in seen
    assert set(content(shared)) == {"ca.crt", "ca.key"}
    assert content(shared)["ca.crt"] != first
    assert len(issuing.certificates(cluster.live or b"")) == 1


async def test_a_new_leader_begins_the_wait_again(shared: Shared, clock: Clock) -> None:
    await replica(shared, clock).refresh()
    clock.now_s += 250 * DAY_S
    first = leader(shared, clock)
    live = await first.advance(None)
    await first.advance(live)
    clock.now_s += PUBLISH_S - 1
    await first.advance(live)
    second = leader(shared, clock)
    clock.now_s += 2
    await second.advance(live)
    assert "next.crt" in content(shared)
    clock.now_s += PUBLISH_S
    await second.advance(live)
    assert "next.crt" not in content(shared)


async def test_nothing_is_promoted_while_the_live_bundle_lacks_the_next_authority(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, clock).refresh()
    clock.now_s += 250 * DAY_S
    lead, overwritten = leader(shared, clock), content(shared)["ca.crt"]
    wanted = await lead.advance(overwritten)
    assert len(issuing.certificates(wanted or b"")) == 2
    for live in (overwritten, b"garbage", None):
        for _ in range(3):
            clock.now_s += PUBLISH_S
            assert await lead.advance(live) == wanted
    assert "next.crt" in content(shared)


async def test_a_leader_that_is_overtaken_adopts_what_the_other_wrote(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, clock).refresh()
    clock.now_s += 250 * DAY_S
    bundles = await asyncio.gather(*(leader(shared, clock).advance(None) for _ in range(2)))
    assert shared.version == 2
    assert content(shared)["next.crt"] in (max(bundles, key=lambda b: len(b or b"")) or b"")


@pytest.mark.parametrize("shipped", [None, {}])
async def test_without_an_authority_the_leader_has_nothing_to_publish(
    clock: Clock, shipped: dict[str, bytes] | None
) -> None:
    assert await leader(Shared(shipped), clock).advance(None) is None


async def test_a_replica_replaces_an_authority_that_has_expired_without_waiting_for_a_leader(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, clock).refresh()
    clock.now_s += 400 * DAY_S
    late = [replica(shared, clock) for _ in range(3)]
    await asyncio.gather(*(one.refresh() for one in late))
    assert shared.version == 2
    assert all(one.rejection(content(shared)["ca.crt"]) == "" for one in late)


async def test_a_leader_replaces_an_authority_that_has_expired_at_once(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, clock).refresh()
    clock.now_s += 400 * DAY_S
    live = await leader(shared, clock).advance(None)
    late = replica(shared, clock)
    await late.refresh()
    assert live is not None
    assert late.rejection(live) == ""


async def test_instead_of_an_expired_authority_its_next_one_signs(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, clock).refresh()
    clock.now_s += 364 * DAY_S
    await leader(shared, clock).advance(None)
    following = content(shared)["next.crt"]
    clock.now_s += 2 * DAY_S
    await replica(shared, clock).refresh()
    assert content(shared)["ca.crt"] == following
    assert set(content(shared)) == {"ca.crt", "ca.key"}


def step(
    secret: authority.Secret, now_s: float, published_at: float | None
) -> authority.RotationStep:
    return authority.next_step(
        secret,
        now_s=now_s,
        published_at=published_at,
        common_name="test CA",
        lifetime_s=LIFETIMES.root_s,
        leaf_lifetime_s=LIFETIMES.leaf_s,
    )


def test_the_old_authority_is_kept_until_the_last_of_its_leaves_has_expired() -> None:
    start = 1_800_000_000.0
    secret: authority.Secret = authority.new_secret(
        "test CA", now_s=start, lifetime_s=LIFETIMES.root_s
    )
    due = issuing.renew_at(secret["ca.crt"])
    assert step(secret, due - 1, None).secret is secret
    secret = step(secret, due, None).secret
    assert step(secret, due + 5, None).secret is secret
    assert step(secret, due + PUBLISH_S, due + 1).secret is secret
    promoted_at = due + 1 + PUBLISH_S
    promoted = step(secret, promoted_at, due + 1).secret
    assert promoted["ca.key"] == secret["next.key"]
    assert issuing.certificates(promoted["ca.crt"]) == [
        *issuing.certificates(secret["next.crt"]),
        *issuing.certificates(secret["ca.crt"]),
    ]
    last_leaf_expires_at = promoted_at + LIFETIMES.leaf_s
    assert step(promoted, last_leaf_expires_at, None).secret is promoted
    dropped = step(promoted, last_leaf_expires_at + DROP_SLACK_S, None).secret
    assert dropped == {"ca.crt": secret["next.crt"], "ca.key": secret["next.key"]}
