from __future__ import annotations

import asyncio
import json
import ssl
import tempfile
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fettle.errors import (
    Conflict,
    Forbidden,
    NotFound,
    NotServed,
    SettingsError,
    Silent,
    Unauthorized,
    Unreachable,
)
from fettle.kube import connecting
from fettle.kube.connecting import Connection, connect
from fettle.kube.session import Session
from tests.controlplane import kubeconfigs
from tests.controlplane.certificates import Authority, Pair
from tests.fettle.kube.fake_api import USER, FakeApi

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with nothing but an empty home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def account(api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The service account of a pod whose API server is the fake one, over TLS."""
    folder = home / "account"
    folder.mkdir()
    (folder / "token").write_text("right")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    return folder


async def test_objects_are_created_read_changed_and_deleted(session: Session) -> None:
    made = await session.create(LEASES, {"metadata": {"name": "a"}, "spec": {"x": 1}})
    lease = json.loads(made)
    assert lease["metadata"]["namespace"] == "ns"
    await session.patch(f"{LEASES}/a", {"spec": {"y": 2}})
    assert json.loads(await session.get(f"{LEASES}/a"))["spec"] == {"x": 1, "y": 2}
    with pytest.raises(Conflict):
        await session.replace(f"{LEASES}/a", lease)
    with pytest.raises(Conflict):
        await session.create(LEASES, {"metadata": {"name": "a"}})
    await session.delete(f"{LEASES}/a")
    with pytest.raises(NotFound, match='leases "a" not found'):
        await session.get(f"{LEASES}/a")


async def test_parameters_reach_the_server_as_they_are(api: FakeApi, session: Session) -> None:
    await session.get("/api/v1/nodes", {"limit": 5, "labelSelector": "a=b,c!=d/e f+%"})
    assert api.asked[0].query == {"limit": "5", "labelSelector": "a=b,c!=d/e f+%"}


async def test_a_resource_that_does_not_exist_is_not_served(api: FakeApi, session: Session) -> None:
    api.unserved = {"resourceclaims"}
    with pytest.raises(
        NotServed, match=r"does not serve /apis/resource\.k8s\.io/v1/resourceclaims"
    ):
        await session.get("/apis/resource.k8s.io/v1/resourceclaims")


async def test_a_refusal_by_rbac_names_verb_resource_namespace_and_user(
    api: FakeApi, session: Session
) -> None:
    api.forbidden = {("create", "leases")}
    with pytest.raises(Forbidden) as caught:
        await session.create(LEASES, {"metadata": {"name": "a"}})
    assert str(caught.value) == (
        f'{api.url} denied access by RBAC: grant the verb "create" on the resource "leases" of the '
        f'API group "coordination.k8s.io" in the namespace "ns" to {USER}; '
        "deploy/rbac/ has the roles"
    )


async def test_a_server_that_is_away_is_named(api: FakeApi, session: Session) -> None:
    await api.stop()
    with pytest.raises(Unreachable, match=api.url):
        await session.get("/api/v1/nodes")


async def test_a_call_that_is_not_answered_ends(api: FakeApi, session: Session) -> None:
    api.answers_nothing = True
    with pytest.raises(Unreachable, match="no answer in time"):
        await session.get("/api/v1/nodes", timeout_s=0.05)


async def test_a_stream_that_says_nothing_is_silent(api: FakeApi, session: Session) -> None:
    stream = session.stream("/api/v1/nodes", {"watch": True}, silence_s=0.05)
    async with aclosing(stream) as chunks:
        assert await anext(chunks) == b"", "accepted"
        with pytest.raises(Silent, match=r"sent nothing for 0\.05 s"):
            await anext(chunks)


async def test_a_token_goes_along(api: FakeApi, tmp_path: Path) -> None:
    api.token = "right"
    async with await Session.open(api.kubeconfig(tmp_path, token="right")) as session:
        await session.get("/api/v1/nodes")


async def test_a_token_file_may_end_with_a_line(api: FakeApi, tmp_path: Path) -> None:
    api.token = "right"
    path = api.kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"tokenFile": "token"}
    path.write_text(json.dumps(config))
    (tmp_path / "token").write_text("right\n")
    async with await Session.open(path) as session:
        await session.get("/api/v1/nodes")


async def test_credentials_are_read_again_when_they_are_refused(
    api: FakeApi, tmp_path: Path
) -> None:
    api.token = "new"
    async with await Session.open(api.kubeconfig(tmp_path, token="old")) as session:
        api.kubeconfig(tmp_path, token="new")
        await asyncio.gather(*(session.get("/api/v1/nodes") for _ in range(4)))


async def test_credentials_that_stay_refused_say_so(api: FakeApi, tmp_path: Path) -> None:
    api.token = "right"
    async with await Session.open(api.kubeconfig(tmp_path, token="wrong")) as session:
        for _ in range(2):
            with pytest.raises(Unauthorized, match="does not accept our credentials"):
                await session.get("/api/v1/nodes")


@pytest.mark.parametrize("trusted", [True, False])
async def test_only_a_server_whose_authority_is_trusted_is_talked_to(
    tmp_path: Path, trusted: bool
) -> None:
    theirs, ours = Authority("theirs"), Authority("ours")
    api = FakeApi()
    api.tls = _server_tls(theirs, tmp_path)
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
    await _serve_tls(api, Authority("theirs"), account)
    (account / "ca.crt").write_bytes(Authority("ours").certificate)
    async with await Session.open(account=account) as session:
        with pytest.raises(Unreachable, match=f"check the service account's {account}/ca.crt$"):
            await session.get("/api/v1/nodes")


async def test_a_pods_authority_is_read_again_when_the_servers_certificate_is_from_another(
    api: FakeApi, account: Path
) -> None:
    old, new = Authority("old"), Authority("new")
    await _serve_tls(api, old, account)
    (account / "ca.crt").write_bytes(old.certificate)
    async with await Session.open(account=account) as session:
        await session.get("/api/v1/nodes")
        await _serve_tls(api, new, account)
        (account / "ca.crt").write_bytes(old.certificate + new.certificate)
        await asyncio.gather(*(session.get("/api/v1/nodes") for _ in range(4)))


async def test_a_kubeconfigs_authority_is_read_again_when_the_servers_certificate_is_from_another(
    api: FakeApi, tmp_path: Path
) -> None:
    old, new = Authority("old"), Authority("new")
    await _serve_tls(api, old, tmp_path)
    path = tmp_path / "config"
    kubeconfigs.write(kubeconfigs.by_token(api.url, old.certificate, "right"), path)
    async with await Session.open(path) as session:
        await session.get("/api/v1/nodes")
        await _serve_tls(api, new, tmp_path)
        both = old.certificate + new.certificate
        kubeconfigs.write(kubeconfigs.by_token(api.url, both, "right"), path)
        await session.get("/api/v1/nodes")


async def test_a_server_that_stays_untrusted_does_not_have_credentials_read_with_each_call(
    api: FakeApi, tmp_path: Path
) -> None:
    await _serve_tls(api, Authority("theirs"), tmp_path)
    config = kubeconfigs.by_token(api.url, Authority("ours").certificate, "right")
    path = kubeconfigs.write(config, tmp_path / "config")
    reads = 0

    async def reconnect() -> Connection:
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
    api.tls = _server_tls(authority, tmp_path)
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


async def _serve_tls(api: FakeApi, authority: Authority, folder: Path) -> None:
    """From now on, on the port it has; callers need no certificate."""
    await api.stop()
    api.tls = _server_tls(authority, folder)
    api.tls.verify_mode = ssl.CERT_NONE
    await api.start()


def _server_tls(authority: Authority, folder: Path) -> ssl.SSLContext:
    """Asks its callers for a certificate, as an API server may."""
    pair = authority.server("fake")
    (folder / "server.pem").write_bytes(pair.certificate + pair.key)
    (folder / "ca.pem").write_bytes(authority.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "server.pem")
    return context


async def test_the_namespace_is_the_contexts_else_our_own(api: FakeApi, tmp_path: Path) -> None:
    async with await Session.open(api.kubeconfig(tmp_path, namespace="tools")) as session:
        assert session.namespace == "tools"
    async with await Session.open(api.kubeconfig(tmp_path)) as session:
        assert session.namespace == "fettle-system"


async def test_without_any_cluster_the_message_says_what_was_tried(home: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        await Session.open()
    for said in (str(home / ".kube" / "config"), "$KUBECONFIG", "--kubeconfig", "--snapshot"):
        assert said in str(caught.value)


async def test_the_kubeconfig_in_the_home_directory_is_found(api: FakeApi, home: Path) -> None:
    (home / ".kube").mkdir()
    api.kubeconfig(home).rename(home / ".kube" / "config")
    async with await Session.open() as session:
        assert session.server == api.url


async def test_the_environments_kubeconfig_may_be_several_files(
    api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{home / 'absent'}:{api.kubeconfig(home)}")
    async with await Session.open() as session:
        assert session.server == api.url


async def test_a_kubeconfig_that_is_not_there_is_named(home: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere.*pass --kubeconfig"):
        await Session.open(home / "nowhere")


async def test_a_pod_without_a_token_is_told_what_to_set(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(SettingsError, match="automountServiceAccountToken"):
        await Session.open()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_a_pods_token_may_end_with_a_line(api: FakeApi, account: Path, end: str) -> None:
    authority = Authority()
    await _serve_tls(api, authority, account)
    (account / "ca.crt").write_bytes(authority.certificate)
    (account / "token").write_bytes(f"right{end}".encode())
    api.token = "right"
    async with await Session.open(account=account) as session:
        await session.get("/api/v1/nodes")


@pytest.mark.parametrize(
    ("token", "wrong"),
    [
        (b"\n", "is empty"),
        (b"ri\nght", "contains a non-printable character"),
        (b"\xff", "contains a non-printable character"),
    ],
)
async def test_a_pods_token_that_cannot_be_sent_is_named(
    account: Path, token: bytes, wrong: str
) -> None:
    (account / "ca.crt").write_bytes(Authority().certificate)
    (account / "token").write_bytes(token)
    with pytest.raises(SettingsError, match=f"{account}/token {wrong}"):
        await Session.open(account=account)


async def test_a_pods_token_that_can_no_longer_be_sent_is_named_until_it_can(
    api: FakeApi, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_READ_TOKEN_EVERY", timedelta(0))
    authority = Authority()
    await _serve_tls(api, authority, account)
    (account / "ca.crt").write_bytes(authority.certificate)
    async with await Session.open(account=account) as session:
        await session.get("/api/v1/nodes")
        (account / "token").write_text("ne\nw")
        for _ in range(2):
            with pytest.raises(Unauthorized, match=f"{account}/token contains.*valid token"):
                await session.get("/api/v1/nodes")
        (account / "token").write_text("new\n")
        api.token = "new"
        await session.get("/api/v1/nodes")


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
async def test_a_kubeconfig_that_cannot_be_read_is_one_sentence(home: Path, text: str) -> None:
    path = home / "config"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        await Session.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
