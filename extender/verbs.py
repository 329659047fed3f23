"""prioritize, the score of each node for a pod, and preempt, which nodes are worth their victims;
and what they share with filter: when an error is answered, and how answers are counted."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from extender.http.replies import Replies
from fettle.api import extender as wire
from fettle.model import FettleError, Mode
from fettle.observing import ExtenderMetrics
from fettle.records import Recorder
from fettle.scheduling import Answers, Demand, Leaning, Leanings, Preemption, Table

ANSWER_WITHIN_S = 1.5
"""Beside what it waits for selectors, a call takes no longer: the shipped configuration gives it
two seconds, after which the scheduler does without Fettle. Nodes not judged by then are undecided.
"""
WAIT_S = 0.15
"""On a busy machine, one watcher can receive an event this much later than another."""
ANY_POD_S = 0.3
"""How long a wait that brought nothing skips further ones for any pod at all."""
REFUSED = "refused"


@dataclass
class Waits:
    """How long calls take at most, in seconds."""

    answer_within_s: float = ANSWER_WITHIN_S
    newer_view_s: float = WAIT_S
    any_pod_s: float = ANY_POD_S


class NotReady(FettleError):
    """The view is not complete or not fresh. The answer is an error, never refusals."""


def raise_unless_ready(problem: str, verb: str, metrics: ExtenderMetrics) -> None:
    """Raises NotReady if there is a problem."""
    if problem:
        metrics.decided(verb, "not_ready")
        raise NotReady(f"fettle: not ready: {problem}")


def result_of(nodes: int, refused: int) -> str:
    """How an answer that refused so many of the nodes is counted."""
    if not refused:
        return "passed"
    return REFUSED if refused == nodes else "narrowed"


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
        waits: Waits,
    ) -> None:
        self._answers = answers
        self._waits = waits
        self._metrics = metrics
        self._problem = problem
        self._replies = replies
        self._recorder = recorder
        self._leanings = leanings

    def handle(self, body: bytes) -> bytes | Awaitable[bytes]:
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
            async with asyncio.timeout(self._waits.answer_within_s + self._answers.wait_s):
                await self._answers.judged(demand, names)
        return self._scored(self._answers.table(demand), names, leaning)

    def _scored(self, table: Table, names: list[str], leaning: Leaning) -> bytes:
        self._metrics.decided("prioritize", "passed")
        return self._replies.scores(table, names, leaning)


class Preempt:
    """`problem` says why Fettle is not ready; "" if it is."""

    def __init__(
        self,
        answers: Answers,
        metrics: ExtenderMetrics,
        problem: Callable[[], str],
        recorder: Recorder,
    ) -> None:
        self._answers = answers
        self._metrics = metrics
        self._problem = problem
        self._preemption = Preemption(answers)
        self._recorder = recorder

    def handle(self, body: bytes) -> bytes | Awaitable[bytes]:
        """ExtenderPreemptionArgs → the nodes that are worth a victim. Raises BadInput, NotReady."""
        args = wire.decode_preemption(body)
        demand = self._answers.demand(args.pod)
        if demand is None:
            self._metrics.decided("preempt", "echoed")
            return wire.preemption_reply(args.victims)
        if demand.mode is not Mode.ENFORCE:
            self._metrics.decided("preempt", "passed")
            if not self._problem():
                self._recorder.later(lambda: self._judge(args, demand))
            return wire.preemption_reply(args.victims)
        raise_unless_ready(self._problem(), "preempt", self._metrics)
        return self._spare(args, demand)

    async def _spare(self, args: wire.PreemptionArgs, demand: Demand) -> bytes:
        """Without the nodes that would be refused even once their victims are gone."""
        acceptable = await self._judge(args, demand)
        kept = {node: args.victims[node] for node in acceptable}
        result = result_of(len(args.victims), len(args.victims) - len(kept))
        self._metrics.decided("preempt", result)
        return wire.preemption_reply(kept)

    async def _judge(self, args: wire.PreemptionArgs, demand: Demand) -> list[str]:
        """The nodes that are worth their victims; it is recorded which."""
        uids = {node: victims.uids for node, victims in args.victims.items() if victims.uids}
        acceptable, verdicts = await self._preemption.judged_nodes(args.pod, uids)
        self._recorder.preempted(args.pod, demand, args.victims, acceptable, verdicts)
        return acceptable
