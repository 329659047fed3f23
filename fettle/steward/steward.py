"""The controller: one replica leads, by a Lease, follows the views, wakes pods that wait, and keeps
what else is given to it. Not started if the source is a snapshot.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Set
from heapq import nsmallest

import structlog

from fettle.api import core
from fettle.client import Session, lead
from fettle.cluster import Publisher, View
from fettle.config import StewardSettings
from fettle.model import ClusterError
from fettle.observing import StewardMetrics
from fettle.pacing import run_within
from fettle.steward.wake_ups import AllowedByPod, Nudge, WakeUps, waiting

FindAllowedNodes = Callable[[core.Pod, View], Awaitable[Set[str]]]
"""Names of the nodes that a pod could be placed on now, as far as Fettle knows."""

STEWARD = "fettle.dev/steward"
"""Who reports the steward's Events."""
_RETRY_S = 10.0
REST = 4.0
"""After judging the waiting pods, pause for so many times as long: each pod with a demand of its
own is judged on the whole fleet."""
MOST_NAMED = 3
"""Pods that the log names when they are woken."""

log = structlog.get_logger(__name__)


class Steward:
    """`identity` must differ between replicas; `namespace` holds the lease and the claim."""

    def __init__(
        self,
        session: Session,
        publisher: Publisher,
        allowed: FindAllowedNodes,
        *,
        namespace: str,
        identity: str,
        settings: StewardSettings,
        metrics: StewardMetrics,
        clock: Callable[[], float] = time.time,
        retry_s: float = _RETRY_S,
        beside: Collection[Callable[[], Coroutine[None, None, None]]] = (),
    ) -> None:
        """`beside`: what else the leader keeps doing; none of it returns."""
        self._session = session
        self._publisher = publisher
        self._allowed = allowed
        self._namespace = namespace
        self._identity = identity
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._retry_s = retry_s
        self._beside = beside
        self._nudge = Nudge(session, namespace, settings.wake_claim)
        self._warned = ""

    async def run(self) -> None:
        """Never returns: stands for election, and works while leading."""
        await lead(
            self._session,
            self._namespace,
            self._settings.lease,
            self._identity,
            self._settings.lease_seconds,
            self.work,
        )

    async def work(self) -> None:
        """What the leader does."""
        with self._metrics.leading():
            async with asyncio.TaskGroup() as group:
                for work in (self._wake_pods, *self._beside):
                    group.create_task(work())

    async def _wake_pods(self) -> None:
        """Judge the waiting pods, and wake them, at most once each interval."""
        interval_s = self._settings.wake_interval_seconds
        wake_ups, view = WakeUps(interval_s), self._publisher.view
        while True:
            began_s = self._now()
            wake_ups.update(await self._allowed_by_pod(view), self._now())
            pause_s = max(interval_s, REST * (self._now() - began_s))
            if not await self._wake(wake_ups, view):
                pause_s = max(pause_s, self._retry_s)
            await asyncio.sleep(pause_s)
            view = await self._publisher.newer_than(view.generation, wake_ups.next_at())

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _wake(self, wake_ups: WakeUps, view: View) -> bool:
        """Wake the pods that are due; false if that cannot be written."""
        due = wake_ups.due(self._now())
        if not due:
            return True
        try:
            await self._nudge.wake(view, self._clock())
        except ClusterError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                log.warning("waiting pods cannot be woken", reason=self._warned)
            return False
        self._warned = ""
        self._metrics.woke()
        log.info("woke waiting pods", pods=len(due), names=_names(due))
        wake_ups.woken(self._now())
        return True

    async def _allowed_by_pod(self, view: View) -> AllowedByPod:
        found = await run_within(None, lambda: [*waiting(view)])
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
