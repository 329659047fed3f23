"""TLS mode `files`: somebody else renews the certificate, key and client CA, such as cert-manager.

The client CA comes from a file in mode `self` too. A change is recognised by content, not by
timestamp: kubelets and cert-manager swap symbolic links.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from certs.issuing import Pair, longest_validity
from certs.serving import ListenerTLS, ServingCertificate
from fettle.config import TLSSettings
from fettle.logs import Logger
from fettle.model import CertificateError
from fettle.pacing import keep

FILES_POLL_S = 10.0

_CALLERS = {
    "extender": "kube-scheduler",
    "webhook": "the API server",
    "alerts": "Alertmanager",
}
"""Who calls each listener."""

_LOG = Logger("fettle.certs")


class FileReloader:
    """Reads files again and again.

    `trouble` is why their present content cannot be used, "" if it can. It may pass: one of the
    files may have been replaced a moment before the others.
    """

    def __init__(self, of: str, reload: Callable[[], Awaitable[None]]) -> None:
        """`of`: the name of their listener."""
        self._of = of
        self._reload = reload
        self.trouble = ""

    async def keep(self) -> None:
        """Until cancelled."""
        await keep(f"files of {self._of}", self.reload, when=_pause)

    async def reload(self) -> None:
        try:
            await self._reload()
            self.trouble = ""
        except CertificateError as error:
            self.trouble = str(error)

    def notes(self, what: str) -> list[str]:
        """That `what` was not reloaded, and why."""
        if not self.trouble:
            return []
        return [f"{what} not reloaded, the old one stays: {self.trouble}"]


async def _pause() -> None:
    await asyncio.sleep(FILES_POLL_S)


class ClientCA:
    """The validity of a listener's client CA, in sentences: once it has expired, every caller is
    rejected."""

    def __init__(
        self,
        listener: str,
        file: str | None,
        serving: ServingCertificate,
        clock: Callable[[], float],
    ) -> None:
        self._what = f"{listener}: the client CA in {file}"
        self._callers = _CALLERS[listener]
        self._serving = serving
        self._clock = clock

    def problem(self) -> str:
        now_s = self._clock()
        longest = longest_validity(self._serving.client_ca_validities, now_s)
        if longest is None or not (lapse := longest.lapse(now_s)):
            return ""
        return (
            f"{self._what} {lapse}, so every caller is rejected: put another one into that file, "
            f"which takes effect within {FILES_POLL_S:g} s, and give {self._callers} a "
            "certificate that it signed; or set this machine's clock if that is wrong"
        )

    def notes(self) -> list[str]:
        now_s = self._clock()
        longest = longest_validity(self._serving.client_ca_validities, now_s)
        if longest is None or not (ending := longest.ending(now_s)):
            return []
        return [
            f"{self._what} {ending}: before then, put the next one beside it into that file, and "
            f"give {self._callers} a certificate that it signed"
        ]


class ClientCAFile:
    """The client CA of a listener that signs its own certificate; `keep` reads it again and again.
    Without one in the settings anybody may call."""

    def __init__(
        self,
        listener: str,
        tls: TLSSettings,
        serving: ServingCertificate,
        clock: Callable[[], float],
    ) -> None:
        self._listener = listener
        self._settings = tls
        self._serving = serving
        self._reloader = FileReloader(f"the {listener}'s client CA", self._reload)
        self._validity = ClientCA(listener, tls.client_ca_file, serving, clock)

    async def keep(self) -> None:
        if self._settings.client_ca_file is not None:
            await self._reloader.keep()

    def problem(self) -> str:
        return self._validity.problem()

    def notes(self) -> list[str]:
        return [*self._reloader.notes(f"{self._listener}: client CA"), *self._validity.notes()]

    async def _reload(self) -> None:
        client_ca = await asyncio.to_thread(read_client_ca, self._settings)
        if client_ca != self._serving.client_ca:
            self._serving.swap(self._serving.pair, client_ca)
            _LOG.info("client CA reloaded", file=self._settings.client_ca_file)


class FileCertificate:
    """A certificate and client CA that are reloaded from files.

    Raises CertificateError if a file is missing, or if certificate and key do not match.
    """

    def __init__(
        self, listener: str, tls: TLSSettings, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._listener = listener
        self._file = tls.certificate_file
        self._clock = clock
        self._content = CertificateFiles(tls)
        self._serving = self._content.serving
        self._reloader = FileReloader(f"the certificate of the {listener}", self._reload)
        self._clients = ClientCA(listener, tls.client_ca_file, self._serving, clock)

    def tls(self) -> ListenerTLS:
        return ListenerTLS(self._serving, self._reloader.keep, self._problem, self._notes)

    async def reload(self) -> None:
        """Serve the present content of the files, if it can be used."""
        await self._reloader.reload()

    async def _reload(self) -> None:
        if await asyncio.to_thread(self._content.reload):
            _LOG.info("certificate reloaded", of=self._listener, file=self._file)

    def _problem(self) -> str:
        lapse = self._serving.validity.lapse(self._clock())
        if not lapse:
            return self._clients.problem()
        return (
            f"{self._what} {lapse}, so callers reject it: replace it and its key, which takes "
            f"effect within {FILES_POLL_S:g} s, or set this machine's clock if that is wrong"
        )

    def _notes(self) -> list[str]:
        ending = self._serving.validity.ending(self._clock())
        soon = [f"{self._what} {ending}: replace it and its key before then"] if ending else []
        stale = self._reloader.notes(f"{self._listener}: certificate")
        return [*stale, *soon, *self._clients.notes()]

    @property
    def _what(self) -> str:
        return f"{self._listener}: the certificate in {self._file}"


class CertificateFiles:
    """Serves the content of the files. `reload` reads them, so call it in a thread."""

    def __init__(self, settings: TLSSettings) -> None:
        self._settings = settings
        content = _read(settings)
        self._digest = content.digest
        self.serving = ServingCertificate(content.pair, content.client_ca)

    def reload(self) -> bool:
        """Serve the files' new content; False if it has not changed.

        Raises CertificateError, and serves the old content, while a file is missing or they do not
        match, as happens for a moment if they are replaced one by one.
        """
        content = _read(self._settings)
        if content.digest == self._digest:
            return False
        self.serving.swap(content.pair, content.client_ca)
        self._digest = content.digest
        return True


class _Content(NamedTuple):
    pair: Pair
    client_ca: bytes | None

    @property
    def digest(self) -> bytes:
        digest = hashlib.sha256()
        for content in (*self.pair, self.client_ca or b""):
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.digest()


def read_client_ca(settings: TLSSettings) -> bytes | None:
    """The CA of those who may call, PEM; None if anybody may. Raises CertificateError. Reads a
    file, so blocks."""
    if settings.client_ca_file is None:
        return None
    return _file_content(settings.client_ca_file, "clientCaFile")


def _read(settings: TLSSettings) -> _Content:
    certificate = _file_content(settings.certificate_file, "certificateFile")
    key = _file_content(settings.key_file, "keyFile")
    return _Content(Pair(certificate, key), read_client_ca(settings))


def _file_content(file: str | None, field: str) -> bytes:
    if not file:
        raise CertificateError(f"tls.{field} is not set")
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise CertificateError(f"tls.{field}: {file}: {error.strerror}") from error
