"""filter: which nodes a pod may go to.

Fail-open or fail-closed is decided here: Fettle allows nodes that it does not know. While it is not
ready it answers `Error`, and `ignorable` in the scheduler's configuration decides. Refused nodes go
into FailedAndUnresolvableNodes only, since no eviction heals a device. Replies that refuse every
node are kept for a pod that comes back, for speed alone.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from math import inf
from typing import NamedTuple

from cachetools import LRUCache

from extender.freshness import FreshTables
from extender.http.replies import Replies
from extender.misconfiguration import Misconfiguration
from extender.verbs import REFUSED, Waits, result_of
from fettle.api import core
from fettle.api import extender as wire
from fettle.logs import Logger
from fettle.model import Mode
from fettle.observing import ExtenderMetrics
from fettle.records import Decision, Recorder
from fettle.scheduling import Answers, Demand, Leanings, Narrowed, OwnerRefusals, Table
from fettle.scheduling.placed import RecentPods

_LOG = Logger(__name__)
MAX_BYTES = 64 * 2**20
HEAD_BYTES = 512
"""Enough of a request to name its pod: to hash all of it would cost more than most answers do."""

Edition = tuple[int, int]
"""While `Answers.edition` is the same, so are all answers."""


class Filtered(NamedTuple):
    """A filter call that was answered, and what its answer was made of."""

    body: bytes
    edition: Edition
    pod: core.Pod
    demand: Demand
    table: Table
    narrowed: Narrowed
    reply: bytes


class Filter:
    """`problem` says why Fettle is not ready; "" if it is."""

    def __init__(
        self,
        answers: Answers,
        metrics: ExtenderMetrics,
        problem: Callable[[], str],
        replies: Replies,
        tables: FreshTables,
        misconfiguration: Misconfiguration,
        recent: RecentPods,
        recorder: Recorder,
        refusals: OwnerRefusals,
        leanings: Leanings,
        waits: Waits,
    ) -> None:
        self._answers = answers
        self._waits = waits
        self._metrics = metrics
        self._problem = problem
        self._replies = replies
        self._tables = tables
        self._misconfiguration = misconfiguration
        self._recent = recent
        self._recorder = recorder
        self._refusals = refusals
        self._leanings = leanings
        self._kept = KeptReplies()
        self._warned_of_nodes = False

    def handle(self, body: bytes) -> bytes | Awaitable[bytes]:
        """ExtenderArgs → ExtenderFilterResult. Raises BadInput.

        The answer is there at once if all verdicts are, else once they are.
        """
        edition = self._answers.edition
        problem = self._problem()
        if not problem and (kept := self._kept.get(body, edition)) is not None:
            self._metrics.count_nodes(refused=kept.refused)
            self._metrics.decided("filter", REFUSED)
            self._recorder.again(kept.decision)
            return kept.body
        args = wire.decode_args(body)
        self._answers.demands.note_attempt(args.pod)
        demand = self._answers.demand_now(args.pod)
        if demand is None:
            self._metrics.decided("filter", "echoed")
            return _echo(args)
        if not problem and self._tables.lacks_workload(args.pod):
            return self._reply_informed(body, args)
        return self._reply(body, args, demand, edition, problem)

    async def _reply_informed(self, body: bytes, args: wire.Args) -> bytes:
        """Once it is known which policy the pod's workload names, or cannot be in time."""
        await self._tables.learn_workload(args.pod)
        edition, problem = self._answers.edition, self._problem()
        if (demand := self._answers.demand_now(args.pod)) is None:
            return _echo(args)
        reply = self._reply(body, args, demand, edition, problem)
        return reply if isinstance(reply, bytes) else await reply

    def _reply(
        self, body: bytes, args: wire.Args, demand: Demand, edition: Edition, problem: str
    ) -> bytes | Awaitable[bytes]:
        if demand.mode is not Mode.ENFORCE:
            return self._let_pass(args, demand)
        if problem:
            self._misconfiguration.unasked.note_request(args.pod)
            self._metrics.decided("filter", "not_ready")
            return wire.filter_reply(None, error=f"fettle: not ready: {problem}")
        if args.node_names is None:
            return self._filter_nodes(args, demand)
        if self._lacks_news(args.pod):
            return self._filter_later(args.pod, demand, args.node_names)
        table = self._answers.at_once(demand, args.node_names)
        if table is None:
            return self._filter_later(args.pod, demand, args.node_names)
        narrowed = table.narrow(args.node_names)
        if self._tables.may_be_stale(table, narrowed):
            return self._filter_later(args.pod, demand, args.node_names)
        narrowed = self._elsewhere(args.pod, narrowed)
        reply = self._replies.narrowed(narrowed, refusal_text(table))
        # The rest is done once the reply is sent: the scheduler waits for nothing of it.
        done = Filtered(body, edition, args.pod, demand, table, narrowed, reply)
        asyncio.get_running_loop().call_soon(self._conclude, done)
        return reply

    def _let_pass(self, args: wire.Args, demand: Demand) -> bytes:
        """Every node passes, at once and also while Fettle is not ready."""
        self._metrics.decided("filter", "passed")
        reply = _echo(args)
        asyncio.get_running_loop().call_soon(self._after_pass, args, demand)
        return reply

    def _after_pass(self, args: wire.Args, demand: Demand) -> None:
        self._remember(args.pod)
        if self._problem():
            return
        self._answers.note_nodes_given(demand, args.pod)
        names = args.node_names
        if names is None:
            names = [name for name, _ in args.nodes or ()]
        self._refusals.note_nodes_given(args.pod)
        avoided = self._refusals.nodes_for(args.pod)
        leaning = self._leanings.of(args.pod, demand)
        self._recorder.judged(args.pod, demand, names, avoided, leaning)

    def _conclude(self, done: Filtered) -> None:
        self._remember(done.pod)
        if self._count(done.table, done.narrowed) == REFUSED:
            decision = self._recorder.filtered(done.pod, done.table, done.narrowed)
            # Other pods go on to be bound: to keep their replies too would only drive warm memory
            # out of the processor's caches.
            refused = len(done.narrowed.names)
            until = self._answers.demands.refused_until(done.demand, done.pod)
            self._kept.keep(
                KeptReply(done.body, done.edition, done.reply, refused, decision, until)
            )
            return
        self._answers.note_nodes_given(done.demand, done.pod)
        self._refusals.note_nodes_given(done.pod)
        leaning = self._leanings.of(done.pod, done.demand)
        self._recorder.filtered_before_prioritize(done.pod, done.table, done.narrowed, leaning)

    async def _filter_later(self, pod: core.Pod, demand: Demand, names: list[str]) -> bytes:
        table, narrowed = await self._narrowed(pod, demand, names)
        return self._replies.narrowed(narrowed, refusal_text(table))

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
        """The names once they can be narrowed, or as they can be when time is up; and by which
        table."""
        self._remember(pod)
        unjudged: Collection[str] = ()
        try:
            async with asyncio.timeout(self._waits.answer_within_s + self._answers.wait_s):
                if self._lacks_news(pod):
                    await self._tables.until_shown(pod)
                table, narrowed = await self._tables.narrowed(pod, demand, names)
        except TimeoutError:
            table = self._answers.table(demand)
            narrowed = table.narrow(names)
            unjudged = table.open_among(narrowed.passed, self._answers.view)
        narrowed = self._elsewhere(pod, narrowed)
        if self._count(table, narrowed, unjudged) != REFUSED:
            self._answers.note_nodes_given(table.demand, pod)
            self._refusals.note_nodes_given(pod)
        asyncio.get_running_loop().call_soon(self._recorder.filtered, pod, table, narrowed)
        return table, narrowed

    def _lacks_news(self, pod: core.Pod) -> bool:
        """Whether a kubelet may have refused an earlier pod of its owner, unseen by the view."""
        return self._refusals.may_replace_another(pod) and not self._tables.shows(pod)

    def _elsewhere(self, pod: core.Pod, narrowed: Narrowed) -> Narrowed:
        """Without nodes whose kubelets refused pods of its owner, if others are left."""
        return narrowed.avoiding(self._refusals.nodes_for(pod))

    def _count(self, table: Table, narrowed: Narrowed, unjudged: Collection[str] = ()) -> str:
        """Count the nodes, and the decision by its result, which is returned."""
        passed = len(narrowed.passed)
        refused = len(narrowed.names) - passed
        undecided = len(table.undecided.intersection(narrowed.passed)) if table.undecided else 0
        undecided += sum(name not in table.undecided for name in unjudged)
        rejected = len(table.rejected.intersection(narrowed.passed)) if table.rejected else 0
        self._metrics.count_nodes(
            allowed=passed - undecided - rejected,
            refused=refused,
            undecided=undecided,
            rejected=rejected,
        )
        result = result_of(passed + refused, refused)
        self._metrics.decided("filter", result)
        return result

    def _remember(self, pod: core.Pod) -> None:
        self._misconfiguration.note_request(pod)
        self._recent[pod.metadata.key] = pod


