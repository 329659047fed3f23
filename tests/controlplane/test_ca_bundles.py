"""The caBundle of the webhook configurations is kept with the rights in deploy/rbac."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from pathlib import Path

import pytest

from certs import authority
from certs.issuing import DAY_S
from tests.controlplane import shipped
from tests.controlplane.api import Api
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.installed import CONFIGURATIONS, start_registered, trusted
from tests.controlplane.waiting import wait_until

QUIET_S = 5.0


async def reads(api: Api) -> int:
    """How many GETs and lists of webhook configurations the API server has answered."""
    text = await api.request_text("GET", "/metrics")
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in text.splitlines()
        if line.startswith("apiserver_request_total{")
        and any(f'resource="{resource}"' in line for resource in CONFIGURATIONS)
        and any(f'verb="{verb}"' in line for verb in ("GET", "LIST"))
    )


async def lose_bundles(api: Api) -> None:
    """As when the shipped files are applied again."""
    for resource in CONFIGURATIONS:
        webhooks = (await api.get(resource, "fettle"))["webhooks"]
        for webhook in webhooks:
            webhook["clientConfig"].pop("caBundle", None)
        await api.patch(resource, "fettle", {"webhooks": webhooks})


async def until_mended(api: Api) -> None:
    for resource in CONFIGURATIONS:
        await wait_until(
            lambda resource=resource: api.get(resource, "fettle"),  # type: ignore[misc]
            trusted,
            what=f"{resource} fettle has a caBundle again",
        )


async def test_a_lost_ca_bundle_is_mended_at_once_and_a_quiet_cluster_is_not_asked(
    api: Api, start_fettle: StartFettle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for configuration in shipped.webhook_configurations(1):
        configuration["metadata"]["name"] = "of-others"
        await api.apply(configuration)
    fettle = await start_registered(api, start_fettle, "webhook")
    await asyncio.sleep(1.0)  # its watches are complete
    before = await reads(api)
    await asyncio.sleep(QUIET_S)
    assert await reads(api) == before
    for _ in range(3):
        await lose_bundles(api)
        await until_mended(api)
    for resource in CONFIGURATIONS:
        assert not trusted(await api.get(resource, "of-others"))
    log = fettle.process.log.read_text()
    assert "polled" not in log
    assert "not maintained" not in log


async def test_under_an_older_role_it_is_mended_too_and_the_log_says_what_to_grant(
    api: Api, start_fettle: StartFettle
) -> None:
    fettle = await start_registered(api, start_fettle, "webhook")
    role = await api.get("clusterroles", "fettle-webhook")
    for rule in role["rules"]:
        if CONFIGURATIONS[0] in rule["resources"]:
            rule["verbs"] = ["get", "patch"]
    await api.replace(role)
    await fettle.stop()
    fettle.start()
    await fettle.ready()
    await lose_bundles(api)
    await until_mended(api)
    entries = [json.loads(line) for line in fettle.process.log.read_text().splitlines()]
    for resource in CONFIGURATIONS:
        (said,) = [e["reason"] for e in entries if f'"{resource}"' in e.get("reason", "")]
        assert 'grant the verbs "list" and "watch"' in said


async def handshake(port: int, ca: bytes) -> None:
    """As the API server's: by its clock, and trusting caBundle alone."""
    trusting = ssl.create_default_context(cadata=ca.decode())
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trusting, server_hostname="localhost"
    )
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("days", [400, -400])
async def test_a_replica_whose_clock_is_a_year_off_leaves_the_authority_alone_and_serves(
    api: Api, start_fettle: StartFettle, tmp_path: Path, days: int
) -> None:
    await start_registered(api, start_fettle, "webhook")
    before = await api.get("secrets", "fettle-webhook-ca", shipped.NAMESPACE)
    clock = Clock(tmp_path)
    clock.jump(days * 86400)
    wrong = await start_fettle("webhook", env=clock.env)
    ca = base64.b64decode(before["data"]["ca.crt"])
    await handshake(wrong.webhook_port, ca)
    _, told = await wrong.browse("/readyz", verbose="")
    assert "webhook: this machine's clock is 400 days " in told
    assert await api.get("secrets", "fettle-webhook-ca", shipped.NAMESPACE) == before


async def test_an_authority_of_the_future_is_replaced_by_one_that_is_valid_now(
    api: Api, start_fettle: StartFettle
) -> None:
    """As a replica whose clock was ahead has made it."""
    await shipped.apply_rbac(api)
    wrong = authority.new_secret("x", now_s=time.time() + 2 * DAY_S, lifetime_s=400 * DAY_S)
    data = {name: base64.b64encode(content).decode() for name, content in wrong.items()}
    await api.patch("secrets", "fettle-webhook-ca", {"data": data}, shipped.NAMESPACE)
    fettle = await start_registered(api, start_fettle, "webhook")
    now = await api.get("secrets", "fettle-webhook-ca", shipped.NAMESPACE)
    await handshake(fettle.webhook_port, base64.b64decode(now["data"]["ca.crt"]))
