"""A server's TLS context whose certificate can be swapped while connections are open.

The listener gets one outer context for good. At each handshake its `sni_callback` (called with and
without SNI) puts the current inner context in place, so established connections never notice a
swap. A pair that does not fit is refused before the swap; loading it into a live context instead
would break that context for every client.
"""

import math
import ssl

from certs import validity
from certs.issuing import Pair
from certs.validity import Validity
from fettle.client import key_file
from fettle.model import CertificateError


class Serving:
    """`context` is what a listener is started with; `swap` changes what it serves from then on.

    With a `client_ca` (PEM), callers must present a certificate signed by it. Whether they must is
    settled at the start; which authority it is can be swapped too. `validity` is that of the
    certificate that is served, `client_ca_validities` those of the client CA's certificates.
    """

    def __init__(self, pair: Pair, client_ca: bytes | None = None) -> None:
        self._mutual = client_ca is not None
        self._current = _context(pair, client_ca)
        self.validity = validity.read(pair.certificate)
        self.client_ca_validities = _authorities(self._current)
        self.pair = pair
        self.client_ca = client_ca
        self.context = _blank(self._mutual)
        self.context.sslobject_class = _Greeting
        self.context.sni_callback = self._choose

    def swap(self, pair: Pair, client_ca: bytes | None = None) -> None:
        """Serve another pair; raises CertificateError, and keeps serving the old one, if it is
        unusable.

        Without a `client_ca` the present one stays.
        """
        if client_ca is not None and not self._mutual:
            raise CertificateError("client certificates cannot be required after startup")
        client_ca = client_ca if client_ca is not None else self.client_ca
        context, valid = _context(pair, client_ca), validity.read(pair.certificate)
        self._current, self.validity = context, valid
        self.client_ca_validities = _authorities(context)
        self.pair, self.client_ca = pair, client_ca

    @property
    def client_ca_ends_at(self) -> float:
        """When the last of them expires, Unix seconds; NaN if none is an authority's."""
        return max((each.ends_at for each in self.client_ca_validities), default=math.nan)

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, outer: ssl.SSLContext
    ) -> None:
        connection.context = self._current


_TURNED_AWAY = ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED")


class _Greeting(ssl.SSLObject):
    """Makes sure that a rejected caller is told why.

    Event loops drop a connection whose handshake failed without sending the alert that OpenSSL
    made for it, and kube-scheduler then logs only "EOF". Asked to wait for more, they send first.
    """

    _failed = False

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if self._failed or error.reason not in _TURNED_AWAY:
                raise
            self._failed = True
            raise ssl.SSLWantReadError(str(error)) from error


def _blank(mutual: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A resumed session would skip the check against the authority that is in force by then.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if mutual:  # OpenSSL takes the mode from the outer context, the authority from the inner one
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _context(pair: Pair, client_ca: bytes | None) -> ssl.SSLContext:
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


def _authorities(context: ssl.SSLContext) -> list[Validity]:
    to_s = ssl.cert_time_to_seconds
    return [
        Validity(to_s(str(found["notBefore"])), to_s(str(found["notAfter"])))
        for found in context.get_ca_certs()
    ]


def _refuse_encrypted() -> str:
    """Without this, OpenSSL would ask for a password on the terminal."""
    raise CertificateError("the key is encrypted: store it without a password")
