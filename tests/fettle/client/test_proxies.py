"""The proxy that the environment names for an API server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubernetes.aio.config import ConfigException

from fettle.client.connection import proxy_of_environment
from fettle.client.session import Session
from tests.fettle.client.fake_api import FakeApi

SERVER = "https://10.96.0.1:443"
PROXY = "http://proxy.example:3128"
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_without_a_proxy_variable_there_is_no_proxy() -> None:
    assert proxy_of_environment(SERVER) is None


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_the_variable_of_the_servers_scheme_counts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://other:1")
    monkeypatch.setenv(name, PROXY)
    assert proxy_of_environment(SERVER) == PROXY
    monkeypatch.delenv(name)
    assert proxy_of_environment(SERVER) is None


@pytest.mark.parametrize("lower", ["http://other:1", ""])
def test_a_variable_in_capitals_counts_before_the_other(
    lower: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("https_proxy", lower)
    assert proxy_of_environment(SERVER) == PROXY


def test_an_empty_variable_in_capitals_leaves_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "")
    monkeypatch.setenv("https_proxy", PROXY)
    assert proxy_of_environment(SERVER) == PROXY


@pytest.mark.parametrize("proxy", ["proxy.example:3128", "HTTP://proxy.example:3128"])
def test_a_proxys_scheme_may_be_left_out_or_in_capitals(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    assert proxy_of_environment(SERVER) == PROXY


def test_a_password_keeps_its_capitals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "HTTP://Me:P%40ss@proxy.example:3128")
    assert proxy_of_environment(SERVER) == "http://Me:P%40ss@proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "left_out"),
    [
        (SERVER, "10.96.0.1"),
        (SERVER, "10.0.0.0/8"),
        (SERVER, "example.com, 10.0.0.0/8"),
        (SERVER, "*"),
        ("https://[fd00::1]:6443", "fd00::/8"),
        ("https://kubernetes.default.svc", ".svc"),
        ("https://kubernetes.default.svc:443", "svc,example.com"),
        ("https://api.corp.example.com:6443", "*.example.com"),
        ("https://api.corp.example.com:6443", "foo,*"),
        ("https://api.corp.example.com:6443", "api.corp.example.com:6443"),
        ("https://api.corp.example.com:6443", "Corp.EXAMPLE.com"),
        ("https://api.corp.example.com", "api.corp.example.com:443"),
        ("https://api.corp.example.com.:6443", "corp.example.com."),
        ("https://10.1.2.3:6443", "localhost, *"),
        ("https://10.1.2.3:6443", "10.1.2.3:6443"),
        ("https://10.1.2.3:6443", "10.1.2.5/24"),
        ("https://10.1.2.3", "10.1.2.3:443"),
        ("https://10.1.2.3", "::ffff:10.1.2.3"),
        ("https://[::ffff:10.1.2.3]", "10.0.0.0/8"),
        ("https://[fd00::1]:6443", "fd00:0::1"),
        ("https://[fd00::1]:6443", "[fd00:0::1]:6443"),
        ("https://[FD00::1]:6443", "fd00::/16"),
    ],
)
def test_servers_that_no_proxy_matches_are_called_directly(
    server: str, left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", left_out)
    assert proxy_of_environment(server) is None


@pytest.mark.parametrize(
    ("server", "left_out"),
    [
        (SERVER, ""),
        (SERVER, "10.97.0.0/16"),
        (SERVER, "10.0.0.0/255.0.0.0"),
        (SERVER, "not an address/8"),
        (SERVER, "example.com"),
        (SERVER, "96.0.1"),
        (SERVER, ":443"),
        ("https://example.com:6443", ".example.com"),
        ("https://example.com:6443", "*.example.com"),
        ("https://notexample.com:6443", "example.com"),
        ("https://api.corp.example.com:6443", "api.corp.example.com:443"),
        ("https://api.corp.example.com:6443", "*:6443"),
        ("https://api.corp.example.com.:6443", "corp.example.com"),
        ("https://10.1.2.3:6443", "10.1.2.3:443"),
        ("https://[fd00::1]:6443", "[fd00::1]"),
        ("https://[fd00::1]:6443", "[fd00::1]:443"),
        ("https://[fd00::1]:6443", "0.0.0.0/0"),
        ("https://[::ffff:10.1.2.3]", "::/0"),
    ],
)
def test_servers_that_no_proxy_does_not_match_are_called_through_the_proxy(
    server: str, left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", left_out)
    assert proxy_of_environment(server) == PROXY


@pytest.mark.parametrize(
    "server",
    ["https://localhost:6443", "https://127.0.0.1", "https://[::1]", "https://[::ffff:127.0.0.1]"],
)
def test_a_server_on_this_machine_is_called_directly(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    assert proxy_of_environment(server) is None


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "http://[::1", "http://:3128"])
def test_an_invalid_proxy_url_is_refused_with_its_variable(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ConfigException, match=r"\$HTTPS_PROXY 'http|\$HTTPS_PROXY 'socks"):
        proxy_of_environment(SERVER)


def test_the_password_of_a_proxy_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://somebody:secret@proxy:1080")
    with pytest.raises(ConfigException, match=r"'socks5://…@proxy:1080'") as raised:
        proxy_of_environment(SERVER)
    assert "secret" not in str(raised.value)


async def test_credentials_in_a_netrc_are_not_sent_to_api_servers(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    api.token = "right"
    async with await Session.open(api.kubeconfig(tmp_path, token="right")) as session:
        await session.get("/api/v1/nodes")
    assert [asked.verb for asked in api.asked] == ["list"]


async def test_the_server_is_called_through_the_proxy(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake server plays the proxy, for a server whose name cannot be resolved."""
    kubeconfig = json.loads(api.kubeconfig(tmp_path).read_text())
    cluster = kubeconfig["clusters"][0]["cluster"]
    monkeypatch.setenv("HTTP_PROXY", cluster["server"])
    cluster["server"] = "http://api.example.invalid"
    file = tmp_path / "through"
    file.write_text(json.dumps(kubeconfig))
    async with await Session.open(file) as session:
        await session.get("/api/v1/nodes")
    assert [asked.verb for asked in api.asked] == ["list"]
