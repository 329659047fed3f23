"""What a listener needs to be served with TLS, and the kind that comes from files."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import structlog

from certs.files import FromFiles
from certs.serving import Serving
from fettle.errors import CertificateError
from fettle.settings import TLSSettings

_LOG = structlog.get_logger(__name__)

FILES_POLL_S = 10.0


class Secured(NamedTuple):
    """`keep` runs for as long as the listener does and keeps its certificate fresh. `problem` says
    why the listener is not ready, `note` what people should know; "" if nothing.
    """

    serving: Serving | None
    keep: Callable[[], Awaitable[None]] | None = None
    problem: Callable[[], str] = str
    note: Callable[[], str] = str

    @property
    def context(self) -> ssl.SSLContext | None:
        """None: plain HTTP."""
        return self.serving.context if self.serving is not None else None


def from_files(tls: TLSSettings) -> Secured:
    """Raises CertificateError while a file is missing or they do not fit together."""
    files = FromFiles(tls)

    async def reload() -> None:
        if await asyncio.to_thread(files.reload):
            _LOG.info("certificate reloaded", file=tls.certificate_file)

    return Secured(files.serving, lambda: keep_reloading(reload))


async def keep_reloading(reload: Callable[[], Awaitable[None]]) -> None:
    """For ever; files may fit together only a moment after the first of them was replaced."""
    said = ""
    while True:
        await asyncio.sleep(FILES_POLL_S)
        try:
            await reload()
            said = ""
        except CertificateError as error:
            if str(error) != said:
                _LOG.warning("certificate not reloaded, the old one stays", reason=str(error))
            said = str(error)
