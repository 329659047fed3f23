"""What keeps one listener from opening keeps no other part from its work."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from certs import issuing, rotating
from fettle.cli import serving
from fettle.cli.serving import House
from fettle.settings import Settings
from tests.fettle.cli.houses import free_port, is_open, planned
from tests.fettle.kube.fake_api import FakeApi, fake_api

WEBHOOK, EXTENDER = "fettle-webhook-ca", "fettle-extender-ca"
OUT = "delete the Secret and Fettle will create a new one"


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    monkeypatch.setattr(serving, "RETRY_S", 0.02)
    monkeypatch.setattr(rotating, "POLL_S", 0.02)
    async with fake_api() as server:
        yield server


class Opened:
    def __init__(self, extender: int, webhook: int, browse: int) -> None:
        self.extender, self.webhook, self._browse = extender, webhook, browse

    async def readyz(self) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self._browse}/readyz?verbose"
        async with aiohttp.ClientSession() as client, client.get(url) as reply:
            return reply.status, await reply.text()


@asynccontextmanager
async def opened(api: FakeApi, folder: Path, settings: Settings) -> AsyncIterator[Opened]:
    ports = Opened(free_port(), free_port(), browse := free_port())
    kubeconfig = api.kubeconfig(folder)
    house = House(
        planned(kubeconfig, extender=ports.extender, webhook=ports.webhook, browse=browse), settings
    )
    staying = None
    try:
        await house.open()
        staying = asyncio.create_task(house.stay(asyncio.Event()))
        yield ports
        assert not staying.done()
    finally:
        if staying is not None:
            staying.cancel()
        await house.close()


def spoil(api: FakeApi, name: str) -> None:
    api.put("secrets", {"metadata": secret(name), "data": {"ca.crt": "eHg=", "ca.key": "eHg="}})


def secret(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "fettle-system"}


async def until(true: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(20):
        while not await true():
            await asyncio.sleep(0.02)


def settings(folder: Path) -> Settings:
    """Both listeners with certificates that Fettle signs itself."""
    file = folder / "clients.crt"
    root = issuing.root("clients", now_s=time.time(), lifetime_s=3600)
    file.write_bytes(root.certificate)
    return msgspec.convert({"extender": {"tls": {"clientCaFile": str(file)}}}, Settings)


@pytest.mark.parametrize("name", [WEBHOOK, EXTENDER])
async def test_a_spoilt_secret_keeps_only_its_own_listener_from_opening_until_it_is_deleted(
    api: FakeApi, tmp_path: Path, name: str
) -> None:
    spoil(api, name)
    async with opened(api, tmp_path, settings(tmp_path)) as ports:
        waits, other = ports.webhook, ports.extender
        if name == EXTENDER:
            waits, other = other, waits
        await until(lambda: is_open(other))
        status, said = await ports.readyz()
        assert status == 503
        assert f"no certificate yet: Secret fettle-system/{name}: ca.crt: not a readable" in said
        assert OUT in said
        assert not await is_open(waits)
        assert "fettle-system/fettle-steward" in api.objects["leases"]
        api.remove("secrets", f"fettle-system/{name}")
        await until(lambda: is_open(waits))


@pytest.mark.parametrize("name", [WEBHOOK, EXTENDER])
async def test_a_secret_that_is_spoilt_meanwhile_is_noted_while_the_old_certificate_serves(
    api: FakeApi, tmp_path: Path, name: str
) -> None:
    async with opened(api, tmp_path, settings(tmp_path)) as ports:
        for port in (ports.webhook, ports.extender):
            await until(lambda port=port: is_open(port))  # type: ignore[misc]
        spoil(api, name)

        async def noted() -> bool:
            _, said = await ports.readyz()
            return f"certificate not refreshed: Secret fettle-system/{name}: ca.crt" in said

        await until(noted)
        assert OUT in (await ports.readyz())[1]
        api.remove("secrets", f"fettle-system/{name}")

        async def forgotten() -> bool:
            return not await noted()

        await until(forgotten)
