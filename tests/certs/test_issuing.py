"""Roots and leaves, the checks on them, and how long they are valid."""

import ssl
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from certs import issuing
from certs.issuing import (
    CLOCK_SKEW_S,
    DAY_S,
    LEAF_S,
    WEBHOOK_ROOT_S,
    Pair,
    Usage,
    Validity,
    longest_validity,
    validity_of,
)
from fettle.model import CertificateError

NOW = 1_800_000_000.0
NAME = "fettle-webhook.fettle-system.svc"


@pytest.fixture(scope="module")
def root() -> Pair:
    return issuing.root("test CA", now_s=NOW, lifetime_s=WEBHOOK_ROOT_S)


def parsed(pair: Pair) -> x509.Certificate:
    return issuing.certificates(pair.certificate)[0]


def test_a_leaf_verifies_against_its_root_under_each_of_its_names(root: Pair) -> None:
    names = [*issuing.service_names("fettle-webhook", "fettle-system"), "127.0.0.1", "::1"]
    leaf = issuing.leaf(root, names, now_s=NOW)
    for name in names:
        assert issuing.rejection(leaf.certificate, root.certificate, name, now_s=NOW) == ""


def test_a_leaf_verifies_for_a_peer_whose_clock_is_slow(root: Pair) -> None:
    leaf = issuing.leaf(root, [NAME], now_s=NOW)
    slow = NOW - 3500
    assert issuing.rejection(leaf.certificate, root.certificate, NAME, now_s=slow) == ""


@pytest.mark.parametrize(
    ("name", "at", "usage"),
    [
        ("other.fettle-system.svc", NOW, Usage.SERVER),
        (NAME, NOW + LEAF_S + 1, Usage.SERVER),
        (NAME, NOW - 2 * 3600, Usage.SERVER),
        (NAME, NOW, Usage.CLIENT),
    ],
    ids=["another name", "expired", "not valid yet", "a server's leaf shown by a client"],
)
def test_a_leaf_is_rejected_with_a_reason(root: Pair, name: str, at: float, usage: Usage) -> None:
    leaf = issuing.leaf(root, [NAME], now_s=NOW)
    assert issuing.rejection(leaf.certificate, root.certificate, name, now_s=at, usage=usage)


def test_a_leaf_is_rejected_by_another_root_of_the_same_name(root: Pair) -> None:
    other = issuing.root("test CA", now_s=NOW, lifetime_s=WEBHOOK_ROOT_S)
    leaf = issuing.leaf(root, [NAME], now_s=NOW)
    assert issuing.rejection(leaf.certificate, other.certificate, NAME, now_s=NOW)


def test_a_bundle_of_two_roots_of_the_same_name_accepts_the_leaves_of_both(root: Pair) -> None:
    other = issuing.root("test CA", now_s=NOW, lifetime_s=WEBHOOK_ROOT_S)
    bundle = issuing.bundled(root.certificate, other.certificate, root.certificate)
    assert len(issuing.certificates(bundle)) == 2
    for issuer in (root, other):
        leaf = issuing.leaf(issuer, [NAME], now_s=NOW)
        assert issuing.rejection(leaf.certificate, bundle, NAME, now_s=NOW) == ""


def test_a_client_leaf_verifies_as_a_client_only(root: Pair) -> None:
    leaf = issuing.leaf(root, ["kube-scheduler"], now_s=NOW, usage=Usage.CLIENT)
    assert parsed(leaf).subject.rfc4514_string() == "CN=kube-scheduler"
    bundle = root.certificate
    assert issuing.rejection(leaf.certificate, bundle, "", now_s=NOW, usage=Usage.CLIENT) == ""
    assert issuing.rejection(leaf.certificate, bundle, "kube-scheduler", now_s=NOW)


def test_a_leaf_has_the_extensions_that_peers_require(root: Pair) -> None:
    leaf, authority = parsed(issuing.leaf(root, [NAME, "127.0.0.1"], now_s=NOW)), parsed(root)
    alternatives = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert alternatives.critical
    assert not leaf.subject
    assert alternatives.value.get_values_for_type(x509.DNSName) == [NAME]
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issuer = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert issuer.key_identifier == own.digest
    assert leaf.not_valid_before_utc.timestamp() == NOW - 3600
    assert leaf.not_valid_after_utc.timestamp() == NOW + LEAF_S


def test_serial_numbers_and_keys_differ_each_time(root: Pair) -> None:
    one, other = (issuing.leaf(root, [NAME], now_s=NOW) for _ in range(2))
    assert parsed(one).serial_number != parsed(other).serial_number
    assert one.key != other.key


def test_a_leaf_never_outlives_its_issuer(root: Pair) -> None:
    late = NOW + WEBHOOK_ROOT_S - DAY_S
    leaf = issuing.leaf(root, [NAME], now_s=late)
    assert issuing.expires_at(leaf.certificate) == issuing.expires_at(root.certificate)


