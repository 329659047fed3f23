"""`fettle status --wait`: what it waits for, how long, and what scripts see of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from fettle.cli import calling, setup_waiting
from fettle.cli.commands import main
from fettle.config import Settings
from fettle.serve.serving import Runtime
from tests.controlplane import objects
from tests.controlplane.processes import free_port
from tests.fettle.cli.linted import logging_restored
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.serve.runtimes import serve_options

HERE = "fettle-system"
OBSERVING = msgspec.convert({"mode": "observe"}, Settings)


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    monkeypatch.delenv("FETTLE_SERVER", raising=False)
    monkeypatch.setattr(setup_waiting, "EVERY_S", 0.05)
    with logging_restored():
        async with fake_api() as api:
            yield api


class Installed:
    """Processes of Fettle, and pods that say where they are."""

    def __init__(self, api: FakeApi, folder: Path) -> None:
        self._api = api
        self.asked_at: dict[int, int] = {}
        """Each browse port's port of the extender."""
        self.kubeconfig = api.kubeconfig(folder, namespace=HERE)

    @asynccontextmanager
    async def process(self, role: str) -> AsyncIterator[int]:
        """The port of its browse listener."""
        port = free_port()
        self.asked_at[port] = asked_at = free_port()
        options = serve_options(self.kubeconfig, role, browse=port, extender=asked_at)
        runtime = Runtime(options, OBSERVING)
        try:
            await runtime.open()
            self.pod(f"fettle-{role}-0", port)
            yield port
        finally:
            await runtime.close()

    def pod(self, name: str, port: int, address: str = "127.0.0.1", **spec: Any) -> None:
        labels = {"app.kubernetes.io/part-of": "fettle"}
        containers = [{"name": "fettle", "ports": [{"name": "browse", "containerPort": port}]}]
        self._api.put(
            "pods",
            {
                "metadata": {"name": name, "namespace": HERE, "labels": labels},
                "spec": {"containers": containers, **spec},
                "status": {"phase": "Running", "podIP": address},
            },
        )

    async def run(self, *arguments: str, **env: str) -> Result:
        given = ["status", *arguments]
        return await asyncio.to_thread(CliRunner().invoke, main, given, env=env)

    async def wait(self, *arguments: str, within: str = "1s") -> Result:
        return await self.run("--wait", within, *arguments, "--kubeconfig", str(self.kubeconfig))


def said(ended: Result) -> str:
    """Without the log of the processes that the test runs."""
    return "\n".join(line for line in ended.output.splitlines() if line.startswith("fettle: "))


@pytest.fixture
def installed(api: FakeApi, tmp_path: Path) -> Installed:
    return Installed(api, tmp_path)


async def test_a_steward_that_is_ready_and_has_its_rights_is_set_up(installed: Installed) -> None:
    async with installed.process("steward"):
        ended = await installed.wait("--role", "steward", within="20s")
    assert ended.exit_code == 0
    assert said(ended).endswith("fettle: Fettle is set up")


async def test_an_extender_that_nobody_asks_is_not(installed: Installed) -> None:
    async with installed.process("extender") as port:
        ended = await installed.run("--wait", "1s", "--server", f"http://127.0.0.1:{port}")
        assert ended.exit_code == 1
        assert "no scheduler has asked the extender yet" in said(ended)


async def test_of_several_processes_that_the_environment_names_one_need_have_been_asked(
    installed: Installed,
) -> None:
    async with installed.process("extender") as asked, installed.process("extender") as other:
        servers = f"http://127.0.0.1:{other} http://127.0.0.1:{asked}"
        waiting = asyncio.create_task(installed.run("--wait", "30s", FETTLE_SERVER=servers))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        url = f"http://127.0.0.1:{installed.asked_at[asked]}/filter"
        body = {"Pod": objects.pod("p", gpus=1), "NodeNames": ["n"]}
        await asyncio.to_thread(calling.call_json, url, body)
        assert (await waiting).exit_code == 0


