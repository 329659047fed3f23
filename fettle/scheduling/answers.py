"""Verdicts kept ready: one table per ask, brought up to date by what changed between views.

Asks that are equal share a table, nodes that look alike to an ask share a verdict, and a turn of
the view costs only the nodes it changed. Selector outcomes come from the engine's memory; where
they are missing, `waiting` waits for them within a bound. Used by extender, steward and explain.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import inf

import msgspec
import structlog

from fettle.api import core
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher, View
from fettle.config import Settings
from fettle.dra import Binding, describe_allocator, profile_of_version
from fettle.model import Placement, Policy
from fettle.pacing import SLICE_S, Superseded, pause, run_within, within, working_s
from fettle.scheduling import demand as demands
from fettle.scheduling.breaker.alarms import Alarm
from fettle.scheduling.breaker.breaker import Breaker
from fettle.scheduling.breaker.breakers import Breakers
from fettle.scheduling.demand import Demand
from fettle.scheduling.demand_cache import DemandCache
from fettle.scheduling.in_flight import STEPS, InFlight
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.requirements import Engines, Requirements
from fettle.scheduling.judge.verdicts import Verdict, judge
from fettle.scheduling.tables.filling import fill
from fettle.scheduling.tables.tables import FEW, Matching, Table, budget_after
from fettle.scheduling.waiting import Evaluations
from fettle.scheduling.warmup import WarmUp

_LOG = structlog.get_logger(__name__)

MAX_TABLES = 512
MAX_VERDICTS = 500_000
"""In all tables together, at about 350 bytes each."""
SHARED = 2
"""So often pods were told of nodes by an ask that is worth judging for all nodes."""


class Answers:
    """Asks to verdicts, over the publisher's newest view."""

    def __init__(
        self,
        publisher: Publisher,
        engine: SelectorEngine,
        settings: Settings,
        clock: Callable[[], float] = time.perf_counter,
        on_breaker: Callable[[Alarm, str], None] = lambda *_: None,
        now: Callable[[], float] = time.time,
        working_s: Callable[[], float] = working_s,
    ) -> None:
        """`working_s` measures work; `now` is the time of day, in seconds since the Unix epoch.
        `on_breaker` is told what operators are to know of breakers, as by `Alarms`."""
        self.publisher = publisher
        self.policies = settings.all_policies()
        self._gates = settings.scheduler.gates
        self._version = settings.scheduler.version
        self.profile = profile_of_version(self._version, self._gates)
        """Of the version of Kubernetes that allocates, with the gates that are set."""
        self._profiles_followed = 0
        self._engine = engine
        self._engines = Engines(engine)
        self._settings = settings
        self._clock = clock
        self._now = now
        self._working_s = working_s
        self._demands = DemandCache(self._demand_of)
        self._unseen = InFlight()
        self._on_answered: list[Callable[[Demand, core.Pod], None]] = []
        self._tables: OrderedDict[Demand, Table] = OrderedDict()
        self._behind: set[Demand] = set()
        self._fell_behind = asyncio.Event()
        self.wait_s = settings.extender.wait_seconds
        """How long a request waits for selectors."""
        self._evaluations = Evaluations(self._engines, self.wait_s)
        self._readying = WarmUp(publisher, self._engines, self.policies)
        self._breakers = Breakers(publisher, settings.breaker, self.policies, on_breaker, clock)

    @property
    def view(self) -> View:
        return self.publisher.view

    @property
    def version(self) -> str:
        """Of Kubernetes, as the schedulers' is taken to be ("v1.37.1"); "" where none is known."""
        return self._version

    @property
    def edition(self) -> tuple[int, int]:
        """While this is the same, so is the answer to any ask."""
        return self.publisher.view.basis, self._profiles_followed

    def demand(self, pod: core.Pod) -> Demand | None:
        """The pod's ask in the newest view; None where it needs no devices."""
        return self._demands.of(pod, self.view)

    def _demand_of(self, pod: core.Pod) -> Demand | None:
        return self.demand_in(self.view, pod)

    def demand_in(self, view: View, pod: core.Pod) -> Demand | None:
        """The pod's ask as it would be in a view that is otherwise than the newest one."""
        features = self.profile.features
        binding = Binding(
            self._now(),
            self._settings.scheduler.binding_timeout_seconds,
            features.device_binding_and_status,
        )
        return demands.demand_of(
            pod, view, self.policies, binding, backed=features.extended_resource
        )

    def demand_now(self, pod: core.Pod) -> Demand | None:
        """As `demand`, beside the pods that were answered a moment ago and are not visible yet."""
        demand = self.demand(pod)
        if demand is None or not demand.allocates:
            return demand
        in_flight = self._unseen.number(demand, pod, self.view, self._clock())
        return msgspec.structs.replace(demand, in_flight=in_flight) if in_flight else demand

    def on_answered(self, hear: Callable[[Demand, core.Pod], None]) -> None:
        """Register who hears of each pod for which suitable nodes were named."""
        self._on_answered.append(hear)

    def answered(self, demand: Demand, pod: core.Pod) -> None:
        """The pod was told of nodes that suit it, so it may be placed any moment."""
        self._unseen.note(demand, pod, self._clock())
        self._breakers.alarms.placed_by(demand.policy)
        for hear in self._on_answered:
            hear(demand, pod)
        if (table := self._tables.get(demand)) is not None:
            table.pods += 1
            if table.pods == SHARED and table.needs_completion(self.view):
                self._is_behind(demand)

    def follow(self, version: str) -> None:
        """Predict as the server's version of Kubernetes ("v1.37.1") allocates, unless the settings
        say that the scheduler has another."""
        self._version = self._settings.scheduler.version or version
        if (profile := profile_of_version(self._version, self._gates)) != self.profile:
            self.profile = profile
            self._profiles_followed += 1
            self._demands.clear()
            self._tables.clear()

    def follows(self) -> list[str]:
        """Sentences on whose allocations are predicted, for people."""
        return describe_allocator(self._version, self._gates, self.profile)

    def open_breakers(self) -> list[str]:
        """Sentences on policies whose refusals are off, for people."""
        return self._breakers.alarms.notes()

    def matching(self) -> Matching:
        """Looks selector outcomes up in the engine's memory."""
        return Matching(self._engine)

    def breaker(self, placement: Placement) -> Breaker:
        """The breaker of a placement, counted on the newest view."""
        return self._breakers.of(placement)

    def table(self, demand: Demand) -> Table:
        """The ask's table, without what the newest view has overtaken."""
        table = self._tables.get(demand)
        if table is None:
            placement = demand.policy.placement
            acceptance = Acceptance(
                placement,
                thresholds=self._settings.health,
                requirements=Requirements(placement.requires, self._engines),
            )
            table = self._tables[demand] = Table(demand, acceptance, self.profile)
            self._forget_oldest()
        self._tables.move_to_end(demand)
        table.rest(self._clock())
        if table.may_try_again:
            self._is_behind(demand)
        if table.given_up_until < inf and table.given_up_until <= self._engine.now():
            table.lapse()
            self._is_behind(demand)
        if table.basis != self.view.basis:
            changed = self.publisher.changed_since(table.basis) if table.basis >= 0 else None
            if changed is None:
                table.clear()
            else:
                table.drop(changed)
            open_breakers = self.breaker(demand.policy.placement).open
            if open_breakers != table.acceptance.open_breakers:
                table.acceptance = msgspec.structs.replace(
                    table.acceptance, open_breakers=open_breakers
                )
                table.clear()
            table.basis = self.view.basis
            if table.pods >= SHARED and table.needs_completion(self.view):
                self._is_behind(demand)
        return table

    def _forget_oldest(self) -> None:
        """Down to as many tables as may be, and as much in them; never the one asked for last."""
        kept = sum(table.size for table in self._tables.values())
        while len(self._tables) > 1 and (len(self._tables) > MAX_TABLES or kept > MAX_VERDICTS):
            _, oldest = self._tables.popitem(last=False)
            kept -= oldest.size

    def _is_behind(self, demand: Demand) -> None:
        self._behind.add(demand)
        self._fell_behind.set()

    async def keep_ready(self) -> None:
        """Evaluate the selectors of classes and templates as views turn, until cancelled."""
        await self._readying.keep()

    def ignored_requirements(self) -> int:
        """How many requirements of all policies are known not to compile."""
        policies = self._readying.of_view(self.publisher.view)
        return sum(len(self._engines.ignored(policy)) for policy in policies)

    async def ignored(self, policy: Policy) -> list[str]:
        """Sentences about what a policy requires in vain, since it does not compile."""
        await self._engines.evaluate(policy.placement.requires)
        return self._engines.ignored(policy)

    async def keep_complete(self) -> None:
        """Do what requests would otherwise wait for, or nobody would ask for, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_tables())
            group.create_task(self._breakers.keep())

    async def _keep_tables(self) -> None:
        """Judge the nodes that an ask has not been asked about yet, once a second pod has it.

        A scheduler samples its nodes, other ones each time; and a table that is complete need not
        look each name up to know that it is settled. For a pod that nobody shares an ask with, as
        where its claim is allocated already, that would be the work of a whole fleet for one reply.
        """
        while True:
            await self._fell_behind.wait()
            self._fell_behind.clear()
            while self._behind:
                demand = self._behind.pop()
                table = self._tables.get(demand)
                if table is not None and table.failed_on != self.view.basis:
                    await self._complete(table)
                await asyncio.sleep(0)

    async def _complete(self, table: Table) -> None:
        """One ask that we fail on must not cost the others: who asks it is told of it."""
        basis = self.view.basis
        try:
            table = await self.judged(table.demand)
            self._forget_oldest()
            if table.may_try_again:
                names = [name for name in table.try_again() if name in self.view.nodes]
                await self._judge(table, names, self.matching())
        except Exception:
            _LOG.exception("a demand cannot be judged")
            table.failed_on = basis

    def at_once(self, demand: Demand, names: list[str]) -> Table | None:
        """The ask's table if it holds a settled verdict for each of these nodes, or can have one
        within a slice, as where a few have changed since the last view; else None."""
        if demand.claims:
            self._engine.use(demand.selectors)
        table = self.table(demand)
        missing = table.open_among(names, self.view)
        return table if not missing or self._judged_in_a_slice(table, missing) else None

    def _judged_in_a_slice(self, table: Table, names: list[str]) -> bool:
        """Judge these nodes; false where that takes longer, or waits for a selector."""
        try:
            within(SLICE_S, lambda: self._fill(table, names, self.matching()))
        except TimeoutError:
            return False
        return table.provisional.isdisjoint(names)

    async def judged(self, demand: Demand, names: Iterable[str] | None = None) -> Table:
        """The ask's table with a verdict for each of these nodes (None: all) the view knows.

        Waits once, within a bound, for selectors that are not evaluated. What was open until then
        is judged again, whatever views turn up meanwhile; `again` is how much of it is left.
        """
        match, waited = self.matching(), False
        again: set[str] = set()
        while True:
            table = self.table(demand)
            nodes = self.view.nodes
            again &= table.provisional
            still_open = table.open_among(nodes if names is None else names, self.view)
            if missing := [name for name in still_open if name not in table.verdicts]:
                await self._judge(table, missing, match)
            elif again:
                await self._judge(table, list(again), match, again)
            elif waited or not still_open:
                return table
            else:
                await self._evaluations.wait(demand, [nodes[name] for name in still_open])
                match, waited = self.matching(), True
                again.update(still_open)

    async def explained(self, demand: Demand) -> dict[str, Verdict]:
        """A verdict for each node that names its own devices; nothing is kept of it."""
        await self.judged(demand)  # waits for selectors
        match = self.matching()
        verdicts = await self.apart(self._of_all(demand), match, explains=True)
        if match.missing:  # what keeps devices away may need more of them than the verdict did
            await self.evaluated(demand, list(self.view.nodes.values()))
            verdicts = await self.apart(self._of_all(demand), match, explains=True)
        return verdicts

    def _of_all(self, demand: Demand) -> list[tuple[Demand, NodeView]]:
        return [(demand, node) for node in self.view.nodes.values()]

    async def evaluated(self, demand: Demand, nodes: Sequence[NodeView]) -> None:
        """Wait, within a bound, until what an ask selects by is evaluated on these nodes."""
        await self._evaluations.wait(demand, nodes)

    async def apart(
        self,
        cases: Sequence[tuple[Demand, NodeView]],
        match: Matching,
        *,
        explains: bool = False,
        emptied: bool = False,
    ) -> dict[str, Verdict]:
        """A verdict for each node that is made apart from all tables: of one pod, though what it
        asks for may differ between nodes. Nothing is kept of it."""
        # Not in a slice: to bring a table up to date may count breakers, which only one may do.
        of_demand = {d: self.table(d).acceptance for d in dict.fromkeys(d for d, _ in cases)}

        def judge_all() -> dict[str, Verdict]:
            verdicts: dict[str, Verdict] = {}
            began = self._working_s()
            for demand, node in cases:
                acceptance = of_demand[demand]
                budget = budget_after(self._working_s() - began)
                allocator = match.allocator(self.profile, budget, explains=explains)
                verdicts[node.name] = judge(demand, node, acceptance, allocator, emptied=emptied)
                pause()
            return verdicts

        return await run_within(None, judge_all)

    async def _judge(
        self,
        table: Table,
        names: Sequence[str],
        match: Matching,
        left: set[str] | None = None,
    ) -> None:
        """Judge these nodes in short slices, until a newer view is published. Takes those that were
        judged from `left`."""
        basis = self.view.basis
        work = partial(self._fill, table, names, match, left)
        with suppress(Superseded):
            await run_within(None, work, superseded=lambda: self.view.basis != basis)

    def _fill(
        self,
        table: Table,
        names: Sequence[str],
        match: Matching,
        left: set[str] | None = None,
    ) -> None:
        began = self._working_s()

        def spent() -> None:
            """Work that takes no longer than a slice is free of charge."""
            nonlocal began
            now = self._working_s()
            if now - began > SLICE_S:
                table.spent_s += now - began
                began = now

        def judged(some: Collection[str]) -> None:
            if left:
                left.difference_update(some)
            spent()

        try:
            fill(table, names, self.view.nodes, match, self._sibling(table, names), judged)
        finally:
            spent()

    def _sibling(self, table: Table, names: Sequence[str]) -> Table | None:
        """A table of the same needs beside another number of takers, as new as this one: the same
        nodes look alike to it. None where it is not worth looking for, or where these names have
        verdicts already."""
        if len(names) <= FEW or not table.verdicts.keys().isdisjoint(names):
            return None
        for in_flight in STEPS:
            other = self._tables.get(msgspec.structs.replace(table.demand, in_flight=in_flight))
            if (
                other is not None
                and other is not table
                and other.basis == table.basis
                and other.acceptance.open_breakers == table.acceptance.open_breakers
            ):
                return other
        return None
