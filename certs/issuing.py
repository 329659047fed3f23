"""Certificates: root and leaf, created, read and checked; and how long they are valid.

Pure: the clock is an argument, in Unix seconds. There are two kinds of root. The webhook's lives a
year and rotates, since its readers take it from objects that Fettle can change. The extender's
lives ten years, since kube-scheduler reads it only when it starts.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fettle.model import CertificateError

DAY_S = 86400.0
WEBHOOK_ROOT_S = 365 * DAY_S
EXTENDER_ROOT_S = 3650 * DAY_S
LEAF_S = 7 * DAY_S
CLOCK_SKEW_S = 3600.0
"""A certificate is valid from an hour before it is created: other machines' clocks may be slow."""
RENEW_AT_SHARE = 2 / 3
"""Of the lifetime: a third of it is left for trying again."""

_COMMON_NAME_LENGTH = 64
"""`ub-common-name` of RFC 5280."""


class Usage(Enum):
    """What a leaf is for."""

    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


class Pair(NamedTuple):
    """A certificate (or several, the own one first) and its key, both PEM."""

    certificate: bytes
    key: bytes


def root(common_name: str, *, now_s: float, lifetime_s: float) -> Pair:
    """A new certificate authority that signs leaves only."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(common_name, key.public_key(), now_s, now_s + lifetime_s)
        .issuer_name(_name(common_name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False)
    )
    return Pair(pem(builder.sign(key, hashes.SHA256())), key_pem(key))


def leaf(
    issuer: Pair,
    names: Sequence[str],
    *,
    now_s: float,
    lifetime_s: float = LEAF_S,
    usage: Usage = Usage.SERVER,
) -> Pair:
    """A certificate for these DNS names and IP addresses; it never outlives its issuer."""
    # RFC 5280: names are critical if there is no subject, as in a server's certificate, and must
    # not be if there is one. A client's has the first name as its common name, since some servers
    # read only that.
    common_name = names[0] if usage is Usage.CLIENT else ""
    authority, authority_key = certificates(issuer.certificate)[0], private_key(issuer.key)
    until_s = min(now_s + lifetime_s, expires_at(issuer.certificate))
    if until_s <= now_s:
        raise CertificateError("the certificate authority has expired, so it cannot sign")
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = _identifier(authority)
    builder = (
        _builder(common_name, key.public_key(), now_s, until_s)
        .issuer_name(authority.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage.value]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]),
            critical=not common_name,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False
        )
    )
    return Pair(pem(builder.sign(authority_key, hashes.SHA256())), key_pem(key))


def _identifier(authority: x509.Certificate) -> x509.SubjectKeyIdentifier:
    """The identifier by which leaves name their issuer; every root of ours has one."""
    try:
        return authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise CertificateError(f"the certificate authority cannot sign: {error}") from error


def service_names(service: str, namespace: str, extra: Sequence[str] = ()) -> list[str]:
    """The names under which the API server and pods reach a Service, then extra ones.

    >>> service_names("fettle-webhook", "gpu", ["localhost"])[::3]
    ['fettle-webhook.gpu.svc', 'localhost']
    >>> service_names("fettle-webhook", "gpu")[:2]
    ['fettle-webhook.gpu.svc', 'fettle-webhook.gpu']
    """
    short = f"{service}.{namespace}"
    return list(dict.fromkeys([f"{short}.svc", short, f"{short}.svc.cluster.local", *extra]))


def certificates(pem: bytes, what: str = "certificate") -> list[x509.Certificate]:
    """All certificates in PEM text, at least one."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CertificateError(f"{what}: not a readable PEM certificate: {error}") from error


def private_key(pem: bytes, what: str = "key") -> ec.EllipticCurvePrivateKey:
    """An unencrypted elliptic-curve key."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"{what}: not a readable PEM private key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(
            f"{what}: not an elliptic-curve key, the only kind that Fettle creates"
        )
    return key


def check_pair(pair: Pair, what: str) -> None:
    """Raises CertificateError if the key is not that of the (first) certificate."""
    certificate = certificates(pair.certificate, f"{what}'s certificate")[0]
    try:
        public_key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"{what}'s certificate: its key cannot be used: {error}") from error
    if public_key != private_key(pair.key, f"{what}'s key").public_key():
        raise CertificateError(f"{what}: the key does not belong to the certificate")


def rejection(
    certificate: bytes, bundle: bytes, name: str, *, now_s: float, usage: Usage = Usage.SERVER
) -> str:
    """Why a peer that trusts this bundle would reject the leaf; "" if it would accept it.

    `name` is the one that it connects to; the name of a client is not checked.
    """
    try:
        chain = certificates(certificate)
        store = verification.Store(certificates(bundle, "bundle"))
        policy = verification.PolicyBuilder().store(store).time(_moment(now_s))
        if usage is Usage.CLIENT:
            policy.build_client_verifier().verify(chain[0], chain[1:])
        else:
            server = policy.build_server_verifier(_subject(name))
            server.verify(chain[0], chain[1:])
    except (verification.VerificationError, CertificateError, ValueError) as error:
        return str(error)
    return ""


def names_in(der: bytes) -> tuple[str, ...]:
    """The common name, then the DNS names, of a certificate in DER; none if it is unreadable."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        return ()
    try:
        kind = x509.SubjectAlternativeName
        found = certificate.extensions.get_extension_for_class(kind).value
        others = found.get_values_for_type(x509.DNSName)
    except (
        ValueError,
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ):
        others = []
    # Of several common names, Kubernetes takes the last.
    names = (*(str(each.value) for each in common[-1:]), *others)
    return tuple(name for name in names if name)


