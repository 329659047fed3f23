"""Which servers are trusted, for how long, and what is left of the keys that are shown to them."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from fettle.client.connecting import ClusterConnection, connect
from fettle.client.session import Session
from fettle.model import Unreachable
from tests.controlplane import kubeconfigs
from tests.controlplane.certificates import Authority, Pair
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.client.serving_tls import serve_tls, server_tls


@pytest.mark.parametrize("trusted", [True, False])
async def test_only_a_server_whose_authority_is_trusted_is_talked_to(
    tmp_path: Path, trusted: bool
) -> None:
    theirs, ours = Authority("theirs"), Authority("ours")
    api = FakeApi()
    api.tls = server_tls(theirs, tmp_path)
    await api.start()
    config = kubeconfigs.by_certificate(
        api.url, (theirs if trusted else ours).certificate, theirs.client("fettle")
    )
    path = kubeconfigs.write(config, tmp_path / "config")
    try:
        async with await Session.open(path) as session:
            if trusted:
                await session.get("/api/v1/nodes")
            else:
                with pytest.raises(Unreachable, match="a certificate that is not trusted"):
                    await session.get("/api/v1/nodes")
    finally:
        await api.stop()


async def test_a_server_whose_authority_a_pod_does_not_trust_is_told_with_its_file(
    api: FakeApi, account: Path
) -> None:
    await serve_tls(api, Authority("theirs"), account)
    (account / "ca.crt").write_bytes(Authority("ours").certificate)
    async with await Session.open(account=account) as session:
        with pytest.raises(Unreachable, match=f"check the service account's {account}/ca.crt$"):
            await session.get("/api/v1/nodes")


async def test_a_pods_authority_is_read_again_when_the_servers_certificate_is_from_another(
    api: FakeApi, account: Path
) -> None:
    old, new = Authority("old"), Authority("new")
    await serve_tls(api, old, account)
    (account / "ca.crt").write_bytes(old.certificate)
    async with await Session.open(account=account) as session:
        await session.get("/api/v1/nodes")
        await serve_tls(api, new, account)
        (account / "ca.crt").write_bytes(old.certificate + new.certificate)
        await asyncio.gather(*(session.get("/api/v1/nodes") for _ in range(4)))


async def test_a_kubeconfigs_authority_is_read_again_when_the_servers_certificate_is_from_another(
    api: FakeApi, tmp_path: Path
) -> None:
    old, new = Authority("old"), Authority("new")
    await serve_tls(api, old, tmp_path)
    path = tmp_path / "config"
    kubeconfigs.write(kubeconfigs.by_token(api.url, old.certificate, "right"), path)
    async with await Session.open(path) as session:
        await session.get("/api/v1/nodes")
        await serve_tls(api, new, tmp_path)
        both = old.certificate + new.certificate
        kubeconfigs.write(kubeconfigs.by_token(api.url, both, "right"), path)
        await session.get("/api/v1/nodes")


async def test_a_server_that_stays_untrusted_does_not_have_credentials_read_with_each_call(
    api: FakeApi, tmp_path: Path
) -> None:
    await serve_tls(api, Authority("theirs"), tmp_path)
    config = kubeconfigs.by_token(api.url, Authority("ours").certificate, "right")
    path = kubeconfigs.write(config, tmp_path / "config")
    reads = 0

    async def reconnect() -> ClusterConnection:
        nonlocal reads
        reads += 1
        return await connect(path)

    async with Session(await connect(path), reconnect) as session:
        for _ in range(3):
            with pytest.raises(Unreachable, match="a certificate that is not trusted"):
                await session.get("/api/v1/nodes")
    assert reads == 1


@pytest.mark.parametrize("by", ["data", "plugin"])
async def test_no_key_is_left_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    authority = Authority("theirs")
    api = FakeApi()
    api.tls = server_tls(authority, tmp_path)
    await api.start()
    pair = authority.client("fettle")
    config = kubeconfigs.by_certificate(api.url, authority.certificate, pair)
    if by == "plugin":
        config["users"][0]["user"] = {"exec": _plugin(tmp_path, pair)}
    path = kubeconfigs.write(config, tmp_path / "config")
    try:
        async with await Session.open(path) as session:
            await session.get("/api/v1/nodes")
            assert not list(temporary.iterdir())
    finally:
        await api.stop()


def _plugin(folder: Path, pair: Pair) -> dict[str, Any]:
    """One that gives this certificate, if it is told which authority the server has."""
    status = {
        "clientCertificateData": pair.certificate.decode(),
        "clientKeyData": pair.key.decode(),
    }
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    (folder / "answer").write_text(json.dumps(answer))
    script = 'case "$KUBERNETES_EXEC_INFO" in *certificate-authority-data*) cat answer;; esac'
    return {
        "apiVersion": version,
        "command": "sh",
        "args": ["-c", f"cd '{folder}'; {script}"],
        "provideClusterInfo": True,
    }
