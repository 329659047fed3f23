"""What metrics cost on a big fleet: a round over 40,000 devices with 12 metrics each, of which a
share fires, and filter calls meanwhile. A stand-in answers for Prometheus, whose own work is its
own; `tests/prometheus` has the real one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from itertools import count as numbers
from pathlib import Path

from aiohttp import web

from fettle.api import Finding, Measured
from fettle.cluster import EMPTY, Publisher
from fettle.cluster.feeds import Poller
from fettle.config import PrometheusSettings
from fettle.health import metrics
from fettle.observing import PrometheusMetrics, make_registry
from fettle.pacing import run_within
from tests.bench import calling, fleets, inventories
from tests.bench.figures import Figure, compared
from tests.bench.houses import House, start
from tests.controlplane.fettle_process import FettleProcess

DEVICES = fleets.NODES * fleets.GPUS
RULES = (
    "dcgm-ecc-uncorrectable",
    "dcgm-ecc-correctable",
    "dcgm-row-remap-failed",
    "dcgm-row-remap-pending",
    "dcgm-rows-remapped",
    "dcgm-pcie-replay",
    "dcgm-nvlink-replay",
    "dcgm-nvlink-crc-data",
    "dcgm-thermal-violation",
    "dcgm-clock-events",
    "dcgm-sm-clock",
    "dcgm-health",
)
CALLS, ROUNDS, NAMES = 1500, 5, 500
MOST = 2.0
_numbers = numbers()


class StandIn:
    """Answers as Prometheus: all metrics are there, and `share` (0..1) of the devices fires for
    each of RULES, others in each round by `turns`."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.turns = 0
        self.rules: Collection[str] = RULES
        known = metrics.queries(inventories.RULES)
        self._by_query = {known[name].query: name for name in RULES}
        self._names = sorted({n for r in RULES for group in known[r].names for n in group})
        self.asked = known
        self._bodies: dict[tuple[float, int], bytes] = {}

    async def answer(self, request: web.Request) -> web.Response:
        query = str((await request.post())["query"])
        body = _vector([])
        if query.startswith("count by (__name__)"):
            body = _vector([({"__name__": name}, DEVICES) for name in self._names])
        elif self._by_query.get(query) in self.rules:
            body = self._firing()
        return web.Response(body=body, content_type="application/json")

    def _firing(self) -> bytes:
        key = self.share, self.turns
        if key not in self._bodies:
            every = max(1, round(1 / self.share))
            self._bodies[key] = _vector(
                [(labels(number), 25) for number in range(self.turns % every, DEVICES, every)]
            )
        return self._bodies[key]


def labels(number: int) -> dict[str, str]:
    return {
        "UUID": f"GPU-{number:08d}",
        "gpu": str(number % fleets.GPUS),
        "hostname": fleets.name_of(number // fleets.GPUS),
        "pci_bus_id": f"00000000:{number % fleets.GPUS:02X}:00.0",
        "modelName": "NVIDIA H100 80GB HBM3",
        "namespace": "gpu-operator",
    }


def _vector(found: list[tuple[dict[str, str], float]]) -> bytes:
    entries = [{"metric": labels, "value": [time.time(), str(value)]} for labels, value in found]
    data = {"resultType": "vector", "result": entries}
    return json.dumps({"status": "success", "data": data}, separators=(",", ":")).encode()


@asynccontextmanager
async def serving(stand_in: StandIn) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/api/v1/query", stand_in.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def measure(house: House) -> list[Figure]:
    return [*await _rounds(), *await _calls(house)]


async def _rounds() -> list[Figure]:
    """Processor time of one process with all of it, but for what the stand-in takes."""
    stand_in = StandIn(0.01)
    async with serving(stand_in) as url:
        work = _Work(url)
        first = await work.round_ms()
        rest = await work.round_ms()
        stand_in.share, stand_in.turns = 0.05, 7
        storm = await work.round_ms()
        stand_in.share, stand_in.turns, stand_in.rules = 1.0, 0, RULES[:1]
        all_of_it = await work.round_ms()
    figure = f"metrics: a round, {DEVICES} devices, {len(RULES)} rules"
    return [
        Figure(f"{figure}, 1 % begin to fire", first, "ms", target=1000.0),
        Figure(f"{figure}, 1 % fire as before", rest, "ms", target=1000.0),
        Figure(f"{figure}, 5 % others fire", storm, "ms", target=5000.0),
        Figure(f"{figure}, one fires for all", all_of_it, "ms"),
    ]


class _Work:
    def __init__(self, url: str) -> None:
        settings = PrometheusSettings(url=url, max_mebibytes=64)
        self._inventory = inventories.of_nodes(inventories.alike, prometheus=settings)
        self._view = inventories.look(self._inventory, EMPTY)
        self._poller = Poller(
            settings,
            metrics.queries(inventories.RULES),
            self._fold,
            Publisher(),
            self._inventory.measuring,
            PrometheusMetrics(make_registry()),
        )
        self._poller.begin()

    async def _fold(self, found: Finding) -> None:
        if isinstance(found, Measured):
            work = partial(self._inventory.measuring.measure, found, inventories.NOW)
            await run_within(work)

    async def round_ms(self) -> float:
        began = time.process_time()
        await self._poller.round()
        for _ in self._inventory.refresh(inventories.NOW):
            pass
        made = self._inventory.view(self._view, synced=True, served={})
        self._view = made or self._view
        self._inventory.settle()
        return 1000 * (time.process_time() - began)


async def _calls(house: House) -> list[Figure]:
    """Filter calls while rounds follow each other, and while there are none."""
    snapshot = house.folder / "snapshot"
    if not snapshot.exists():
        fleets.write_snapshot(snapshot)
    async with serving(StandIn(0.01)) as url:
        quiet: list[calling.Outcome] = []
        busy: list[calling.Outcome] = []
        async with (
            _fettle(house, snapshot, "") as idle,
            _fettle(
                house, snapshot, f"prometheus: {{url: '{url}', intervalSeconds: 1}}\n"
            ) as busy_one,
        ):
            await asyncio.sleep(5)
            for _ in range(ROUNDS):
                for fettle, into in ((idle, quiet), (busy_one, busy)):
                    bodies = [
                        fleets.body(f"metrics-{next(_numbers)}", fleets.names_spread(NAMES))
                        for _ in range(200)
                    ]
                    (outcome,) = await calling.alternate(
                        house.binary,
                        [f"{fettle.extender_url}/filter"],
                        bodies,
                        count=CALLS,
                        warmup=20,
                    )
                    into.append(outcome)
    busy_ms, idle_ms = compared([o.p99_ms for o in busy], [o.p99_ms for o in quiet])
    what = f"filter, {NAMES} of {fleets.NODES} nodes, a round of metrics each second, p99"
    return [Figure(what, busy_ms, "ms", idle_ms, MOST * idle_ms)]


@asynccontextmanager
async def _fettle(house: House, snapshot: Path, settings: str) -> AsyncIterator[FettleProcess]:
    folder = house.folder / f"metrics-{next(_numbers)}"
    folder.mkdir()
    (folder / "settings.yaml").write_text(settings)
    fettle = FettleProcess(
        folder,
        roles=["extender"],
        settings=folder / "settings.yaml",
        arguments=["--snapshot", snapshot],
    )
    try:
        await start(fettle, fleets.name_of(1))
        yield fettle
    finally:
        fettle.kill()
