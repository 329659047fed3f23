"""Asks with claims beside those for a device plugin, and what changing slices and asks that were
never heard before cost the others.

On the real API server: 5000 nodes, 40,000 devices. The client alternates between the two kinds of
ask, and between a quiet cluster and one in which something goes on all the time.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import count as numbers
from typing import Any

import aiohttp
import msgspec

from tests.bench import calling, fleets
from tests.bench.figures import Figure, compared
from tests.bench.houses import House, start
from tests.controlplane import objects
from tests.controlplane.api import Api, Object
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.objects import DRIVER

NAMES = 500
CALLS = 2000
ROUNDS = 5
TEMPLATE = "bench-gpu"
UPDATES_PER_S = 50.0
COLD_DEMANDS_PER_S = 5.0
MOST = 2.0
"""How much longer the slowest calls may take meanwhile."""

_numbers = numbers()


async def measure(house: House) -> list[Figure]:
    plane = await house.plane()
    await plane.tester.create(objects.claim_template(TEMPLATE))
    fettle = await house.fettle_on_plane()
    try:
        await start(fettle, _name(0))
        async with house.echo() as echo:
            return await _measure(house, plane.tester, fettle, echo.url)
    finally:
        fettle.kill()


async def _measure(house: House, api: Api, fettle: FettleProcess, echo: str) -> list[Figure]:
    await _calls(house, fettle.extender_url, _with_claim)  # the selector is evaluated
    asked = {
        "plugin": (fettle.extender_url, _with_units),
        "claim": (fettle.extender_url, _with_claim),
        "echo": (echo, _with_units),
    }
    quiet: dict[str, list[calling.Outcome]] = {kind: [] for kind in asked}
    meanwhile: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        f"{UPDATES_PER_S:.0f} slices a second change": lambda: _change_slices(api),
        f"{COLD_DEMANDS_PER_S:.0f} cold demands a second": lambda: _ask_anew(fettle),
    }
    busy: dict[tuple[str, str], list[calling.Outcome]] = defaultdict(list)
    for _ in range(ROUNDS):
        for kind, (url, make) in asked.items():
            quiet[kind].append(await _calls(house, url, make))
        for what, go_on in meanwhile.items():
            task = asyncio.ensure_future(go_on())
            for kind in ("plugin", "echo"):
                busy[what, kind].append(await _calls(house, asked[kind][0], _with_units))
            if task.done():
                task.result()
            task.cancel()
    return [*_figures(quiet, meanwhile, busy)]


def _figures(
    quiet: Mapping[str, Sequence[calling.Outcome]],
    meanwhile: Iterable[str],
    busy: Mapping[tuple[str, str], Sequence[calling.Outcome]],
) -> Iterator[Figure]:
    """The do-nothing extender has figures too: what goes on takes processor time from anybody."""
    claim_ms, plugin_ms = compared(*([o.p50_ms for o in quiet[k]] for k in ("claim", "plugin")))
    call = f"filter, {NAMES} of {fleets.NODES} nodes"
    # A fifth more is what the same call varies by from round to round.
    yield Figure(f"{call}, one-device claim, p50", claim_ms, "ms", plugin_ms, plugin_ms * 1.2)
    for what in meanwhile:
        for kind, whose, most in (
            ("plugin", call, MOST),
            ("echo", f"{call}: the do-nothing extender", None),
        ):
            rounds = busy[what, kind], quiet[kind]
            busy_ms, idle_ms = compared(*([o.p99_ms for o in each] for each in rounds))
            target = most * idle_ms if most is not None else None
            yield Figure(f"{whose}, {what}, p99", busy_ms, "ms", idle_ms, target)


def _name(number: int) -> str:
    """As the loader names nodes."""
    return f"node-{number:05d}"


def _with_units() -> Object:
    return fleets.waiting_pod(f"train-{next(_numbers)}")


def _with_claim(name: str = "gpu") -> Object:
    made = objects.pod(
        f"claims-{next(_numbers)}",
        templates={name: TEMPLATE},
        annotations={"fettle.dev/policy": "training"},
    )
    made["spec"]["containers"][0]["resources"]["limits"] = {"fettle.dev/claims": "0"}
    return made


async def _calls(house: House, url: str, make: Any) -> calling.Outcome:
    def bodies() -> Iterator[bytes]:
        for number in range(CALLS):
            first = number * 17 % fleets.NODES
            names = [_name((first + i) % fleets.NODES) for i in range(NAMES)]
            yield msgspec.json.encode({"Pod": make(), "Nodes": None, "NodeNames": names})

    (outcome,) = await calling.alternate(
        house.binary, [f"{url}/filter"], bodies(), count=CALLS, warmup=20
    )
    if outcome.allowed != NAMES:
        raise calling.CallFailed(f"{outcome.allowed} of {NAMES} sound nodes were allowed")
    return outcome


async def _ask_anew(fettle: FettleProcess) -> None:
    """Pods with a claim, about all nodes, each of which names it as no pod did before."""
    names = [_name(number) for number in range(fleets.NODES)]
    async with aiohttp.ClientSession() as session:
        while True:
            began = time.monotonic()
            pod = _with_claim(f"gpu-{next(_numbers)}")
            body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
            async with session.post(f"{fettle.extender_url}/filter", data=body) as reply:
                answer = await reply.read()
            if reply.status != 200 or len(answer) < len(names):
                raise calling.CallFailed(
                    f"a cold demand was answered {reply.status} {answer[:200]!r}"
                )
            await asyncio.sleep(max(0.0, began + 1 / COLD_DEMANDS_PER_S - time.monotonic()))


async def _change_slices(api: Api) -> None:
    """A driver publishes a newer driver version, one node after another."""
    began = time.monotonic()
    for done in numbers(1):
        number = next(_numbers)  # never the version that a slice has: that would be no change
        name = f"{_name(number * 31 % fleets.NODES)}-{DRIVER}"
        version = {"version": f"570.{number // fleets.NODES}.{number % fleets.NODES}"}
        change = [
            {"op": "add", "path": "/spec/devices/0/attributes/driverVersion", "value": version}
        ]
        await api.patch("resourceslices", name, change, form="json")
        await asyncio.sleep(max(0.0, began + done / UPDATES_PER_S - time.monotonic()))
