"""The control plane's own certificate authority: it issues the servers' certificate for loopback
and a client certificate for each user, all in memory, elliptic keys so that a run costs no time."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=7)


@dataclass(frozen=True)
class Pair:
    certificate: bytes
    key: bytes


def private_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    def __init__(self, common_name: str = "control-plane-tests") -> None:
        self._key = private_key()
        self._issuer = _name(common_name)
        self.certificate = self._sign(
            self._issuer,
            self._key,
            [(x509.BasicConstraints(ca=True, path_length=None), True)],
        )

    def client(
        self, user: str, groups: Sequence[str] = (), lifetime: timedelta = _LIFETIME
    ) -> Pair:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        key = private_key()
        signed = self._sign(_name(user, groups), key, [(usage, False)], lifetime)
        return Pair(signed, key_pem(key))

    def server(self, common_name: str, names: Sequence[str] = ("localhost",)) -> Pair:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        reached_as = x509.SubjectAlternativeName([loopback, *(x509.DNSName(n) for n in names)])
        key = private_key()
        extensions: list[tuple[x509.ExtensionType, bool]] = [(usage, False), (reached_as, False)]
        return Pair(self._sign(_name(common_name), key, extensions), key_pem(key))

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extensions: Sequence[tuple[x509.ExtensionType, bool]],
        lifetime: timedelta = _LIFETIME,
    ) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + lifetime)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
