"""What happens to listeners when the process is asked to stop."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fettle.client import leader_election
from fettle.config import Settings
from fettle.serve import listening
from fettle.serve.serving import Runtime
from tests.controlplane.processes import free_port
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.others import time_taken
from tests.fettle.serve.runtimes import is_open, serve_options, until_open

REPOSITORY = Path(__file__).parents[3]


async def test_no_listener_opens_while_the_others_are_drained(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "RETRY_S", 0.01)
    monkeypatch.setattr(listening, "DRAIN_S", 600.0)
    api.forbidden.add(("get", "secrets"))
    extender, webhook = free_port(), free_port()
    options = serve_options(api.kubeconfig(tmp_path), extender=extender, webhook=webhook)
    runtime = Runtime(options, Settings())
    await runtime.open()
    await until_open(extender)
    _, caller = await asyncio.open_connection("127.0.0.1", extender)
    caller.write(b"POST /filter HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
    await asyncio.sleep(0.1)
    closing = asyncio.create_task(runtime.close())
    await asyncio.sleep(0.1)
    api.forbidden.clear()  # the webhook's certificate can be had from now on
    await asyncio.sleep(0.5)
    assert not closing.done()
    assert not await is_open(webhook)
    caller.close()
    await closing
    assert not await is_open(webhook)


def test_a_process_that_is_still_being_loaded_ends_with_0_too(tmp_path: Path) -> None:
    slow = "import time\nprint('loading', flush=True)\ntime.sleep(600)\n"
    (tmp_path / "uvloop.py").write_text(slow)
    command = [sys.executable, "-m", "fettle", "serve", "--snapshot", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(REPOSITORY)))}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "loading\n"
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


async def test_a_leader_stops_in_time_though_the_api_server_hangs_and_a_request_is_half_sent(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "DRAIN_S", 1.0)
    monkeypatch.setattr(leader_election, "RELEASE_S", 1.0)
    extender = free_port()
    options = serve_options(api.kubeconfig(tmp_path), extender=extender, webhook=free_port())
    runtime = Runtime(options, msgspec.convert({"steward": {"leaseSeconds": 60}}, Settings))
    await runtime.open()
    async with asyncio.timeout(20):
        while len(api.objects.get("leases", {})) < 2:
            await asyncio.sleep(0.05)
    await until_open(extender)
    _, caller = await asyncio.open_connection("127.0.0.1", extender)
    caller.write(b"POST /filter HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
    await asyncio.sleep(0.1)
    api.answers_nothing = True
    _, seconds = await time_taken(runtime.close())
    assert seconds < 20
    caller.close()
