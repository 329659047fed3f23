"""The webhook over TLS, with 40,000 devices in view: how long a review takes, whether a selector
seen for the first time holds others up, and whether memory stays flat after a soak, of
`FETTLE_ADMISSION_CASES` reviews."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from itertools import cycle
from statistics import median, quantiles

import msgspec

from tests.bench import inventories
from tests.bench.cases import cases
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.bench.tls_client import Client, prepared
from tests.bench.usage import resident_mb
from tests.bench.webhooks import served
from tests.controlplane import objects
from tests.controlplane.api import Object
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.objects import DRIVER

RATE = 200.0
CONNECTIONS = 8
SECONDS = 20.0
NEW_SELECTORS = 10
SOAK = 200_000
P50_MS, P99_MS, P999_MS, NEW_SELECTOR_MS = 1.0, 5.0, 200.0, 300.0
FLAT_MB = 5.0
TRAINING = {"fettle.dev/policy": "training"}


async def measure(house: House) -> list[Figure]:
    folder, soak = house.folder / "admission", cases("admission", SOAK)
    inventories.write_snapshot(folder / "snapshot", inventories.of_models(4))
    async with served(folder, folder / "snapshot") as (fettle, tls):
        clients = [await Client.connect(fettle.webhook_port, tls) for _ in range(CONNECTIONS)]
        requests = list(_requests())
        await _at_rate(clients, requests, seconds=3.0)
        alone = await _at_rate(clients, requests, SECONDS)
        others = asyncio.ensure_future(_at_rate(clients, requests, SECONDS))
        fresh = await _first_seen(fettle, tls)
        beside = await others
        growth_mb = await _growth_mb(fettle, clients, requests, soak)
        for client in clients:
            client.close()
    what = f"admission review, {RATE:.0f} a second over TLS"
    return [
        Figure(f"{what}, p50", median(alone), "ms", target=P50_MS),
        Figure(f"{what}, p99", _p99(alone), "ms", target=P99_MS),
        Figure(f"{what}, p99.9", _p999(alone), "ms", target=P999_MS),
        Figure("claim whose selector is new", max(fresh), "ms", target=NEW_SELECTOR_MS),
        Figure(f"{what}, p99 beside new selectors", _p99(beside), "ms", _p99(alone), P99_MS),
        Figure(f"{what}, p99.9 beside new selectors", _p999(beside), "ms", _p999(alone), P999_MS),
        Figure(f"memory after {soak} reviews more", growth_mb, "MB", target=FLAT_MB),
    ]


def _requests() -> list[bytes]:
    """Objects of several kinds, each to both webhooks, as the API server would send them."""
    selector = f'device.attributes["{DRIVER}"].productName == "NVIDIA H100"'
    spec = objects.claim_spec(device_class=DRIVER, selectors=[selector])
    template = objects.pod_template(gpus=1)
    made = [
        objects.pod("plain", gpus=1),
        objects.pod("named", gpus=8, annotations=TRAINING),
        objects.job("train", gpus=8, annotations=TRAINING),
        objects.claim("gpu", spec=spec),
        objects.claim_template("gpus", spec=spec),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serve", "namespace": "default", "annotations": TRAINING},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        },
    ]
    return [
        prepared(path, _review(made_object))
        for made_object in made
        for path in ("/mutate", "/validate")
    ]


def _review(made: Object, uid: str = "705ab4f5-6393-11e8-b7cc-42010a800002") -> bytes:
    group, _, version = made["apiVersion"].rpartition("/")
    kind = {"group": group, "version": version, "kind": made["kind"]}
    request = {
        "uid": uid,
        "kind": kind,
        "requestKind": kind,
        "resource": {"group": group, "version": version, "resource": "things"},
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "object": made,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return msgspec.json.encode(review)


async def _at_rate(
    clients: Sequence[Client], requests: Sequence[bytes], seconds: float
) -> list[float]:
    """Milliseconds of each review, counted from when it was due: late ones are not excused."""
    began = time.perf_counter() + 0.05
    due = iter([began + n / RATE for n in range(int(seconds * RATE))])
    next_request = cycle(requests)
    took_ms: list[float] = []

    async def ask(client: Client) -> None:
        for at in due:
            if (early_s := at - time.perf_counter()) > 0:
                await asyncio.sleep(early_s)
            since = max(at, time.perf_counter()) if early_s > 0 else at
            await client.post(next(next_request))
            took_ms.append((time.perf_counter() - since) * 1000)

    await asyncio.gather(*map(ask, clients))
    return took_ms


async def _first_seen(fettle: FettleProcess, tls: ssl.SSLContext) -> list[float]:
    """Milliseconds of reviews of claims that each bring a selector nobody has seen."""
    client = await Client.connect(fettle.webhook_port, tls)
    took_ms = []
    for number in range(NEW_SELECTORS):
        memory = f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("{number + 1}Gi"))'
        spec = objects.claim_spec(device_class=DRIVER, selectors=[memory])
        request = prepared("/validate", _review(objects.claim("new", spec=spec)))
        began = time.perf_counter()
        await client.post(request)
        took_ms.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(SECONDS / NEW_SELECTORS / 2)
    client.close()
    return took_ms


async def _growth_mb(
    fettle: FettleProcess, clients: Sequence[Client], requests: Sequence[bytes], soak: int
) -> float:
    """What a soak adds to what is held, after a tenth of it as a warm-up."""
    await _as_fast_as_possible(clients, requests, soak // 10)
    before_mb = resident_mb(fettle.serving_pid)
    await _as_fast_as_possible(clients, requests, soak)
    return resident_mb(fettle.serving_pid) - before_mb


async def _as_fast_as_possible(
    clients: Sequence[Client], requests: Sequence[bytes], count: int
) -> None:
    left = iter(range(count))

    async def ask(client: Client) -> None:
        for number in left:
            await client.post(requests[number % len(requests)])

    await asyncio.gather(*map(ask, clients))


def _p999(took_ms: Sequence[float]) -> float:
    """The `timeoutSeconds` of the webhook configurations are ten times what it may be."""
    return quantiles(took_ms, n=1000)[-1]


def _p99(took_ms: Sequence[float]) -> float:
    return quantiles(took_ms, n=100)[98]
