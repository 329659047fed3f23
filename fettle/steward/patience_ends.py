"""Wakes pods when their patience ends: from then on they may be placed where they were refused,
though nothing in the cluster changes, so nothing else has them judged again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from functools import partial
from math import inf

import structlog

from fettle.api import core
from fettle.cluster import Publisher, View
from fettle.model import ClusterError, Mode, reasons
from fettle.observing import StewardMetrics
from fettle.pacing import run_within
from fettle.scheduling import Answers
from fettle.steward.wake_ups import waiting

EVERY_S = 1.0
"""The shortest pause between two looks at the waiting pods."""
REST = 4.0
"""After a look, pause for so many times as long."""
LATER_S = 0.1
"""So much later than by this clock, the patience is over by the clocks of other replicas too."""
RETRY_S = 10.0

_FAILING = "pods whose patience is over cannot be woken"

_LOG = structlog.get_logger(__name__)


class PatienceEnds:
    """`allowed` names the nodes that a pod could be placed on, and `wake` wakes the pods that wait.
    `clock` is in Unix seconds.

    It wakes a pod once, when its patience ends. If that was in vain, those who watch for nodes that
    come to be allowed wake it again.
    """

    def __init__(
        self,
        answers: Answers,
        publisher: Publisher,
        allowed: Callable[[core.Pod, View], Awaitable[Set[str]]],
        wake: Callable[[View, float], Awaitable[None]],
        metrics: StewardMetrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._answers = answers
        self._publisher = publisher
        self._allowed = allowed
        self._wake = wake
        self._metrics = metrics
        self._clock = clock
        self._warned = ""
        self._since = self._retry_at = -inf

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [f"{_FAILING}: {self._warned}"] if self._warned else []

    async def keep(self) -> None:
        """Never returns."""
        self._since = self._clock() - LATER_S
        await self._publisher.keep_looking(
            "waking when patience ends", self._look, every_s=EVERY_S, rest=REST
        )

    async def _look(self, view: View) -> float | None:
        """Wake those whose patience is over; returns in how many seconds the next one's is."""
        until = self._clock() - LATER_S
        ends = await run_within(None, partial(self._ends, view))
        due = [pod for pod, at in ends if self._since < at <= until]
        if (pause_s := self._retry_at - asyncio.get_running_loop().time()) > 0:
            return pause_s
        if await self._is_any_allowed(due, view) and not await self._wake_all(due, view):
            self._retry_at = asyncio.get_running_loop().time() + RETRY_S
            return RETRY_S
        self._since = until
        return min((at - until for _, at in ends if at > until), default=None)

    async def _wake_all(self, due: Sequence[core.Pod], view: View) -> bool:
        """False if that cannot be written."""
        try:
            await self._wake(view, self._clock())
        except ClusterError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                _LOG.warning(_FAILING, reason=self._warned)
            return False
        self._metrics.woke()
        self._warned = ""
        _LOG.info("woke waiting pods whose patience is over", pods=len(due))
        return True

    def _ends(self, view: View) -> list[tuple[core.Pod, float]]:
        """The pods that Fettle refused and whose patience has an end, and when that is; also when
        they have waited long enough for a rule that is set aside."""
        found: list[tuple[core.Pod, float]] = []
        for _, pod in waiting(view):
            found += ((pod, at) for at in self._answers.last_choices_at(pod))
            match self._answers.patience(pod):
                case reasons.PatienceLasts(at) | reasons.PatienceOver(at):
                    found.append((pod, at))
        return found

    async def _is_any_allowed(self, pods: Iterable[core.Pod], view: View) -> bool:
        for pod in pods:
            # Where it is refused nothing, or Fettle only observes, its patience changes nothing.
            if self._answers.mode_of(pod) is Mode.ENFORCE and await self._allowed(pod, view):
                return True
        return False
