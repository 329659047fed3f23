"""Fettle is replaced while it serves: by itself for new settings, or by a second process. Nobody
notices, and no pod lands where Fettle would have refused it.

The scheduler's own scores prefer the node with the fault, and the extender is ignorable: a moment
without Fettle would show as a pod on that node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import REFUSED, install, register_extender
from tests.controlplane.kubelet import Kubelet

LOST = ("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost")
CALL_FAILED = re.compile(r"connection refused|connection reset|EOF|[Ee]xtender.*(fail|error)")
Replace = Callable[[FettleProcess, StartFettle, Path], Awaitable[None]]


async def by_sighup(fettle: FettleProcess, _start: StartFettle, _settings: Path) -> None:
    await fettle.reload()


async def by_new_settings(fettle: FettleProcess, _start: StartFettle, settings: Path) -> None:
    before = fettle.serving_pid
    settings.write_text("health: {degradedBelow: 0.7}\n")
    await fettle.replaced(before)


async def by_a_second_process(fettle: FettleProcess, start: StartFettle, _settings: Path) -> None:
    """As the two static pods are updated, one after the other."""
    second = await start("extender", extender_port=fettle.extender_port)
    await fettle.stop()
    fettle.start()
    await fettle.ready()
    await second.stop()


@contextlib.asynccontextmanager
async def always(
    do: Callable[[int], Awaitable[object]], every_s: float
) -> AsyncIterator[list[int]]:
    """Do it again and again; the numbers of what was done."""
    done: list[int] = []

    async def go_on() -> None:
        for number in range(100_000):
            await do(number)
            done.append(number)
            await asyncio.sleep(every_s)

    task = asyncio.create_task(go_on())
    try:
        yield done
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def prepare(control_plane: ControlPlane, api: Api, kubelet: Kubelet) -> None:
    """`dead` is what the scheduler would prefer."""
    await create_node(api, objects.node("dead", 500, cpu="512", pods=1000))
    await create_node(api, objects.node("good", 500, cpu="256", pods=1000))
    await kubelet.set_node_condition("dead", *LOST)


async def wait_for_health(api: Api) -> None:
    """A pod that only the faulty node could run."""
    on_dead = {"kubernetes.io/hostname": "dead"}
    await api.create(objects.pod("waits", gpus=1, node_selector=on_dead))
    await waiting.refused(api, "waits", saying=REFUSED)


async def label_dead(api: Api, number: int) -> None:
    """An event for which the scheduler tries waiting pods again."""
    await api.patch("nodes", "dead", {"metadata": {"labels": {"example.com/n": str(number)}}})


async def test_a_gap_is_where_a_pod_that_waits_for_health_gets_the_node_with_the_fault(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await prepare(control_plane, api, kubelet)
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle, ignorable=True)
    await wait_for_health(api)
    await fettle.stop()
    await label_dead(api, 1)
    assert await waiting.bound(api, "waits") == "dead"


@pytest.mark.parametrize("replace", [by_sighup, by_new_settings, by_a_second_process])
async def test_a_planned_restart_has_no_gap(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
    replace: Replace,
) -> None:
    await prepare(control_plane, api, kubelet)
    settings = tmp_path / "settings.yaml"
    settings.write_text("{}\n")
    fettle = await start_fettle("extender", settings=settings)
    await register_extender(control_plane, fettle, ignorable=True)
    await wait_for_health(api)

    async def create(number: int) -> None:
        await api.create(objects.pod(f"p-{number}", gpus=1, cpu="10m"))

    async with always(lambda n: label_dead(api, n), 0.1), always(create, 0.05) as created:
        await replace(fettle, start_fettle, settings)
        await asyncio.sleep(2)
    assert len(created) > 20
    for number in created:
        assert await waiting.bound(api, f"p-{number}") == "good"
    await waiting.stays_pending(api, "waits", for_s=1)
    log = control_plane.process("kube-scheduler").log.read_text()
    assert [line for line in log.splitlines() if CALL_FAILED.search(line)] == []
    refused = [f"p-{n}" for n in created if await failed_scheduling(api, f"p-{n}")]
    assert refused == []


async def test_a_serving_process_that_is_killed_is_back_before_the_kubelet_could_restart_it(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await prepare(control_plane, api, kubelet)
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle, ignorable=False)
    await wait_for_health(api)

    async def create(number: int) -> None:
        await api.create(objects.pod(f"p-{number}", gpus=1, cpu="10m"))

    async with always(lambda n: label_dead(api, n), 0.1), always(create, 0.05) as created:
        for _ in range(2):
            killed = fettle.serving_pid
            os.kill(killed, signal.SIGKILL)
            await fettle.replaced(killed)
    assert len(created) > 20
    for number in created:
        assert await waiting.bound(api, f"p-{number}") == "good"
    await waiting.stays_pending(api, "waits", for_s=1)
    _, metrics = await fettle.browse("/metrics")
    assert "\nfettle_serving_process_restarts_total 2.0\n" in metrics


async def failed_scheduling(api: Api, pod: str) -> list[str]:
    events = await api.events_about(pod)
    return [e["message"] for e in events if e["reason"] == "FailedScheduling"]


async def test_new_settings_are_applied_and_invalid_ones_reported_while_the_old_serve_on(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    settings, rules = tmp_path / "settings.yaml", tmp_path / "rules.yaml"
    rules.write_text("{}\n")
    settings.write_text(f"defaultPolicy: training\nhealth: {{rulesFile: {rules}}}\n")
    await prepare(control_plane, api, kubelet)
    fettle = await start_fettle("extender", settings=settings)
    pod = objects.pod("asks", gpus=1)

    async def policy() -> str:
        await fettle.ask_extender("filter", {"Pod": pod, "NodeNames": ["good"]})
        _, told = await fettle.browse("/policy", pod="default/asks")
        return str(told["name"])

    async def told(said: str, metric: str) -> None:
        async def look() -> tuple[str, str]:
            _, verbose = await fettle.browse("/readyz", verbose="")
            _, metrics = await fettle.browse("/metrics")
            return verbose, metrics

        await waiting.wait_until(
            look,
            lambda seen: said in seen[0] and f"last_reload_successful {metric}\n" in seen[1],
            what=said,
        )

    assert await policy() == "training"
    serving = fettle.serving_pid
    settings.write_text("defaultPolicy: trainin\n")
    await told("settings: not reloaded, the old ones stay: settings file ", "0.0")
    assert "defaultPolicy 'trainin' is neither built in" in fettle.process.log.read_text()
    assert await policy() == "training"
    assert fettle.serving_pid == serving

    settings.write_text(f"defaultPolicy: inference\nhealth: {{rulesFile: {rules}}}\n")
    await fettle.replaced(serving)
    await told("ok\n", "1.0")
    assert await policy() == "inference"

    serving = fettle.serving_pid
    rules.write_text("nonsense: []\n")
    await told(f"not reloaded, the old ones stay: rules file {rules}", "0.0")
    rules.write_text("# nothing\n{}\n")
    await fettle.replaced(serving)
    await told("ok\n", "1.0")


async def test_webhook_and_steward_pass_over_too(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("good", 500, cpu="256", pods=1000))
    fettle = await install(control_plane, api, start_fettle)
    injected = {"fettle.dev/policy": "training"}

    async def create(number: int) -> None:
        await api.create(objects.job(f"j-{number}", job_annotations=injected))

    async def leads() -> bool:
        _, metrics = await fettle.browse("/metrics")
        return "\nfettle_steward_leader 1.0\n" in metrics

    await waiting.wait_until(leads, what="it leads")
    async with always(create, 0.05) as created:
        await fettle.reload()
        await waiting.wait_until(leads, what="the successor leads", timeout_s=10)
        await asyncio.sleep(1)
    for number in created:
        job = await api.get("jobs", f"j-{number}")
        assert job["spec"].get("podFailurePolicy"), f"j-{number} was not mutated"
