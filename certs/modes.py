"""The TLS modes of the two listeners: which certificate each is served with.

`files`: somebody else renews it. `self`: each replica signs its own leaf, under a certificate
authority in a Secret. The leader rotates the webhook's authority, since its readers are the webhook
configurations, which it can write. People give the extender's authority to kube-scheduler, so it
lasts ten years. Beside the flow *watch → inventory → health → verdict → answer*.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from certs import issuing
from certs.files import ClientCAFile, FileCertificate, read_client_ca
from certs.rotating import POLL_S, LeafSigner, Lifetimes, LongLivedSigner, Rotation
from certs.secrets import CABundles, SecretStore
from certs.serving import ListenerTLS, ServingCertificate
from fettle.client import Session, identity, lead
from fettle.config import ListenAddress, Settings, TLSSettings
from fettle.logs import Logger
from fettle.model import CertificateError, ClusterError, SettingsError
from fettle.pacing import keep

BUNDLE_POLL_S = 2.0
"""How soon a failed step is tried again; and, if webhook configurations cannot be watched, how soon
one that was just applied gets its caBundle."""
LEASE = "fettle-certificates"

_LOG = Logger("fettle.certs")


async def extender_tls(
    address: ListenAddress, settings: Settings, session: Session | None
) -> ListenerTLS:
    """As `extender.certificates` says; plain HTTP on loopback if no client CA is set.

    Raises SettingsError, CertificateError, and ClusterError if the API server does not answer.
    """
    tls = settings.extender.tls
    if tls.client_ca_file is None and not address.loopback:
        raise SettingsError(
            f"--extender-listen {address} is not loopback: set extender.tls.clientCaFile, since "
            "the scheduler's client certificate is the only proof of its identity, or listen on "
            "127.0.0.1"
        )
    if settings.extender.certificates == "files":
        return FileCertificate("extender", tls).tls()
    if tls.client_ca_file is None:
        return ListenerTLS(None)
    if session is None:
        raise SettingsError(
            'without a cluster there is no Secret for extender.certificates "self": use "files", '
            "or leave extender.tls.clientCaFile out and listen on 127.0.0.1"
        )
    return await self_signed_extender(address, settings, session)


async def webhook_tls(
    address: ListenAddress, settings: Settings, session: Session | None
) -> ListenerTLS:
    """As `webhook.certificates` says; plain HTTP on loopback if there is no cluster.

    Raises SettingsError, CertificateError, and ClusterError if the API server does not answer.
    """
    if settings.webhook.certificates == "files":
        return FileCertificate("webhook", settings.webhook.tls).tls()
    if session is None:
        if not address.loopback:
            raise SettingsError(
                f"--webhook-listen {address} is not loopback, and without a cluster there is no "
                'Secret for webhook.certificates "self": use "files", or listen on 127.0.0.1'
            )
        if settings.webhook.tls.client_ca_file is not None:
            raise SettingsError(
                "webhook.tls.clientCaFile needs TLS, and without a cluster there is no Secret for "
                'webhook.certificates "self": use "files", or leave it out'
            )
        return ListenerTLS(None)
    return await self_signed_webhook(address, settings, session)


async def alerts_tls(address: ListenAddress, settings: Settings) -> ListenerTLS:
    """As `alertmanager.tls` says; plain HTTP without files.

    Raises SettingsError if anybody could call, and CertificateError.
    """
    own = settings.alertmanager
    if not address.loopback and not (own.bearer_token_file or own.tls.client_ca_file):
        raise SettingsError(
            f"alertmanager.listen {address} is not loopback: set bearerTokenFile or "
            "tls.clientCaFile, since whoever may call decides what is called ill"
        )
    if not address.loopback and own.bearer_token_file and own.tls.certificate_file is None:
        raise SettingsError(
            f"alertmanager.listen {address} is not loopback: name tls.certificateFile and keyFile, "
            "since whoever is on the way of plain HTTP could read the token of bearerTokenFile"
        )
    if own.tls.certificate_file is None:
        if own.tls.client_ca_file is not None:
            raise SettingsError("alertmanager.tls.clientCaFile needs certificateFile and keyFile")
        return ListenerTLS(None)
    return FileCertificate("alerts", own.tls).tls()


async def self_signed_extender(
    address: ListenAddress,
    settings: Settings,
    session: Session,
    *,
    clock: Callable[[], float] = time.time,
) -> ListenerTLS:
    """Mode `self` of the extender, with its first leaf signed."""
    namespace, own = settings.namespace or session.namespace, settings.extender
    signing = LongLivedSigner(
        SecretStore(session, namespace, own.secret),
        _names(own.service, namespace, own.extra_names, address),
        clock=clock,
        server_clock=session.server_clock,
        lifetimes=Lifetimes(issuing.EXTENDER_ROOT_S, own.certificate_lifetime_seconds),
    )
    client_ca = await asyncio.to_thread(read_client_ca, own.tls)
    leaf = await signing.refresh()
    assert leaf is not None
    return _SelfSignedExtender(own.tls, signing, ServingCertificate(leaf, client_ca), clock).tls


class _SelfSignedExtender:
    """People give its certificate authority to kube-scheduler."""

    def __init__(
        self,
        tls: TLSSettings,
        signing: LongLivedSigner,
        serving: ServingCertificate,
        clock: Callable[[], float],
    ) -> None:
        self._signing = signing
        self._serving = serving
        self._clients = ClientCAFile("extender", tls, serving, clock)

    @property
    def tls(self) -> ListenerTLS:
        return ListenerTLS(self._serving, self._keep, self._problem, self._notes)

    async def _keep(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._signing.keep(self._serving.swap))
            tasks.create_task(self._clients.keep())

    def _problem(self) -> str:
        if lapsed := _lapsed("extender", self._serving, self._signing):
            return lapsed
        rejection = self._signing.rejection(self._signing.bundle or b"")
        return f"extender: {rejection}" if rejection else self._clients.problem()

    def _notes(self) -> list[str]:
        stale = _stale("extender", self._signing)
        return [*stale, *self._clients.notes(), *self._handover()]

    def _handover(self) -> list[str]:
        if (at := self._signing.handover_at) is None:
            return []
        day = datetime.fromtimestamp(at, UTC).date().isoformat()
        return [
            f"extender: a new certificate authority signs from {day} on: before then, give each "
            "kube-scheduler the output of `fettle certificates extender-ca` as its caFile, and "
            "restart it"
        ]


async def self_signed_webhook(
    address: ListenAddress,
    settings: Settings,
    session: Session,
    *,
    clock: Callable[[], float] = time.time,
) -> ListenerTLS:
    """Mode `self` of the webhook, with its first leaf signed."""
    namespace, own = settings.namespace or session.namespace, settings.webhook
    store = SecretStore(session, namespace, own.secret)
    names = _names(own.service, namespace, own.extra_names, address)
    signing = LeafSigner(store, names, clock=clock, server_clock=session.server_clock)
    bundles = CABundles(session, own.configuration)
    client_ca = await asyncio.to_thread(read_client_ca, own.tls)
    leaf = await signing.refresh()
    assert leaf is not None
    serving = ServingCertificate(leaf, client_ca)
    clients = ClientCAFile("webhook", own.tls, serving, clock)

    def new_rotation() -> Rotation:
        # Its store is its own: each remembers the resourceVersion that it read last.
        own_store = SecretStore(session, namespace, own.secret)
        return Rotation(
            own_store, signing.common_name, clock=clock, server_clock=session.server_clock
        )

    leading = partial(lead, session, namespace, LEASE, identity(), duration_s=15.0)
    return _SelfSignedWebhook(signing, serving, clients, bundles, new_rotation, leading).tls


class _SelfSignedWebhook:
    """The leader rotates its certificate authority, and keeps caBundle up to date."""

    def __init__(
        self,
        signing: LeafSigner,
        serving: ServingCertificate,
        clients: ClientCAFile,
        bundles: CABundles,
        new_rotation: Callable[[], Rotation],
        leading: Callable[..., Coroutine[Any, Any, None]],
    ) -> None:
        self._signing = signing
        self._serving = serving
        self._clients = clients
        self._bundles = bundles
        self._new_rotation = new_rotation
        self._leading = leading
        self._rejection = ""

    @property
    def tls(self) -> ListenerTLS:
        return ListenerTLS(self._serving, self._keep, self._problem, self._notes)

    async def _keep(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._signing.keep(self._serving.swap))
            tasks.create_task(self._clients.keep())
            tasks.create_task(self._bundles.watch())
            tasks.create_task(keep("check of the webhook's certificate", self._check_in_time))
            lead = partial(self._leading, work=self._maintain)
            tasks.create_task(keep("election for the webhook's certificates", lead))

    def _problem(self) -> str:
        lapsed = _lapsed("webhook", self._serving, self._signing)
        return lapsed or self._rejection or self._clients.problem()

    def _notes(self) -> list[str]:
        return [*_stale("webhook", self._signing), *self._clients.notes()]

    async def _maintain(self) -> None:
        """What the leader does, until cancelled."""
        # A new one for each time that we lead: it must not rely on what it saw before.
        rotation = cache(self._new_rotation)
        advanced_at = float("-inf")
        bundle: bytes | None = None
        logged = ""

        async def look() -> None:
            nonlocal advanced_at, bundle, logged
            changed = self._bundles.changed
            try:
                if time.monotonic() - advanced_at >= POLL_S or bundle is None:
                    live = set(await self._bundles.live())
                    bundle = await rotation().advance(live.pop() if len(live) == 1 else None)
                    advanced_at = time.monotonic()
                if bundle is not None and await self._bundles.publish(bundle):
                    _LOG.info("caBundle written")
                    await self._check()
                logged = ""
            except (ClusterError, CertificateError) as error:
                if str(error) != logged:
                    _LOG.warning("caBundle not maintained", reason=str(error))
                logged = str(error)
            await _set_or_timeout(changed)

        await keep("caBundle of the webhook", look)

    async def _check_in_time(self) -> None:
        changed = self._bundles.changed
        await self._check()
        await _set_or_timeout(changed)

    async def _check(self) -> None:
        """Whether the API server would accept the served certificate; if not, sign a new one.

        Another authority may have replaced ours, as happens after its Secret is deleted.
        """
        live = await self._live()
        if self._rejected_by(live):
            await self._signing.renew(self._serving.swap)
        why = self._rejected_by(live)
        self._rejection = f"webhook: the API server rejects its certificate: {why}" if why else ""

    async def _live(self) -> list[bytes]:
        try:
            return await self._bundles.live()
        except ClusterError:
            return []  # unknown, but the API server cannot call us now either

    def _rejected_by(self, bundles: Sequence[bytes]) -> str:
        """The first reason; "" if there is none."""
        return next((why for each in bundles if (why := self._signing.rejection(each))), "")


async def _set_or_timeout(changed: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(BUNDLE_POLL_S):
            await changed.wait()


def _lapsed(listener: str, serving: ServingCertificate, signing: LeafSigner) -> str:
    """A sentence if the certificate has expired, as when its Secret is unreadable for days."""
    lapse = serving.validity.lapse(signing.clocks.now_s())
    if not lapse:
        return ""
    why = f"it cannot be renewed: {signing.trouble}" if signing.trouble else "it is being renewed"
    return f"{listener}: the certificate {lapse}, so callers reject it, and {why}"


def _stale(listener: str, signing: LeafSigner) -> list[str]:
    """A sentence if the certificate cannot be renewed; it may still be valid. And one if nobody is
    sure of the time."""
    trouble, unsure = signing.trouble, signing.clocks.disagreement()
    said = [f"{listener}: certificate not refreshed: {trouble}"] if trouble else []
    if unsure:
        said.append(
            f"{listener}: {unsure}, so no certificate authority is replaced: set the clock that is "
            "wrong"
        )
    return said


def _names(service: str, namespace: str, extra: Sequence[str], address: ListenAddress) -> list[str]:
    """The names and addresses in the certificate.

    If the listener is bound to all interfaces, their addresses are unknown and left out.
    """
    names = issuing.service_names(service, namespace, extra)
    if address.loopback:
        names.append("localhost")
    if not address.unspecified:
        names.append(address.host)
    return list(dict.fromkeys(names))
