"""Keys and certificates as files, since OpenSSL reads them from files only. On Linux these files
are in memory, and nothing is written to disk.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime


@contextmanager
def key_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, which is gone afterwards."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("fettle-key"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as named:  # not Linux: a user's own machine
        named.write(content)
        named.flush()
        yield named.name


def ended_at(certificate: bytes, now: float) -> datetime | None:
    """When this certificate (PEM) ended; None if it is still valid, or cannot be read."""
    from cryptography.x509 import load_pem_x509_certificate  # heavy, and rarely needed

    try:
        ended = load_pem_x509_certificate(certificate).not_valid_after_utc
    except ValueError:
        return None
    return ended if ended.timestamp() < now else None
