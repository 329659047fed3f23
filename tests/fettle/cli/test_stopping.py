"""What happens to listeners while a process is asked to stop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fettle.cli import serving
from fettle.cli.serving import House, Plan
from fettle.settings import Settings
from tests.fettle.kube.fake_api import FakeApi, fake_api


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as server:
        yield server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


async def is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def test_no_listener_opens_while_the_others_are_drained(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "RETRY_S", 0.01)
    api.forbidden.add(("get", "secrets"))
    extender, webhook = free_port(), free_port()
    plan = Plan(
        roles=frozenset({"extender", "webhook"}),
        kubeconfig=api.kubeconfig(tmp_path),
        snapshot=None,
        settings=None,
        extender_listen=f"127.0.0.1:{extender}",
        webhook_listen=f"127.0.0.1:{webhook}",
        browse_listen="127.0.0.1:0",
        log_level="info",
    )
    house = House(plan, Settings())
    await house.open()
    _, caller = await asyncio.open_connection("127.0.0.1", extender)
    caller.write(b"POST /filter HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
    await asyncio.sleep(0.1)
    closing = asyncio.create_task(house.close())
    await asyncio.sleep(0.1)
    api.forbidden.clear()  # the webhook's certificate can be had from now on
    await asyncio.sleep(0.5)
    assert not closing.done()
    assert not await is_open(webhook)
    caller.close()
    await closing
    assert not await is_open(webhook)
