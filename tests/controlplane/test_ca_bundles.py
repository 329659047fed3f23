"""The caBundle of the webhook configurations is kept with the rights in deploy/rbac."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.controlplane import shipped
from tests.controlplane.api import Api
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
