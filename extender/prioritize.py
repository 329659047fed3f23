"""prioritize: the score of each node for a pod."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from extender.http.replies import Replies
from extender.verbs import ANSWER_WITHIN_S, raise_unless_ready
from fettle.api import extender as wire
from fettle.model import Mode
from fettle.observing import ExtenderMetrics
from fettle.records import Recorder
from fettle.scheduling import Answers, Demand, Leaning, Leanings, Table


class Prioritize:
    """`problem` says why Fettle is not ready; "" if it is."""

    def __init__(
        self,
        answers: Answers,
        metrics: ExtenderMetrics,
        problem: Callable[[], str],
        replies: Replies,
        recorder: Recorder,
        leanings: Leanings,
    ) -> None:
        self._answers = answers
        self._metrics = metrics
        self._problem = problem
        self._replies = replies
        self._recorder = recorder
        self._leanings = leanings

    def answer(self, body: bytes) -> bytes | Awaitable[bytes]:
        """ExtenderArgs → HostPriorityList. Raises BadInput, NotReady.

        The answer is there at once if all verdicts are, else once they are.
        """
        args = wire.decode_args(body)
        names = args.node_names
        if names is None:
            names = [name for name, _ in args.nodes or ()]
        demand = self._answers.demand_now(args.pod)
        if demand is None or demand.mode is Mode.OBSERVE:
            self._metrics.decided("prioritize", "echoed")
            return self._replies.zero_scores(names)
        raise_unless_ready(self._problem(), "prioritize", self._metrics)
        table = self._answers.at_once(demand, names)
        leaning, loop = self._leanings.of(args.pod, demand), asyncio.get_running_loop()
        loop.call_soon(self._recorder.prioritized, args.pod, demand, names, leaning)
        if table is None:
            return self._score_later(demand, names, leaning)
        return self._scored(table, names, leaning)

    async def _score_later(self, demand: Demand, names: list[str], leaning: Leaning) -> bytes:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN_S + self._answers.wait_s):
                await self._answers.judged(demand, names)
        return self._scored(self._answers.table(demand), names, leaning)

    def _scored(self, table: Table, names: list[str], leaning: Leaning) -> bytes:
        self._metrics.decided("prioritize", "passed")
        return self._replies.scores(table, names, leaning)
