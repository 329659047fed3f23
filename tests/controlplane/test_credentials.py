"""Every way in which Fettle may be told who it is, on a real API server: a session that outlives
its credentials goes on with new ones."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from fettle.client import Session
from fettle.model import Forbidden, SettingsError, Unauthorized
from tests.controlplane import kubeconfigs, shipped, waiting
from tests.controlplane.accounts import Account
from tests.controlplane.api import Api, ApiError
from tests.controlplane.certificates import Pair
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane

NODES = "/api/v1/nodes"
V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
async def account(control_plane: ControlPlane, api: Api, tmp_path: Path) -> Account:
    """Fettle's own, with the shipped rights and a token."""
    await shipped.apply_rbac(api)
    folder = tmp_path / "serviceaccount"
    made = Account(control_plane, folder, shipped.STEWARD_ACCOUNT, shipped.NAMESPACE)
    await made.renew()
    return made


@pytest.fixture
def in_a_pod(account: Account, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Account:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)
    return account


def kubeconfig(plane: ControlPlane, path: Path, user: dict[str, Any]) -> Path:
    config = kubeconfigs.by_token(plane.server, (plane.folder / "ca.crt").read_bytes(), "")
    config["users"][0]["user"] = user
    return kubeconfigs.write(config, path)


def plugin(folder: Path, body: str) -> dict[str, Any]:
    """A user of a kubeconfig in that folder, whose credentials this Python prints."""
    (folder / "plugin").write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        "def answer(**status):\n"
        f"    print(json.dumps(dict(apiVersion={V1!r}, kind='ExecCredential', status=status)))\n"
        f"{body}\n"
    )
    (folder / "plugin").chmod(0o755)
    return {"exec": {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never"}}


def by_token_file(plane: ControlPlane, account: Account) -> Path:
    """A file that a person or a script wrote, which ends with a line's end."""
    account.ending = "\n"
    return kubeconfig(plane, account.folder / "kubeconfig", {"tokenFile": "token"})


def by_plugin(plane: ControlPlane, account: Account) -> Path:
    body = f"answer(token=open({str(account.folder / 'token')!r}).read().strip())"
    return kubeconfig(plane, account.folder / "kubeconfig", plugin(account.folder, body))


async def refused(plane: ControlPlane, token: str) -> None:
    """Until the API server takes a token no more."""
    api = Api(plane.server, plane.tls(), token=token)

    async def is_refused() -> bool:
        try:
            await api.list("nodes")
        except ApiError as error:
            return error.code == 401
        return False

    async with api:
        await waiting.wait_until(is_refused, what="the token is refused", timeout_s=30)


async def test_a_pod_is_its_service_account(control_plane: ControlPlane, in_a_pod: Account) -> None:
    async with await Session.open(account=in_a_pod.folder) as session:
        assert session.namespace == shipped.NAMESPACE
        assert session.server == control_plane.server
        assert json.loads(await session.get(NODES))["kind"] == "NodeList"
        with pytest.raises(Forbidden, match=r'verb "list" on.*"secrets".*fettle-system:fettle'):
            await session.get("/api/v1/secrets")


async def test_a_pod_whose_token_is_taken_away_says_so(in_a_pod: Account) -> None:
    (in_a_pod.folder / "token").unlink()
    with pytest.raises(SettingsError, match=f"{in_a_pod.folder}.*automountServiceAccountToken"):
        await Session.open(account=in_a_pod.folder)


async def test_a_token_is_followed_when_it_is_refused_in_a_pod_in_a_file_and_from_a_plugin(
    control_plane: ControlPlane, in_a_pod: Account, tmp_path: Path
) -> None:
    """All at once: the API server goes on taking a revoked token for ten seconds."""

    async def of_a_pod() -> None:
        async with await Session.open(account=in_a_pod.folder) as session:
            await session.get(NODES)
            await _goes_on_with_a_new_token(control_plane, in_a_pod, session)

    async def of_a_kubeconfig(how: Callable[[ControlPlane, Account], Path]) -> None:
        folder = tmp_path / how.__name__
        account = Account(control_plane, folder, shipped.STEWARD_ACCOUNT, shipped.NAMESPACE)
        path = how(control_plane, account)
        await account.renew()
        async with await Session.open(path) as session:
            await session.get(NODES)
            await _goes_on_with_a_new_token(control_plane, account, session)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(of_a_pod())
        tasks.create_task(of_a_kubeconfig(by_token_file))
        tasks.create_task(of_a_kubeconfig(by_plugin))


async def _goes_on_with_a_new_token(
    plane: ControlPlane, account: Account, session: Session
) -> None:
    old = account.token
    await account.revoke()
    await refused(plane, old)
    await account.renew()
    assert json.loads(await session.get(NODES))["kind"] == "NodeList"


@pytest.mark.parametrize("inline", [True, False], ids=["in the file", "in files beside it"])
async def test_a_client_certificate_of_a_kubeconfig_is_shown(
    control_plane: ControlPlane, tmp_path: Path, inline: bool
) -> None:
    pair = control_plane.authority.client("someone", ["system:masters"])
    user = _inline(pair) if inline else _beside(pair, tmp_path)
    path = kubeconfig(control_plane, tmp_path / "kubeconfig", user)
    async with await Session.open(path) as session:
        assert json.loads(await session.get("/api/v1/secrets"))["kind"] == "SecretList"


async def test_a_client_certificate_of_a_plugin_is_shown(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    pair = control_plane.authority.client("someone", ["system:masters"])
    certificate, key = pair.certificate.decode(), pair.key.decode()
    body = f"answer(clientCertificateData={certificate!r}, clientKeyData={key!r})"
    path = kubeconfig(control_plane, tmp_path / "kubeconfig", plugin(tmp_path, body))
    async with await Session.open(path) as session:
        assert json.loads(await session.get("/api/v1/secrets"))["kind"] == "SecretList"


async def test_a_kubeconfig_that_impersonates_has_the_rights_of_whom_it_names(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    await shipped.apply_rbac(api)
    administrator = _inline(control_plane.authority.client("someone", ["system:masters"]))
    name = f"system:serviceaccount:{shipped.NAMESPACE}:{shipped.STEWARD_ACCOUNT}"
    groups = ["system:serviceaccounts", "system:authenticated"]
    extra = {"example.com/Why": ["a test", "another"]}
    user = administrator | {"as": name, "as-uid": "7", "as-groups": groups, "as-user-extra": extra}
    path = kubeconfig(control_plane, tmp_path / "kubeconfig", user)
    async with await Session.open(path) as session:
        review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = json.loads(await session.create(review, kind))
        assert answer["status"]["userInfo"] == {
            "username": name,
            "uid": "7",
            "groups": groups,
            "extra": {"example.com/why": ["a test", "another"]},
        }
        async with aclosing(session.stream(NODES, {"watch": True})) as chunks:
            assert await anext(chunks) == b""
        with pytest.raises(Forbidden, match=f'the resource "secrets".* to {name}'):
            await session.get("/api/v1/secrets")


async def test_who_may_not_impersonate_is_told_the_right_for_it(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    user = _inline(control_plane.authority.client("someone")) | {"as": "eve"}
    path = kubeconfig(control_plane, tmp_path / "kubeconfig", user)
    async with await Session.open(path) as session:
        with pytest.raises(Forbidden) as caught:
            await session.get(NODES)
    assert "someone may not impersonate whom the kubeconfig's user names" in str(caught.value)


async def test_a_password_is_told_not_to_be_taken(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    user = {"username": "admin", "password": "secret"}
    path = kubeconfig(control_plane, tmp_path / "kubeconfig", user)
    async with await Session.open(path) as session:
        with pytest.raises(Forbidden, match=r"takes us for system:anonymous.*a token, exec or"):
            await session.get(NODES)


async def test_a_token_that_was_never_good_is_refused_in_one_sentence(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    path = kubeconfig(control_plane, tmp_path / "kubeconfig", {"token": "nonsense"})
    async with await Session.open(path) as session:
        with pytest.raises(Unauthorized, match=r"does not accept our credentials.*renew") as caught:
            await session.get(NODES)
    assert "\n" not in str(caught.value)


async def test_fettle_with_a_broken_plugin_ends_with_one_sentence(
    control_plane: ControlPlane, start_fettle: StartFettle, tmp_path: Path
) -> None:
    user = plugin(tmp_path, "sys.exit('your session has expired')")
    path = kubeconfig(control_plane, tmp_path / "kubeconfig", user)
    fettle = await start_fettle("extender", kubeconfig=path, wait=False)

    async def ended() -> bool:
        return not fettle.process.running

    await waiting.wait_until(ended, what="Fettle ends")
    last = fettle.process.log.read_text().strip().splitlines()[-1]
    assert fettle.process.exit_code not in (0, None)
    assert "plugin" in last
    assert "your session has expired" in last
    assert "Traceback" not in fettle.process.log.read_text()


def _inline(pair: Pair) -> dict[str, Any]:
    return {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }


def _beside(pair: Pair, folder: Path) -> dict[str, Any]:
    (folder / "me.crt").write_bytes(pair.certificate)
    (folder / "me.key").write_bytes(pair.key)
    return {"client-certificate": "me.crt", "client-key": "me.key"}
