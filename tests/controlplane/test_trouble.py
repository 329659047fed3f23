"""When parts are down, not ready, restarted or very busy."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.components import RULES
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_gpu_nodes
from tests.controlplane.installed import REFUSED, register_extender
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.relay import Relay

LOST = ("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost")


async def fails(kubelet: Kubelet, node: str) -> None:
    await kubelet.set_node_condition(node, *LOST)


async def test_an_ignorable_extender_that_is_killed_leaves_pods_as_they_ran_before_fettle(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "w0")
    await fails(kubelet, "w0")
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle, ignorable=True)
    await api.create(objects.pod("waits", gpus=1))
    await waiting.refused(api, "waits", saying=REFUSED)
    fettle.kill()
    await api.create(objects.pod("later", gpus=1))
    assert await waiting.bound(api, "later") == "w0"
    await api.patch("nodes", "w0", {"metadata": {"annotations": {"example.com/any": "event"}}})
    assert await waiting.bound(api, "waits") == "w0"


async def test_as_shipped_pods_with_devices_wait_while_the_extender_is_down_and_run_once_it_is_back(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "w0")
    await fails(kubelet, "w0")
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("waits", gpus=1))
    await waiting.refused(api, "waits", saying=REFUSED)
    fettle.kill()
    await api.create(objects.pod("later", gpus=1))
    await waiting.refused(api, "later", saying="connection refused")
    await kubelet.set_node_condition("w0", LOST[0], "True", "Healthy", "")
    await waiting.refused(api, "waits", saying="connection refused")
    await api.create(objects.pod("plain"))
    assert await waiting.bound(api, "plain") == "w0"
    fettle.start()
    for pod in ("waits", "later"):
        assert await waiting.bound(api, pod) == "w0"


async def test_as_shipped_pods_with_devices_wait_while_answers_come_too_late(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "w0")
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    fettle.freeze()
    await api.create(objects.pod("waits", gpus=1))
    await waiting.refused(api, "waits", saying="Client.Timeout exceeded")
    await api.create(objects.pod("plain"))
    assert await waiting.bound(api, "plain") == "w0"
    fettle.thaw()
    assert await waiting.bound(api, "waits") == "w0"


async def test_as_shipped_pods_with_devices_wait_while_fettle_knows_too_little(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    # Longer than the scheduler pauses between two tries: once connected, the quiet cluster counts
    # as heard for so long.
    settings.write_text("sources: {silentAfterSeconds: 15}\n")
    await create_gpu_nodes(api, "w0")
    await shipped.apply_rbac(api)
    direct = await control_plane.kubeconfig_for_service_account(
        shipped.EXTENDER_ACCOUNT, shipped.NAMESPACE
    )
    async with Relay(control_plane.ports.api_server) as relay:
        led = tmp_path / "led.kubeconfig"
        led.write_text(
            direct.read_text().replace(f":{control_plane.ports.api_server}", f":{relay.port}")
        )
        fettle = await start_fettle("extender", settings=settings, kubeconfig=led)
        await register_extender(control_plane, fettle)
        relay.to_port = 1
        relay.cut()
        await waiting.wait_until(
            lambda: fettle.browse("/readyz"),
            lambda answer: answer[0] == 503,
            what="not ready",
            timeout_s=60,
        )
        await api.create(objects.pod("waits", gpus=1))
        await waiting.refused(api, "waits", saying="fettle: not ready")
        await api.create(objects.pod("plain"))
        assert await waiting.bound(api, "plain") == "w0"
        relay.to_port = control_plane.ports.api_server
        assert await waiting.bound(api, "waits", timeout_s=60) == "w0"


@pytest.mark.parametrize("ignorable", [True, False])
async def test_until_it_is_ready_it_does_not_listen_and_never_refuses(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, ignorable: bool
) -> None:
    await create_gpu_nodes(api, "w0")
    powerless = control_plane.kubeconfig_for_user("powerless")
    fettle = await start_fettle("extender", kubeconfig=powerless, wait=False)
    await waiting.wait_until(
        lambda: fettle.browse("/readyz"), lambda answer: answer[0] == 503, what="it says not ready"
    )
    await waiting.wait_until(
        lambda: fettle.browse("/readyz", verbose=""),
        lambda answer: 'resource "nodes"' in answer[1] and "powerless" in answer[1],
        what="readyz says what to grant",
    )
    await register_extender(control_plane, fettle, ignorable=ignorable)
    await api.create(objects.pod("asks", gpus=1))
    if ignorable:
        assert await waiting.bound(api, "asks") == "w0"
    else:
        said = await waiting.refused(api, "asks", saying="connection refused")
        assert REFUSED not in said


async def test_the_view_recovers_when_the_api_server_is_restarted(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("sources: {silentAfterSeconds: 3}\n")
    await create_gpu_nodes(api, "w0", "w1")
    fettle = await start_fettle("extender", settings=settings, wait=False)
    pid = None

    async def ready() -> int:
        return (await fettle.browse("/readyz"))[0]

    await waiting.wait_until(ready, lambda status: status == 200, what="ready")
    pid = fettle.serving_pid
    await control_plane.stop_api_server(kill=True)
    await waiting.wait_until(
        lambda: fettle.browse("/readyz", verbose=""),
        lambda answer: answer[0] == 503 and "silent" in answer[1] and "lost" in answer[1],
        what="readyz tells that the API server is silent",
    )
    await control_plane.start_api_server()
    await waiting.wait_until(ready, lambda status: status == 200, what="ready again", timeout_s=30)
    await fails(kubelet, "w0")
    pod = objects.pod("p", gpus=1)
    await waiting.wait_until(
        lambda: fettle.ask_extender("filter", {"Pod": pod, "NodeNames": ["w0", "w1"]}),
        lambda answer: answer[1]["NodeNames"] == ["w1"],
        what="what changed after the restart is seen",
    )
    assert fettle.serving_pid == pid


@pytest.mark.parametrize("absent", ["resource.k8s.io/v1", RULES])
async def test_what_a_cluster_does_not_serve_is_said_once_and_the_rest_works(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    absent: str,
) -> None:
    off = f"--runtime-config={absent}=false,{RULES}=false"
    await control_plane.restart_api_server(off, kill=True)
    await create_gpu_nodes(api, "w0", "w1")
    await fails(kubelet, "w0")
    fettle = await start_fettle("extender")
    status, told = await fettle.browse("/readyz", verbose="")
    assert status == 200
    assert "DeviceTaintRule: not served by this cluster" in told
    assert ("ResourceSlice: synced" in told) is (absent != "resource.k8s.io/v1")
    pod = objects.pod("p", gpus=1)
    _, reply = await fettle.ask_extender("filter", {"Pod": pod, "NodeNames": ["w0", "w1"]})
    assert reply["NodeNames"] == ["w1"]
    log = fettle.process.log.read_text()
    said = [line for line in log.splitlines() if "not served" in line and "TaintRule" in line]
    assert len(said) == 1


@contextlib.asynccontextmanager
async def patched(api: Api, pod: str, per_second: int) -> AsyncIterator[None]:
    """Keep a bound pod changing: each change wakes every pod that an extender refused."""

    async def patch() -> None:
        for number in range(100_000):
            await api.patch("pods", pod, {"metadata": {"annotations": {"n": str(number)}}})
            await asyncio.sleep(1 / per_second)

    task = asyncio.create_task(patch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def bound_within_s(api: Api, pod: str) -> float:
    """How long a new pod with a GPU takes to be bound, to the sound node."""
    began = time.monotonic()
    await api.create(objects.pod(pod, gpus=1))
    assert await waiting.bound(api, pod, timeout_s=30) == "good"
    return time.monotonic() - began


async def filter_calls(fettle: FettleProcess) -> float:
    _, text = await fettle.browse("/metrics")
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith('fettle_extender_request_seconds_count{verb="filter"')
    )


async def test_fifty_refused_pods_in_a_busy_cluster_do_not_hold_others_up(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "dead", "good", gpus=100)
    await fails(kubelet, "dead")
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    on_dead = {"kubernetes.io/hostname": "dead"}
    await api.create(objects.pod("busy", gpus=1))
    assert await waiting.bound(api, "busy") == "good"
    async with patched(api, "busy", per_second=20):
        without = [await bound_within_s(api, f"quiet-{i}") for i in range(10)]
    for i in range(50):
        await api.create(objects.pod(f"refused-{i}", gpus=1, node_selector=on_dead))
    await waiting.refused(api, "refused-49", saying=REFUSED)
    before = await filter_calls(fettle)
    async with patched(api, "busy", per_second=20):
        beside = [await bound_within_s(api, f"other-{i}") for i in range(10)]
        await asyncio.sleep(2)
    assert statistics.median(beside) < statistics.median(without) + 0.25
    retried = await filter_calls(fettle) - before - 10
    assert retried > 50, "the refused pods were not retried: the cluster was not busy"
    await control_plane.restart_scheduler()
    assert await waiting.bound(api, "refused-0") == "dead"
