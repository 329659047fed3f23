"""filter, prioritize and preempt: decode, look the verdicts up, encode.

Fail-open or fail-closed is decided here, once: what Fettle does not know it allows; while it is
not ready it answers `Error`, and the scheduler configuration's `ignorable` decides. Refusals go
into FailedAndUnresolvableNodes only, since no eviction heals a device, with one constant text per
reply, since a text that changes makes the scheduler retry without pause; of many names they are
left out altogether while some node is left (decision 0024).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import NamedTuple

import structlog

from extender import lagging
from extender.asked import Misconfiguration
from extender.names import Names
from extender.overlooked import UnaskedPods
from extender.replies import Edition, Replies
from fettle.api import core
from fettle.api import extender as wire
from fettle.cluster import View
from fettle.model import FettleError
from fettle.observing import ExtenderMetrics
from fettle.pacing import Patience
from fettle.scheduling import MANY, Answers, Demand, Narrowed, Preempting, Table

_LOG = structlog.get_logger(__name__)

REMEMBERED_PODS = 2000
UNASKED = 3
"""After this many filter calls in a row without a prioritize, none is prepared in advance."""
WITHIN_S = 1.5
"""Beside what it waits for selectors, a call takes no longer: the scheduler gives it two seconds,
as shipped, and then does without Fettle altogether. What is not judged by then is undecided."""
REFUSED = "refused"
"""Refused on every node: such a pod comes back again and again, so its reply is kept. Others go on
to be bound, and keeping theirs would only drive warm memory out of the processor's caches."""


class NotReady(FettleError):
    """The view is not complete or not fresh; answered as an error, never as refusals."""


class Filtered(NamedTuple):
    """A filter call that was answered, and what its answer was made of."""

    body: bytes
    edition: Edition
    pod: core.Pod
    demand: Demand
    table: Table
    narrowed: Narrowed
    reply: bytes


class Foreseen(NamedTuple):
    """What kube-scheduler asks next, prioritize about the pod and the nodes that filter let pass,
    and the reply to it in this edition of the answers."""

    request: bytes
    edition: Edition
    reply: bytes


