"""Keeps waking pods that wait because of Fettle: judges them on each view, and makes the scheduler
retry them once they could be placed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Set
from heapq import nsmallest

import structlog

from fettle.api import core
from fettle.cluster import Publisher, View
from fettle.model import ClusterError
from fettle.observing import StewardMetrics
from fettle.pacing import run_within
from fettle.steward.wake_ups import AllowedByPod, WakeUps

FindAllowedNodes = Callable[[core.Pod, View], Awaitable[Set[str]]]
"""Names of the nodes that a pod could be placed on now, as far as Fettle knows."""
FindWaiting = Callable[[View], Iterator[tuple[str, core.Pod]]]
"""Pods that wait, each with a key that no later pod of its name has."""
Wake = Callable[[View, float], Awaitable[None]]
"""Makes the scheduler retry the pods that wait; raises ClusterError. Takes the time of day, in
seconds since the Unix epoch."""

RETRY_S = 10.0
REST = 4.0
"""After judging the waiting pods, pause for so many times as long: each pod with a demand of its
own is judged on the whole fleet."""
MOST_NAMED = 3
"""Pods that the log names when they are woken."""

_FAILING = "waiting pods cannot be woken"

log = structlog.get_logger(__name__)


class Waking:
    """Wakes the pods that wait in one way, at most once each interval of `wake_ups`."""

    def __init__(
        self,
        publisher: Publisher,
        metrics: StewardMetrics,
        *,
        waiting: FindWaiting,
        allowed: FindAllowedNodes,
        wake: Wake,
        wake_ups: Callable[[], WakeUps],
        clock: Callable[[], float] = time.time,
        retry_s: float = RETRY_S,
    ) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._waiting = waiting
        self._allowed = allowed
        self._wake = wake
        self._wake_ups = wake_ups
        self._clock = clock
        self._retry_s = retry_s
        self._warned = ""

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [f"{_FAILING}: {self._warned}"] if self._warned else []

    async def keep(self) -> None:
        """Judge the waiting pods, and wake them, until cancelled."""
        wake_ups, view = self._wake_ups(), self._publisher.view
        while True:
            began_s = self._now()
            wake_ups.update(await self._allowed_by_pod(view), self._now())
            pause_s = max(wake_ups.interval_s, REST * (self._now() - began_s))
            if not await self._wake_due(wake_ups, view):
                pause_s = max(pause_s, self._retry_s)
            await asyncio.sleep(pause_s)
            view = await self._publisher.newer_than(view.generation, wake_ups.next_at())

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _wake_due(self, wake_ups: WakeUps, view: View) -> bool:
        """Wake the pods that are due; false if that cannot be written."""
        due = wake_ups.due(self._now())
        if not due:
            return True
        try:
            await self._wake(view, self._clock())
        except ClusterError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                log.warning(_FAILING, pods=_names(due), reason=self._warned)
            return False
        self._warned = ""
        self._metrics.woke()
        log.info("woke waiting pods", pods=len(due), names=_names(due))
        wake_ups.woken(self._now())
        return True

    async def _allowed_by_pod(self, view: View) -> AllowedByPod:
        found = await run_within(None, lambda: [*self._waiting(view)])
        return {key: await self._allowed_for(pod, view) for key, pod in found}

    async def _allowed_for(self, pod: core.Pod, view: View) -> Set[str]:
        try:
            return await self._allowed(pod, view)
        except Exception:
            # One pod that cannot be judged must not keep the others waiting.
            log.exception("waiting pod cannot be judged", pod=pod.metadata.key)
            return frozenset()


def _names(due: Set[str]) -> str:
    """The first pods by name, and how many more there are."""
    first = nsmallest(MOST_NAMED, due)
    more = f" and {len(due) - len(first)} more" if len(due) > len(first) else ""
    return ", ".join(key.rpartition("/")[0] for key in first) + more
