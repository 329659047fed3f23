"""`fettle ui`: the page for one person, with their own rights in the cluster."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.controlplane import objects
from tests.fettle.client.fake_api import FakeApi, fake_api

READS = {"get", "list", "watch"}
WAIT_S = 30.0


class Page:
    """A `fettle ui` that runs. `url` is what it printed, `base` without the token."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, opened: Path) -> None:
        self.process = process
        self.url = url
        self.base, _, self.token = url.partition("/#")
        self._opened = opened

    async def get(self, path: str, token: str = "") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as client,
            client.get(self.base + path, headers=headers) as reply,
        ):
            text = await reply.text()
            return reply.status, json.loads(text) if text[:1] == "{" else text

    async def told(self, path: str, true: Callable[[Any], object]) -> Any:
        """What the page is told, once this is true of it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                status, found = await self.get(path, self.token)
                assert status == 200, found
                if true(found):
                    return found
                await asyncio.sleep(0.05)

    async def opened(self) -> str:
        """The URL that the browser was started with."""
        async with asyncio.timeout(WAIT_S):
            while not self._opened.exists():
                await asyncio.sleep(0.05)
        return self._opened.read_text().strip()


@asynccontextmanager
async def page(api: FakeApi, folder: Path, *arguments: str) -> AsyncIterator[Page]:
    async with page_of(api.kubeconfig(folder), folder, *arguments) as found:
        yield found


@asynccontextmanager
async def page_of(kubeconfig: Path, folder: Path, *arguments: str) -> AsyncIterator[Page]:
    opened, browser = folder / "opened", folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.new; mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fettle", "ui", "--kubeconfig", str(kubeconfig)),
        *arguments,
        env={**os.environ, "BROWSER": f"{browser} %s"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT_S):
            line = (await process.stdout.readline()).decode()
            assert line.startswith("Fettle's page: "), (await process.stderr.read()).decode()
        yield Page(process, line.split()[-1], opened)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        broken = objects.node("bad", gpus=8)
        broken["status"]["conditions"] = [
            objects.node_condition("CperHardwareErrorFatal", "True", "CPERFatal", "memory error")
        ]
        api.put("nodes", broken)
        for namespace in ("ml", "other"):
            api.put("pods", objects.pod("waits", gpus=1, namespace=namespace))
        yield api


async def test_whoever_has_the_url_sees_the_cluster_and_nothing_is_written(
    api: FakeApi, tmp_path: Path
) -> None:
    async with page(api, tmp_path, "--no-open") as found:
        fleet = await found.told("/fleet", lambda told: told["nodes"])
        assert [node[0] for node in fleet["nodes"]] == ["bad"]
        headline = await found.told("/headline", lambda told: told["waitingTotal"])
        assert headline["mode"] == "not known"
        assert headline["asked"] == {}
        assert {asked.verb for asked in api.asked} <= READS
        assert not (tmp_path / "opened").exists()
        assert (await found.get("/"))[0] == 200


async def test_others_on_the_machine_see_nothing(api: FakeApi, tmp_path: Path) -> None:
    closed = ("/fleet", "/headline", "/pods", "/metrics", "/readyz", "/readyz?verbose", "/setup")
    async with page(api, tmp_path, "--no-open") as found:
        for path in closed:
            for token in ("", f"{found.token}x"):
                status, told = await found.get(path, token)
                assert status == 401, path
                assert "open the URL that `fettle ui` printed" in told["error"]
            assert (await found.get(path, found.token))[0] in (200, 503), path


async def test_what_the_browser_is_started_with_gives_the_token_once(
    api: FakeApi, tmp_path: Path
) -> None:
    """Others can read a browser's command line."""
    async with page(api, tmp_path) as found:
        base, _, code = (await found.opened()).partition("/#once=")
        assert base == found.base
        assert found.token not in code
        assert (await found.get("/fleet", code))[0] == 401
        assert await found.get("/token", code) == (200, {"token": found.token})
        status, told = await found.get("/token", code)
        assert status == 401
        assert "somebody else on this machine sees the page" in told["error"]
        assert (await found.get("/token", "guessed"))[0] == 401


async def test_where_a_right_is_missing_the_rest_is_shown_and_the_page_says_what_is_not_seen(
    api: FakeApi, tmp_path: Path
) -> None:
    api.forbidden |= {("list", "pods"), ("watch", "pods")}
    async with page(api, tmp_path, "--no-open") as found:
        await found.told("/fleet", lambda told: told["nodes"])
        told = await found.told("/headline", lambda told: told["unseen"])
        (why,) = (one for one in told["unseen"] if "pods" in one)
        assert "who uses which device is not seen" in why
        assert [one.partition(":")[0] for one in told["problems"]] == ["mode"]


async def test_of_pods_those_of_one_namespace_can_be_chosen(api: FakeApi, tmp_path: Path) -> None:
    async with page(api, tmp_path, "--no-open", "--namespace", "ml") as found:
        told = await found.told("/headline", lambda told: told["waitingTotal"])
        assert [pod["pod"] for pod in told["waiting"]] == ["ml/waits"]
        assert (await found.get("/explain?pod=other/waits", found.token))[0] == 403
        assert (await found.get("/explain?pod=ml/waits", found.token))[0] == 200


async def test_its_report_does_not_claim_that_nothing_happened(
    api: FakeApi, tmp_path: Path
) -> None:
    async with page(api, tmp_path) as ui:
        report = await ui.told("/report", lambda _: True)
    assert report["recorded"] is False
    assert report["notes"] == []


async def test_ctrl_c_ends_it_with_0(api: FakeApi, tmp_path: Path) -> None:
    async with page(api, tmp_path, "--no-open") as found:
        found.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(10):
            assert await found.process.wait() == 0


async def test_without_a_cluster_it_says_so_and_opens_nothing(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fettle", "ui", "--kubeconfig", str(tmp_path / "none")),
        env={**os.environ, "BROWSER": f"touch {tmp_path}/opened %s"},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_S):
        _, said = await process.communicate()
    assert process.returncode == 1
    assert said.decode().startswith("fettle: ")
    assert "Traceback" not in said.decode()
    assert not (tmp_path / "opened").exists()
