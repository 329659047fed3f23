"""Credential plugins of kubeconfigs."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.client import exec_plugins as plugins
from fettle.client import session as sessions
from fettle.client.exec_plugins import Plugin
from fettle.client.session import Session
from fettle.model import SettingsError, Unauthorized, Unreachable
from tests.fettle.client.fake_api import FakeApi

V1 = "client.authentication.k8s.io/v1"


def plugin_file(folder: Path, body: str, name: str = "plugin") -> Path:
    """A plugin in Python; `answer(status)` prints an ExecCredential."""
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys, time\n"
        "def answer(status, version='client.authentication.k8s.io/v1'):\n"
        "    print(json.dumps(dict(apiVersion=version, kind='ExecCredential', status=status)))\n"
        f"{body}\n"
    )
    path.chmod(0o755)
    return path


def described(command: object, **more: Any) -> dict[str, Any]:
    return {"command": str(command), "apiVersion": V1, **more}


def kubeconfig(folder: Path, api: FakeApi, user: dict[str, Any]) -> Path:
    path = api.kubeconfig(folder)
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"exec": user}
    path.write_text(json.dumps(config))
    return path


async def run(folder: Path, body: str, *, timeout_s: float = 20.0, **more: Any) -> Any:
    plugin = plugins.read(described(plugin_file(folder, body), **more))
    return await plugins.run(plugin, folder, {"server": "https://example"}, timeout_s)


async def test_a_plugins_token_and_its_expiry_are_used(tmp_path: Path) -> None:
    found = await run(
        tmp_path, "answer({'token': 't', 'expirationTimestamp': '2026-01-02T03:04:05Z'})"
    )
    assert found.token == "t"
    assert found.expires_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()


async def test_a_plugins_token_without_expiry_never_expires(tmp_path: Path) -> None:
    assert (await run(tmp_path, "answer({'token': 't'})")).expires_at == float("inf")


async def test_arguments_variables_and_the_cluster_reach_the_plugin(tmp_path: Path) -> None:
    body = """
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
answer({"token": "|".join([sys.argv[1], os.environ["WHO"], info["spec"]["cluster"]["server"],
                           str(info["spec"]["interactive"]), info["apiVersion"]])})
"""
    env = [{"name": "WHO", "value": "me"}]
    found = await run(tmp_path, body, args=["an arg"], env=env, provideClusterInfo=True)
    assert found.token == f"an arg|me|https://example|False|{V1}"


async def test_only_a_plugin_that_asks_for_it_gets_the_cluster(tmp_path: Path) -> None:
    body = 'answer({"token": str("cluster" in os.environ["KUBERNETES_EXEC_INFO"])})'
    assert (await run(tmp_path, body)).token == "False"


async def test_a_relative_command_starts_at_the_kubeconfigs_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    plugin_file(tmp_path / "bin", "answer({'token': 't'})")
    plugin = plugins.read(described("bin/plugin"))
    assert (await plugins.run(plugin, tmp_path, {})).token == "t"


async def test_a_plugin_that_writes_many_errors_is_read_to_its_end(tmp_path: Path) -> None:
    body = "sys.stderr.write('x' * 1_000_000)\nanswer({'token': 't'})"
    assert (await run(tmp_path, body)).token == "t"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "sys.exit('session has expired')",
            r"exited with code 1: session has expired; run `.*plugin`",
        ),
        ("sys.exit(3)", r"exited with code 3: no error output; run `"),
        ("print('hello')", r"did not return a valid ExecCredential"),
        ("print('[]')", r"did not return a valid ExecCredential"),
        ("print('{}')", r"returned no kind"),
        ("answer({'token': 't'}, 'v9')", r"ExecCredential v9, but the kubeconfig says .*/v1;"),
        ("answer({})", r"returned neither a token nor a certificate; run `"),
        ("answer(None)", r"returned neither a token nor a certificate"),
        ("answer({'clientCertificateData': 'c'})", r"a certificate without its key"),
        ("answer({'token': 7})", r"did not return a valid ExecCredential .*status.token"),
        ("answer({'token': 't', 'expirationTimestamp': 'soon'})", r"a valid ExecCredential"),
    ],
)
async def test_a_broken_plugin_gives_an_error_that_says_what_to_do(
    tmp_path: Path, body: str, said: str
) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        await run(tmp_path, body)
    assert "\n" not in str(caught.value)


async def test_a_missing_plugin_gives_an_error_with_its_install_hint(tmp_path: Path) -> None:
    plugin = plugins.read(described("no-such-plugin", installHint="get it\n  from the shop"))
    with pytest.raises(SettingsError, match=r"No such file.*install it.*get it from the shop"):
        await plugins.run(plugin, tmp_path, {})


async def test_a_plugin_that_hangs_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    path = tmp_path / "plugin"
    path.write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}\nexec sleep 600\n")
    path.chmod(0o755)
    for timeout_s in (0.5, 8, 128):  # by then it has begun, on any machine
        with pytest.raises(SettingsError, match=rf"did not answer within {timeout_s} s; run `"):
            await plugins.run(plugins.read(described(path)), tmp_path, {}, timeout_s)
        if pid.exists():
            break
    assert not Path("/proc", pid.read_text().strip()).exists()  # not even as a zombie


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "set apiVersion to"),
        ({"interactiveMode": "Always"}, "requires a terminal"),
        ({"command": None}, r"exec of the user: .*command"),
        ({"args": "one"}, r"exec of the user: .*args"),
    ],
)
def test_a_wrong_exec_section_gives_an_error(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        plugins.read(described("aws") | change)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda i: st.lists(i) | st.dictionaries(st.text(), i)
    )
)
def test_any_exec_section_is_read_or_refused(thing: object) -> None:
    with suppress(SettingsError):
        assert isinstance(plugins.read(thing), Plugin)


async def test_a_sessions_token_comes_from_the_plugin(api: FakeApi, tmp_path: Path) -> None:
    api.token = "from the plugin"
    user = described(plugin_file(tmp_path, "answer({'token': 'from the plugin'})"))
    async with await Session.open(kubeconfig(tmp_path, api, user)) as session:
        assert json.loads(await session.get("/api/v1/nodes"))["kind"] == "List"


async def test_a_broken_plugin_keeps_a_session_from_opening(api: FakeApi, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, api, described(plugin_file(tmp_path, "sys.exit('log in first')")))
    with pytest.raises(SettingsError, match=f"kubeconfig.*{path}.*log in first"):
        await Session.open(path)


async def test_credentials_are_renewed_before_they_end(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_RENEW_AT_MOST_EVERY_S", 0.0)
    runs = tmp_path / "runs"
    soon = (datetime.now(UTC) + timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = f"""
