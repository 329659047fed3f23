"""A listener that cannot open keeps no other part from its work."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs
from structlog.typing import EventDict

from certs import issuing, rotating
from certs.issuing import DAY_S
from fettle.config import Settings
from fettle.serve import listening
from fettle.serve.serving import Runtime
from tests.controlplane.processes import free_port
from tests.fettle.client.fake_api import OPERATOR, FakeApi, fake_api
from tests.fettle.serve.runtimes import is_open, serve_options

WEBHOOK, EXTENDER = "fettle-webhook-ca", "fettle-extender-ca"
MANIFEST = "deploy/rbac/authorities.yaml"
OUT = f"delete the Secret, apply {MANIFEST}, and Fettle fills it anew"


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    monkeypatch.setattr(listening, "RETRY_S", 0.02)
    monkeypatch.setattr(rotating, "POLL_S", 0.02)
    async with fake_api() as server:
        yield server


class Opened:
    def __init__(self, extender: int, webhook: int, browse: int) -> None:
        self.extender, self.webhook, self._browse = extender, webhook, browse

    async def readyz(self) -> tuple[int, str]:
        return await self._get("/readyz?verbose")

    async def expirations(self, of: str = "certificate") -> dict[str, float]:
        """When each listener's certificate expires, as /metrics says it."""
        _, told = await self._get("/metrics")
        families = {family.name: family for family in text_string_to_metric_families(told)}
        found = families[f"fettle_{of}_expiration_timestamp_seconds"].samples
        return {sample.labels["listener"]: sample.value for sample in found}

    async def _get(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self._browse}{path}"
        async with aiohttp.ClientSession(headers=OPERATOR) as client, client.get(url) as reply:
            return reply.status, await reply.text()


@asynccontextmanager
async def opened(api: FakeApi, folder: Path, settings: Settings) -> AsyncIterator[Opened]:
    ports = Opened(free_port(), free_port(), browse := free_port())
    kubeconfig = api.kubeconfig(folder)
    runtime = Runtime(
        serve_options(kubeconfig, extender=ports.extender, webhook=ports.webhook, browse=browse),
        settings,
    )
    staying = None
    try:
        await runtime.open()
        staying = asyncio.create_task(runtime.stay(asyncio.Event()))
        yield ports
        assert not staying.done()
    finally:
        if staying is not None:
            staying.cancel()
        await runtime.close()


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
async def test_an_unreadable_secret_keeps_only_its_own_listener_from_opening(
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

        async def leads() -> bool:
            return "fettle-system/fettle-steward" in api.objects.get("leases", {})

        await until(leads)
        api.empty_secret(name)
        await until(lambda: is_open(waits))


@pytest.mark.parametrize("name", [WEBHOOK, EXTENDER])
async def test_a_secret_that_was_not_applied_is_waited_for_and_its_manifest_named(
    api: FakeApi, tmp_path: Path, name: str
) -> None:
    api.remove("secrets", f"fettle-system/{name}")
    async with opened(api, tmp_path, settings(tmp_path)) as ports:
        waits = ports.extender if name == EXTENDER else ports.webhook
        missing = f"no certificate yet: Secret fettle-system/{name} is missing: apply {MANIFEST}, "

        async def told() -> bool:
            status, said = await ports.readyz()
            return status == 503 and missing in said

        await until(told)
        assert not await is_open(waits)
        api.empty_secret(name)
        await until(lambda: is_open(waits))


@pytest.mark.parametrize("name", [WEBHOOK, EXTENDER])
async def test_a_secret_that_becomes_unreadable_is_noted_while_the_old_certificate_serves(
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
        api.empty_secret(name)

        async def forgotten() -> bool:
            return not await noted()

        await until(forgotten)


async def logged_already(logged: list[EventDict], said: str) -> bool:
    return any(said in entry["event"] for entry in logged)


async def test_when_each_certificate_expires_is_a_metric(api: FakeApi, tmp_path: Path) -> None:
    async with opened(api, tmp_path, settings(tmp_path)) as ports:
        for port in (ports.webhook, ports.extender):
            await until(lambda port=port: is_open(port))  # type: ignore[misc]
        expirations = await ports.expirations()
    assert set(expirations) == {"webhook", "extender"}
    for at in expirations.values():
        assert at == pytest.approx(time.time() + 7 * DAY_S, abs=60)


async def test_an_expired_certificate_from_a_file_is_served_and_reported(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("certs.serving.WARNINGS_POLL_S", 0.02)
    now_s = time.time()
    root = issuing.root("test CA", now_s=now_s - 9 * DAY_S, lifetime_s=99 * DAY_S)
    old = issuing.leaf(root, ["localhost"], now_s=now_s - 2 * DAY_S, lifetime_s=DAY_S)
    file, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    file.write_bytes(old.certificate)
    key.write_bytes(old.key)
    clients = tmp_path / "clients.crt"
    clients.write_bytes(root.certificate)
    tls = {"certificateFile": str(file), "keyFile": str(key), "clientCaFile": str(clients)}
    given = msgspec.convert({"webhook": {"certificates": "files", "tls": tls}}, Settings)
    with capture_logs() as logged:
        async with opened(api, tmp_path, given) as ports:
            await until(lambda: is_open(ports.webhook))
            said = f"webhook: the certificate in {file} expired on "

            async def told() -> bool:
                status, text = await ports.readyz()
                return status == 503 and f"not ready: {said}" in text

            await until(told)
            await until(lambda: logged_already(logged, said))
            assert await ports.expirations() == {"webhook": issuing.expires_at(old.certificate)}
            assert await ports.expirations("client_ca") == {
                "webhook": issuing.expires_at(root.certificate)
            }
    assert [entry["log_level"] for entry in logged if said in entry["event"]] == ["warning"]
