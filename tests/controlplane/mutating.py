"""The webhook with a policy of every kind of injection, and how many reviews it was sent."""

from __future__ import annotations

import re

from tests.controlplane import waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.installed import register_extender, start_registered
from tests.controlplane.objects import policy

NAMED = {"fettle.dev/policy": "own"}
KEY = "example.com/maintenance"
DEGRADED = "fettle.dev/degraded"
KEPT = "fettle.dev/kept-for-tests"
TOLERATION = {"key": KEY, "operator": "Exists", "effect": "NoSchedule"}
EVERYTHING: Object = {
    "placement": {"affinity": "Required"},
    "tolerations": {
        "notReadySeconds": 45,
        "unreachableSeconds": 45,
        "devices": [{"key": KEY, "seconds": 600}],
        "degradedAsFallback": True,
    },
    "failure": {
        "ignoreDisruptions": True,
        "failJobOnExitCodes": [42],
        "restartContainerOnExitCodes": [75],
        "restartAction": "RestartAllContainers",
        "backoffLimitPerIndex": 2,
        "jobSet": {
            "maxRestarts": 3,
            "rules": [{"name": "lost", "action": "RestartJobSet"}],
        },
    },
}


async def installed(
    api: Api, start_fettle: StartFettle, spec: Object, scheduled_by: ControlPlane | None = None
) -> FettleProcess:
    """The webhook with a policy `own`, which it knows; the extender too, with the scheduler."""
    await define_policies(api)
    await api.create(policy("own", spec))
    roles = ("webhook", "extender") if scheduled_by else ("webhook",)
    fettle = await start_registered(api, start_fettle, *roles)
    if scheduled_by is not None:
        await register_extender(scheduled_by, fettle)
    await waiting.wait_until(
        lambda: fettle.browse("/policy", name="own"),
        lambda answer: answer[0] == 200,
        what="the policy is known",
    )
    await waiting.wait_until(
        lambda: _log(fettle), lambda log: '"restart_rules": true' in log, what="gates are known"
    )
    return fettle


async def _log(fettle: FettleProcess) -> str:
    return (fettle.folder / "fettle.log").read_text()


async def reviewed(fettle: FettleProcess, webhook: str = "mutate") -> float:
    """How many reviews that webhook was sent."""
    _, metrics = await fettle.browse("/metrics")
    found = re.findall(rf'reviews_total{{.*webhook="{webhook}".*}} (\S+)', metrics)
    return sum(map(float, found))
