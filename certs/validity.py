"""From when to when a certificate is valid, in words for people. Pure: the clock is an argument, in
Unix seconds.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from cryptography import x509

from certs.issuing import DAY_S
from fettle.model import CertificateError

SOON_S = 7 * DAY_S
SOON_SHARE = 0.1
"""Of its lifetime; those who renew certificates do so much earlier, mostly with a third left."""


class Validity(NamedTuple):
    """Its first and its last second, Unix time."""

    starts_at: float
    ends_at: float

    def lapse(self, now_s: float) -> str:
        """Why callers reject it, such as "expired on 2026-08-01 12:00 UTC"; "" if it is valid."""
        if now_s > self.ends_at:
            return f"expired on {_moment(self.ends_at)}"
        if now_s < self.starts_at:
            return f"is not valid before {_moment(self.starts_at)}"
        return ""

    def ending(self, now_s: float) -> str:
        """Such as "expires on 2026-08-01 12:00 UTC", if that is soon; "" if it is not."""
        soon_s = min(SOON_S, SOON_SHARE * (self.ends_at - self.starts_at))
        soon = self.ends_at - soon_s <= now_s <= self.ends_at
        return f"expires on {_moment(self.ends_at)}" if soon else ""


def read(certificate: bytes) -> Validity:
    """Of the first certificate in PEM text, the server's own; raises CertificateError."""
    try:
        own = x509.load_pem_x509_certificate(certificate)
        starts, ends = own.not_valid_before_utc, own.not_valid_after_utc
    except ValueError as error:
        raise CertificateError(f"not a readable PEM certificate: {error}") from error
    return Validity(starts.timestamp(), ends.timestamp())


def longest(validities: Iterable[Validity], now_s: float) -> Validity | None:
    """Of those that hold now the one that does so for longest, else the last to hold; None of none.

    One of several authorities that are trusted is enough.
    """
    return max(validities, key=lambda v: (not v.lapse(now_s), v.ends_at), default=None)


def _moment(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"
