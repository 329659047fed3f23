"""In clusters of more than a hundred nodes compact replies leave out what the scheduler reads the
same without: pods land where they do by full ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from extender.http.replies import SHORT
from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import REFUSED
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.processes import free_port

FORGIVING = {"fettle.dev/policy": "inference"}
FORMS = ("compact", "full")
"""Compact by itself, since the server's version is one that was tested; full by a setting."""
EVERYWHERE = {"percentageOfNodesToScore": 100}
OTHER = "not on my watch"


async def create_fleet(api: Api, odd: tuple[str, ...]) -> list[str]:
    """The odd ones have the most idle processors, so the scheduler by itself prefers them."""
    usual = [f"n{number}" for number in range(SHORT + 10)]
    await asyncio.gather(
        *(create_node(api, objects.node(name, 8, cpu="512")) for name in odd),
        *(create_node(api, objects.node(name, 8, cpu="16")) for name in usual),
    )
    return usual


async def replying(start_fettle: StartFettle, form: str, folder: Path) -> FettleProcess:
    if form == "compact":
        return await start_fettle("extender")
    settings = folder / "settings.yaml"
    settings.write_text("extender: {replies: full}\n")
    return await start_fettle("extender", settings=settings)


async def lands(control_plane: ControlPlane, api: Api, pod: Object, configuration: Object) -> str:
    await control_plane.start_scheduler(configuration | EVERYWHERE)
    await api.create(pod)
    node = await waiting.bound(api, pod["metadata"]["name"])
    await control_plane.stop_scheduler()
    return node


@asynccontextmanager
async def refusing_all() -> AsyncIterator[Object]:
    """An extender of somebody else, as an entry of a KubeSchedulerConfiguration; the scheduler asks
    ignorable ones last."""

    async def refuse(request: web.Request) -> web.Response:
        names = (await request.json())["NodeNames"]
        return web.json_response({"NodeNames": [], "FailedNodes": dict.fromkeys(names, OTHER)})

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/filter", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield {
        "urlPrefix": f"http://127.0.0.1:{port}",
        "filterVerb": "filter",
        "nodeCacheCapable": True,
        "ignorable": True,
    }
    await runner.cleanup()


@pytest.mark.parametrize("form", FORMS)
async def test_of_many_nodes_the_few_that_are_worn_are_avoided_whether_the_others_are_listed_or_not(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
    form: str,
) -> None:
    worn = ("worn-0", "worn-1")
    sound = await create_fleet(api, worn)
    for name in worn:
        await kubelet.set_node_condition(
            name, "FrequentKubeletRestart", "True", "FrequentKubeletRestart", "6 in 20 minutes"
        )
    before = objects.pod("before", gpus=1, cpu="4")
    assert await lands(control_plane, api, before, objects.scheduler_configuration()) in worn

    fettle = await replying(start_fettle, form, tmp_path)
    pod = objects.pod("after", gpus=1, cpu="4", annotations=FORGIVING)
    asked = {"Pod": pod, "NodeNames": [*worn, *sound]}
    _, filtered = await fettle.ask_extender("filter", asked)
    assert len(filtered["NodeNames"]) == len(worn) + len(sound)
    _, listed = await fettle.ask_extender("prioritize", asked)
    scores = {entry["Host"]: entry["Score"] for entry in listed}
    if form == "compact":
        assert scores.keys() == set(worn)
        assert all(score < 0 for score in scores.values())
    else:
        assert list(scores) == asked["NodeNames"]
        assert {scores[name] for name in sound} == {10}
        assert all(0 <= scores[name] < 10 for name in worn)

    configuration = shipped.scheduler_configuration(fettle.extender_url)
    assert await lands(control_plane, api, pod, configuration) in sound


@pytest.mark.parametrize("form", FORMS)
async def test_of_many_nodes_the_refused_get_no_pod_and_no_victim_whether_they_are_named_or_not(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
    form: str,
) -> None:
    dead = ("dead-0", "dead-1")
    sound = await create_fleet(api, dead)
    for name in dead:
        await kubelet.set_node_condition(
            name, "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
        )
    before = objects.pod("before", gpus=1, cpu="4")
    assert await lands(control_plane, api, before, objects.scheduler_configuration()) in dead

    fettle = await replying(start_fettle, form, tmp_path)
    pod = objects.pod("after", gpus=1, cpu="4")
    asked = {"Pod": pod, "NodeNames": [*dead, *sound]}
    _, reply = await fettle.ask_extender("filter", asked)
    assert reply["NodeNames"] == sound
    assert set(reply["FailedAndUnresolvableNodes"]) == (set(dead) if form == "full" else set())
    configuration = shipped.scheduler_configuration(fettle.extender_url)
    assert await lands(control_plane, api, pod, configuration) in sound

    # Where another extender refuses the rest, nothing is evicted from the ones that Fettle refused.
    async with refusing_all() as other:
        configuration["extenders"].append(other)
        await control_plane.start_scheduler(configuration | EVERYWHERE)
        await api.create(objects.pod("nowhere", gpus=1, cpu="4"))
        message = await waiting.refused(api, "nowhere")
    assert f"{len(sound)} {OTHER}" in message
    assert (f"{len(dead)} {REFUSED}" in message) == (form == "full")
    assert (REFUSED in message) == (form == "full")
    assert f"{len(dead)} Preemption is not helpful for scheduling" in message
