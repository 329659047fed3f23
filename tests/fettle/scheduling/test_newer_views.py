"""Views that are published while a request waits, or before what follows its reply.

The verdict on a node is always that of the newest view.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from fettle.api.resource import DeviceAttribute
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView
from fettle.dra import Alternative, Claim, Request
from fettle.model import BUILT_IN
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand, Units
from fettle.scheduling.kept_tables import SHARED
from fettle.scheduling.tables import Table
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import PATIENT, POD, Cluster, kept_complete

PLUGIN = Demand(BUILT_IN["training"], units=(Units(b.RESOURCE, 4),))
MODEL = f'device.attributes["{b.DRIVER}"].model != "none"'
"""A selector that has to be evaluated for each model of device."""


def selecting(expression: str) -> Demand:
    request = Request("r", (Alternative("r", "any", (expression,)),))
    return Demand(BUILT_IN["training"], claims=(Claim("k", (request,)),))


def gpu(name: str, model: str, score: float) -> NodeView:
    attributes = {"model": DeviceAttribute(string=model)}
    device = b.device(f"{name}-0", score, pool=name, attributes=attributes)
    return b.node(name, pools=(b.looked_at(b.pool(device, name=name)),))


@asynccontextmanager
async def selecting_cluster() -> AsyncIterator[Cluster]:
    """A cluster with a worker for selectors, and requests that wait long for it."""
    cluster, engine = Cluster(), SelectorEngine()
    await engine.start()
    cluster.answers = Answers(cluster.publisher, engine, PATIENT)
    try:
        yield cluster
    finally:
        await engine.close()


def refused(table: Table, names: Iterable[str]) -> list[str]:
    return sorted(table.narrow(list(names)).refused)


async def test_a_node_is_judged_although_another_was_removed_meanwhile() -> None:
    cluster = Cluster(itertools.repeat(0.0).__next__)
    sound = {n: b.node(n, gpus=8) for n in ("a", "b")}
    ill = {"ill": b.node("ill", gpus=8, own=b.health(0.1))}
    cluster.show(sound | ill)
    async with kept_complete(cluster.answers):
        for number in range(SHARED):
            await cluster.answers.judged(PLUGIN, ["a", "b"])
            if number == SHARED - 1:
                cluster.show({"a": sound["a"]} | ill)
            cluster.answers.note_nodes_given(PLUGIN, POD)
        await asyncio.sleep(0)
        table = await cluster.answers.judged(PLUGIN, ["a", "ill"])
        assert refused(table, ["a", "ill"]) == ["ill"]


async def test_a_node_that_changes_while_a_request_waits_for_another_is_judged_again() -> None:
    async with selecting_cluster() as cluster:
        demand = selecting(MODEL)
        nodes = {"ill": gpu("ill", "H100", 0.1)}
        cluster.show(nodes)
        assert refused(await cluster.answers.judged(demand), nodes) == ["ill"]
        nodes["new"] = gpu("new", "B200", 1.0)
        cluster.show(nodes)
        request = asyncio.ensure_future(cluster.answers.judged(demand, list(nodes)))
        await asyncio.sleep(0)
        nodes["ill"] = gpu("ill", "H100", 0.2)
        cluster.show(nodes)
        assert refused(await request, nodes) == ["ill"]


async def test_a_request_that_waited_during_a_version_change_gets_verdicts() -> None:
    async with selecting_cluster() as cluster:
        cluster.show({"ill": gpu("ill", "H100", 0.1)})
        request = asyncio.ensure_future(cluster.answers.judged(selecting(MODEL), ["ill"]))
        await asyncio.sleep(0)
        cluster.answers.predict_as("v1.36.1")
        assert refused(await request, ["ill"]) == ["ill"]


@pytest.mark.parametrize("turns", [3, 300])
async def test_all_nodes_that_waited_for_a_selector_are_judged_despite_new_views(
    turns: int,
) -> None:
    async with selecting_cluster() as cluster:
        ill = [f"n{i}" for i in range(0, 60, 10)]
        names = [f"n{i}" for i in range(60)]
        nodes = {name: gpu(name, "H100", 0.1 if name in ill else 1.0) for name in names}
        cluster.show(nodes)
        request = asyncio.ensure_future(cluster.answers.judged(selecting(MODEL), names))
        for turn in range(turns):
            await asyncio.sleep(0.001)
            cluster.show(nodes | {"other": b.node("other", own=b.health(0.9 - turn / 1000))})
        assert refused(await request, names) == sorted(ill)
