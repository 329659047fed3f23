"""What a listener needs to be served with TLS, and the kind that comes from files."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import structlog

from certs import FromFiles, Serving, validity
from fettle.config import TLSSettings
from fettle.model import CertificateError

_LOG = structlog.get_logger(__name__)

FILES_POLL_S = 10.0
TOLD_POLL_S = 5.0
LASTING_LOOKS = 2
"""What is over sooner, such as half of a pair being replaced, is not worth a warning."""


class Secured(NamedTuple):
    """`keep` runs for as long as the listener does and keeps its certificate fresh. `problem` says
    why the listener is not ready, "" if it is; `notes` what else people should know.
    """

    serving: Serving | None
    keep: Callable[[], Awaitable[None]] | None = None
    problem: Callable[[], str] = str
    notes: Callable[[], list[str]] = list

    @property
    def context(self) -> ssl.SSLContext | None:
        """None: plain HTTP."""
        return self.serving.context if self.serving is not None else None


class CertificateWarnings:
    """Logs a certificate's problem and notes if they last: once, and again only after they were
    mended.
    """

    def __init__(self, secured: Secured) -> None:
        self._secured = secured
        self._looks: dict[str, int] = {}

    async def keep(self) -> None:
        """For ever."""
        while True:
            self.look()
            await asyncio.sleep(TOLD_POLL_S)

    def look(self) -> None:
        found = [text for text in (self._secured.problem(), *self._secured.notes()) if text]
        self._looks = {text: self._looks.get(text, 0) + 1 for text in found}
        for text, looks in self._looks.items():
            if looks == LASTING_LOOKS:
                _LOG.warning(text)


class Reloading:
    """Reads files again and again. `trouble` is why what they hold now cannot be taken, which may
    be only because one of them was replaced a moment before the others; "" if it was.
    """

    def __init__(self, reload: Callable[[], Awaitable[None]]) -> None:
        self._reload = reload
        self.trouble = ""

    async def keep(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(FILES_POLL_S)
            await self.turn()

    async def turn(self) -> None:
        try:
            await self._reload()
            self.trouble = ""
        except CertificateError as error:
            self.trouble = str(error)

    def notes(self, what: str) -> list[str]:
        """`what`: what the files are read for."""
        if not self.trouble:
            return []
        return [f"{what} not reloaded, the old one stays: {self.trouble}"]


class ClientAuthority:
    """What is said of the validity of the client CA, without which nobody can call."""

    def __init__(
        self, listener: str, file: str | None, serving: Serving, clock: Callable[[], float]
    ) -> None:
        self._what = f"{listener}: the client CA in {file}"
        self._serving = serving
        self._clock = clock

    def problem(self) -> str:
        now_s = self._clock()
        longest = validity.longest(self._serving.client_ca_validities, now_s)
        if longest is None or not (lapse := longest.lapse(now_s)):
            return ""
        return (
            f"{self._what} {lapse}, so every caller is rejected: put another one into that file, "
            f"which takes effect within {FILES_POLL_S:g} s, and give kube-scheduler a certificate "
            "that it signed; or set this machine's clock if that is wrong"
        )

    def notes(self) -> list[str]:
        now_s = self._clock()
        longest = validity.longest(self._serving.client_ca_validities, now_s)
        if longest is None or not (ending := longest.ending(now_s)):
            return []
        return [
            f"{self._what} {ending}: before then, put the next one beside it into that file, and "
            "give kube-scheduler a certificate that it signed"
        ]


class FileCertificate:
    """Mode files. Raises CertificateError while a file is missing or they do not fit together."""

    def __init__(
        self, listener: str, tls: TLSSettings, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._listener = listener
        self._file = tls.certificate_file
        self._clock = clock
        self._files = FromFiles(tls)
        self._reloading = Reloading(self._reload)
        self._clients = ClientAuthority(listener, tls.client_ca_file, self._files.serving, clock)

    def secured(self) -> Secured:
        return Secured(self._files.serving, self._reloading.keep, self._problem, self._notes)

    async def turn(self) -> None:
        """Take what the files hold now."""
        await self._reloading.turn()

    async def _reload(self) -> None:
        if await asyncio.to_thread(self._files.reload):
            _LOG.info("certificate reloaded", of=self._listener, file=self._file)

    def _problem(self) -> str:
        lapse = self._files.serving.validity.lapse(self._clock())
        if not lapse:
            return self._clients.problem()
        return (
            f"{self._what} {lapse}, so callers reject it: replace it and its key, which takes "
            f"effect within {FILES_POLL_S:g} s, or set this machine's clock if that is wrong"
        )

    def _notes(self) -> list[str]:
        ending = self._files.serving.validity.ending(self._clock())
        soon = [f"{self._what} {ending}: replace it and its key before then"] if ending else []
        stale = self._reloading.notes(f"{self._listener}: certificate")
        return [*stale, *soon, *self._clients.notes()]

    @property
    def _what(self) -> str:
        return f"{self._listener}: the certificate in {self._file}"