with open({str(runs)!r}, "a+") as runs:
    runs.write("x"); runs.flush(); runs.seek(0); number = len(runs.read())
answer({{"token": f"token {{number}}", "expirationTimestamp": "{soon}" if number == 1 else None}})
"""
    api.token = "token 2"  # a 401 would also lead to it, but is never given
    path = kubeconfig(tmp_path, api, described(plugin_file(tmp_path, body)))
    async with await Session.open(path) as session:
        for _ in range(3):
            await session.get("/api/v1/nodes")
    assert runs.read_text() == "xx"
    assert len(api.asked) == 3


async def test_a_plugin_that_fails_later_is_logged_and_the_refusal_stays(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api.token = "good"
    user = described(plugin_file(tmp_path, "answer({'token': 'good'})"))
    async with await Session.open(kubeconfig(tmp_path, api, user)) as session:
        await session.get("/api/v1/nodes")
        plugin_file(tmp_path, "sys.exit('log in first')")
        api.token = "another"
        with pytest.raises(Unauthorized):
            await session.get("/api/v1/nodes")
    assert "log in first" in capsys.readouterr().out


class Slow:
    """A plugin that returns "token 1" at once, and "token 2" once it is released."""

    def __init__(self, folder: Path, api: FakeApi) -> None:
        self.runs, self._gone_on = folder / "runs", folder / "gone-on"
        body = f"""
with open({str(self.runs)!r}, "a+") as runs:
    runs.write("x"); runs.flush(); runs.seek(0); number = len(runs.read())
while number > 1 and not os.path.exists({str(self._gone_on)!r}):
    time.sleep(0.01)
answer({{"token": f"token {{number}}"}})
"""
        self.kubeconfig = kubeconfig(folder, api, described(plugin_file(folder, body)))

    async def renewing(self) -> None:
        """Wait until it is run for "token 2"."""
        async with asyncio.timeout(20):
            while self.runs.read_text() != "xx":
                await asyncio.sleep(0.01)

    def go_on(self) -> None:
        self._gone_on.touch()


@pytest.fixture
def slow(api: FakeApi, tmp_path: Path) -> Slow:
    return Slow(tmp_path, api)


async def test_a_call_ends_in_time_while_the_credentials_are_renewed_for_the_next(
    api: FakeApi, slow: Slow
) -> None:
    async with await Session.open(slow.kubeconfig) as session:
        api.token = "token 2"
        other = asyncio.create_task(session.get("/api/v1/nodes"))
        await slow.renewing()
        with pytest.raises(Unreachable, match="credentials are still being renewed"):
            await session.get("/api/v1/nodes", timeout_s=0.3)
        slow.go_on()
        await session.get("/api/v1/nodes")
        await other
    assert slow.runs.read_text() == "xx"


async def test_a_renewal_goes_on_for_others_when_one_caller_gives_up(
    api: FakeApi, slow: Slow
) -> None:
    async with await Session.open(slow.kubeconfig) as session:
        api.token = "token 2"
        other = asyncio.create_task(session.get("/api/v1/nodes"))
        await slow.renewing()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await session.get("/api/v1/nodes")
        other.cancel()
        slow.go_on()
        await session.get("/api/v1/nodes")
    assert slow.runs.read_text() == "xx"


async def test_a_stream_waits_for_the_renewal_too(api: FakeApi, slow: Slow) -> None:
    async with await Session.open(slow.kubeconfig) as session:
        api.token = "token 2"
        async with aclosing(session.stream("/api/v1/nodes", {"watch": True})) as chunks:
            first = asyncio.ensure_future(anext(chunks))
            await slow.renewing()
            slow.go_on()
            assert await first == b""


async def test_closing_ends_a_renewal(api: FakeApi, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    user = described(plugin_file(tmp_path, "answer({'token': 'old'})"))
    body = f"open('{pid}.new', 'w').write(str(os.getpid())); os.rename('{pid}.new', '{pid}')"
    async with await Session.open(kubeconfig(tmp_path, api, user)) as session:
        plugin_file(tmp_path, f"{body}; time.sleep(600)")
        api.token = "new"
        async with asyncio.timeout(20):
            while not pid.exists():
                with pytest.raises(Unreachable):
                    await session.get("/api/v1/nodes", timeout_s=0.1)
        assert Path(f"/proc/{pid.read_text()}").exists()
    async with asyncio.timeout(20):
        while Path(f"/proc/{pid.read_text()}").exists():
            await asyncio.sleep(0.05)
