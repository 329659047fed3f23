"""One tenant's costly selectors cost other tenants' pods nothing. With the real engine."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from fettle.api.resource import DeviceAttribute
from fettle.cel import SelectorEngine
from fettle.cel.runtime.memory import AGAIN_S, LONG
from fettle.cluster import NodeView
from fettle.config import Settings
from fettle.dra import Alternative, Claim, Request
from fettle.model import BUILT_IN
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from tests.fettle import building as b
from tests.fettle.others import time_taken
from tests.fettle.scheduling.clusters import Cluster, claim_view

UUID = f'device.attributes["{b.DRIVER}"].uuid'
TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
NODES = 40
REMEMBERED = 100


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def engine(clock: Clock) -> AsyncIterator[SelectorEngine]:
    engine = SelectorEngine(expressions=REMEMBERED, wait_s=60, clock=clock)
    await engine.start()
    yield engine
    await engine.close()


@pytest.fixture
def cluster(engine: SelectorEngine) -> Cluster:
    """Nodes with one device each, of which the first is dead. Calls that wait do so for long."""
    cluster = Cluster()
    cluster.answers = answers(cluster, engine, wait_seconds=10)
    cluster.show({name: node(name) for name in names()})
    return cluster


def answers(cluster: Cluster, engine: SelectorEngine, wait_seconds: float) -> Answers:
    patient = msgspec.structs.replace(Settings().extender, wait_seconds=wait_seconds)
    settings = msgspec.structs.replace(Settings(), extender=patient)
    return Answers(cluster.publisher, engine, settings)


def names() -> list[str]:
    return [f"w{number}" for number in range(NODES)]


def node(name: str, generation: int = 0) -> NodeView:
    uuid = DeviceAttribute(string=f"GPU-{name}-{generation}")
    score = 0.1 if name == "w0" else 1.0
    device = b.device("gpu-0", score, pool=name, attributes={"uuid": uuid})
    return b.node(name, pools=(b.looked_at(b.pool(device, name=name)),))


def demand(selector: str, name: str = "gpu") -> Demand:
    request = Request("r", (Alternative("r", b.DRIVER, (selector,)),))
    return Demand(BUILT_IN["training"], claims=(Claim(name, (request,)),))


def costly(number: int) -> str:
    loops = f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, a + b + c + d >= 0))))"
    return f'{loops} && {UUID} != "{number}"'


def patterned(number: int) -> str:
    """A selector with a long pattern, whose length is not known before it is computed."""
    made = f'"x".replace("x", "{"x" * 20}").replace("x", "{"<(a*)*" * 120}")'
    return f'{UUID}.matches({made} + "{number}")'


def repeating(number: int) -> str:
    return f'{UUID}.matches("{"(a{9}){9}" * 80}{number}")'


def chained(number: int) -> str:
    made = '"x"' + f'.replace("x", "{"x" * 12}")' * 4 + '.replace("x", "y").replace("y", "x")' * 20
    return f'{UUID} != {made} + "{number}"'


async def refused(answers: Answers, demand: Demand) -> set[str]:
    """The nodes that the extender would refuse."""
    table = answers.at_once(demand, names()) or await answers.judged(demand, names())
    return table.refused


async def test_a_trivial_selector_is_decided_before_costly_ones(cluster: Cluster) -> None:
    hostile = [demand(costly(number)) for number in range(20)]
    for each in hostile:
        assert await refused(cluster.answers, each) == set()
    assert await refused(cluster.answers, demand(f'{UUID} != "x"')) == {"w0"}
    tables = [cluster.answers.table(each) for each in hostile]
    assert sum(bool(table.provisional) for table in tables) >= 15


@pytest.mark.parametrize("hostile", [costly, patterned, repeating, chained])
async def test_a_new_selector_is_evaluated_before_those_that_may_be_costly(
    engine: SelectorEngine, hostile: Callable[[int], str]
) -> None:
    (device,) = node("w0").pools[0].devices
    devices = [(b.DRIVER, device.device)]
    texts = [hostile(number) for number in range(20)]
    assert max(map(len, texts)) <= LONG  # longer ones come last anyway
    waiting = [asyncio.ensure_future(engine.evaluate([text], devices)) for text in texts]
    await asyncio.sleep(0)
    for ours in (f'{UUID} != "x"', f'{UUID}.matches("GPU-[0-9]+.*")'):
        await engine.evaluate([ours], devices)
        assert engine.outcome(ours, *devices[0]) is not None
    undecided = [text for text in texts if engine.outcome(text, *devices[0]) is None]
    assert len(undecided) >= 15
    for each in waiting:
        each.cancel()


@pytest.mark.long
async def test_known_outcomes_survive_a_flood_of_other_selectors(
    cluster: Cluster, engine: SelectorEngine, clock: Clock
) -> None:
    ours = f'{UUID} != "ours"'
    assert await refused(cluster.answers, demand(ours)) == {"w0"}
    clock.now += AGAIN_S * 2
    assert await refused(cluster.answers, demand(ours, "another")) == {"w0"}
    for number in range(REMEMBERED + 10):
        await refused(cluster.answers, demand(f"device.driver != 'e{number}'"))
    for number in range(10):
        await refused(cluster.answers, demand(costly(number)))
    (device,) = node("w0").pools[0].devices
    assert engine.outcome(ours, b.DRIVER, device.device) is not None
    assert await refused(cluster.answers, demand(ours, "a third")) == {"w0"}


@pytest.mark.long
async def test_a_request_does_not_wait_again_for_a_selector_that_took_too_long(
    cluster: Cluster, engine: SelectorEngine
) -> None:
    impatient = answers(cluster, engine, wait_seconds=2)
    assert engine.worker_pid is not None
    os.kill(engine.worker_pid, signal.SIGSTOP)
    slow = demand(f'{UUID} != "x"')
    assert await refused(impatient, slow) == set()
    found, seconds = await time_taken(refused(impatient, slow))
    assert (found, seconds < 1.5) == (set(), True)
    os.kill(engine.worker_pid, signal.SIGCONT)
    async with asyncio.timeout(20):
        while await refused(impatient, slow) != {"w0"}:
            await asyncio.sleep(0.01)


async def test_classes_are_evaluated_on_changed_slices_despite_costly_templates(
    cluster: Cluster, engine: SelectorEngine
) -> None:
    of_class = f'{UUID} != "x"'
    templates = {f"evil/t{number}": template(costly(number)) for number in range(10)}
    standing = {**claim_view(), "classes": {b.DRIVER: b.device_class(b.DRIVER, of_class)}}
    standing["templates"] = templates
    work = asyncio.ensure_future(cluster.answers.keep_ready())
    try:
        for generation in range(3):
            nodes = {name: node(name, generation) for name in names()}
            cluster.show(nodes, **standing)
            devices = [device.device for n in nodes.values() for device in n.pools[0].devices]
            async with asyncio.timeout(20):
                while any(engine.outcome(of_class, b.DRIVER, d) is None for d in devices):
                    await asyncio.sleep(0.001)
            undecided = [
                text
                for text in map(costly, range(10))
                if any(engine.outcome(text, b.DRIVER, d) is None for d in devices)
            ]
            assert len(undecided) >= 8
    finally:
        work.cancel()


def template(selector: str) -> object:
    exactly = {"deviceClassName": b.DRIVER, "selectors": [{"cel": {"expression": selector}}]}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return b.template({"metadata": {"name": "t", "namespace": "evil"}, "spec": {"spec": spec}})