async def test_a_right_that_is_missing_is_said_and_what_is_ready_later_counts(
    api: FakeApi, installed: Installed
) -> None:
    api.forbidden = {("list", "events"), ("watch", "events")}
    async with installed.process("steward") as port:
        url = f"http://127.0.0.1:{port}/setup"
        while not json.loads(await asyncio.to_thread(calling.call, url))["denied"]:
            await asyncio.sleep(0.05)
        ended = await installed.wait()
        assert ended.exit_code == 1
        assert "lacks a right: its /readyz?verbose says which" in said(ended)
        assert "events" not in said(ended), "strangers may ask for it"
        waiting = asyncio.create_task(installed.wait(within="60s"))
        api.forbidden.clear()
        api.drop_watches()
        assert (await waiting).exit_code == 0


async def test_a_role_that_must_be_there_and_is_not_is_said(installed: Installed) -> None:
    async with installed.process("steward"):
        ended = await installed.wait("--role", "webhook")
    assert ended.exit_code == 1
    assert "no webhook answers" in said(ended)


async def test_without_any_pod_of_fettle_that_is_said_in_time(installed: Installed) -> None:
    began = time.monotonic()
    ended = await installed.wait()
    assert ended.exit_code == 1
    assert "no pod of Fettle is found" in said(ended)
    assert time.monotonic() - began < 10


async def test_a_pod_that_does_not_answer_is_said_and_does_not_stop_it(
    installed: Installed,
) -> None:
    installed.pod("fettle-webhook-0", free_port())
    installed.pod("fettle-steward-0", 8090, address="")
    ended = await installed.wait()
    assert ended.exit_code == 1
    assert "pod fettle-system/fettle-webhook-0: http://127.0.0.1:" in said(ended)
    assert "pod fettle-system/fettle-steward-0: it does not run yet" in said(ended)


async def test_pods_on_the_host_network_and_in_other_namespaces_are_not_asked(
    api: FakeApi, installed: Installed
) -> None:
    """On the host network they listen on loopback; elsewhere anybody may label a pod."""
    async with installed.process("steward"):
        installed.pod("fettle-extender-a", free_port(), hostNetwork=True)
        assert (await installed.wait(within="20s")).exit_code == 0
    listed = [one.target for one in api.asked if one.verb == "list" and one.target.plural == "pods"]
    assert HERE in {one.namespace for one in listed}


async def test_an_api_server_that_is_away_is_waited_for(api: FakeApi, installed: Installed) -> None:
    async with installed.process("steward"):
        await api.stop()
        waiting = asyncio.create_task(installed.wait(within="60s"))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await api.start()
        assert (await waiting).exit_code == 0


async def test_the_api_server_is_given_something_to_ask_the_webhook_about(
    api: FakeApi, installed: Installed
) -> None:
    """As a dry run, whatever becomes of it."""
    await installed.wait()
    tried = [one for one in api.asked if one.target.plural == "devicepolicies"]
    assert {(one.verb, one.query.get("dryRun")) for one in tried} >= {("create", "All")}
    assert not api.objects.get("devicepolicies")


@pytest.mark.parametrize("wrong", ["soon", "0s", "-5m", ""])
async def test_a_wrong_duration_is_a_usage_error(installed: Installed, wrong: str) -> None:
    ended = await installed.run("--wait", wrong)
    assert ended.exit_code == (2 if wrong else 1)


@pytest.mark.parametrize("flags", [("--role", "webhook"), ("--wait", "1s", "--output", "json")])
async def test_flags_that_do_not_go_together_are_a_usage_error(
    installed: Installed, flags: tuple[str, ...]
) -> None:
    assert (await installed.run(*flags)).exit_code == 2


@pytest.mark.parametrize("of_environment", [True, False])
def test_a_server_that_is_not_there_is_named_once_and_without_its_token(
    of_environment: bool,
) -> None:
    url = "http://127.0.0.1:9/#secret"
    command = ["status", "--wait", "1s", *([] if of_environment else ["--server", url])]
    ended = CliRunner().invoke(main, command, env={"FETTLE_SERVER": url if of_environment else ""})
    assert ended.exit_code == 1
    assert ended.output.startswith("fettle: http://127.0.0.1:9 did not answer: ")
    assert ended.output.count("http://") == 1
    assert "secret" not in ended.output
