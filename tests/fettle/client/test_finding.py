"""Which cluster is meant, as whom, and what is said where that cannot be known."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fettle.client import connecting
from fettle.client.session import Session
from fettle.model import SettingsError, Unauthorized
from tests.controlplane.certificates import Authority
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.client.serving_tls import serve_tls


async def test_the_namespace_is_the_contexts_else_our_own(api: FakeApi, tmp_path: Path) -> None:
    async with await Session.open(api.kubeconfig(tmp_path, namespace="tools")) as session:
        assert session.namespace == "tools"
    async with await Session.open(api.kubeconfig(tmp_path)) as session:
        assert session.namespace == "fettle-system"


async def test_without_any_cluster_the_message_says_what_was_tried(home: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        await Session.open()
    for said in (str(home / ".kube" / "config"), "$KUBECONFIG", "pass --kubeconfig"):
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
    await serve_tls(api, authority, account)
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
    await serve_tls(api, authority, account)
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
