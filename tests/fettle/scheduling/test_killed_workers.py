"""Verdicts without a selector, because its evaluation killed the worker or was given up.

They are judged again once the selector is decided, though nothing else in the cluster changes.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fettle.api.resource import DeviceAttribute
from fettle.cel import SelectorEngine
from fettle.cel.runtime.memory import GIVEN_UP_S
from fettle.cel.runtime.supervisor import COMMAND
from fettle.cluster import NodeView
from fettle.dra import Alternative, Claim, Request
from fettle.model import Placement, Policy, Requirement
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from tests.fettle import building as b
from tests.fettle.cel.engines import worker
from tests.fettle.scheduling.clusters import Cluster, share
from tests.fettle.scheduling.test_costly_selectors import Clock, answers
from tests.fettle.scheduling.test_costly_selectors import demand as ask_for
from tests.waiting import until

MODEL = f'device.attributes["{b.DRIVER}"].model'
SELECTOR = f'{MODEL} == "B"'
ZONE = 'node.labels[?"zone"].orValue("") == "a"'
NAMES = ["n1", "n2"]


def requiring(expression: str) -> Policy:
    requires = (Requirement(expression=expression),)
    return Policy(name="picky", placement=Placement(requires=requires))


def required(expression: str) -> Demand:
    claims = (Claim("gpu", (Request("r", (Alternative("r", b.DRIVER),)),)),)
    return Demand(requiring(expression), claims=claims)


def node(name: str, score: float = 0.1) -> NodeView:
    """A node with one device of model B, which is dead by default."""
    attributes = {"model": DeviceAttribute(string="B")}
    device = b.device("gpu-0", score, pool=name, attributes=attributes)
    return b.node(name, pools=(b.looked_at(b.pool(device, name=name)),))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def well(tmp_path: Path) -> Path:
    """Once this file exists, the worker no longer dies."""
    return tmp_path / "well"


@pytest.fixture
async def engine(clock: Clock, well: Path) -> AsyncIterator[SelectorEngine]:
    """An engine whose worker dies over every row."""
    dying = worker(f"""
        import os, pathlib
        sound = worker.judge
        def judge(prepared, row):
            if not pathlib.Path({str(well)!r}).exists():
                os.kill(os.getpid(), 9)
            return sound(prepared, row)
        worker.judge = judge
    """)
    engine = SelectorEngine(command=dying, clock=clock)
    await engine.start()
    yield engine
    await engine.close()


@pytest.fixture
def cluster(engine: SelectorEngine) -> Cluster:
    """Two nodes with the same fingerprint."""
    cluster = Cluster()
    cluster.answers = answers(cluster, engine, wait_seconds=10)
    cluster.show({name: node(name) for name in NAMES})
    return cluster


async def refused(answers: Answers, demand: Demand) -> set[str]:
    """The nodes that the extender would refuse."""
    return (answers.at_once(demand, NAMES) or await answers.judged(demand, NAMES)).refused


async def test_verdicts_follow_after_the_worker_was_killed_twice(
    cluster: Cluster, engine: SelectorEngine, well: Path
) -> None:
    well.touch()
    demand = ask_for(SELECTOR)
    request = asyncio.ensure_future(refused(cluster.answers, demand))
    for _ in range(2):
        await until(lambda: engine.worker_pid)
        pid = engine.worker_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while engine.worker_pid == pid:
            await asyncio.sleep(0.01)
    await request
    async with asyncio.timeout(20):
        while await refused(cluster.answers, demand) != set(NAMES):
            await asyncio.sleep(0.01)
    assert cluster.answers.at_once(demand, NAMES) is cluster.answers.table(demand)


@pytest.mark.parametrize(
    ("demand", "score"),
    [
        pytest.param(ask_for(SELECTOR), 0.1, id="a claim's selector"),
        pytest.param(required(f'{MODEL} != "B"'), 1.0, id="what a policy requires of devices"),
        pytest.param(required(ZONE), 1.0, id="what a policy requires of nodes"),
    ],
)
async def test_nodes_of_a_given_up_selector_are_settled_for_a_while_and_then_judged_again(
    demand: Demand, score: float, cluster: Cluster, clock: Clock, well: Path
) -> None:
    cluster.show({name: node(name, score) for name in NAMES})
    async with asyncio.timeout(20):
        while cluster.answers.at_once(demand, NAMES) is None:
            assert await refused(cluster.answers, demand) == set()
            await asyncio.sleep(0.001)
    table = cluster.answers.table(demand)
    assert table.undecided == set(NAMES)

    well.touch()
    clock.now += GIVEN_UP_S - 1
    assert cluster.answers.at_once(demand, NAMES) is table
    assert table.refused == table.provisional == set()

    clock.now += 1
    assert await refused(cluster.answers, demand) == set(NAMES)
    assert table.undecided == table.provisional == set()
    verdicts = await cluster.answers.explained(demand)
    assert [verdict.undecided for verdict in verdicts.values()] == [(), ()]


@pytest.mark.long
async def test_nodes_that_no_request_names_are_judged_again_too(
    cluster: Cluster, clock: Clock, well: Path
) -> None:
    demand = ask_for(SELECTOR)
    work = asyncio.ensure_future(cluster.answers.keep_complete())
    share(cluster.answers, demand)
    try:
        async with asyncio.timeout(20):
            while cluster.answers.at_once(demand, NAMES) is None:
                await refused(cluster.answers, demand)
                await asyncio.sleep(0.001)
        well.touch()
        clock.now += GIVEN_UP_S
        await cluster.answers.judged(demand, NAMES[:1])
        await until(lambda: cluster.answers.table(demand).refused == set(NAMES))
    finally:
        work.cancel()


async def test_a_failed_warm_up_is_tried_again_before_a_pod_asks(
    tmp_path: Path,
) -> None:
    program = tmp_path / "python"
    engine = SelectorEngine(command=(str(program), *COMMAND[1:]))
    cluster = Cluster()
    cluster.answers = answers(cluster, engine, wait_seconds=10)
    work = asyncio.ensure_future(cluster.answers.keep_ready())
    try:
        nodes = {name: node(name) for name in NAMES}
        devices = [device.device for each in nodes.values() for device in each.pools[0].devices]
        with capture_logs() as logs:
            cluster.show(nodes, classes={b.DRIVER: b.device_class(b.DRIVER, SELECTOR)})
            await until(lambda: logs)  # it cannot be started, and was not waited for
        assert engine.outcome(SELECTOR, b.DRIVER, devices[0]) is None
        program.write_text(f'#!/bin/sh\nexec {COMMAND[0]} "$@"\n')
        program.chmod(0o755)
        await until(lambda: all(engine.outcome(SELECTOR, b.DRIVER, each) for each in devices))
    finally:
        work.cancel()
        await engine.close()
