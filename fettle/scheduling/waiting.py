"""What asks select by, evaluated when they come: in the background, and waited for within a bound.

A request waits only for what may be decided soon: neither for what has proved costly, nor again
for what a request before it has waited for in vain. Beside `answering`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog

from fettle.cluster import NodeView
from fettle.scheduling.demand import Demand
from fettle.scheduling.judge.requirements import Engines

_LOG = structlog.get_logger(__name__)


class _Evaluation:
    """One under way: `quick` is set once only costly selectors are left of it."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.quick = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Evaluations:
    """At most one evaluation for an ask is waited for at a time."""

    def __init__(self, engines: Engines, wait_s: float) -> None:
        self._engines = engines
        self._wait_s = wait_s
        self._under_way: dict[Demand, _Evaluation] = {}

    async def wait(self, demand: Demand, nodes: Sequence[NodeView]) -> None:
        """Wait until what an ask selects by is evaluated on these nodes, or is not worth it."""
        running = self._under_way.get(demand)
        if running is not None and not await _ended(running):
            return
        await _ended(self._start(demand, nodes))

    def _start(self, demand: Demand, nodes: Sequence[NodeView]) -> _Evaluation:
        """Evaluates to its end, waited for or not: whoever asks next finds it in memory."""
        evaluation = _Evaluation(asyncio.get_running_loop().time() + self._wait_s)
        evaluation.task = asyncio.ensure_future(self._evaluate(demand, nodes, evaluation.quick))
        self._under_way[demand] = evaluation

        def over(task: "asyncio.Task[None]") -> None:
            evaluation.quick.set()
            if self._under_way.get(demand) is evaluation:
                del self._under_way[demand]
            if not task.cancelled() and (error := task.exception()) is not None:
                _LOG.error("selectors could not be evaluated for a demand", exc_info=error)

        evaluation.task.add_done_callback(over)
        return evaluation

    async def _evaluate(
        self, demand: Demand, nodes: Sequence[NodeView], quick: asyncio.Event
    ) -> None:
        await self._engines.evaluate(demand.policy.placement.requires, nodes)
        devices = [(d.id.driver, d.device) for n in nodes for p in n.pools for d in p.devices]
        await self._engines.devices.evaluate(demand.selectors, devices, quick)


async def _ended(evaluation: _Evaluation) -> bool:
    """Wait for it until nothing quick is left of it, or it took too long for a request; true if
    it is over."""
    assert evaluation.task is not None
    with suppress(TimeoutError):
        async with asyncio.timeout_at(evaluation.until):
            await evaluation.quick.wait()
    return evaluation.task.done()
