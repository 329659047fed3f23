"""One Secret, several replicas, one leader, and a clock that the test moves."""

import asyncio
from collections.abc import Mapping

import pytest

from certs import authority, issuing
from certs.authority import DROP_SLACK_S, PUBLISH_S
from certs.issuing import DAY_S, Pair
from certs.rotating import POLL_S, Lifetimes, LongLived, Rotation, SelfSigning
from fettle.errors import CertificateError, ClusterError, Conflict, Unreachable

NAME = "fettle-webhook.fettle-system.svc"
LIFETIMES = Lifetimes(root_s=365 * DAY_S, leaf_s=7 * DAY_S)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


class MemoryStore:
    """A Secret as one replica sees it: `replace` conflicts if another wrote since its last read."""

    def __init__(self, shared: "Shared") -> None:
        self._shared = shared
        self._seen = 0

    async def read(self) -> dict[str, bytes] | None:
        await asyncio.sleep(0)
        if self._shared.trouble is not None:
            raise self._shared.trouble
        self._seen = self._shared.version
        return None if self._shared.content is None else dict(self._shared.content)

    async def create(self, content: dict[str, bytes]) -> None:
        await asyncio.sleep(0)
        if self._shared.content is not None:
            raise Conflict("it exists")
        self._shared.write(content)

    async def replace(self, content: dict[str, bytes]) -> None:
        await asyncio.sleep(0)
        if self._seen != self._shared.version:
            raise Conflict("somebody else wrote first")
        self._shared.write(content)


class Shared:
    """What the API server keeps."""

    def __init__(self, content: Mapping[str, bytes] | None = None) -> None:
        self.content = content
        self.version = 0
        self.trouble: ClusterError | None = None

    def write(self, content: Mapping[str, bytes]) -> None:
        self.content = content
        self.version += 1


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shared() -> Shared:
    return Shared()


def replica(shared: Shared, clock: Clock) -> SelfSigning:
    return SelfSigning(MemoryStore(shared), [NAME], clock=clock, lifetimes=LIFETIMES)


def leader(shared: Shared, clock: Clock) -> Rotation:
    return Rotation(MemoryStore(shared), "test CA", clock=clock, lifetimes=LIFETIMES)


def content(shared: Shared) -> Mapping[str, bytes]:
    assert shared.content is not None
    return shared.content


async def test_the_first_replica_makes_the_authority_and_a_leaf_that_its_bundle_accepts(
    shared: Shared, clock: Clock
) -> None:
    first = replica(shared, clock)
    assert await first.refresh() is not None
    assert first.bundle is not None
    assert first.rejection(first.bundle) == ""
    assert set(content(shared)) == {"ca.crt", "ca.key"}


async def test_replicas_that_start_together_share_one_authority_and_no_leaf(
    shared: Shared, clock: Clock
) -> None:
    replicas = [replica(shared, clock) for _ in range(4)]
    leaves = await asyncio.gather(*(r.refresh() for r in replicas))
    assert len({r.bundle for r in replicas}) == 1
    assert len({leaf.key for leaf in leaves if leaf is not None}) == 4
    assert shared.version == 1
    assert all(r.rejection(content(shared)["ca.crt"]) == "" for r in replicas)


async def test_a_secret_that_was_installed_empty_is_filled(clock: Clock) -> None:
    shared = Shared({})
    assert await replica(shared, clock).refresh() is not None
    assert "ca.key" in content(shared)


async def test_a_leaf_is_signed_anew_when_two_thirds_of_its_life_are_over(
    shared: Shared, clock: Clock
) -> None:
    one = replica(shared, clock)
    first = await one.refresh()
    clock.now_s += 4.6 * DAY_S
    assert await one.refresh() is None
    clock.now_s += 0.1 * DAY_S
    second = await one.refresh()
    assert second is not None
    assert second != first
    assert one.rejection(content(shared)["ca.crt"]) == ""


async def test_a_replica_says_why_it_would_not_be_accepted(shared: Shared, clock: Clock) -> None:
    one = replica(shared, clock)
    assert "no certificate" in one.rejection(b"")
    await one.refresh()
    other = issuing.root("other", now_s=clock.now_s, lifetime_s=DAY_S)
    assert one.rejection(other.certificate)
    assert one.rejection(b"")


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"ca.key": b""}, "no ca.key"),
        ({"ca.crt": b"garbage"}, "ca.crt"),
        ({"ca.key": b"garbage"}, "key"),
        ({"next.crt": b"garbage"}, "next.key"),
    ],
)
async def test_a_spoilt_secret_is_named_and_not_overwritten(
    shared: Shared, clock: Clock, spoilt: dict[str, bytes], reason: str
) -> None:
    await replica(shared, clock).refresh()
    shared.write({**content(shared), **spoilt})
    before = content(shared)
    with pytest.raises(CertificateError, match=reason):
        await replica(shared, clock).refresh()
    with pytest.raises(CertificateError, match=reason):
        await leader(shared, clock).turn(None)
    assert content(shared) == before


