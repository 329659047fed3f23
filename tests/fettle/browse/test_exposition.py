"""The text of /metrics, which everybody may ask for."""

import asyncio
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fettle.browse.probes import Exposition


class _Slow(Collector):
    """Twenty metrics that take two milliseconds each."""

    def __init__(self) -> None:
        self.number = 0

    def collect(self) -> Iterator[Metric]:
        self.number += 1
        for number in range(20):
            until = time.perf_counter() + 0.002
            while time.perf_counter() < until:
                pass
            yield GaugeMetricFamily(f"slow_{number}", "Slow.", value=1)


async def test_hundreds_who_ask_for_metrics_at_once_get_one_text() -> None:
    registry, slow = CollectorRegistry(), _Slow()
    registry.register(slow)
    slow.number = 0
    exposition = Exposition(registry)
    texts = await asyncio.gather(*(exposition.text() for _ in range(300)))
    assert slow.number == 1
    assert set(map(len, texts)) == {len(texts[0])}


async def test_of_hundreds_who_wait_for_metrics_one_is_answered_in_each_turn() -> None:
    exposition = Exposition(CollectorRegistry())
    asked = [asyncio.create_task(exposition.text()) for _ in range(300)]
    most = before = 0
    while before < 300:
        await asyncio.sleep(0)
        done = sum(one.done() for one in asked)
        most, before = max(most, done - before), done
    assert most <= 2


async def test_metrics_have_what_was_counted_before_somebody_asked() -> None:
    registry, slow = CollectorRegistry(), _Slow()
    counter = Counter("asked", "Asked.", registry=registry)
    registry.register(slow)
    exposition = Exposition(registry)
    first = asyncio.create_task(exposition.text())
    await asyncio.sleep(0.01)
    counter.inc()
    assert b"asked_total 1.0" in await exposition.text()
    assert b"asked_total 0.0" in await first


async def test_others_have_their_turn_while_metrics_are_counted() -> None:
    registry, turns = CollectorRegistry(), 0
    registry.register(_Slow())
    asked = asyncio.create_task(Exposition(registry).text())
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 20
