"""Asks with claims beside those for a device plugin, and what changing slices cost the others.

On the real API server: 5000 nodes, 40,000 devices. The client alternates between the two kinds of
ask, and between a quiet cluster and one in which drivers publish anew all the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count as numbers
from statistics import median
from typing import Any

import msgspec

from tests.bench import calling, fleets
from tests.bench.figures import Figure
from tests.bench.houses import House, start
from tests.controlplane import objects
from tests.controlplane.api import Api, Object
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.objects import DRIVER

NAMES = 500
CALLS = 400
ROUNDS = 5
TEMPLATE = "bench-gpu"
UPDATES_PER_S = 50.0
MOST = 2.0
"""How much longer the slowest calls may take while slices change."""

_numbers = numbers()


async def measure(house: House) -> list[Figure]:
    plane = await house.plane()
    await plane.tester.create(objects.claim_template(TEMPLATE))
    fettle = await house.fettle_on_plane()
    try:
        await start(fettle, _name(0))
        await _calls(house, fettle, _with_claim)  # the selector is evaluated
        kinds = {"plugin": _with_units, "claim": _with_claim}
        quiet: dict[str, list[calling.Outcome]] = {kind: [] for kind in kinds}
        busy: list[calling.Outcome] = []
        for _ in range(ROUNDS):
            for kind, make in kinds.items():
                quiet[kind].append(await _calls(house, fettle, make))
            churn = asyncio.ensure_future(_change_slices(plane.tester))
            busy.append(await _calls(house, fettle, _with_units))
            churn.cancel()
    finally:
        fettle.kill()
    plugin_ms, claim_ms = (median(o.p50_ms for o in quiet[k]) for k in ("plugin", "claim"))
    idle_ms, churned_ms = (median(o.p99_ms for o in each) for each in (quiet["plugin"], busy))
    what = f"filter, {NAMES} of {fleets.NODES} nodes"
    return [
        # A fifth more is what the same call varies by from round to round.
        Figure(f"{what}, one-device claim, p50", claim_ms, "ms", plugin_ms, plugin_ms * 1.2),
        Figure(
            f"{what}, {UPDATES_PER_S:.0f} slices a second change, p99",
            churned_ms,
            "ms",
            idle_ms,
            MOST * idle_ms,
        ),
    ]


def _name(number: int) -> str:
    """As the loader names nodes."""
    return f"node-{number:05d}"


def _with_units() -> Object:
    return fleets.waiting_pod(f"train-{next(_numbers)}")


def _with_claim() -> Object:
    made = objects.pod(
        f"claims-{next(_numbers)}",
        templates={"gpu": TEMPLATE},
        annotations={"fettle.dev/policy": "training"},
    )
    made["spec"]["containers"][0]["resources"]["limits"] = {"fettle.dev/claims": "1"}
    return made


async def _calls(house: House, fettle: FettleProcess, make: Any) -> calling.Outcome:
    def bodies() -> Iterator[bytes]:
        for number in range(CALLS):
            first = number * 17 % fleets.NODES
            names = [_name((first + i) % fleets.NODES) for i in range(NAMES)]
            yield msgspec.json.encode({"Pod": make(), "Nodes": None, "NodeNames": names})

    (outcome,) = await calling.alternate(
        house.binary, [f"{fettle.extender_url}/filter"], bodies(), count=CALLS, warmup=20
    )
    if outcome.allowed != NAMES:
        raise calling.CallFailed(f"{outcome.allowed} of {NAMES} sound nodes were allowed")
    return outcome


async def _change_slices(api: Api) -> None:
    """A driver publishes a newer driver version, one node after another."""
    began = time.monotonic()
    for number in numbers():
        name = f"{_name(number * 31 % fleets.NODES)}-{DRIVER}"
        version = {"version": f"570.{number // fleets.NODES}.{number % fleets.NODES}"}
        change = [
            {"op": "add", "path": "/spec/devices/0/attributes/driverVersion", "value": version}
        ]
        await api.patch("resourceslices", name, change, form="json")
        await asyncio.sleep(max(0.0, began + (number + 1) / UPDATES_PER_S - time.monotonic()))
