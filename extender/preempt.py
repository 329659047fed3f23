"""preempt: which nodes are worth their victims."""

from collections.abc import Awaitable, Callable

from extender.verbs import raise_unless_ready, result_of
from fettle.api import extender as wire
from fettle.model import Mode
from fettle.observing import ExtenderMetrics
from fettle.records import Recorder
from fettle.scheduling import Answers, Demand, Preemption


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

    def answer(self, body: bytes) -> bytes | Awaitable[bytes]:
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
