"""Whoever repairs nodes by Fettle's condition alone, as node-healthcheck-operator does, repairs
those that have lost devices, and no others."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes, create_node
from tests.controlplane.memory import define, one_of
from tests.controlplane.taints import RIGHTS, condition, publish

AFTER_S = 4.0
SETTINGS = f"""
health: {{missingAfterSeconds: {AFTER_S}}}
nodeMarks: {{label: true, condition: true, holdSeconds: 1}}
"""


async def boot(api: Api, name: str, number: int, gpus: int = 8) -> None:
    """The machine starts, and its device plugin or DRA driver finds its GPUs."""
    await show(api, name, gpus, f"boot-{number}")


async def show(api: Api, name: str, gpus: int, boot_id: str) -> None:
    status: dict[str, object] = {"nodeInfo": {"bootID": boot_id}}
    if name.startswith("dra"):
        await publish(api, name, gpus)
    else:
        amounts = {objects.GPU: str(gpus)}
        status |= {"capacity": amounts, "allocatable": amounts}
    await api.patch_status("nodes", name, status)


async def remediate(api: Api, repaired: Counter[str]) -> None:
    """A stand-in for a remediation that knows no devices: it reads the condition, replaces the
    machine, and waits for the condition to end. It goes on until it is cancelled."""
    while True:
        for node in await api.list("nodes"):
            name = node["metadata"]["name"]
            if (await condition(api, name)).get("status") == "False":
                repaired[name] += 1
                await boot(api, name, repaired[name])
                await until_sound(api, name)
        await asyncio.sleep(0.5)


async def until_sound(api: Api, *names: str) -> None:
    for name in names:
        await waiting.wait_until(
            partial(condition, api, name),
            lambda said: said.get("status") == "True",
            what=f"the condition of {name} is True",
        )


async def until_said(api: Api, name: str, text: str) -> None:
    """The condition begins with this, and the label is there."""

    async def said() -> tuple[str, str]:
        labels = (await api.get("nodes", name))["metadata"]["labels"]
        message = (await condition(api, name)).get("message", "")
        return labels.get("fettle.dev/health.missing", ""), message[: len(text)]

    await waiting.wait_until(
        said, lambda found: found == ("true", text), what=f"{name} says: {text}"
    )


async def until_stored(api: Api, name: str, missing: tuple[str, int, int]) -> None:
    async def stored() -> list[tuple[str, int, int]]:
        found = (await one_of(api, name) or {}).get("status", {}).get("missing", ())
        return [(one["name"], one["found"], one["expected"]) for one in found]

    await waiting.wait_until(
        stored, lambda found: found == [missing], what=f"DeviceHealth {name} says {missing}"
    )


async def test_a_remediation_that_reads_only_our_condition_repairs_the_nodes_that_lost_a_gpu(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await create_gpu_nodes(api, "plugin", "sound")
    for name in ("dra", "dra-sound"):
        await create_dra_node(api, name, 8)
    await define(api)
    await shipped.apply(api, shipped.manifests(RIGHTS))
    for name in ("plugin", "sound", "dra", "dra-sound"):
        await boot(api, name, 0)
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS)
    fettle = await start_fettle("steward", settings=file)
    await until_sound(api, "plugin", "sound", "dra", "dra-sound")
    await asyncio.sleep(AFTER_S)  # so long a plugin or driver may take to start: what it had counts

    # Each is back without the GPU that fell off the bus. A third one has never shown any.
    await show(api, "plugin", 7, "boot-0")
    await show(api, "dra", 7, "boot-0")
    labels = {"nvidia.com/gpu.present": "true"}
    await create_node(api, objects.node("unstarted", labels=labels))

    by_memory = "expected by the most since its boot"
    await until_said(api, "plugin", f"1 of 8 {objects.GPU} missing, {by_memory}")
    await until_said(api, "dra", f"1 of 8 {objects.DRIVER} missing, {by_memory}")
    by_label = "expected by label nvidia.com/gpu.present"
    await until_said(api, "unstarted", f"1 of 1 {objects.GPU} missing, {by_label}")
    assert (await condition(api, "plugin"))["reason"] == "DevicesMissing"

    # Fettle is replaced meanwhile: neither what was there before nor its loss is forgotten.
    await until_stored(api, "plugin", (objects.GPU, 7, 8))
    await until_stored(api, "dra", (objects.DRIVER, 7, 8))
    fettle.kill()
    fettle = await start_fettle("steward", settings=file)
    _, metrics = await fettle.browse("/metrics")
    assert f'fettle_devices_missing{{kind="{objects.DRIVER}"}} 1.0' in str(metrics)

    repaired: Counter[str] = Counter()
    remediation = asyncio.create_task(remediate(api, repaired))
    try:
        await until_sound(api, "plugin", "dra", "unstarted")
        await asyncio.sleep(2 * AFTER_S)
    finally:
        remediation.cancel()
        with suppress(asyncio.CancelledError):
            await remediation
    assert repaired == {"plugin": 1, "dra": 1, "unstarted": 1}
    await until_sound(api, "plugin", "sound", "dra", "dra-sound", "unstarted")
    nodes = await api.list("nodes")
    assert not [n for n in nodes if "fettle.dev/health.missing" in n["metadata"]["labels"]]