def _echo(args: wire.Args) -> bytes:
    if args.nodes is not None:
        return wire.filter_reply(None, nodes=[raw for _, raw in args.nodes])
    return wire.filter_reply(args.node_names or [])


def refusal_text(table: Table) -> str:
    """The one text of all refusals. It depends on the demand alone: a text that changed between
    tries would make the scheduler try again without pause."""
    return f"fettle: no sound devices ({table.kinds})"


class KeptReply(NamedTuple):
    """`refused`: how many nodes it refuses; `decision`: where that is recorded. From `until` on, in
    Unix seconds, the pod takes what it is refused now."""

    request: bytes
    edition: Edition
    body: bytes
    refused: int
    decision: Decision
    until: float = inf


class KeptReplies:
    """Replies to filter calls that refuse every node. Such a pod comes back hundreds of times a
    second in a busy cluster. All requests and replies together take `max_bytes` at most; those not
    used for longest go first."""

    def __init__(self, max_bytes: int = MAX_BYTES, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: LRUCache[bytes, KeptReply] = LRUCache(max_bytes, getsizeof=_size)

    def get(self, request: bytes, edition: Edition) -> KeptReply | None:
        """The reply to this very request in this edition of the answers, if it is kept."""
        if not self._kept:
            return None
        reply = self._kept.get(request[:HEAD_BYTES])
        if reply is None or reply.edition != edition or reply.request != request:
            return None
        return reply if reply.until == inf or self._now() < reply.until else None

    def keep(self, reply: KeptReply) -> None:
        """Keep a reply, in place of one to a request that begins alike."""
        if _size(reply) <= self._kept.maxsize:
            self._kept[reply.request[:HEAD_BYTES]] = reply


def _size(reply: KeptReply) -> int:
    return len(reply.request) + len(reply.body)
