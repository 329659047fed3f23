"""Certificates for the two listeners: from files, or for the webhook from an authority of our own.

`Secured` is what a listener needs: its TLS context (None: plain HTTP on loopback), the task that
keeps it fresh, and what keeps it from being ready.
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import structlog

from certs import issuing
from certs.files import FromFiles
from certs.rotating import POLL_S, Rotation, SelfSigning
from certs.secrets import Bundles, SecretStore
from certs.serving import Serving
from fettle.cli.listening import Address
from fettle.errors import CertificateError, ClusterError, SettingsError
from fettle.kube.leasing import lead
from fettle.kube.session import Session
from fettle.settings import Settings, TLSSettings

_LOG = structlog.get_logger(__name__)

FILES_POLL_S = 10.0
BUNDLE_POLL_S = 2.0
"""How soon a webhook configuration that was just applied gets its caBundle."""
LEASE = "fettle-certificates"


class Secured(NamedTuple):
    """`keep` runs for as long as the listener does."""

    serving: Serving | None
    keep: Callable[[], Awaitable[None]] | None = None
    problem: Callable[[], str] = str

    @property
    def context(self) -> ssl.SSLContext | None:
        """None: plain HTTP."""
        return self.serving.context if self.serving is not None else None


def identity() -> str:
    """What tells this replica from the others in a Lease."""
    return f"{socket.gethostname()}-{os.getpid()}"


def extender(address: Address, tls: TLSSettings) -> Secured:
    """Files with a client authority, or plain HTTP on loopback; raises SettingsError."""
    if tls.certificate_file is None:
        if not address.loopback:
            raise SettingsError(
                f"--extender-listen {address} is not loopback, and settings name no certificate: "
                "set extender.tls.certificateFile, keyFile and clientCaFile, or listen on 127.0.0.1"
            )
        return Secured(None)
    if tls.client_ca_file is None and not address.loopback:
        raise SettingsError(
            f"--extender-listen {address} is not loopback: set extender.tls.clientCaFile too, "
            "since the scheduler's client certificate is the only proof of who calls"
        )
    return _from_files(tls)


def _from_files(tls: TLSSettings) -> Secured:
    files = FromFiles(tls)

    async def keep() -> None:
        said = ""
        while True:
            await asyncio.sleep(FILES_POLL_S)
            try:
                if await asyncio.to_thread(files.reload):
                    _LOG.info("certificate reloaded", file=tls.certificate_file)
                said = ""
            except CertificateError as error:  # such as a pair that is replaced half; tried again
                if str(error) != said:
                    _LOG.warning("certificate not reloaded, the old one stays", reason=str(error))
                said = str(error)

    return Secured(files.serving, keep)


async def webhook(address: Address, settings: Settings, session: Session | None) -> Secured:
    """By `webhook.certificates`; raises SettingsError, ClusterError, CertificateError.

    Without a cluster nobody but this host can call: plain HTTP on loopback.
    """
    if settings.webhook.certificates == "files":
        return _from_files(settings.webhook.tls)
    if session is None:
        if not address.loopback:
            raise SettingsError(
                f"--webhook-listen {address} is not loopback, and without a cluster there is no "
                'Secret for webhook.certificates "self": use "files", or listen on 127.0.0.1'
            )
        return Secured(None)
    return await SelfSigned(address, settings, session).secured()


class SelfSigned:
    """Mode self: a leaf of our own; whoever leads rotates the authority and keeps caBundle true."""

    def __init__(self, address: Address, settings: Settings, session: Session) -> None:
        namespace = settings.namespace or session.namespace
        names = [
            *issuing.service_names(
                settings.webhook.service, namespace, settings.webhook.extra_names
            )
        ]
        if address.loopback:
            names += ["localhost", address.host]
        self._session = session
        self._namespace = namespace
        self._store = SecretStore(session, namespace, settings.webhook.secret)
        self._bundles = Bundles(session, settings.webhook.configuration)
        self._signing = SelfSigning(self._store, list(dict.fromkeys(names)), clock=time.time)
        self._rejection = ""

    async def secured(self) -> Secured:
        leaf = await self._signing.refresh()
        assert leaf is not None
        serving = Serving(leaf)

        async def keep() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._signing.keep(serving.swap))
                tasks.create_task(self._check())
                tasks.create_task(
                    lead(
                        self._session,
                        self._namespace,
                        LEASE,
                        identity(),
                        duration_s=15.0,
                        work=self._maintain,
                    )
                )

        return Secured(serving, keep, lambda: self._rejection)

    async def _maintain(self) -> None:
        """The leader's part, until cancelled."""
        rotation = Rotation(
            SecretStore(self._session, self._namespace, self._store.name),
            self._signing.common_name,
            clock=time.time,
        )
        turned_at = float("-inf")
        bundle: bytes | None = None
        said = ""
        while True:
            try:
                if time.monotonic() - turned_at >= POLL_S or bundle is None:
                    live = set(await self._bundles.live())
                    bundle = await rotation.turn(live.pop() if len(live) == 1 else None)
                    turned_at = time.monotonic()
                if bundle is not None and await self._bundles.publish(bundle):
                    _LOG.info("caBundle written")
                said = ""
            except (ClusterError, CertificateError) as error:
                if str(error) != said:
                    _LOG.warning("caBundle not maintained", reason=str(error))
                said = str(error)
            await asyncio.sleep(BUNDLE_POLL_S)

    async def _check(self) -> None:
        """Whether the API server would accept the certificate that is served."""
        while True:
            try:
                live = await self._bundles.live()
            except ClusterError:
                live = []  # cannot be told; the API server cannot call us now either
            rejections = [why for bundle in live if (why := self._signing.rejection(bundle))]
            self._rejection = f"webhook: {rejections[0]}" if rejections else ""
            await asyncio.sleep(BUNDLE_POLL_S)
