"""What a cluster in which much goes on costs filter calls, told by a stand-in for the API server
that takes next to no processor time: so all that is measured is Fettle's own.

`claims` has slices that change on a real API server. On as few processors as these that alone makes
the do-nothing extender's slowest calls twice as slow, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count as numbers
from statistics import median

from tests.bench import calling, fleets, inventories
from tests.bench.figures import Figure, compared
from tests.bench.houses import House, start
from tests.bench.usage import cpu_s
from tests.controlplane import objects
from tests.controlplane.api import Object
from tests.controlplane.fettle_process import FettleProcess
from tests.fettle.client.fake_api import FakeApi

ROUNDS = 7
CALLS = 2000
WARMUP = 20
NAMES = 500
ALONE_S = 2.0
"""For so long things change before somebody calls: what that costs by itself."""
SLICES_PER_S = 50.0
PODS_PER_S = 25.0
MOST = 2.0
"""How much longer the slowest calls may take meanwhile."""

_numbers = numbers()

Step = Callable[[FakeApi, int], None]
"""One change of a cluster; by its number."""


async def measure(house: House) -> list[Figure]:
    return [
        *await _compare(house, 0, SLICES_PER_S, "slices a second change", change_slice),
        *await _compare(
            house,
            fleets.NODES * fleets.GPUS,
            PODS_PER_S,
            "pods a second end and come in a full cluster",
            _replace_pod,
        ),
    ]


async def _compare(
    house: House, pods: int, per_s: float, what: str, step: Step
) -> Iterator[Figure]:
    quiet, busy, cost_ms = [], [], []
    async with told_fleet(house, pods) as (api, fettle):
        await call_filter(house, fettle)
        for _ in range(ROUNDS):
            quiet.append(await call_filter(house, fettle))
            going_on = asyncio.ensure_future(go_on(api, per_s, step))
            cost_ms.append(await _cost_ms(fettle) / per_s)
            busy.append(await call_filter(house, fettle))
            if going_on.done():
                going_on.result()
            going_on.cancel()
    return _figures(f"{per_s:.0f} {what}", quiet, busy, median(cost_ms))


def _figures(
    what: str, quiet: list[calling.Outcome], busy: list[calling.Outcome], cost_ms: float
) -> Iterator[Figure]:
    call = f"filter, {NAMES} of {fleets.NODES} nodes"
    busy_ms, idle_ms = compared([o.p99_ms for o in busy], [o.p99_ms for o in quiet])
    yield Figure(f"{call}, {what}, told by a stand-in, p99", busy_ms, "ms", idle_ms, MOST * idle_ms)
    yield Figure(f"{what}: processor time of Fettle for each", cost_ms, "ms")


@asynccontextmanager
async def told_fleet(house: House, pods: int) -> AsyncIterator[tuple[FakeApi, FettleProcess]]:
    """On a fleet whose devices are in use by so many pods."""
    api = FakeApi()
    for number in range(fleets.NODES):
        name = fleets.name_of(number)
        api.put("nodes", objects.node(name, fleets.GPUS))
        api.put("resourceslices", objects.resource_slice(name, inventories.alike(number)))
    api.put("namespaces", {"metadata": {"name": "default"}})
    api.put("deviceclasses", objects.device_class())
    for number in range(pods):
        _place(api, number, number)
    api.forget()
    await api.start()
    folder = house.folder / f"churn-{pods}"
    folder.mkdir()
    fettle = FettleProcess(folder, roles=["extender"], kubeconfig=api.kubeconfig(folder))
    try:
        await start(fettle, fleets.name_of(1))
        yield api, fettle
    finally:
        await api.stop()  # first, or it keeps what it does for connections that are lost
        fettle.kill()


async def call_filter(house: House, fettle: FettleProcess) -> calling.Outcome:
    bodies = (_body(next(_numbers)) for _ in range(CALLS))
    (outcome,) = await calling.alternate(
        house.binary, [f"{fettle.extender_url}/filter"], bodies, count=CALLS, warmup=WARMUP
    )
    if outcome.allowed != NAMES:
        raise calling.CallFailed(f"{outcome.allowed} of {NAMES} sound nodes were allowed")
    return outcome


def _body(number: int) -> bytes:
    first = number * 17 % fleets.NODES
    names = [fleets.name_of((first + i) % fleets.NODES) for i in range(NAMES)]
    return fleets.body(f"train-{number}", names)


async def go_on(api: FakeApi, per_s: float, step: Step) -> None:
    began = time.monotonic()
    for done in numbers(1):
        step(api, next(_numbers))
        await asyncio.sleep(max(0.0, began + done / per_s - time.monotonic()))


async def _cost_ms(fettle: FettleProcess) -> float:
    """Processor time of a second."""
    await asyncio.sleep(0.2)
    before_s, began = cpu_s(fettle.serving_pid), time.monotonic()
    await asyncio.sleep(ALONE_S)
    return (cpu_s(fettle.serving_pid) - before_s) * 1000 / (time.monotonic() - began)


def change_slice(api: FakeApi, number: int) -> None:
    """A driver publishes a newer driver version, one node after another."""
    name = f"{fleets.name_of(number * 31 % fleets.NODES)}-{objects.DRIVER}"
    found = api.objects["resourceslices"][name]
    version = f"570.{number // fleets.NODES}.{number % fleets.NODES}"
    found["spec"]["devices"][0]["attributes"]["driverVersion"] = {"version": version}
    api.put("resourceslices", found)


def _replace_pod(api: FakeApi, number: int) -> None:
    """The pod that has had its device for longest ends, and another one gets that."""
    oldest = next(iter(api.objects["pods"]))
    pod = api.remove("pods", oldest)
    claim = api.remove("resourceclaims", f"{oldest}-gpu")
    (held,) = claim["status"]["allocation"]["devices"]["results"]
    at = int(pod["metadata"]["annotations"]["at"])
    assert held["pool"] == pod["spec"]["nodeName"]
    _place(api, fleets.NODES * fleets.GPUS + number, at)


def _place(api: FakeApi, number: int, at: int) -> None:
    """A pod on its way: made, its claim made, allocated, and bound; `at` numbers devices."""
    name, node = f"run-{number}", fleets.name_of(at // fleets.GPUS)
    pod = objects.pod(name, templates={"gpu": "gpu"}, annotations={"at": str(at)})
    pod["metadata"]["uid"] = name
    claim = objects.claim(f"{name}-gpu")
    claim["metadata"] |= {
        "uid": f"{name}-gpu",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name}],
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
    }
    api.put("pods", pod)
    api.put("resourceclaims", claim)
    api.put("resourceclaims", claim | {"status": _allocated(node, at, name)})
    pod["spec"]["nodeName"] = node
    statuses = [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]
    api.put("pods", pod | {"status": {"phase": "Running", "resourceClaimStatuses": statuses}})


def _allocated(node: str, at: int, uid: str) -> Object:
    """The status of a claim that the scheduler allocated."""
    device = {"request": "gpu", "driver": objects.DRIVER, "pool": node}
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
    ]
    return {
        "allocation": {
            "devices": {"results": [device | {"device": f"gpu-{at % fleets.GPUS}"}]},
            "nodeSelector": {"nodeSelectorTerms": terms},
        },
        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid}],
    }
