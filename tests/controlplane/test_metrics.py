"""Metrics as evidence in a cluster: one replica asks a real Prometheus, the others follow it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender
from tests.controlplane.memory import define, stored
from tests.prometheus.fleets import labels, uuid
from tests.prometheus.server import Page, needs_prometheus, running

pytestmark = [needs_prometheus, pytest.mark.prometheus]
ROLES = ("extender", "steward")
FAULT = "DCGM_FI_DEV_ROW_REMAP_FAILURE"


def page_of(value: int, **more: str) -> str:
    """What the exporter says of the first GPU of gpu-1."""
    named = ",".join(f"{k}={json.dumps(v)}" for k, v in labels("gpu-1", 0, **more).items())
    return f"DCGM_FI_DEV_GPU_TEMP{{{named}}} 40\n{FAULT}{{{named}}} {value}\n"


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    made.text = page_of(0)
    yield made
    made.close()


@pytest.fixture
def settings(page: Page, tmp_path: Path) -> Iterator[Path]:
    with running(tmp_path / "prometheus", {"dcgm": [page.address]}) as url:
        file = tmp_path / "settings.yaml"
        file.write_text(
            f"prometheus: {{url: '{url}', intervalSeconds: 1}}\nsteward: {{leaseSeconds: 5}}\n"
        )
        yield file


async def unit(fettle: FettleProcess) -> Any:
    """What is said of the GPU; None if nothing is."""
    _, answer = await fettle.browse("/devices")
    units = [
        unit
        for node in answer["nodes"]
        for resource in node["resources"]
        for unit in resource["units"]
    ]
    return next((one for one in units if one["unit"] == uuid("gpu-1", 0)), None)


async def score(fettle: FettleProcess) -> float:
    found = await unit(fettle)
    return 1.0 if found is None else float(found["score"])


async def rounds(fettle: FettleProcess) -> float:
    _, text = await fettle.browse("/metrics")
    return sum(map(float, re.findall(r"fettle_prometheus_rounds_total\{.*\} (\S+)", text)))


async def until_score(fettle: FettleProcess, low: float, high: float) -> None:
    await waiting.wait_until(
        lambda: score(fettle),
        lambda found: low <= found <= high,
        what=f"a score of {low} to {high} at {fettle.name}",
        timeout_s=30,
    )


async def test_one_replica_asks_and_all_follow_also_once_it_is_killed(
    control_plane: ControlPlane,
    api: Api,
    start_fettle: StartFettle,
    settings: Path,
    page: Page,
) -> None:
    await define(api)
    await create_node(api, objects.node("gpu-1", 8))
    first = await start_fettle(*ROLES, settings=settings)
    await waiting.wait_until(lambda: rounds(first), lambda n: n > 1, what="the leader asks")
    second = await start_fettle(*ROLES, settings=settings)
    alone = await start_fettle("extender", settings=settings)
    followers = second, alone
    asked = [await rounds(each) for each in followers]

    page.text = page_of(1)
    for fettle in (first, *followers):
        await until_score(fettle, 0.0, 0.0)
    assert [await rounds(each) for each in followers] == asked
    said = await unit(second)
    assert "remapping of a row of memory failed" in str(said["evidence"])
    await stored(api, "gpu-1", state="Unhealthy")

    first.kill()
    await waiting.wait_until(
        lambda: rounds(second), lambda n: n > asked[0] + 1, what="the next leader asks"
    )
    for fettle in followers:
        await until_score(fettle, 0.0, 0.0)
    meanwhile = await rounds(alone)  # while nobody led, it asked for itself

    page.text = page_of(0)
    for fettle in followers:
        await until_score(fettle, 0.85, 0.99)
    assert await rounds(alone) - meanwhile < 2


async def test_who_does_not_believe_the_leaders_clock_says_so_and_asks_for_itself(
    control_plane: ControlPlane,
    api: Api,
    start_fettle: StartFettle,
    settings: Path,
    page: Page,
    tmp_path: Path,
) -> None:
    clock = Clock(tmp_path)
    clock.jump(3600)
    await define(api)
    await create_node(api, objects.node("gpu-1", 8))
    leader = await start_fettle(*ROLES, settings=settings, env=clock.env)
    await stored(api, "gpu-1", state="Healthy")
    other = await start_fettle("extender", settings=settings)
    page.text = page_of(1)
    for fettle in (leader, other):
        await until_score(fettle, 0.0, 0.0)
    _, ready = await other.browse("/readyz", verbose="")
    assert "s ahead of our clock, so it counts for nothing" in ready
    page.text = page_of(0)
    for fettle in (leader, other):
        await until_score(fettle, 0.85, 0.99)


async def test_where_no_steward_leads_the_extender_asks_for_itself(
    control_plane: ControlPlane,
    api: Api,
    start_fettle: StartFettle,
    settings: Path,
    page: Page,
) -> None:
    await define(api)
    await create_node(api, objects.node("gpu-1", 8))
    alone = await start_fettle("extender", settings=settings)
    page.text = page_of(1)
    await until_score(alone, 0.0, 0.0)
    assert await rounds(alone) > 0


async def test_a_pod_waits_while_metrics_show_a_fault_and_is_placed_once_it_is_over(
    control_plane: ControlPlane,
    api: Api,
    start_fettle: StartFettle,
    settings: Path,
    page: Page,
) -> None:
    """The only node has a GPU that must be reset; Kubernetes alone would place the pod there. A
    tenant who exports the same of a sound GPU keeps no pod from it."""
    await define(api)
    await create_node(api, objects.node("gpu-1", 8))
    fettle = await start_fettle(*ROLES, settings=settings)
    await register_extender(control_plane, fettle)
    await waiting.wait_until(lambda: rounds(fettle), lambda n: n > 1, what="metrics are asked for")

    page.text = page_of(0) + page_of(1, namespace="evil", pod="exporter")
    await until_score(fettle, 0.4, 0.7)
    framed = await unit(fettle)
    assert (framed["state"], framed["proven"]) == ("Degraded", 1.0)
    strict = objects.pod("honest", gpus=8, annotations={"fettle.dev/policy": "training"})
    await api.create(strict)
    assert await waiting.bound(api, "honest") == "gpu-1"
    await api.delete("pods", "honest", grace_s=0)

    asked = {"Pod": objects.pod("asked", gpus=8), "NodeNames": ["gpu-1"]}

    async def until_refused(refused: bool) -> float:
        began = time.monotonic()
        await waiting.wait_until(
            lambda: fettle.ask_extender("filter", asked),
            lambda answer: ("no sound devices" in str(answer)) is refused,
            what="the node is refused" if refused else "it is refused no more",
            every_s=0.01,
        )
        return time.monotonic() - began

    scrape_s = evaluation_s = slack_s = 1.0
    within_s = []
    for _ in range(3):  # others may have kept this machine busy
        page.text = page_of(1)
        within_s.append(await until_refused(True))
        if within_s[-1] < scrape_s + evaluation_s + slack_s:
            break
        page.text = page_of(0)
        await until_refused(False)
    assert min(within_s) < scrape_s + evaluation_s + slack_s, within_s
    page.text = page_of(1)
    await until_refused(True)
    await api.create(objects.pod("training", gpus=8))
    await waiting.refused(api, "training", saying="no sound devices")

    page.text = page_of(0)
    assert await waiting.bound(api, "training", timeout_s=60) == "gpu-1"
