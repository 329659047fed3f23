"""What the allocator costs on one node, and a new selector on a whole fleet, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from fettle.api.resource import Device
from fettle.cel import SelectorEngine
from fettle.cluster import Publisher, View
from fettle.config import Settings
from fettle.dra import AllocationStatus, Alternative, Claim, Request
from fettle.dra.allocator import allocate
from fettle.dra.claims import Constraint
from fettle.scheduling import Answers
from fettle.scheduling.tables import SelectorOutcomes
from tests.bench import inventories
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.controlplane.objects import DRIVER
from tests.fettle.dra.allocator import pairs

ROUNDS = 400
SELECTOR_ROUNDS = 5
SELECTOR = f'device.driver == "{DRIVER}"'


async def measure(_house: House) -> list[Figure]:
    engine = SelectorEngine()
    await engine.start()
    try:
        return [*await _one_node(engine), *_pairs(), await _new_selector(engine)]
    finally:
        await engine.close()


async def _one_node(engine: SelectorEngine) -> list[Figure]:
    view = inventories.view(inventories.alike, nodes=1)
    await engine.evaluate([SELECTOR], _devices(view))
    (node,) = view.nodes.values()
    match = _matching(engine, view)

    def took_us(claim: Claim, found: AllocationStatus) -> float:
        outcome = allocate([claim], node.pools, match)
        if outcome.found is not found:
            raise RuntimeError(f"{claim.name}: {outcome}")
        return _median_us(lambda: allocate([claim], node.pools, match))

    apart = Constraint(attribute=f"{DRIVER}/index")
    return [
        Figure(
            "allocate 1 of 8 devices", took_us(_claim(1), AllocationStatus.FITS), "µs", target=100
        ),
        Figure(
            "allocate 8 of 8 devices", took_us(_claim(8), AllocationStatus.FITS), "µs", target=250
        ),
        Figure(
            "allocate 4 devices of one index, where each has its own",
            took_us(_claim(4, apart), AllocationStatus.NONE),
            "µs",
            target=500,
        ),
    ]


def _pairs() -> list[Figure]:
    """Eight GPUs and as many NICs, each pair on a PCIe root of its own, GPUs requested first."""
    claims = [pairs.claim(8)]

    def took_us(nics: Sequence[int], found: AllocationStatus) -> float:
        node = pairs.node(range(8), nics)
        outcome = allocate(claims, node, pairs.match)
        if outcome.found is not found:
            raise RuntimeError(f"NICs on {nics}: {outcome}")
        return _median_us(lambda: allocate(claims, node, pairs.match))

    whole, apart = (
        took_us(range(8), AllocationStatus.FITS),
        took_us((1, 3, 4, 5, 6, 7), AllocationStatus.NONE),
    )
    return [
        Figure("allocate 8 pairs of a GPU and a NIC", whole, "µs"),
        Figure("allocate 8 pairs, where 6 roots have both", apart, "µs"),
    ]


async def _new_selector(engine: SelectorEngine) -> Figure:
    """Each round another selector, over all devices of a fleet of four models."""
    devices = _devices(inventories.view(inventories.of_models(4)))
    took_ms = []
    for number in range(SELECTOR_ROUNDS):
        expression = (
            f'device.driver == "{DRIVER}" && '
            f'device.attributes["{DRIVER}"].productName.lowerAscii().matches("h[1-4]00") && '
            f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{number + 40}Gi")) >= 0'
        )
        began = time.perf_counter()
        await engine.evaluate([expression], devices)
        took_ms.append((time.perf_counter() - began) * 1000)
        if any(engine.outcome(expression, d, device) is None for d, device in devices):
            raise RuntimeError("a device was not evaluated")
    name = f"a new selector, {len(devices)} devices of 4 models"
    return Figure(name, median(took_ms), "ms", target=200)


def _claim(count: int, *constraints: Constraint) -> Claim:
    gpus = Request("gpu", (Alternative("gpu", DRIVER, (SELECTOR,), count=count),))
    return Claim("gpus", (gpus,), constraints)


def _matching(engine: SelectorEngine, view: View) -> SelectorOutcomes:
    publisher = Publisher()
    publisher.publish(view, frozenset(view.nodes))
    return Answers(publisher, engine, Settings()).outcomes()


def _devices(view: View) -> Sequence[tuple[str, Device]]:
    devices = (d for n in view.nodes.values() for p in n.pools for d in p.devices)
    return [(device.id.driver, device.device) for device in devices]


def _median_us(work: Callable[[], object]) -> float:
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return median(took) * 1e6
