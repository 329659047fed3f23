"""DeviceHealths, which are the memory of the steward: defined, read and waited for."""

from typing import Any

from tests.controlplane import shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.fettle_process import FettleProcess

ROLES = ("extender", "steward")


async def define(api: Api) -> None:
    """deploy/crds, as users apply them."""
    await shipped.apply(api, shipped.manifests(shipped.DEPLOY / "crds"))


async def shown(fettle: FettleProcess, node: str) -> Any:
    """The node's own health, as `fettle devices` shows it."""
    status, answer = await fettle.browse("/devices")
    assert status == 200, answer
    return next(one for one in answer["nodes"] if one["node"] == node)


async def stored(api: Api, name: str, *, timeout_s: float = 20, **status: Any) -> Any:
    """The DeviceHealth, once its status has these values."""
    return await waiting.wait_until(
        lambda: one_of(api, name),
        lambda found: (
            found is not None
            and all(found.get("status", {}).get(k) == v for k, v in status.items())
        ),
        what=f"DeviceHealth {name} with {status}",
        timeout_s=timeout_s,
    )


async def one_of(api: Api, name: str) -> Any:
    found = {one["metadata"]["name"]: one for one in await api.list("devicehealths")}
    return found.get(name)


def healthy(found: Any) -> str:
    """The status of the condition, as `kubectl wait --for=condition=Healthy` sees it."""
    return str(waiting.condition(found, "Healthy")["status"])
