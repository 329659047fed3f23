"""The serving process is killed while filter is asked: real processes, on a snapshot."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from fettle.cli.demo import story
from tests.controlplane.processes import free_port

WITHIN_S = 60
BODY = json.dumps({"Pod": story.plugin_pod("training", 1), "NodeNames": ["hgx-01", "hgx-04"]})
OURS = {"Authorization": "Bearer t"}
CRASHES = "fettle_serving_process_restarts_total"

pytestmark = pytest.mark.long


class Served:
    """A `fettle serve extender`. `log` is what it wrote to standard error."""

    def __init__(self, snapshot: Path, folder: Path, extender: int) -> None:
        self._browse = free_port()
        self._file = folder / f"log-{self._browse}"
        with self._file.open("w") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "fettle", "serve", "extender"),
                    *("--snapshot", str(snapshot), "--extender-listen", f"127.0.0.1:{extender}"),
                    *("--browse-listen", f"127.0.0.1:{self._browse}"),
                ],
                stderr=log,
                env={**os.environ, "FETTLE_TOKEN": "t"},
            )

    @property
    def log(self) -> str:
        return self._file.read_text()

    def kill_serving(self) -> None:
        pid = self.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)

    async def get(self, path: str) -> tuple[int, str]:
        """0 and "" while nobody answers."""
        url = f"http://127.0.0.1:{self._browse}{path}"
        try:
            async with aiohttp.ClientSession() as client, client.get(url, headers=OURS) as reply:
                return reply.status, await reply.text()
        except aiohttp.ClientError:
            return 0, ""

    async def until_ready(self) -> None:
        async with asyncio.timeout(WITHIN_S):
            while (await self.get("/readyz"))[0] != 200:
                await asyncio.sleep(0.02)


class Calls:
    """Filter, on a new connection each: the seconds that calls took, and how some failed."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/filter"
        self.seconds: list[float] = []
        self.failures: list[str] = []

    async def go_on(self) -> None:
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector) as client:
            while True:
                began = time.monotonic()
                try:
                    async with client.post(self._url, data=BODY) as reply:
                        assert (await reply.json())["NodeNames"] == ["hgx-01"]
                except aiohttp.ClientError as error:
                    self.failures.append(repr(error))
                self.seconds.append(time.monotonic() - began)


@asynccontextmanager
async def called(snapshot: Path, folder: Path, number: int) -> AsyncIterator[tuple[Served, Calls]]:
    """So many processes on one port, which is called all the time; the first of them."""
    port = free_port()
    started = [Served(snapshot, folder, port) for _ in range(number)]
    calls = Calls(port)
    try:
        for each in started:
            await each.until_ready()
        calling = asyncio.create_task(calls.go_on())
        await asyncio.sleep(0.2)
        yield started[0], calls
        assert not calling.done()
        calling.cancel()
    finally:
        for each in started:
            each.process.terminate()
        codes = [await asyncio.to_thread(each.process.wait, WITHIN_S) for each in started]
    assert codes == [0] * number


async def test_callers_wait_while_one_that_was_killed_starts_again(
    snapshot: Path, tmp_path: Path
) -> None:
    async with called(snapshot, tmp_path, 1) as (served, calls):
        served.kill_serving()
        await asyncio.sleep(0.1)
        await served.until_ready()
        before = len(calls.seconds)
        async with asyncio.timeout(WITHIN_S):
            while len(calls.seconds) < before + 20:
                await asyncio.sleep(0.02)
        assert len(calls.failures) <= 1, "but the one that was being answered, all wait"
        told = "the serving process was started again once after a crash; the last one was killed"
        assert f"crashes: {told}" in (await served.get("/readyz?verbose"))[1]
        assert f"{CRASHES} 1.0" in (await served.get("/metrics"))[1]
        assert told in served.log


async def test_where_two_share_a_port_the_other_answers_meanwhile(
    snapshot: Path, tmp_path: Path
) -> None:
    async with called(snapshot, tmp_path, 2) as (served, calls):
        before = len(calls.seconds)
        served.kill_serving()
        await served.until_ready()
        meanwhile = len(calls.seconds) - before
        assert meanwhile > 50
        assert len(calls.failures) <= 2, "the one that was being answered, and one that waited"
