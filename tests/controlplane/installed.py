"""Fettle installed as users install it: its RBAC, its webhook configurations, its scheduler
configuration, all as they are shipped in `deploy/`."""

from __future__ import annotations

from typing import Any

from tests.controlplane import shipped
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.waiting import wait_until

REFUSED = "fettle: no sound devices"
CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


async def register_extender(
    control_plane: ControlPlane, fettle: FettleProcess, **changes: Any
) -> None:
    """(Re)start the scheduler with the shipped configuration; `changes` are made to its entry."""
    configuration = shipped.scheduler_configuration(fettle.extender_url)
    for entry in configuration["extenders"]:
        entry |= changes
    if "kube-scheduler" in control_plane.pids():
        await control_plane.stop_scheduler()
    await control_plane.start_scheduler(configuration)


async def register_webhooks(api: Api, fettle: FettleProcess) -> None:
    """Apply the shipped configurations, and wait until Fettle has put its caBundle there."""
    await shipped.apply(api, shipped.webhook_configurations(fettle.webhook_port))
    await until_trusted(api)


async def start_registered(
    api: Api, start_fettle: StartFettle, *roles: str, **how: Any
) -> FettleProcess:
    """As when all of deploy/ is applied at once: Fettle finds the webhook configurations when it
    starts, and is ready once its caBundle is there."""
    fettle = await start_fettle(*roles, wait=False, **how)
    await shipped.apply(api, shipped.webhook_configurations(fettle.webhook_port))
    await fettle.ready()
    await until_trusted(api)
    return fettle


async def until_trusted(api: Api) -> None:
    for resource in CONFIGURATIONS:
        await wait_until(
            lambda resource=resource: api.get(resource, "fettle"),  # type: ignore[misc]
            trusted,
            what=f"{resource} fettle has a caBundle",
        )


def trusted(configuration: Object) -> bool:
    """Whether every webhook of a configuration has a caBundle."""
    return all(webhook["clientConfig"].get("caBundle") for webhook in configuration["webhooks"])


async def install(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, **how: Any
) -> FettleProcess:
    """All three roles, with webhooks and extender registered."""
    fettle = await start_registered(api, start_fettle, **how)
    await register_extender(control_plane, fettle)
    return fettle


async def scores(fettle: FettleProcess, pod: str, namespace: str = "default") -> dict[str, Any]:
    """Node → its verdict, as `/explain` answers it; nothing of a pod that is not seen yet."""
    status, answer = await fettle.browse("/explain", pod=f"{namespace}/{pod}")
    if status == 404:
        return {}
    assert status == 200, answer
    found: dict[str, Any] = answer["nodes"]
    return found
