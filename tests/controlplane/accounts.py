"""A pod's service account as the kubelet shows it to the pod: a folder with `token`, `ca.crt` and
`namespace`, in which a newer token takes the older one's place at once."""

from __future__ import annotations

from pathlib import Path

from tests.controlplane.api import Object
from tests.controlplane.control_plane import ControlPlane


class Account:
    """`renew` writes a token that ends when the Secret it is bound to is deleted, by `revoke`."""

    def __init__(self, plane: ControlPlane, folder: Path, name: str, namespace: str) -> None:
        self._plane = plane
        self.folder = folder
        self.name = name
        self._namespace = namespace
        self._secrets: list[Object] = []
        self.ending = ""
        folder.mkdir(parents=True)
        (folder / "ca.crt").write_bytes((plane.folder / "ca.crt").read_bytes())
        (folder / "namespace").write_text(namespace)

    @property
    def environment(self) -> dict[str, str]:
        """What a container finds in its environment."""
        port = str(self._plane.ports.api_server)
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    async def renew(self) -> str:
        secret = await self._plane.tester.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"generateName": "bound-", "namespace": self._namespace},
            }
        )
        metadata = secret["metadata"]
        bound = {"apiVersion": "v1", "kind": "Secret"}
        bound |= {"name": metadata["name"], "uid": metadata["uid"]}
        reply = await self._plane.tester.request(
            "POST",
            f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{self.name}/token",
            body={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"boundObjectRef": bound},
            },
        )
        self._secrets.append(secret)
        new = self.folder / ".token"
        new.write_text(reply["status"]["token"] + self.ending)
        new.rename(self.folder / "token")
        return self.token

    async def revoke(self) -> None:
        """End all tokens so far; the API server may take some seconds to notice."""
        while self._secrets:
            name = self._secrets.pop()["metadata"]["name"]
            await self._plane.tester.delete("secrets", name, self._namespace)