class Verbs:
    """The extender's three verbs, bytes to bytes. `problem` says why we are not ready ("" if we
    are), `schedulers` which are to ask; `recent` are the pods last asked about, for explanations;
    `latest` is what has come from the cluster, if it is one.
    """

    def __init__(
        self,
        answers: Answers,
        metrics: ExtenderMetrics,
        problem: Callable[[], str],
        schedulers: Collection[str] = (core.DEFAULT_SCHEDULER,),
    ) -> None:
        self._answers = answers
        self._metrics = metrics
        self._problem = problem
        self._preempting = Preempting(answers)
        self._replies = Replies()
        self._names = Names()
        self._foreseen: Foreseen | None = None
        self._unasked = 0
        self.latest: lagging.Freshness = lagging.AlwaysFresh()
        self._patience = Patience()
        self._warned_of_nodes = False
        self.asked = Misconfiguration(metrics, schedulers)
        self.overlooked = UnaskedPods(schedulers)
        self.recent: OrderedDict[str, core.Pod] = OrderedDict()

    def filter(self, body: bytes) -> bytes | Awaitable[bytes]:
        """ExtenderArgs → ExtenderFilterResult. Raises BadInput.

        This and `prioritize` answer at once where all verdicts are there, else when they are.
        """
        edition = self._answers.edition
        problem = self._problem()
        if not problem and (kept := self._replies.get("filter", body, edition)) is not None:
            self._metrics.answered(refused=kept.refused)
            self._metrics.decided("filter", REFUSED)
            return kept.body
        args = wire.decode_args(body)
        demand = self._answers.demand_now(args.pod)
        if demand is None:
            return self._echo(args)
        if problem:
            self.overlooked.asked(args.pod)
            self._metrics.decided("filter", "not_ready")
            return wire.filter_reply(None, error=f"fettle: not ready: {problem}")
        if args.node_names is None:
            return self._filter_nodes(args, demand)
        table = self._answers.at_once(demand, args.node_names)
        if table is None:
            return self._filter_later(args.pod, demand, args.node_names)
        narrowed = table.narrow(args.node_names)
        if self._may_be_behind(table, narrowed):
            return self._filter_later(args.pod, demand, args.node_names)
        reply = wire.filter_reply(narrowed.passed, narrowed.named, refusal_text(table))
        # The rest is done once the reply is sent: the scheduler waits for nothing of it.
        done = Filtered(body, edition, args.pod, demand, table, narrowed, reply)
        asyncio.get_running_loop().call_soon(self._afterwards, done)
        return reply

    def _afterwards(self, done: Filtered) -> None:
        self._conclude(done)
        self._names.free(done.narrowed)

    def _conclude(self, done: Filtered) -> None:
        self._foreseen = None
        self._remember(done.pod)
        result = self._count(done.table, done.narrowed)
        if result == REFUSED:
            refused = len(done.narrowed.names)
            self._replies.put("filter", done.body, done.edition, done.reply, refused)
            return
        self._answers.answered(done.demand, done.pod)
        if self._unasked < UNASKED and done.edition == self._answers.edition:
            self._unasked += 1
            self._foresee(done)

    def _foresee(self, done: Filtered) -> None:
        names = done.narrowed.passed
        request = wire.with_names(done.body, names)
        if request is not None and (table := self._answers.at_once(done.demand, names)) is not None:
            reply = wire.prioritize_reply(table.score(names))
            self._foreseen = Foreseen(request, done.edition, reply)

    async def _filter_later(self, pod: core.Pod, demand: Demand, names: list[str]) -> bytes:
        table, narrowed = await self._narrowed(pod, demand, names)
        return wire.filter_reply(narrowed.passed, narrowed.named, refusal_text(table))

    def prioritize(self, body: bytes) -> bytes | Awaitable[bytes]:
        """ExtenderArgs → HostPriorityList. Raises BadInput, NotReady."""
        foreseen, self._foreseen = self._foreseen, None
        self._unasked = 0
        if foreseen is not None and self._is(foreseen, body) and not self._problem():
            self._metrics.decided("prioritize", "passed")
            return foreseen.reply
        args = wire.decode_args(body)
        names = args.node_names
        if names is None:
            names = [name for name, _ in args.nodes or ()]
        demand = self._answers.demand_now(args.pod)
        if demand is None:
            self._metrics.decided("prioritize", "echoed")
            zeros = [] if len(names) > MANY else [wire.host_priority(name, 0) for name in names]
            return wire.prioritize_reply(zeros)
        self._raise_unless_ready("prioritize")
        table = self._answers.at_once(demand, names)
        return self._scored(table, names) if table is not None else self._score_later(demand, names)

    def _is(self, foreseen: Foreseen, body: bytes) -> bool:
        return foreseen.edition == self._answers.edition and body == foreseen.request

    async def _score_later(self, demand: Demand, names: list[str]) -> bytes:
        with suppress(TimeoutError):
            async with asyncio.timeout(WITHIN_S + self._answers.wait_s):
                await self._answers.judged(demand, names)
        return self._scored(self._answers.table(demand), names)

    def _scored(self, table: Table, names: list[str]) -> bytes:
        self._metrics.decided("prioritize", "passed")
        return wire.prioritize_reply(table.score(names))

    def preempt(self, body: bytes) -> bytes | Awaitable[bytes]:
        """ExtenderPreemptionArgs → the candidates that are worth a victim. Raises as above."""
        args = wire.decode_preemption(body)
        if self._answers.demand(args.pod) is None:
            self._metrics.decided("preempt", "echoed")
            return wire.preemption_reply(args.victims)
        self._raise_unless_ready("preempt")
        return self._spare(args)

    async def _spare(self, args: wire.PreemptionArgs) -> bytes:
        """Without the nodes that would be refused even when their victims are gone."""
        uids = {node: victims.uids for node, victims in args.victims.items() if victims.uids}
        kept = {node: args.victims[node] for node in await self._preempting.worth(args.pod, uids)}
        result = _result(len(args.victims), len(args.victims) - len(kept))
        self._metrics.decided("preempt", result)
        return wire.preemption_reply(kept)

    def _raise_unless_ready(self, verb: str) -> None:
        if problem := self._problem():
            self._metrics.decided(verb, "not_ready")
            raise NotReady(f"fettle: not ready: {problem}")

    async def _filter_nodes(self, args: wire.Args, demand: Demand) -> bytes:
        """The form for `nodeCacheCapable: false`: whole nodes in, whole nodes out."""
        if not self._warned_of_nodes:
            self._warned_of_nodes = True
            _LOG.warning(
                "the scheduler sends whole Node objects: set nodeCacheCapable: true, since with "
                "whole Nodes it scores them as if they were empty"
            )
        nodes = args.nodes or []
        names = [name for name, _ in nodes]
        table, narrowed = await self._narrowed(args.pod, demand, names)
        refused = set(narrowed.refused)
        passed = [raw for name, raw in nodes if name not in refused]
        return wire.filter_reply(None, narrowed.refused, refusal_text(table), nodes=passed)

    async def _narrowed(
        self, pod: core.Pod, demand: Demand, names: list[str]
    ) -> tuple[Table, Narrowed]:
        """The names once they can be narrowed, and by which table."""
        self._remember(pod)
        unjudged: Collection[str] = ()
        try:
            async with asyncio.timeout(WITHIN_S + self._answers.wait_s):
                table, narrowed = await self._narrowed_by_now(pod, demand, names)
        except TimeoutError:
            table = self._answers.table(demand)
            narrowed = table.narrow(names)
            unjudged = table.open_among(narrowed.passed, self._answers.view)
        if self._count(table, narrowed, unjudged) != REFUSED:
            self._answers.answered(table.demand, pod)
        return table, narrowed

    async def _narrowed_by_now(
        self, pod: core.Pod, demand: Demand, names: list[str]
    ) -> tuple[Table, Narrowed]:
        """By all that the scheduler may know."""
        table = await self._answers.judged(demand, names)
        narrowed = table.narrow(names)
        if self._may_be_behind(table, narrowed):
            await self.latest.catch_up()
            table = await self._answers.judged(self._answers.demand_now(pod) or demand, names)
            narrowed = table.narrow(names)
        if self._is_behind(table, narrowed) and self._patience.has(
            *lagging.retry_pauses_s(table.demand, pod)
        ):
            table, narrowed = await self._caught_up(pod, table, names)
        return table, narrowed

    def _may_be_behind(self, table: Table, narrowed: Narrowed) -> bool:
        """Whether something came that the scheduler may know, and might matter here; or it knows
        what has not even come yet."""
        if self._is_behind(table, narrowed):
            return True
        return lagging.is_near_refusal(table, narrowed.passed) and self.latest.stale

    def _is_behind(self, table: Table, narrowed: Narrowed) -> bool:
        return lagging.is_table_stale(table, narrowed.passed, self._answers.view.nodes)

    async def _caught_up(
        self, pod: core.Pod, table: Table, names: list[str]
    ) -> tuple[Table, Narrowed]:
        """As newer views have it, until one explains why the scheduler asks or time is up."""
        until = asyncio.get_running_loop().time() + lagging.WAIT_S
        behind, narrowed, in_vain = table.demand, table.narrow(names), False
        while not in_vain and self._is_behind(table, narrowed):
            view = self._answers.view
            in_vain = await self._newer(view, until) is view
            if not in_vain:
                table = await self._answers.judged(self._answers.demand_now(pod) or behind, names)
                narrowed = table.narrow(names)
        if in_vain:
            self._patience.lose(lagging.retry_pauses_s(behind, pod))
        self._metrics.waited(in_vain=in_vain)
        return table, narrowed

    async def _newer(self, view: View, until: float) -> View:
        """As `Publisher.newer_than`; what comes meanwhile is looked at soon."""
        now = asyncio.get_running_loop().time
        newest = view
        while newest is view and (at := now()) < until:
            soon = min(at + lagging.LOOK_S, until)
            newest = await self._answers.publisher.newer_than(view.generation, soon)
            if newest is view and self.latest.stale:
                await self.latest.catch_up()
        return self._answers.view

    def _echo(self, args: wire.Args) -> bytes:
        self._metrics.decided("filter", "echoed")
        if args.nodes is not None:
            return wire.filter_reply(None, nodes=[raw for _, raw in args.nodes])
        return wire.filter_reply(args.node_names or [])

    def _count(self, table: Table, narrowed: Narrowed, unjudged: Collection[str] = ()) -> str:
        """Count nodes and decision by result, which is returned."""
        passed = len(narrowed.passed)
        refused = len(narrowed.names) - passed
        undecided = len(table.undecided.intersection(narrowed.passed)) if table.undecided else 0
        undecided += sum(name not in table.undecided for name in unjudged)
        rejected = len(table.rejected.intersection(narrowed.passed)) if table.rejected else 0
        self._metrics.answered(
            allowed=passed - undecided - rejected,
            refused=refused,
            undecided=undecided,
            rejected=rejected,
        )
        result = _result(passed + refused, refused)
        self._metrics.decided("filter", result)
        return result

    def _remember(self, pod: core.Pod) -> None:
        self.asked.about(pod)
        self.overlooked.asked(pod)
        self.recent[pod.metadata.key] = pod
        self.recent.move_to_end(pod.metadata.key)
        if len(self.recent) > REMEMBERED_PODS:
            self.recent.popitem(last=False)


def refusal_text(table: Table) -> str:
    """The one text of a reply: it depends on the ask alone, so it stays the same between tries."""
    return f"fettle: no sound devices ({table.kinds})"


def _result(asked: int, refused: int) -> str:
    if not refused:
        return "passed"
    return REFUSED if refused == asked else "narrowed"
