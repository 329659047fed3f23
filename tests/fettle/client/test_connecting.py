"""Which of the credentials of a kubeconfig's user count, as for client-go."""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fettle.client.session import Session
from fettle.model import SettingsError
from tests.controlplane.certificates import Authority
from tests.fettle.client.fake_api import FakeApi

NODES = "/api/v1/nodes"
V1 = "client.authentication.k8s.io/v1"
BASIC = "Basic " + base64.b64encode("Jörg:pass:word".encode()).decode()
PASSWORD = {"username": "Jörg", "password": "pass:word"}


def plugin(folder: Path) -> dict[str, Any]:
    """A user's `exec` that gives the token "plugin"."""
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "plugin"}}
    return {
        "apiVersion": V1,
        "command": sys.executable,
        "args": ["-c", f"open({str(folder / 'ran')!r}, 'w'); print({json.dumps(answer)!r})"],
    }


def id_token(ends_at: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(ends_at)}).encode())
    return f"a.{claims.decode().rstrip('=')}.c"


async def shown(api: FakeApi, folder: Path, user: dict[str, Any]) -> str:
    """The Authorization that a session sends."""
    async with await Session.open(api.kubeconfig(folder, user=user)) as session:
        await session.get(NODES)
    return api.asked[-1].headers.get("Authorization", "")


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        (PASSWORD, BASIC),
        ({"username": "eve"}, "Basic " + base64.b64encode(b"eve:").decode()),
        ({"token": "t", "username": "", "password": None}, "Bearer t"),
        ({"token": "t"}, "Bearer t"),
        ({"token": "t", "tokenFile": "token"}, "Bearer of the file"),
        ({"token": "", "tokenFile": "token"}, "Bearer of the file"),
        ({"token": "t", "tokenFile": "absent"}, "Bearer t"),
        ({}, ""),
    ],
)
async def test_a_users_credentials_are_shown(
    api: FakeApi, tmp_path: Path, user: dict[str, Any], authorization: str
) -> None:
    (tmp_path / "token").write_text("of the file\n")
    assert await shown(api, tmp_path, user) == authorization


@pytest.mark.parametrize("user", [{"token": "t"}, PASSWORD], ids=["a token", "a password"])
async def test_a_plugin_is_not_run_where_it_is_not_needed(
    api: FakeApi, tmp_path: Path, user: dict[str, Any]
) -> None:
    authorization = await shown(api, tmp_path, user | {"exec": plugin(tmp_path)})
    assert authorization in ("Bearer t", BASIC)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("has_certificate", [True, False])
async def test_a_plugin_is_run_unless_there_is_a_client_certificate(
    api: FakeApi, tmp_path: Path, has_certificate: bool
) -> None:
    user: dict[str, Any] = {"exec": plugin(tmp_path)}
    if has_certificate:
        pair = Authority().client("eve")
        user["client-certificate-data"] = base64.b64encode(pair.certificate).decode()
        user["client-key-data"] = base64.b64encode(pair.key).decode()
    assert await shown(api, tmp_path, user) == ("" if has_certificate else "Bearer plugin")
    assert (tmp_path / "ran").exists() is not has_certificate


async def test_an_id_token_that_has_not_ended_is_shown(api: FakeApi, tmp_path: Path) -> None:
    token = id_token(time.time() + 600)
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
    assert await shown(api, tmp_path, user) == f"Bearer {token}"
    assert await shown(api, tmp_path, user | {"token": "t"}) == "Bearer t"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"token": "t", **PASSWORD}, "the user has a token and a username or password; keep one"),
        ({"tokenFile": "token", "username": "a"}, "a token and a username or password; keep one"),
        ({"password": "secret"}, "the user has a password without a username"),
        ({"username": 5, "password": "secret"}, "username must be a string, not 5"),
        ({"username": "eve", "password": 5}, "password must be a string; put it in quotes"),
        ({"tokenFile": "empty"}, "tokenFile .*empty is empty"),
        (
            {"exec": {}, "auth-provider": {"name": "oidc"}},
            "the user has exec and auth-provider; keep one",
        ),
        (
            {"auth-provider": {"name": "gcp", "config": {"cmd-path": "gcloud"}}},
            "auth-provider 'gcp' of the user was removed from Kubernetes clients in 1.26; "
            "use exec with gke-gcloud-auth-plugin",
        ),
        ({"token": "t", "auth-provider": {"name": "gcp"}}, "use exec with gke-gcloud-auth-plugin"),
        (
            {"auth-provider": {"name": "azure", "config": {}}},
            "'azure' .* removed from Kubernetes clients in 1.26; use exec with kubelogin",
        ),
        (
            {"auth-provider": {"name": "openstack"}},
            "auth-provider 'openstack' of the user is unknown; use exec with a credential plugin",
        ),
        ({"auth-provider": {}}, "auth-provider of the user has no name"),
        ({"auth-provider": "gcp"}, "auth-provider of the user has no name"),
        (
            {"auth-provider": {"name": "oidc"}},
            "auth-provider 'oidc' of the user gives no id-token; renew it with kubectl, or use "
            "exec with a credential plugin",
        ),
        (
            {"auth-provider": {"name": "oidc", "config": {"id-token": "a.b"}}},
            "auth-provider 'oidc' of the user gives no id-token",
        ),
        (
            {"auth-provider": {"name": "oidc", "config": {"id-token": id_token(1)}}},
            "gives no id-token; renew it with kubectl",
        ),
        (
            {
                "auth-provider": {
                    "name": "oidc",
                    "config": {
                        "id-token": id_token(1),
                        "refresh-token": "secret",
                        "client-id": "i",
                        "client-secret": "secret",
                        "idp-issuer-url": "http://127.0.0.1:1",
                    },
                }
            },
            "gives no id-token .*127.0.0.1:1",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_credentials_that_cannot_be_used_are_one_sentence(
    api: FakeApi, tmp_path: Path, user: dict[str, Any], said: str
) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "empty").write_text("\n")
    path = api.kubeconfig(tmp_path, user=user)
    with pytest.raises(SettingsError, match=said) as caught:
        await Session.open(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_an_entry_that_is_not_as_it_should_be_is_not_shown(
    api: FakeApi, tmp_path: Path
) -> None:
    path = api.kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    config["users"] = [{"name": "fake", "token": "{secret}"}]
    path.write_text(json.dumps(config))
    with pytest.raises(SettingsError, match="Expected key user in") as caught:
        await Session.open(path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("named", ["someone", None])
async def test_a_context_without_a_user_is_one_sentence(
    api: FakeApi, tmp_path: Path, named: str | None
) -> None:
    path = api.kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    config["contexts"][0]["context"]["user"] = named
    path.write_text(json.dumps(config))
    with pytest.raises(SettingsError, match="its current context has no user that is among its"):
        await Session.open(path)
