"""Where mode `self` keeps its authority: a Secret; and the caBundle that the API server trusts.

`SecretStore` is the `Store` of `rotating`; `Bundles` reads and writes caBundle in the webhook
configurations, whose other fields it leaves as they are.
"""

import base64
from typing import Annotated, Any

import msgspec

from certs import issuing
from fettle.errors import CertificateError, NotFound
from fettle.kube.decoding import decoded
from fettle.kube.session import Session

KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: Annotated[str, msgspec.Meta(min_length=1)]


class _Secret(msgspec.Struct, frozen=True):
    """Without a resourceVersion it is not a Secret: it would be overwritten as if it were empty."""

    metadata: _Metadata
    data: dict[str, bytes] | None = None


class SecretStore:
    """One Secret of type Opaque; writes carry the resourceVersion that was read last."""

    def __init__(self, session: Session, namespace: str, name: str) -> None:
        self._session = session
        self._namespace = namespace
        self.name = name
        self._version = ""

    @property
    def full_name(self) -> str:
        return f"Secret {self._namespace}/{self.name}"

    @property
    def _collection(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/secrets"

    async def read(self) -> dict[str, bytes] | None:
        """The Secret's content, None where it does not exist; raises ClusterError."""
        try:
            raw = await self._session.get(f"{self._collection}/{self.name}")
        except NotFound:
            return None
        secret = decoded(raw, _Secret, self.full_name)
        self._version = secret.metadata.resource_version
        return secret.data or {}

    async def create(self, content: dict[str, bytes]) -> None:
        """Raises Conflict where somebody else was first."""
        await self._session.create(self._collection, self._manifest(content, version=""))

    async def replace(self, content: dict[str, bytes]) -> None:
        """Raises Conflict where somebody else wrote since `read`."""
        path = f"{self._collection}/{self.name}"
        await self._session.replace(path, self._manifest(content, version=self._version))

    def _manifest(self, content: dict[str, bytes], *, version: str) -> dict[str, Any]:
        metadata = {"name": self.name, "namespace": self._namespace}
        if version:
            metadata["resourceVersion"] = version
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": metadata,
            "data": {k: base64.b64encode(v).decode() for k, v in content.items()},
        }


class Bundles:
    """The caBundle of all webhooks in the two configurations of one name."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name

    async def live(self) -> list[bytes]:
        """The caBundle (PEM) of each webhook entry; none where no configuration is installed."""
        entries = [w for kind in KINDS for w in (await self._read(kind)).get("webhooks") or ()]
        return [_bundle(entry) for entry in entries]

    async def publish(self, bundle: bytes) -> int:
        """Write it wherever it is not there yet; how many configurations were changed."""
        changed = 0
        for kind in KINDS:
            configuration = await self._read(kind)
            webhooks = configuration.get("webhooks") or []
            if all(_same(_bundle(entry), bundle) for entry in webhooks):
                continue
            encoded = base64.b64encode(bundle).decode()
            for entry in webhooks:
                entry["clientConfig"]["caBundle"] = encoded
            version = configuration["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "webhooks": webhooks}
            await self._session.patch(f"{_ADMISSION}/{kind}/{self._name}", patch)
            changed += 1
        return changed

    async def _read(self, kind: str) -> dict[str, Any]:
        try:
            raw = await self._session.get(f"{_ADMISSION}/{kind}/{self._name}")
        except NotFound:
            return {}
        return decoded(raw, dict[str, Any], f"{kind} {self._name}")


def _bundle(entry: dict[str, Any]) -> bytes:
    return base64.b64decode(entry.get("clientConfig", {}).get("caBundle") or b"")


def _same(one: bytes, other: bytes) -> bool:
    try:
        return bool(one) and set(issuing.certificates(one)) == set(issuing.certificates(other))
    except CertificateError:
        return False
