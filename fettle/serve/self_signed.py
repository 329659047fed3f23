"""Mode `self`: each replica signs its own leaf, under an authority of the listener's in a Secret.

The leader rotates the webhook's authority, since its readers are the webhook configurations. The
extender's is for people to give to kube-scheduler, and stays for ten years.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import structlog

from certs import (
    POLL_S,
    Bundles,
    Lifetimes,
    LongLived,
    Rotation,
    SecretStore,
    SelfSigning,
    Serving,
    client_authority,
    issuing,
)
from fettle.client import Session, identity, lead
from fettle.config import Settings
from fettle.model import CertificateError, ClusterError
from fettle.serve.listening import ListenAddress
from fettle.serve.secured import ClientAuthority, Reloading, Secured

_LOG = structlog.get_logger(__name__)

BUNDLE_POLL_S = 2.0
"""How soon a webhook configuration that was just applied gets its caBundle where it cannot be
watched, and how soon what failed is tried again."""
LEASE = "fettle-certificates"


class SelfSignedExtender:
    """Mode self: a leaf of our own, under an authority that people give to kube-scheduler."""

    def __init__(
        self,
        address: ListenAddress,
        settings: Settings,
        session: Session,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        namespace = settings.namespace or session.namespace
        own = settings.extender
        self._tls = own.tls
        self._clock = clock
        self._reloading = Reloading(self._reload_client_authority)
        self._signing = LongLived(
            SecretStore(session, namespace, own.secret),
            _names(own.service, namespace, own.extra_names, address),
            clock=clock,
            lifetimes=Lifetimes(issuing.EXTENDER_ROOT_S, own.certificate_lifetime_seconds),
        )

    async def secured(self) -> Secured:
        client_ca = await asyncio.to_thread(client_authority, self._tls)
        leaf = await self._signing.refresh()
        assert leaf is not None
        self._serving = Serving(leaf, client_ca)
        file = self._tls.client_ca_file
        self._clients = ClientAuthority("extender", file, self._serving, self._clock)
        return Secured(self._serving, self._keep, self._problem, self._notes)

    async def _keep(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._signing.keep(self._serving.swap))
            tasks.create_task(self._reloading.keep())

    async def _reload_client_authority(self) -> None:
        client_ca = await asyncio.to_thread(client_authority, self._tls)
        if client_ca != self._serving.client_ca:
            self._serving.swap(self._serving.pair, client_ca)
            _LOG.info("client CA reloaded", file=self._tls.client_ca_file)

    def _problem(self) -> str:
        if lapsed := _lapsed("extender", self._serving, self._signing, self._clock()):
            return lapsed
        rejection = self._signing.rejection(self._signing.bundle or b"")
        return f"extender: {rejection}" if rejection else self._clients.problem()

    def _notes(self) -> list[str]:
        stale = [*_stale("extender", self._signing), *self._reloading.notes("extender: client CA")]
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


class SelfSignedWebhook:
    """Mode self: a leaf of our own; the leader rotates the authority and keeps caBundle up to
    date.
    """

    def __init__(
        self,
        address: ListenAddress,
        settings: Settings,
        session: Session,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        namespace = settings.namespace or session.namespace
        own = settings.webhook
        names = _names(own.service, namespace, own.extra_names, address)
        self._session = session
        self._namespace = namespace
        self._store = SecretStore(session, namespace, own.secret)
        self._bundles = Bundles(session, own.configuration)
        self._clock = clock
        self._signing = SelfSigning(self._store, names, clock=clock)
        self._rejection = ""

    async def secured(self) -> Secured:
        leaf = await self._signing.refresh()
        assert leaf is not None
        serving = self._serving = Serving(leaf)

        async def keep() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._signing.keep(serving.swap))
                tasks.create_task(self._bundles.follow())
                tasks.create_task(self._keep_checking())
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

        def problem() -> str:
            lapsed = _lapsed("webhook", serving, self._signing, self._clock())
            return lapsed or self._rejection

        return Secured(serving, keep, problem, lambda: _stale("webhook", self._signing))

    async def _maintain(self) -> None:
        """The leader's part, until cancelled."""
        rotation = Rotation(
            SecretStore(self._session, self._namespace, self._store.name),
            self._signing.common_name,
            clock=self._clock,
        )
        turned_at = float("-inf")
        bundle: bytes | None = None
        said = ""
        while True:
            turned = self._bundles.turned
            try:
                if time.monotonic() - turned_at >= POLL_S or bundle is None:
                    live = set(await self._bundles.live())
                    bundle = await rotation.turn(live.pop() if len(live) == 1 else None)
                    turned_at = time.monotonic()
                if bundle is not None and await self._bundles.publish(bundle):
                    _LOG.info("caBundle written")
                    await self._check()
                said = ""
            except (ClusterError, CertificateError) as error:
                if str(error) != said:
                    _LOG.warning("caBundle not maintained", reason=str(error))
                said = str(error)
            await _set_or_time(turned)

    async def _keep_checking(self) -> None:
        while True:
            turned = self._bundles.turned
            await self._check()
            await _set_or_time(turned)

    async def _check(self) -> None:
        """Whether the API server would accept the certificate that is served. If it would not,
        another authority may have taken the place of ours, as after its Secret was deleted."""
        live = await self._live()
        if self._rejected_by(live):
            await self._signing.renew(self._serving.swap)
        why = self._rejected_by(live)
        self._rejection = f"webhook: the API server rejects its certificate: {why}" if why else ""

    async def _live(self) -> list[bytes]:
        try:
            return await self._bundles.live()
        except ClusterError:
            return []  # cannot be told; the API server cannot call us now either

    def _rejected_by(self, bundles: Sequence[bytes]) -> str:
        """The first reason; "" if there is none."""
        return next((why for each in bundles if (why := self._signing.rejection(each))), "")


async def _set_or_time(turned: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(BUNDLE_POLL_S):
            await turned.wait()


def _lapsed(listener: str, serving: Serving, signing: SelfSigning, now_s: float) -> str:
    """That the certificate expired, such as after the Secret could not be read for days."""
    lapse = serving.validity.lapse(now_s)
    if not lapse:
        return ""
    why = f"it cannot be renewed: {signing.trouble}" if signing.trouble else "it is being renewed"
    return f"{listener}: the certificate {lapse}, so callers reject it, and {why}"


def _stale(listener: str, signing: SelfSigning) -> list[str]:
    """That the certificate serves on but would not be renewed."""
    trouble = signing.trouble
    return [f"{listener}: certificate not refreshed: {trouble}"] if trouble else []


def _names(service: str, namespace: str, extra: Sequence[str], address: ListenAddress) -> list[str]:
    """What the listener may be called by; without those of all interfaces, which are not known."""
    names = issuing.service_names(service, namespace, extra)
    if address.loopback:
        names.append("localhost")
    if not address.unspecified:
        names.append(address.host)
    return list(dict.fromkeys(names))
