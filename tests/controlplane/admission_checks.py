"""Fettle's check for Kueue: what tests start and wait for, with Kueue itself and
with its part played by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.controlplane import shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.definitions import define_policies

SERVED = "kueue.x-k8s.io/v1beta2"
RIGHTS = shipped.DEPLOY / "rbac" / "optional" / "kueue.yaml"
CHECK: Object = {
    "apiVersion": SERVED,
    "kind": "AdmissionCheck",
    "metadata": {"name": "sound-devices"},
    "spec": {"controllerName": "fettle.dev/sound-devices"},
}
POOL = {"pool": "gpus"}
FLAVOR: Object = {
    "apiVersion": SERVED,
    "kind": "ResourceFlavor",
    "metadata": {"name": "gpus"},
    "spec": {"nodeLabels": POOL},
}


async def start_answering(api: Api, start_fettle: StartFettle, folder: Path) -> None:
    """A steward that answers Kueue, with the rights for that."""
    await define_policies(api)
    await shipped.apply(api, shipped.manifests(RIGHTS))
    file = folder / "answering.yaml"
    file.write_text("mode: enforce\nkueue: {admissionCheck: true}\n")
    await start_fettle("steward", settings=file)


async def checked(api: Api, name: str) -> Any:
    """What the check of a workload says."""
    workload = await api.get("workloads", name, "default")
    checks = workload.get("status", {}).get("admissionChecks") or [{}]
    return next((one for one in checks if one.get("name") == "sound-devices"), {})


async def until_checked(api: Api, name: str, state: str) -> Any:
    return await waiting.wait_until(
        lambda: checked(api, name),
        lambda found: found.get("state") == state and found.get("message"),
        what=f"the check of {name} is {state}",
        timeout_s=60,
    )


async def is_active(api: Api) -> None:
    await waiting.wait_until(
        lambda: api.get("admissionchecks", "sound-devices"),
        lambda check: (
            [(one["type"], one["status"]) for one in check.get("status", {}).get("conditions", ())]
            == [("Active", "True")]
        ),
        what="the check is active",
        timeout_s=60,
    )
