"""What mode `self` keeps in the cluster: the authority in a Secret, and caBundle for API servers.

`SecretStore` implements `AuthorityStore`. `CABundles` reads and writes caBundle in the webhook
configurations and leaves their other fields as they are. Nothing here is written to disk.
"""

import asyncio
import base64
from typing import Annotated, Any

import msgspec

from certs import issuing
from fettle.api import Bad, Change, Contact, Gone, ListEnded, ListStarted, Lost, Put, api_path
from fettle.api.api_server import WebhookConfiguration
from fettle.api.kinds import WEBHOOK_CONFIGURATIONS, Kind
from fettle.client import Session, decoded
from fettle.cluster.feeds import ClusterFeed
from fettle.logs import Logger
from fettle.model import CertificateError, NotFound

_LOG = Logger(__name__)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: Annotated[str, msgspec.Meta(min_length=1)]


class _Secret(msgspec.Struct, frozen=True):
    # An answer without a resourceVersion is no Secret; it must not be overwritten as an empty one.

    metadata: _Metadata
    data: dict[str, bytes] | None = None


class SecretStore:
    """The data of one Secret, which somebody else has created.

    A write keeps all else of it, such as labels, and names the resourceVersion that was read last.
    """

    def __init__(self, session: Session, namespace: str, name: str) -> None:
        self._session = session
        self._namespace = namespace
        self.name = name
        self._found: dict[str, Any] = {}

    @property
    def full_name(self) -> str:
        return f"Secret {self._namespace}/{self.name}"

    @property
    def _path(self) -> str:
        return api_path("v1", "secrets", namespace=self._namespace, name=self.name)

    async def read(self) -> dict[str, bytes] | None:
        """The Secret's content, None if it does not exist; raises ClusterError."""
        try:
            raw = await self._session.get(self._path)
        except NotFound:
            return None
        secret = decoded(raw, _Secret, self.full_name)
        self._found = decoded(raw, dict[str, Any], self.full_name)
        return secret.data or {}

    async def replace(self, content: dict[str, bytes]) -> None:
        """Raises Conflict if it was written since `read`, and NotFound if it is gone."""
        data = {name: base64.b64encode(value).decode() for name, value in content.items()}
        await self._session.replace(self._path, {**self._found, "data": data})


class CABundles:
    """The caBundle of all webhooks in the two configurations with one name.

    While `watch` runs, they are watched. If the watch is forbidden or broken, they are read when
    they are needed. `changed` is set at the next change that the watch reports.
    """

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._kinds = [kind._replace(only=name) for kind in WEBHOOK_CONFIGURATIONS]
        self._seen: dict[Kind, WebhookConfiguration | None] = {}
        self._listed: set[Kind] = set()
        self._lost: dict[Kind, str] = {}
        self.changed = asyncio.Event()

    async def watch(self) -> None:
        """Watch the configurations, until cancelled."""
        await ClusterFeed(self._session, self._kinds).run(self)

    async def live(self) -> list[bytes]:
        """The caBundle (PEM) of each webhook entry; none if no configuration is installed."""
        found = [await self._read(kind) for kind in self._kinds]
        return [_bundle(entry) for one in found if one for entry in one.webhooks or ()]

    async def publish(self, bundle: bytes) -> int:
        """Write the bundle where it is missing; how many configurations were changed."""
        changed = 0
        for kind in self._kinds:
            found = await self._read(kind)
            if found is None or all(_same(_bundle(e), bundle) for e in found.webhooks or ()):
                continue
            webhooks = [_trusting(entry, bundle) for entry in found.webhooks or ()]
            version = found.metadata.resource_version
            patch = {"metadata": {"resourceVersion": version}, "webhooks": webhooks}
            written = await self._session.patch(kind.path_of(kind.only), patch)
            self._seen[kind] = _configuration(kind, written)
            changed += 1
        return changed

    async def send(self, changes: list[Change]) -> None:
        """Take changes from the watches."""
        for change in changes:
            self._handle(change)
            if isinstance(change, Put | Gone | ListEnded):
                self.changed.set()
                self.changed = asyncio.Event()

    def _handle(self, change: Change) -> None:
        kind = change.kind
        match change:
            case ListStarted() | Bad():
                self._listed.discard(kind)
                self._seen[kind] = None
            case Put(object=WebhookConfiguration() as found):
                self._seen[kind] = found
            case Gone():
                self._seen[kind] = None
            case Lost(note=why):
                if self._lost.get(kind) != why:
                    _LOG.warning("webhook configuration polled", of=kind.name, reason=why)
                self._lost[kind] = why
            case ListEnded():
                self._listed.add(kind)
            case Contact():
                self._lost.pop(kind, None)

    async def _read(self, kind: Kind) -> WebhookConfiguration | None:
        if kind in self._listed and kind not in self._lost:
            return self._seen[kind]
        try:
            raw = await self._session.get(kind.path_of(kind.only))
        except NotFound:
            return None
        return _configuration(kind, raw)


def _configuration(kind: Kind, raw: bytes) -> WebhookConfiguration:
    return decoded(raw, WebhookConfiguration, f"{kind.name} {kind.only}")


def _trusting(entry: dict[str, Any], bundle: bytes) -> dict[str, Any]:
    encoded = base64.b64encode(bundle).decode()
    return {**entry, "clientConfig": {**entry["clientConfig"], "caBundle": encoded}}


def _bundle(entry: dict[str, Any]) -> bytes:
    return base64.b64decode(entry.get("clientConfig", {}).get("caBundle") or b"")


def _same(one: bytes, other: bytes) -> bool:
    try:
        return bool(one) and set(issuing.certificates(one)) == set(issuing.certificates(other))
    except CertificateError:
        return False
