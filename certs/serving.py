"""What a listener needs for TLS: a certificate that can be swapped while connections are open.

The listener keeps one outer context for good. At each handshake, its `sni_callback` (called with
and without SNI) replaces it by the current inner context, so a swap never disturbs an established
connection.
"""

import math
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from certs.issuing import Pair, Validity, validity_of
from fettle.client import key_file
from fettle.logs import Logger
from fettle.model import CertificateError
from fettle.pacing import keep

WARNINGS_POLL_S = 5.0
LOGGED_AFTER_CHECKS = 2
"""A text that is gone sooner, as while one file of a pair is being replaced, is no warning."""

_LOG = Logger("fettle.certs")


class Trust(NamedTuple):
    """A client CA while it is in force; the next one has the next `generation`."""

    generation: int
    client_ca: bytes

    @property
    def certificates(self) -> frozenset[bytes]:
        """Those in it, to compare."""
        _, *found = self.client_ca.split(b"-----BEGIN ")
        return frozenset(b"".join(each.partition(b"-----END ")[0].split()) for each in found)


class _Context(ssl.SSLContext):
    """Knows what it verifies callers by."""

    trust = Trust(-1, b"")


class ServingCertificate:
    """A listener starts with `context`; `swap` changes the certificate that it serves.

    With a `client_ca` (PEM), callers must present a certificate that it signed. Whether they must
    is settled at the start; the client CA itself can be swapped. Connections that another one
    verified stay open: `trust` and `trust_of` tell them apart. `validity` is that of the served
    certificate, `client_ca_validities` those of the certificates in the client CA.
    """

    def __init__(self, pair: Pair, client_ca: bytes | None = None) -> None:
        self._mutual = client_ca is not None
        self._current = _context(pair, client_ca)
        self.trust = self._current.trust = Trust(0, client_ca or b"")
        """What callers are verified by now."""
        self.validity = validity_of(pair.certificate)
        self.client_ca_validities = _client_ca_validities(self._current)
        self.pair = pair
        self.client_ca = client_ca
        self.context = _blank(self._mutual)
        self.context.sslobject_class = _AlertingSSLObject
        self.context.sni_callback = self._choose

    def swap(self, pair: Pair, client_ca: bytes | None = None) -> None:
        """Serve another pair; without a `client_ca`, the present one stays.

        Raises CertificateError if the new ones are unusable, and keeps serving the old ones.
        """
        # They are loaded into a new context: to load a bad pair into a live context would break it
        # for every caller.
        if client_ca is not None and not self._mutual:
            raise CertificateError("client certificates cannot be required after startup")
        client_ca = client_ca if client_ca is not None else self.client_ca
        context, valid = _context(pair, client_ca), validity_of(pair.certificate)
        if client_ca is not None and client_ca != self.trust.client_ca:
            # First: who comes in between is verified by the old one, and must not pass for new.
            self.trust = Trust(self.trust.generation + 1, client_ca)
        context.trust = self.trust
        self._current, self.validity = context, valid
        self.client_ca_validities = _client_ca_validities(context)
        self.pair, self.client_ca = pair, client_ca

    @property
    def client_ca_ends_at(self) -> float:
        """When the last certificate of the client CA expires, Unix seconds; NaN if it has none."""
        return max((each.ends_at for each in self.client_ca_validities), default=math.nan)

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, outer: ssl.SSLContext
    ) -> None:
        connection.context = self._current


def trust_of(context: ssl.SSLContext) -> Trust:
    """What the caller of a connection with this context was verified by."""
    return context.trust if isinstance(context, _Context) else _Context.trust


class ListenerTLS(NamedTuple):
    """The certificate of one listener, and what keeps it fresh.

    `keep` runs for as long as the listener does. `problem` says why the listener is not ready, ""
    if it is; `notes` says what else operators should know.
    """

    certificate: ServingCertificate | None
    keep: Callable[[], Awaitable[None]] | None = None
    problem: Callable[[], str] = str
    notes: Callable[[], list[str]] = list

    @property
    def takes_anybody(self) -> bool:
        """Whether callers from other hosts need no certificate. Plain HTTP is on loopback only."""
        return self.certificate is not None and self.certificate.client_ca is None

    @property
    def context(self) -> ssl.SSLContext | None:
        """None: plain HTTP."""
        return self.certificate.context if self.certificate is not None else None


class CertificateWarnings:
    """Logs a certificate's problem and notes if they last, each once until it is gone."""

    def __init__(self, tls: ListenerTLS, of: str = "") -> None:
        """`of`: the name of their listener."""
        self._tls = tls
        self._of = of
        self._checks: dict[str, int] = {}

    async def keep(self) -> None:
        """Check again and again, until cancelled."""
        await keep(f"warnings about certificates: {self._of}", self._look, every_s=WARNINGS_POLL_S)

    async def _look(self) -> None:
        self.check()

    def check(self) -> None:
        found = [text for text in (self._tls.problem(), *self._tls.notes()) if text]
        self._checks = {text: self._checks.get(text, 0) + 1 for text in found}
        for text, checks in self._checks.items():
            if checks == LOGGED_AFTER_CHECKS:
                _LOG.warning(text)


_REJECTED_CALLER = ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED")


class _AlertingSSLObject(ssl.SSLObject):
    """Sends the TLS alert to a caller whose certificate is rejected.

    When a handshake fails, event loops drop the connection without sending the alert that OpenSSL
    made for it, and kube-scheduler logs only "EOF". If the object asks for more data instead, they
    send the alert first.
    """

    _failed = False

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if self._failed or error.reason not in _REJECTED_CALLER:
                raise
            self._failed = True
            raise ssl.SSLWantReadError(str(error)) from error


def _blank(mutual: bool) -> _Context:
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would skip the check against the client CA that is in force by then.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if mutual:  # OpenSSL takes the mode from the outer context, the authority from the inner one
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _context(pair: Pair, client_ca: bytes | None) -> _Context:
    context = _blank(client_ca is not None)
    try:
        with key_file(pair.key + b"\n" + pair.certificate) as path:
            context.load_cert_chain(path, password=_refuse_encrypted)
    except ssl.SSLError as error:
        raise CertificateError(
            f"certificate and key are unreadable or do not match: {error}"
        ) from error
    if client_ca is not None:
        try:
            context.load_verify_locations(cadata=client_ca.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(
                f"the client CA is not a valid PEM certificate: {error}"
            ) from error
    return context


def _client_ca_validities(context: ssl.SSLContext) -> list[Validity]:
    to_s = ssl.cert_time_to_seconds
    return [
        Validity(to_s(str(found["notBefore"])), to_s(str(found["notAfter"])))
        for found in context.get_ca_certs()
    ]


def _refuse_encrypted() -> str:
    """Without this, OpenSSL would ask for a password on the terminal."""
    raise CertificateError("the key is encrypted: store it without a password")