async def test_a_key_that_is_not_the_authoritys_is_found_out(shared: Shared, clock: Clock) -> None:
    await replica(shared, clock).refresh()
    other = issuing.root("other", now_s=clock.now_s, lifetime_s=DAY_S)
    shared.write({**content(shared), "ca.key": other.key})
    with pytest.raises(CertificateError, match="does not belong"):
        await replica(shared, clock).refresh()


async def test_keeping_hands_over_new_leaves_and_survives_trouble(
    shared: Shared, clock: Clock
) -> None:
    one = replica(shared, clock)
    served: list[Pair] = []
    naps = 0

    async def sleep(seconds: float) -> None:
        """Day 1: quiet. Day 5: no answer. Day 6: a new leaf. Then the end."""
        nonlocal naps
        assert seconds == POLL_S
        naps += 1
        clock.now_s += {1: 1, 2: 4, 3: 1}.get(naps, 0) * DAY_S
        shared.trouble = Unreachable("no answer") if naps == 2 else None
        if naps == 4:
            raise asyncio.CancelledError

    await one.refresh()
    with pytest.raises(asyncio.CancelledError):
        await one.keep(served.append, sleep=sleep)
    assert served == [one.leaf]


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
        self.live = await self.leader.turn(self.live)

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
    live = await first.turn(None)
    await first.turn(live)
    clock.now_s += PUBLISH_S - 1
    await first.turn(live)
    second = leader(shared, clock)
    clock.now_s += 2
    await second.turn(live)
    assert "next.crt" in content(shared)
    clock.now_s += PUBLISH_S
    await second.turn(live)
    assert "next.crt" not in content(shared)


async def test_nothing_is_promoted_while_the_live_bundle_lacks_the_next_authority(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, clock).refresh()
    clock.now_s += 250 * DAY_S
    lead, overwritten = leader(shared, clock), content(shared)["ca.crt"]
    wanted = await lead.turn(overwritten)
    assert len(issuing.certificates(wanted or b"")) == 2
    for live in (overwritten, b"garbage", None):
        for _ in range(3):
            clock.now_s += PUBLISH_S
            assert await lead.turn(live) == wanted
    assert "next.crt" in content(shared)


async def test_a_leader_that_is_overtaken_adopts_what_the_other_wrote(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, clock).refresh()
    clock.now_s += 250 * DAY_S
    bundles = await asyncio.gather(*(leader(shared, clock).turn(None) for _ in range(2)))
    assert shared.version == 2
    assert content(shared)["next.crt"] in (max(bundles, key=lambda b: len(b or b"")) or b"")


async def test_without_a_secret_the_leader_has_nothing_to_publish(
    shared: Shared, clock: Clock
) -> None:
    assert await leader(shared, clock).turn(None) is None


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
    live = await leader(shared, clock).turn(None)
    late = replica(shared, clock)
    await late.refresh()
    assert live is not None
    assert late.rejection(live) == ""


async def test_instead_of_an_expired_authority_its_next_one_signs(
    shared: Shared, clock: Clock
) -> None:
    await replica(shared, clock).refresh()
    clock.now_s += 364 * DAY_S
    await leader(shared, clock).turn(None)
    following = content(shared)["next.crt"]
    clock.now_s += 2 * DAY_S
    await replica(shared, clock).refresh()
    assert content(shared)["ca.crt"] == following
    assert set(content(shared)) == {"ca.crt", "ca.key"}


ROOT_S, LEAF_S = 1000 * DAY_S, 7 * DAY_S


def long_lived(shared: Shared, clock: Clock) -> LongLived:
    lifetimes = Lifetimes(root_s=ROOT_S, leaf_s=LEAF_S)
    return LongLived(MemoryStore(shared), [NAME], clock=clock, lifetimes=lifetimes)


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


async def test_a_long_lived_authority_that_is_deleted_is_made_anew(
    shared: Shared, clock: Clock
) -> None:
    one = long_lived(shared, clock)
    before = await one.refresh()
    old, shared.content = content(shared), None
    after = await one.refresh()
    assert after not in (None, before)
    assert content(shared)["ca.crt"] != old["ca.crt"]
    assert one.rejection(old["ca.crt"])
    assert one.rejection(content(shared)["ca.crt"]) == ""


async def test_short_lived_leaves_are_looked_after_more_often(shared: Shared, clock: Clock) -> None:
    """At a life of 10 s, the next leaf is there before the last one has expired."""
    lifetimes = Lifetimes(root_s=ROOT_S, leaf_s=10)
    one = LongLived(MemoryStore(shared), [NAME], clock=clock, lifetimes=lifetimes)
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


def step(secret: authority.Secret, now_s: float, published_at: float | None) -> authority.Step:
    return authority.step(
        secret,
        now_s=now_s,
        published_at=published_at,
        common_name="test CA",
        lifetime_s=LIFETIMES.root_s,
        leaf_lifetime_s=LIFETIMES.leaf_s,
    )


def test_the_old_authority_is_kept_until_the_last_of_its_leaves_has_expired() -> None:
    start = 1_800_000_000.0
    secret: authority.Secret = authority.new("test CA", now_s=start, lifetime_s=LIFETIMES.root_s)
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
