"""Records what the extender and the webhook decide, and writes it to disk in batches.

Nothing here is done before a reply is sent. A verdict that is not there yet is waited for by the
task that `run` is, as are the counters and the journal.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple

from fettle.api import core
from fettle.explain import text
from fettle.logs import Logger
from fettle.model import Mode, utc
from fettle.model.reasons import Reason
from fettle.observing import DecisionMetrics
from fettle.pacing import keep, part, pause, run_within
from fettle.records.decisions import Act, Decided, Decision, Verb, new_id
from fettle.records.log import DecisionLog, Journal
from fettle.records.summaries import (
    MOST_PREFERRED,
    NOTHING,
    Counted,
    Summaries,
    best_of,
    count_verdicts,
    own_names,
    undecided,
)
from fettle.scheduling import NEUTRAL, Answers, Demand, Leaning, Narrowed, Table, Verdict

WRITE_EVERY_S = 1.0
PRIORITIZED_WITHIN_S = 0.002
"""kube-scheduler asks to prioritize within so long after filter, and waits for the answer."""
MOST_WAITING = 1000
"""Decisions that wait to be judged; beyond that, the oldest are not recorded."""

_LOG = Logger(__name__)


class _Counts(NamedTuple):
    """What a filter call said: of how many nodes, and how many and why it refused."""

    nodes: int
    refused: int
    why: Counted
    preferred: dict[str, int]
    undecided: dict[str, int]


class Recorder:
    """`clock` is the time of day, in Unix seconds."""

    def __init__(
        self,
        answers: Answers,
        log: DecisionLog,
        journal: Journal,
        metrics: DecisionMetrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.log = log
        self._answers = answers
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._began = clock()
        self._summaries = Summaries()
        self._counted: dict[str, int] = {}
        """How many of a decision's repetitions the metrics have counted."""
        self._unnoted: deque[tuple[core.Pod, Demand, _Counts]] = deque()
        self._unworded: dict[str, tuple[Decision, Reason]] = {}
        """Decisions whose reason is not put into words yet."""
        self._later: deque[Callable[[], Awaitable[object]]] = deque(maxlen=MOST_WAITING)
        self._has_later = asyncio.Event()
        self._deciding = part("judging for the records", lambda work: work())
        self._noting = part("notes of decisions", self._note_filtered)
        self._counting = part("counts of decisions", self._count)
        self._load()

    def _load(self) -> None:
        for decision in self._journal.load():
            self.log.restore(decision)
        for decision in self.log:
            self._counted[decision.id] = decision.count

    def notes(self, since: float | None = None) -> list[str]:
        """Sentences about where the records are, and whether they reach back to `since`."""
        earliest = next((one.first for one in self.log), self._began)
        notes = self._journal.notes()
        if since is not None and earliest > since:
            at = utc(earliest)
            notes.append(f"records: there are none from before {at:%Y-%m-%d %H:%M:%S} UTC")
        return notes

    def select(
        self, since: float, *, pod: str = "", node: str = "", policy: str = ""
    ) -> list[Decision]:
        """As `DecisionLog.select`; each decision on a pod says what became of it."""
        self._finish()
        found = self.log.select(since, pod=pod, node=node, policy=policy)
        return [self.log.with_fate(one) for one in found]

    def all(self) -> list[Decision]:
        """All decisions, the oldest first."""
        self._finish()
        return [*self.log]

    def lines(self) -> list[bytes]:
        """All decisions as JSON, the oldest first."""
        self._finish()
        return self.log.lines()

    # --- what the extender decides

    def filtered(
        self,
        pod: core.Pod,
        table: Table,
        narrowed: Narrowed,
        leaning: Leaning = NEUTRAL,
    ) -> Decision:
        """A pod was judged on the names, of which some passed."""
        return self._note_filtered(pod, table.demand, self._counts(table, narrowed, leaning))

    def filtered_before_prioritize(
        self, pod: core.Pod, table: Table, narrowed: Narrowed, leaning: Leaning
    ) -> None:
        """As `filtered`, but noted later: the scheduler asks to prioritize at once, and would
        wait."""
        self._unnoted.append((pod, table.demand, self._counts(table, narrowed, leaning)))
        if len(self._unnoted) == 1:
            asyncio.get_running_loop().call_later(PRIORITIZED_WITHIN_S, self._note_all)

    def _counts(self, table: Table, narrowed: Narrowed, leaning: Leaning) -> _Counts:
        names, passed, besides = narrowed
        refused = len(names) - len(passed)
        nodes = self._answers.view.nodes
        why = self._summaries.refusals(table, names, refused - len(besides), nodes).adding(besides)
        best = best_of(table, passed, nodes, leaning)
        return _Counts(len(names), refused, why, best, undecided(table, passed))

    def _note_all(self) -> None:
        while self._unnoted:
            self._noting.attempt(*self._unnoted.popleft())

    def _note_filtered(self, pod: core.Pod, demand: Demand, counts: _Counts) -> Decision:
        return self._note(
            pod,
            demand,
            Verb.FILTER,
            counts.nodes,
            counts.refused,
            counts.why,
            preferred=counts.preferred,
            undecided=counts.undecided,
        )

    def of_pod(self, uid: str) -> Decision | None:
        """The last decision on where this pod goes."""
        self._note_all()
        return self.log.of_pod(uid)

    def judged(
        self,
        pod: core.Pod,
        demand: Demand,
        names: list[str],
        avoided: Mapping[str, Reason],
        leaning: Leaning,
    ) -> None:
        """Record what would be said of a pod that was let pass; its owner has reasons to avoid
        some nodes."""
        if (table := self._answers.at_once(demand, names)) is not None:
            self.filtered(pod, table, table.narrow(names).avoiding(avoided), leaning)
            return

        async def judge() -> None:
            table = await self._answers.judged(demand, names)
            self.filtered(pod, table, table.narrow(names).avoiding(avoided), leaning)

        self.later(judge)

    def seen(self, pod: core.Pod, demand: Demand, verdicts: Mapping[str, Verdict]) -> None:
        """A pod that no scheduler asked about was judged on all nodes."""
        fits = {name: verdict for name, verdict in verdicts.items() if not verdict.rejected}
        refused = [name for name, verdict in fits.items() if not verdict.fits]
        passed = [name for name, verdict in fits.items() if verdict.fits]
        why = count_verdicts(fits, refused, lambda verdict: verdict.refusals)
        unclear = count_verdicts(fits, passed, lambda verdict: verdict.undecided)
        best = max((fits[name].score for name in passed), default=0)
        preferred = [name for name in passed if fits[name].score == best]
        self._note(
            pod,
            demand,
            Verb.SEEN,
            len(fits),
            len(refused),
            why,
            preferred=dict.fromkeys(preferred[:MOST_PREFERRED], best),
            undecided=unclear.codes,
        )

    def again(self, decision: Decision) -> None:
        """The same was said once more."""
        decision.count += 1
        decision.last = self._clock()
        self.log.touch(decision)

    def prioritized(
        self, pod: core.Pod, demand: Demand, names: Sequence[str], leaning: Leaning
    ) -> None:
        """The nodes of a pod were ranked, which another replica may have filtered."""
        best = best_of(self._answers.table(demand), names, self._answers.view.nodes, leaning)
        if (decision := self.of_pod(pod.metadata.uid)) is not None:
            decision.ranked += 1
            decision.preferred = best or decision.preferred
            self.log.touch(decision)
            return
        self._note(pod, demand, Verb.PRIORITIZE, len(names), ranked=1, preferred=best)

    def preempted(
        self,
        pod: core.Pod,
        demand: Demand,
        nodes: Collection[str],
        kept: Collection[str],
        verdicts: Mapping[str, Verdict],
    ) -> None:
        """Of the nodes, these are worth their victims; the verdicts are as preemption leaves it."""
        held = frozenset(kept)
        left_out = [name for name in nodes if name not in held]
        why = count_verdicts(verdicts, left_out, lambda verdict: verdict.refusals)
        why = why._replace(nodes=own_names(why.nodes, self._answers.view.nodes))
        self._note(pod, demand, Verb.PREEMPT, len(nodes), len(left_out), why)

    def _note(
        self,
        pod: core.Pod,
        demand: Demand,
        verb: Verb,
        nodes: int,
        refused: int = 0,
        why: Counted = NOTHING,
        **more: Any,
    ) -> Decision:
        """Note a decision on a pod. Its reason is put into words later."""
        now = self._clock()
        until = (
            self._answers.demands.refused_until(demand, pod) if nodes and refused == nodes else inf
        )
        controller = pod.metadata.controller
        decision = Decision(
            id=new_id(),
            verb=verb,
            waits_until=until if until < inf else None,
            key=pod.metadata.key,
            uid=pod.metadata.uid,
            owner=f"{controller.kind}/{controller.name}" if controller is not None else "",
            policy=demand.policy.name,
            mode=demand.mode,
            decided=_decided(nodes, refused),
            first=now,
            last=now,
            nodes=nodes,
            refused=refused,
            reasons=why.codes,
            refused_nodes=why.nodes,
            **more,
        )
        noted = self.log.note(decision)
        if noted is decision and why.commonest is not None:
            self._unworded[decision.id] = (decision, why.commonest)
        return noted

    # --- what the webhook decides

    def reviewed(
        self,
        verb: Verb,
        kind: str,
        key: str,
        *,
        uid: str = "",
        policy: str,
        mode: Mode,
        decided: Decided,
        rules: Sequence[str] = (),
        why: str = "",
    ) -> None:
        """An object was denied, changed, or warned about, or would have been."""
        now = self._clock()
        decision = Decision(
            id=new_id(),
            verb=verb,
            kind=kind,
            key=key,
            uid=uid,
            policy=policy,
            mode=mode,
            decided=decided,
            first=now,
            last=now,
            reasons={rule: rules.count(rule) for rule in dict.fromkeys(rules)},
            why=why,
        )
        self.log.note(decision)

    # --- what the steward writes

    def acted(self, act: Act, *, written: bool) -> None:
        """The steward wrote something about an object, or would have."""
        now = self._clock()
        decision = Decision(
            id=new_id(),
            verb=Verb.STEWARD,
            kind=act.kind,
            key=act.key,
            uid=act.uid,
            owner=act.owner,
            policy=act.policy,
            mode=act.mode,
            decided=Decided.WROTE if written else Decided.WOULD_WRITE,
            first=now,
            last=now,
            reasons={act.what: 1},
            why=act.why,
        )
        self.log.note(decision)

    # --- the task

    def later(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do this once nothing else waits for it."""
        self._later.append(work)
        self._has_later.set()

    async def run(self) -> None:
        """Judge what waits, and write, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(keep("decisions", self._work, when=self._has_later.wait))
            group.create_task(keep("journal of decisions", self.write, every_s=WRITE_EVERY_S))

    async def _work(self) -> None:
        self._has_later.clear()
        while self._later:
            await self._deciding.attempt_async(self._later.popleft())

    async def write(self) -> None:
        """Count and write what changed."""
        changed = await run_within(self._collect)
        if not changed:
            return
        if not await asyncio.to_thread(self._journal.append, [line for _, line in changed]):
            for decision, _ in changed:
                self.log.touch(decision)
        if self._journal.too_long:
            await self._compact()
        if len(self._counted) > 2 * len(self.log):
            ids = {decision.id for decision in self.log}
            self._counted = {i: n for i, n in self._counted.items() if i in ids}

    def _collect(self) -> list[tuple[Decision, bytes]]:
        """What changed, counted and as lines of JSON."""
        self._finish()
        changed = self.log.changed()
        known = frozenset(self._answers.policies.names(self._answers.view.policies))
        for decision, _ in changed:
            self._counting.attempt(decision, known)
            pause()
        return changed

    def _finish(self) -> None:
        self._note_all()
        while self._unworded:
            _, (decision, reason) = self._unworded.popitem()
            decision.why = text(reason)
            pause()

    async def _compact(self) -> None:
        # While a successor takes over, both processes append: what the other one wrote is kept.
        ids = {decision.id for decision in self.log}
        for decision in await asyncio.to_thread(self._journal.load):
            if decision.id not in ids and decision.last >= self._began:
                self.log.restore(decision)
        lines = await run_within(self.log.lines)
        await asyncio.to_thread(self._journal.rewrite, lines)

    def _count(self, decision: Decision, known: Collection[str]) -> None:
        new = decision.count - self._counted.get(decision.id, 0)
        self._counted[decision.id] = decision.count
        if new > 0:
            policy = decision.policy if decision.policy in known else "other"
            self._metrics.count(decision.verb, policy, decision.reasons or ("none",), new)
            _LOG.debug(
                "decided",
                verb=str(decision.verb),
                object=decision.key,
                policy=decision.policy,
                mode=str(decision.mode),
                decided=str(decision.decided),
                times=new,
                nodes=decision.nodes,
                refused=decision.refused,
                reasons=decision.reasons,
            )

    async def close(self) -> None:
        """Write what is left."""
        with suppress(Exception):
            await self.write()


def _decided(nodes: int, refused: int) -> Decided:
    if not refused:
        return Decided.PASSED
    return Decided.NARROWED if refused < nodes else Decided.REFUSED
