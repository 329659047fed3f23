"""An extender as it is served, over a view that a test lays out."""

import asyncio
import contextlib
import io
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from extender.app import make_connections
from extender.misconfiguration import Misconfiguration
from extender.verbs import Waits
from fettle.api import core
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher
from fettle.config import ExtenderSettings, Settings
from fettle.model import Inherited
from fettle.observing import DecisionMetrics, ExtenderMetrics
from fettle.records import DecisionLog, Journal, Recorder
from fettle.scheduling import Answers, FormerNodes, Leanings, OwnerRefusals
from fettle.scheduling.placed import RecentPods
from tests.fettle import building as b
from tests.fettle.others import WatchedPublisher


class Arrivals:
    """What has arrived from the cluster and no view shows; `show` puts it into one."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.show: Callable[[], None] | None = None
        self.inherited: dict[str, Inherited] = {}
        """What is answered of workloads, by the identity of controllers."""

    @property
    def stale(self) -> bool:
        return self.show is not None

    async def catch_up(self) -> None:
        await asyncio.sleep(0)
        if self.show is not None:
            self.show()
        self.show = None

    def lacks_workload(self, pod: core.Pod) -> bool:
        known = self.publisher.view.inherited
        return pod.metadata.controller_identity in self.inherited.keys() - known.keys()

    async def learn_workload(self, pod: core.Pod) -> None:
        await asyncio.sleep(0)
        view = self.publisher.view
        fields = {"generation": view.generation + 1, "basis": view.basis + 1}
        shown = msgspec.structs.replace(view, inherited=self.inherited, **fields)
        self.publisher.publish(shown, frozenset())


class Extender:
    """POSTs as the scheduler would; `problem` makes it not ready."""

    def __init__(
        self, settings: ExtenderSettings | None = None, recent: RecentPods | None = None
    ) -> None:
        self.publisher = WatchedPublisher()
        self.problem = ""
        self.registry = CollectorRegistry()
        all_settings = Settings(extender=settings or ExtenderSettings())
        self.answers = Answers(self.publisher, SelectorEngine(), all_settings)
        metrics = ExtenderMetrics(self.registry)
        self.misconfiguration = Misconfiguration(metrics, all_settings.scheduler.names)
        self.recent = RecentPods() if recent is None else recent
        self.ahead_s = 0.0
        """How far the clock is put forward by which failures are forgotten."""
        self.refusals = OwnerRefusals(self.now)
        self.former = FormerNodes(self.now)
        self.waits = Waits()
        self.arrivals = Arrivals(self.publisher)
        self.recorder = Recorder(
            self.answers,
            DecisionLog(1000, 2**20),
            Journal(None, 2**20),
            DecisionMetrics(self.registry),
        )
        self.connections = make_connections(
            self.answers,
            all_settings.extender,
            metrics,
            lambda: self.problem,
            freshness=self.arrivals,
            misconfiguration=self.misconfiguration,
            recent=self.recent,
            recorder=self.recorder,
            refusals=self.refusals,
            leanings=Leanings(self.answers, self.refusals, self.former),
            waits=self.waits,
        )
        self.client: aiohttp.ClientSession
        self.port = 0

    def now(self) -> float:
        return time.time() + self.ahead_s

    def show(self, *nodes: NodeView, **fields: Any) -> None:
        """Publish a view of exactly these nodes."""
        before = self.publisher.view
        after = msgspec.structs.replace(
            b.view(*nodes, **fields), generation=before.generation + 1, basis=before.basis + 1
        )
        changed = {
            n
            for n in {*before.nodes, *after.nodes}
            if before.nodes.get(n) is not after.nodes.get(n)
        }
        self.publisher.publish(after, frozenset(changed))
        self.answers.demands.gangs.observe_view(before, after)

    async def post(self, verb: str, body: Any, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        url = f"http://127.0.0.1:{self.port}/{verb}"
        async with self.client.post(url, data=io.BytesIO(data), headers=headers) as reply:
            text = await reply.read()
            assert reply.headers["Content-Length"] == str(len(text))
            return reply.status, msgspec.json.decode(text)

    async def filter(self, pod: Any, *names: str) -> Any:
        status, reply = await self.post("filter", {"Pod": pod, "NodeNames": list(names)})
        assert status == 200
        return reply

    async def prioritize(self, pod: Any, *names: str) -> dict[str, Any]:
        status, reply = await self.post("prioritize", {"Pod": pod, "NodeNames": list(names)})
        assert status == 200
        return {entry["Host"]: entry["Score"] for entry in reply}

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@contextlib.asynccontextmanager
async def listening(extender: Extender) -> AsyncIterator[Extender]:
    """Serve it on loopback, and give it a client."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(extender.connections, "127.0.0.1", 0)
    extender.port = server.sockets[0].getsockname()[1]
    recording = asyncio.create_task(extender.recorder.run())
    async with aiohttp.ClientSession() as extender.client:
        yield extender
    recording.cancel()
    server.close()
    await extender.connections.drain(1)


@pytest.fixture
async def extender() -> AsyncIterator[Extender]:
    async with listening(Extender()) as served:
        yield served


@pytest.fixture
def fleet(extender: Extender) -> Extender:
    """good, worn (degraded) and dead (unhealthy), eight GPUs each."""
    extender.show(
        b.node("good", gpus=8),
        b.node("worn", gpus=8, own=b.health(0.6)),
        b.node("dead", gpus=8, own=b.health(0.1)),
    )
    return extender
