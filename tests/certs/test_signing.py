"""A replica signs its own certificate, under an authority that all replicas share."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs import authority, issuing
from certs.issuing import DAY_S, Pair
from certs.rotating import POLL_S
from fettle.config import Settings
from fettle.model import AuthorityError, CertificateError, Unreachable
from tests.certs.replicas import (
    Clock,
    Shared,
    content,
    leader,
    replica,
)
from tests.fettle.client.fake_api import AUTHORITIES

ROOT = Path(__file__).parents[2]


async def test_the_first_replica_makes_the_authority_and_a_leaf_that_its_bundle_accepts(
    shared: Shared, clock: Clock
) -> None:
    first = replica(shared, clock)
    assert await first.refresh() is not None
    assert first.bundle is not None
    assert first.rejection(first.bundle) == ""
    assert first.rejection(b"") == "no caBundle is written yet"
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


async def test_a_secret_that_is_missing_is_named_and_where_to_find_it(
    shared: Shared, clock: Clock
) -> None:
    one = replica(shared, clock)
    shared.content = None
    missing = r"^Secret ns/ca is missing: apply deploy/rbac/authorities\.yaml, "
    with pytest.raises(AuthorityError, match=missing):
        await one.refresh()
    shared.content = {}
    first = await one.refresh()
    assert "ca.key" in content(shared)
    shared.content = None
    with pytest.raises(AuthorityError, match=missing):
        await one.refresh()
    assert one.leaf == first, "what is served stays"


async def test_the_manifest_named_there_has_the_secrets_of_the_settings_without_data() -> None:
    found = list(yaml.safe_load_all((ROOT / authority.MANIFEST).read_text()))
    assert [(one["kind"], one["type"]) for one in found] == [("Secret", "Opaque")] * 2
    named = {one["metadata"]["name"] for one in found}
    assert named == {Settings().webhook.secret, Settings().extender.secret} == {*AUTHORITIES}
    assert not any(one.keys() & {"data", "stringData", "immutable"} for one in found)


async def test_a_new_leaf_is_signed_after_two_thirds_of_the_old_ones_life(
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
        ({"ca.key": b""}, r"no ca\.key"),
        ({"ca.crt": b"garbage"}, r"ca\.crt: not a readable PEM"),
        ({"ca.key": b"garbage"}, "its authority's key: not a readable PEM"),
        ({"next.crt": b"garbage"}, r"no next\.key"),
    ],
)
async def test_an_unreadable_secret_is_named_and_not_overwritten(
    shared: Shared, clock: Clock, spoilt: dict[str, bytes], reason: str
) -> None:
    await replica(shared, clock).refresh()
    shared.write({**content(shared), **spoilt})
    before = content(shared)
    out = "delete the Secret, apply deploy/rbac/authorities.yaml, and Fettle fills it anew"
    said = f"^Secret ns/ca: {reason}.*; {out}$"
    with pytest.raises(CertificateError, match=said):
        await replica(shared, clock).refresh()
    with pytest.raises(CertificateError, match=said):
        await leader(shared, clock).advance(None)
    assert content(shared) == before


async def test_an_unreadable_secret_that_is_applied_anew_is_filled_again(
    shared: Shared, clock: Clock
) -> None:
    one = replica(shared, clock)
    first = await one.refresh()
    shared.write({**content(shared), "ca.crt": b"garbage"})
    with pytest.raises(CertificateError):
        await one.refresh()
    assert one.leaf == first, "what is served stays"
    shared.content = {}
    assert await one.refresh() is not None
    assert one.rejection(await leader(shared, clock).advance(None) or b"") == ""


async def test_a_secret_that_somebody_else_keeps_empty_is_named(clock: Clock) -> None:
    class Emptied(Shared):
        def write(self, content: Mapping[str, bytes]) -> None:
            super().write({})

    with pytest.raises(CertificateError, match="Secret ns/ca keeps being overwritten"):
        await replica(Emptied({}), clock).refresh()


async def test_a_key_of_another_authority_is_detected(shared: Shared, clock: Clock) -> None:
    await replica(shared, clock).refresh()
    other = issuing.root("other", now_s=clock.now_s, lifetime_s=DAY_S)
    shared.write({**content(shared), "ca.key": other.key})
    with pytest.raises(CertificateError, match="does not belong"):
        await replica(shared, clock).refresh()


async def test_an_authority_without_a_key_identifier_cannot_sign(
    clock: Clock,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody's")])
    moment = datetime.fromtimestamp(clock.now_s, UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(moment)
        .not_valid_after(moment + timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    encoding, format_ = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(encoding, format_, serialization.NoEncryption())
    shared = Shared({"ca.crt": issuing.pem(made), "ca.key": private})
    with pytest.raises(AuthorityError, match=r"^Secret ns/ca: .*cannot sign.*; delete the Secret"):
        await replica(shared, clock).refresh()


async def test_a_failing_refresh_is_reported_for_as_long_as_it_lasts(
    shared: Shared, clock: Clock
) -> None:
    one = replica(shared, clock)
    told: list[str] = []

    async def sleep(_seconds: float) -> None:
        told.append(one.trouble)
        shared.trouble = Unreachable("no answer") if len(told) == 1 else None
        if len(told) == 3:
            raise asyncio.CancelledError

    await one.refresh()
    with pytest.raises(asyncio.CancelledError):
        await one.keep(lambda _: None, sleep=sleep)
    assert told == ["", "no answer", ""]


async def test_keep_swaps_in_new_leaves_and_survives_failures(shared: Shared, clock: Clock) -> None:
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
