"""Keeps waking pods that wait because of Fettle: judges them on each view, and makes the scheduler
retry them once they could be placed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Set
from functools import cache, partial
from heapq import nsmallest
from math import inf

import structlog

from fettle.api import core
from fettle.cluster import Publisher, View
from fettle.model import ClusterError
from fettle.observing import StewardMetrics
from fettle.pacing import part, run_within
from fettle.steward.wake_ups import SCHEDULER_RETRIES_S, AllowedByPod, WakeUps

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
    """Wakes the pods that wait in one way, at most once each `interval_s`; `whom` is their name."""

    def __init__(
        self,
        publisher: Publisher,
        metrics: StewardMetrics,
        *,
        whom: str,
        waiting: FindWaiting,
        allowed: FindAllowedNodes,
        wake: Wake,
        interval_s: float,
        longest_pause_s: float = SCHEDULER_RETRIES_S / 2,
        clock: Callable[[], float] = time.time,
        retry_s: float = RETRY_S,
    ) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._waiting = waiting
        self._whom = whom
        self._wake = wake
        self._wake_ups = partial(WakeUps, interval_s, longest_pause_s)
        self._interval_s = interval_s
        self._clock = clock
        self._retry_s = retry_s
        self._warned = ""
        self._retry_at = -inf
        self._judging = part(f"judging of {whom}", allowed)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [f"{_FAILING}: {self._warned}"] if self._warned else []

    async def keep(self) -> None:
        """Judge the waiting pods, and wake them, until cancelled."""
        # Made by the first look, so that a failure of it is minded, too.
        wake_ups = cache(self._wake_ups)

        async def look(view: View) -> float | None:
            return await self._look(wake_ups(), view)

        await self._publisher.keep_looking(
            f"waking of {self._whom}", look, every_s=self._interval_s, rest=REST
        )

    async def _look(self, wake_ups: WakeUps, view: View) -> float | None:
        """Wake those that are due; returns in how many seconds another one will be."""
        wake_ups.update(await self._allowed_by_pod(view), self._now())
        if self._now() >= self._retry_at and not await self._wake_due(wake_ups, view):
            self._retry_at = self._now() + self._retry_s
        next_at = wake_ups.next_at()
        return None if next_at is None else max(next_at, self._retry_at) - self._now()

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
        # One pod that cannot be judged must not keep the others waiting.
        return {
            key: await self._judging.attempt_async(pod, view) or frozenset() for key, pod in found
        }


def _names(due: Set[str]) -> str:
    """The first pods by name, and how many more there are."""
    first = nsmallest(MOST_NAMED, due)
    more = f" and {len(due) - len(first)} more" if len(due) > len(first) else ""
    return ", ".join(key.rpartition("/")[0] for key in first) + more