def is_issued_by(der: bytes, bundle: bytes, *, now_s: float) -> bool:
    """Whether an authority in this bundle (PEM) signed the certificate, and both are valid now."""
    try:
        leaf = x509.load_der_x509_certificate(der)
        authorities = certificates(bundle)
    except (ValueError, CertificateError):
        return False
    now = _moment(now_s)
    return any(
        each.not_valid_before_utc <= now <= each.not_valid_after_utc and _signed(leaf, each)
        for each in authorities
        if leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc
    )


def _signed(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        kind = x509.BasicConstraints
        is_ca = authority.extensions.get_extension_for_class(kind).value.ca
        leaf.verify_directly_issued_by(authority)
    except (
        ValueError,
        TypeError,
        InvalidSignature,
        UnsupportedAlgorithm,
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
    ):
        return False
    return is_ca


def starts_at(certificate: bytes) -> float:
    """When it was created, Unix seconds; its validity begins `CLOCK_SKEW_S` earlier."""
    return certificates(certificate)[0].not_valid_before_utc.timestamp() + CLOCK_SKEW_S


def expires_at(certificate: bytes) -> float:
    return certificates(certificate)[0].not_valid_after_utc.timestamp()


def is_valid(certificate: bytes, now_s: float) -> bool:
    """Neither expired nor of the future, as whoever has a wrong clock makes it."""
    valid = validity_of(certificate)
    return valid.starts_at <= now_s < valid.ends_at


def renew_at(certificate: bytes, share: float = RENEW_AT_SHARE) -> float:
    """When that share of its lifetime is over."""
    start = starts_at(certificate)
    return start + share * (expires_at(certificate) - start)


def bundled(*pems: bytes) -> bytes:
    """All certificates of these PEM texts in one, in order, each once."""
    found = dict.fromkeys(c for pem in pems if pem for c in certificates(pem))
    return b"".join(pem(certificate) for certificate in found)


def _builder(
    common_name: str, key: ec.EllipticCurvePublicKey, now_s: float, until_s: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(common_name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(now_s - CLOCK_SKEW_S))
        .not_valid_after(_moment(until_s))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    if not common_name:
        return x509.Name([])
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_COMMON_NAME_LENGTH])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _subject(name: str) -> x509.DNSName | x509.IPAddress:
    return cast("x509.DNSName | x509.IPAddress", _alternative(name))


def _moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(int(unix_s), UTC)


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


# --- validity

SOON_S = 7 * DAY_S
SOON_SHARE = 0.1
"""Of its lifetime. Those who renew certificates do so much earlier, mostly with a third left."""


class Validity(NamedTuple):
    """From when to when a certificate is valid, Unix seconds."""

    starts_at: float
    ends_at: float

    def lapse(self, now_s: float) -> str:
        """Why callers reject it, such as "expired on 2026-08-01 12:00 UTC"; "" if it is valid."""
        if now_s > self.ends_at:
            return f"expired on {_in_words(self.ends_at)}"
        if now_s < self.starts_at:
            return f"is not valid before {_in_words(self.starts_at)}"
        return ""

    def ending(self, now_s: float) -> str:
        """Such as "expires on 2026-08-01 12:00 UTC" if that is soon; "" if it is not."""
        soon_s = min(SOON_S, SOON_SHARE * (self.ends_at - self.starts_at))
        soon = self.ends_at - soon_s <= now_s <= self.ends_at
        return f"expires on {_in_words(self.ends_at)}" if soon else ""


def validity_of(certificate: bytes) -> Validity:
    """That of the first certificate in PEM text, the server's own; raises CertificateError."""
    try:
        own = x509.load_pem_x509_certificate(certificate)
        starts, ends = own.not_valid_before_utc, own.not_valid_after_utc
    except ValueError as error:
        raise CertificateError(f"not a readable PEM certificate: {error}") from error
    return Validity(starts.timestamp(), ends.timestamp())


def longest_validity(validities: Iterable[Validity], now_s: float) -> Validity | None:
    """The one that lasts longest of those that hold now, else the last to end.

    If callers may be signed by any of several authorities, one valid authority is enough.
    """
    return max(validities, key=lambda v: (not v.lapse(now_s), v.ends_at), default=None)


def _in_words(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"
