"""preempt: which nodes are worth their victims."""

from collections.abc import Awaitable, Callable

from extender.verbs import raise_unless_ready, result_of
from fettle.api import extender as wire
from fettle.observing import ExtenderMetrics
from fettle.scheduling import Answers, Preemption


class Preempt:
    """`problem` says why Fettle is not ready; "" if it is."""

    def __init__(
        self, answers: Answers, metrics: ExtenderMetrics, problem: Callable[[], str]
    ) -> None:
        self._answers = answers
        self._metrics = metrics
        self._problem = problem
        self._preemption = Preemption(answers)

    def answer(self, body: bytes) -> bytes | Awaitable[bytes]:
        """ExtenderPreemptionArgs → the nodes that are worth a victim. Raises BadInput, NotReady."""
        args = wire.decode_preemption(body)
        if self._answers.demand(args.pod) is None:
            self._metrics.decided("preempt", "echoed")
            return wire.preemption_reply(args.victims)
        raise_unless_ready(self._problem(), "preempt", self._metrics)
        return self._spare(args)

    async def _spare(self, args: wire.PreemptionArgs) -> bytes:
        """Without the nodes that would be refused even once their victims are gone."""
        uids = {node: victims.uids for node, victims in args.victims.items() if victims.uids}
        acceptable = await self._preemption.acceptable_nodes(args.pod, uids)
        kept = {node: args.victims[node] for node in acceptable}
        result = result_of(len(args.victims), len(args.victims) - len(kept))
        self._metrics.decided("preempt", result)
        return wire.preemption_reply(kept)
