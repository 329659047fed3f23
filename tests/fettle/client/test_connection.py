"""Which cluster is used, as whom, through which proxy, and whose certificates are trusted."""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from kubernetes.aio.config import incluster_config

from fettle.client.connection import ClusterConnection, connect
from fettle.client.session import Session
from fettle.model import SettingsError, Unauthorized, Unreachable
from tests.controlplane import kubeconfigs
from tests.controlplane.certificates import Authority, Pair
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.client.serving_tls import serve_tls, server_tls


async def test_the_namespace_is_that_of_the_context_else_our_own(
    api: FakeApi, tmp_path: Path
) -> None:
    async with await Session.open(api.kubeconfig(tmp_path, namespace="tools")) as session:
        assert session.namespace == "tools"
    async with await Session.open(api.kubeconfig(tmp_path)) as session:
        assert session.namespace == "fettle-system"


async def test_without_any_cluster_the_error_lists_what_was_tried(home: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        await Session.open()
    for message in (str(home / ".kube" / "config"), "$KUBECONFIG", "pass --kubeconfig"):
        assert message in str(caught.value)


async def test_the_kubeconfig_in_the_home_directory_is_found(api: FakeApi, home: Path) -> None:
    (home / ".kube").mkdir()
    api.kubeconfig(home).rename(home / ".kube" / "config")
    async with await Session.open() as session:
        assert session.server == api.url


async def test_the_kubeconfig_variable_may_name_several_files(
    api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{home / 'absent'}:{api.kubeconfig(home)}")
    async with await Session.open() as session:
        assert session.server == api.url


async def test_of_several_kubeconfigs_each_names_files_beside_itself(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, api = Authority(), FakeApi()
    clusters, users = home / "clusters", home / "users"
    clusters.mkdir()
    users.mkdir()
    api.tls = server_tls(authority, home)
    await api.start()
    config = kubeconfigs.by_certificate(api.url, authority.certificate, authority.client("eve"))
    user = config["users"][0]["user"]
    for field in ("client-certificate", "client-key"):
        (users / field).write_bytes(base64.b64decode(user.pop(f"{field}-data")))
        user[field] = field
    cluster = config["clusters"][0]["cluster"]
    data = cluster.pop("certificate-authority-data")
    (clusters / "ca.crt").write_bytes(base64.b64decode(data))
    cluster["certificate-authority"] = "ca.crt"
    kubeconfigs.write(config | {"users": []}, clusters / "config")
    kubeconfigs.write(config | {"clusters": []}, users / "config")
    monkeypatch.setenv("KUBECONFIG", f"{clusters / 'config'}:{users / 'config'}")
    try:
        async with await Session.open() as session:
            await session.get("/api/v1/nodes")
    finally:
        await api.stop()


async def test_a_missing_kubeconfig_is_named_in_the_error(home: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere.*pass --kubeconfig"):
        await Session.open(home / "nowhere")


async def test_a_pod_without_a_token_gets_an_error_that_says_what_to_set(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(SettingsError, match="automountServiceAccountToken"):
        await Session.open()


@pytest.mark.parametrize("token", [b"", b"\xff"])
async def test_a_pods_token_that_cannot_be_read_is_refused_with_its_folder(
    account: Path, token: bytes
) -> None:
    (account / "ca.crt").write_bytes(Authority().certificate)
    (account / "token").write_bytes(token)
    with pytest.raises(SettingsError, match=f"{account} cannot be used.*automountService"):
        await Session.open(account=account)


class Clock(datetime):
    """The official client's, ahead by what a test says."""

    ahead = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + cls.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Clock]]:
    module = SimpleNamespace(datetime=Clock, timedelta=timedelta)
    monkeypatch.setattr(incluster_config, "datetime", module)
    yield Clock
    Clock.ahead = timedelta()


async def test_a_pods_token_is_read_every_minute_and_fails_calls_while_it_is_invalid(
    api: FakeApi, account: Path, clock: type[Clock]
) -> None:
    authority = Authority()
    await serve_tls(api, authority, account)
    (account / "ca.crt").write_bytes(authority.certificate)
    async with await Session.open(account=account) as session:
        await session.get("/api/v1/nodes")
        assert await session.bearer_token() == "right"
        for invalid in ("ne\nw", ""):
            (account / "token").write_text(invalid)
            clock.ahead += timedelta(seconds=61)
            for _ in range(2):
                with pytest.raises(Unauthorized, match=r"can no longer be used: .*valid token"):
                    await session.get("/api/v1/nodes")
        (account / "token").write_text("new")
        clock.ahead += timedelta(seconds=61)
        api.token = "new"
        await session.get("/api/v1/nodes")
        assert await session.bearer_token() == "new"


def _broken(change: Callable[[dict[str, Any]], object]) -> str:
    config: dict[str, Any] = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    change(config)
    return json.dumps(config)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "just text",
        "[1, 2]",
        _broken(lambda c: c.pop("contexts")),
        _broken(lambda c: c.update({"current-context": "other"})),
        _broken(lambda c: c["clusters"][0].update(cluster="c")),
        _broken(lambda c: c["clusters"][0]["cluster"].update({"certificate-authority-data": "!"})),
        _broken(lambda c: c["clusters"][0]["cluster"].update({"certificate-authority": "gone"})),
        _broken(
            lambda c: c["clusters"][0]["cluster"].update({"certificate-authority-data": "bm8="})
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_read_gives_an_error_of_one_line(
    home: Path, text: str
) -> None:
    path = home / "config"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        await Session.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("trusted", [True, False])
async def test_only_a_server_with_a_trusted_certificate_is_called(
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


async def test_an_untrusted_server_is_reported_with_the_pods_ca_file(
    api: FakeApi, account: Path
) -> None:
    await serve_tls(api, Authority("theirs"), account)
    (account / "ca.crt").write_bytes(Authority("ours").certificate)
    async with await Session.open(account=account) as session:
        with pytest.raises(Unreachable, match=f"check the service account's {account}/ca.crt$"):
            await session.get("/api/v1/nodes")


async def test_a_pods_ca_is_read_again_when_the_servers_certificate_has_a_new_one(
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


async def test_a_kubeconfigs_ca_is_read_again_when_the_servers_certificate_has_a_new_one(
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


async def test_credentials_are_not_read_with_each_call_to_an_untrusted_server(
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
    """A plugin that returns this certificate, if it gets the server's CA."""
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
