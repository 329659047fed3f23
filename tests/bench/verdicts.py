"""What the core costs a demand that it has not met before, in this process and without HTTP.

For information: these are the parts of which the first call about a new kind of pod is made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median

from fettle.api import kinds
from fettle.cel import SelectorEngine
from fettle.cluster import EMPTY, NodeView, PluginView, Publisher, View
from fettle.config import Settings
from fettle.dra import Alternative, Claim, Request
from fettle.model import (
    SOUND,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    State,
    Weighed,
)
from fettle.model.policy import TRAINING
from fettle.scheduling import Answers, Demand, Units
from tests.bench import fleets, inventories
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.controlplane.objects import DRIVER, GPU

ROUNDS = 31
SHAPES = 40
RACKS = 100
SELECTOR = f'device.driver == "{DRIVER}"'


async def measure(_house: House) -> list[Figure]:
    alike = _view([_plugin_node(i, SOUND) for i in range(fleets.NODES)])
    shapes = [_degraded(i) for i in range(SHAPES)]
    unlike = _view([_plugin_node(i, shapes[i % SHAPES]) for i in range(fleets.NODES)])
    devices = inventories.view(inventories.alike)
    tainted = inventories.view(inventories.of_shapes(SHAPES))
    engine = SelectorEngine()
    await engine.start()
    try:
        cold = f"cold demand, {fleets.NODES} nodes"
        return [
            Figure(f"{cold} alike", await _cold_ms(engine, alike, _unit_demands()), "ms"),
            Figure(
                f"{cold} of {SHAPES} shapes", await _cold_ms(engine, unlike, _unit_demands()), "ms"
            ),
            Figure(
                f"{cold} alike with DRA",
                await _cold_ms(engine, devices, _claim_demands()),
                "ms",
                target=30,
            ),
            Figure(
                f"{cold} of {SHAPES} shapes with DRA",
                await _cold_ms(engine, tainted, _claim_demands()),
                "ms",
                target=60,
            ),
            Figure("one node changed, 5000 names", await _turned_ms(engine, unlike), "ms"),
            Figure(
                f"a claim of a device that {fleets.NODES // RACKS} of {fleets.NODES} nodes share, "
                "new view",
                _shared_ms(),
                "ms",
            ),
        ]
    finally:
        await engine.close()


async def _cold_ms(engine: SelectorEngine, view: View, demands: Iterator[Demand]) -> float:
    """The median of several demands, each unlike the ones before it."""
    answers, names = _answers(engine, view), list(view.nodes)
    answers.breaker(TRAINING.placement)
    await _evaluate(engine, view)
    took_ms = []
    for _, demand in zip(range(ROUNDS), demands, strict=False):
        began = time.perf_counter()
        table = await answers.judged(demand, names)
        took_ms.append((time.perf_counter() - began) * 1000)
        if len(table.verdicts) != len(names) or table.provisional or table.undecided:
            raise RuntimeError(f"not every node has its verdict on {demand}")
        await asyncio.sleep(0)
    return median(took_ms)


async def _turned_ms(engine: SelectorEngine, view: View) -> float:
    """A known demand in a new view: one verdict is made anew, all others are kept."""
    answers, names = _answers(engine, view), list(view.nodes)
    demand = next(_unit_demands())
    await answers.judged(demand, names)
    took_ms = []
    for number in range(ROUNDS * 5):
        changed = _plugin_node(number, _degraded(number % SHAPES))
        view = _after(answers.publisher.view, {**view.nodes, changed.name: changed})
        answers.publisher.publish(view, frozenset([changed.name]))
        began = time.perf_counter()
        await answers.judged(demand, names)
        took_ms.append((time.perf_counter() - began) * 1000)
    return median(took_ms)


def _shared_ms() -> float:
    """A device of a rack's fabric is allocated: all nodes of that rack see it."""
    inventory = inventories.of_nodes(inventories.alike, racks=RACKS)
    view = inventories.look(inventory, EMPTY)
    took_ms = []
    for rack in range(ROUNDS):
        inventories.put(inventory, kinds.CLAIM, inventories.claim_of_port(rack, 0))
        began = time.perf_counter()
        view = inventories.look(inventory, view)
        took_ms.append((time.perf_counter() - began) * 1000)
    return median(took_ms)


def _answers(engine: SelectorEngine, view: View) -> Answers:
    publisher = Publisher()
    publisher.publish(view, frozenset(view.nodes))
    return Answers(publisher, engine, Settings())


async def _evaluate(engine: SelectorEngine, view: View) -> None:
    devices = [
        (d.id.driver, d.device) for n in view.nodes.values() for p in n.pools for d in p.devices
    ]
    await engine.evaluate([SELECTOR], devices)


def _unit_demands() -> Iterator[Demand]:
    for count in range(1, fleets.GPUS + 1):
        yield Demand(TRAINING, (Units(GPU, count),))


def _claim_demands() -> Iterator[Demand]:
    for count in range(1, fleets.GPUS + 1):
        gpus = Request("gpu", (Alternative("gpu", DRIVER, (SELECTOR,), count=count),))
        yield Demand(TRAINING, claims=(Claim("gpus", (gpus,)),))


def _view(nodes: list[NodeView]) -> View:
    return _after(EMPTY, {node.name: node for node in nodes})


def _after(previous: View, nodes: dict[str, NodeView]) -> View:
    return View(
        generation=previous.generation + 1,
        basis=previous.basis + 1,
        synced=True,
        nodes=nodes,
        classes={},
        claims={},
        templates={},
        namespaces={},
        pods={},
    )


def _plugin_node(number: int, health: Health) -> NodeView:
    plugins = {GPU: PluginView(GPU, fleets.GPUS, fleets.GPUS)}
    return NodeView(fleets.name_of(number), {}, health, plugins, ())


def _degraded(shape: int) -> Health:
    """One of SHAPES states of health, none like another, that no policy refuses."""
    weight = shape / SHAPES / 10
    fact = Evidence(
        subject=NodeId("any"),
        family=Family.NODE,
        kind=EvidenceKind.LEVEL,
        weight=weight,
        source=Source(SourceKind.TAINT, "bench"),
        reporter=ReporterId("bench"),
        said=f"fault {shape}",
        observed_at=0.0,
    )
    return Health(1 - weight, State.HEALTHY, evidence=(Weighed(fact, weight),))
