"""Mode `files`: the certificate, key and client CA are files that somebody else renews. The client
CA is one in mode `self` too.

Changes are recognised by content, not by timestamps: kubelets and cert-manager swap symbolic links.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from certs.issuing import Pair
from certs.serving import Serving
from fettle.config import TLSSettings
from fettle.model import CertificateError


class _Material(NamedTuple):
    pair: Pair
    client_ca: bytes | None

    @property
    def digest(self) -> bytes:
        digest = hashlib.sha256()
        for content in (*self.pair, self.client_ca or b""):
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.digest()


class FromFiles:
    """Serves what the files hold. `reload` does blocking reads: call it in a thread, every 10 s."""

    def __init__(self, settings: TLSSettings) -> None:
        self._settings = settings
        material = _read(settings)
        self._digest = material.digest
        self.serving = Serving(material.pair, material.client_ca)

    def reload(self) -> bool:
        """Serve the files' new content; False if it is the old one.

        Raises CertificateError, and serves the old one, while a file is missing or they do not
        fit together, as they do for a moment when they are not replaced at once.
        """
        material = _read(self._settings)
        if material.digest == self._digest:
            return False
        self.serving.swap(material.pair, material.client_ca)
        self._digest = material.digest
        return True


def client_authority(settings: TLSSettings) -> bytes:
    """Whose clients may call, PEM; raises CertificateError. Does a blocking read."""
    return _content(settings.client_ca_file, "clientCaFile")


def _read(settings: TLSSettings) -> _Material:
    certificate = _content(settings.certificate_file, "certificateFile")
    key = _content(settings.key_file, "keyFile")
    client_ca = settings.client_ca_file
    return _Material(
        Pair(certificate, key),
        _content(client_ca, "clientCaFile") if client_ca is not None else None,
    )


def _content(file: str | None, field: str) -> bytes:
    if not file:
        raise CertificateError(f"tls.{field} is not set")
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise CertificateError(f"tls.{field}: {file}: {error.strerror}") from error