def test_an_expired_authority_signs_nothing(root: Pair) -> None:
    with pytest.raises(CertificateError, match="expired"):
        issuing.leaf(root, [NAME], now_s=NOW + WEBHOOK_ROOT_S)


def test_a_certificate_is_renewed_when_two_thirds_of_its_life_are_over(root: Pair) -> None:
    leaf = issuing.leaf(root, [NAME], now_s=NOW, lifetime_s=3 * DAY_S)
    assert issuing.renew_at(leaf.certificate) == pytest.approx(NOW + 2 * DAY_S)


def test_openssl_loads_what_is_issued(root: Pair) -> None:
    context = ssl.create_default_context(cadata=root.certificate.decode())
    assert context.cert_store_stats()["x509_ca"] == 1


def test_a_long_service_name_still_gives_a_certificate(root: Pair) -> None:
    name = f"{'a' * 63}.{'b' * 63}.svc"
    leaf = issuing.leaf(root, [name], now_s=NOW)
    assert issuing.rejection(leaf.certificate, root.certificate, name, now_s=NOW) == ""


def test_the_key_of_another_certificate_is_detected(root: Pair) -> None:
    other = issuing.root("other", now_s=NOW, lifetime_s=DAY_S)
    issuing.check_pair(root, "it")
    with pytest.raises(CertificateError, match="does not belong"):
        issuing.check_pair(Pair(root.certificate, other.key), "it")


def test_an_encrypted_key_is_refused_with_a_reason(root: Pair) -> None:
    encrypted = issuing.private_key(root.key).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(CertificateError, match=r"ca\.key: not a readable PEM private key"):
        issuing.private_key(encrypted, "ca.key")


@given(st.binary(max_size=200))
def test_garbage_is_a_certificate_error(garbage: bytes) -> None:
    with pytest.raises(CertificateError):
        issuing.certificates(garbage)
    with pytest.raises(CertificateError):
        issuing.private_key(garbage)
    assert issuing.rejection(garbage, garbage, NAME, now_s=NOW)


NOON_S = datetime(2026, 8, 1, 12, 0, tzinfo=UTC).timestamp()
HOUR_S = 3600.0


def lasting(seconds: float) -> Validity:
    return Validity(NOON_S, NOON_S + seconds)


def test_the_validity_is_that_of_the_first_certificate() -> None:
    root = issuing.root("test CA", now_s=NOON_S, lifetime_s=365 * DAY_S)
    leaf = issuing.leaf(root, ["localhost"], now_s=NOON_S, lifetime_s=DAY_S)
    chain = leaf.certificate + root.certificate
    assert validity_of(chain) == Validity(NOON_S - CLOCK_SKEW_S, NOON_S + DAY_S)


def test_what_is_no_certificate_is_refused() -> None:
    with pytest.raises(CertificateError, match="not a readable PEM certificate"):
        validity_of(b"nothing")


def test_a_certificate_is_lapsed_before_its_first_and_after_its_last_second() -> None:
    day = lasting(DAY_S)
    assert day.lapse(NOON_S - 1) == "is not valid before 2026-08-01 12:00 UTC"
    assert day.lapse(NOON_S) == day.lapse(NOON_S + DAY_S) == ""
    assert day.lapse(NOON_S + DAY_S + 1) == "expired on 2026-08-02 12:00 UTC"


@pytest.mark.parametrize(
    ("lifetime_s", "soon_s"),
    [(365 * DAY_S, 7 * DAY_S), (70 * DAY_S, 7 * DAY_S), (10 * DAY_S, DAY_S), (HOUR_S, 360.0)],
)
def test_a_certificate_expires_soon_in_its_last_seven_days_or_tenth(
    lifetime_s: float, soon_s: float
) -> None:
    some, ends_at = lasting(lifetime_s), NOON_S + lifetime_s
    assert some.ending(ends_at - soon_s - 1) == ""
    assert some.ending(ends_at - soon_s + 1).startswith("expires on 202")
    assert some.ending(ends_at) != ""


def test_of_several_validities_the_longest_that_holds_now_counts() -> None:
    short, long, later = lasting(HOUR_S), lasting(DAY_S), Validity(NOON_S + HOUR_S, NOON_S + 9e9)
    assert longest_validity([long, short], NOON_S) == long
    assert longest_validity([later, short], NOON_S) == short
    assert longest_validity([short, long], NOON_S + 2 * DAY_S) == long
    assert longest_validity([], NOON_S) is None


def test_an_expired_certificate_no_longer_counts_as_expiring_soon() -> None:
    assert lasting(DAY_S).ending(NOON_S + DAY_S + 1) == ""
