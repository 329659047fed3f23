"""The text of `/metrics`. Everybody may ask for it, as often as they like, so one is made at a
time, in time slices, for all who wait for one."""

import asyncio
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from fettle.pacing import pause, run_within


class Exposition:
    """`text` is made of what is counted once it is asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = _Paused(registry)
        self._making = asyncio.Lock()
        self._next: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        if self._next is None:
            self._next = asyncio.create_task(self._make())
        return await asyncio.shield(self._next)

    async def _make(self) -> bytes:
        async with self._making:
            self._next = None  # whoever asks from here on may miss what was counted before
            return await run_within(None, lambda: generate_latest(self._registry))


class _Paused(Collector):
    """Others have their turn between two metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            yield metric
            pause()
