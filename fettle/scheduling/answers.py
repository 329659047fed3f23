"""What schedulers are answered: the verdicts on demands, over the newest view; and what counts
against devices where no policy is asked, but only their state.

Verdicts are kept in tables, so that most answers only look names up. Outcomes of selectors come
from the engine's memory; if some are missing, `warmup` waits for them within a bound. Extender,
steward and explain ask here.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from fettle.api import core
from fettle.cel import Engines, SelectorEngine
from fettle.cluster import NodeView, Publisher, View
from fettle.config import Settings
from fettle.dra import describe_allocator, profile_of_version
from fettle.model import Degraded, Mode, Placement, Policies, Policy, State, reasons
from fettle.pacing import SLICE_S, Superseded, pause, run_within, within, working_s
from fettle.scheduling.breaker import Alarm, Breaker, Breakers
from fettle.scheduling.demand import Demand, resolve_policy
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.requirements import Requirements, rows_of
from fettle.scheduling.judge.verdicts import Verdict, judge
from fettle.scheduling.kept_tables import KeptTables
from fettle.scheduling.pod_demands import PodDemands
from fettle.scheduling.tables import SelectorOutcomes, Table, budget_after, fill
from fettle.scheduling.warmup import Evaluations, WarmUp

_REFUSES = {
    State.UNHEALTHY: Placement(min_score=0.0),
    State.DEGRADED: Placement(min_score=0.0, degraded=Degraded.REFUSE),
}
"""A placement that refuses by this state and no milder one, for its breaker."""


class Answers:
    """The verdicts on demands, over the publisher's newest view."""

    def __init__(
        self,
        publisher: Publisher,
        engine: SelectorEngine,
        settings: Settings,
        clock: Callable[[], float] = time.perf_counter,
        on_breaker: Callable[[Alarm, bool], None] = lambda *_: None,
        now: Callable[[], float] = time.time,
        working_s: Callable[[], float] = working_s,
        policies: Policies | None = None,
    ) -> None:
        """`working_s` measures work; `now` is the time of day, in seconds since the Unix epoch.

        `on_breaker` is called as `Breakers` calls `on_change`. `policies` are by default those of
        the settings.
        """
        self.publisher = publisher
        self.policies = policies or settings.all_policies()
        self._gates = settings.scheduler.gates
        self._version = settings.scheduler.version
        self.profile = profile_of_version(self._version, self._gates)
        """The allocator of the cluster's version of Kubernetes, with the feature gates set."""
        self._profile_changes = 0
        self._engine = engine
        self._engines = Engines(engine)
        self._settings = settings
        self.sound = settings.health.degraded_below
        """The value from which a node is sound."""
        self._working_s = working_s
        self._on_nodes_given: list[Callable[[Demand, core.Pod], None]] = []
        self.wait_s = settings.extender.wait_seconds
        """How long a request waits for selectors at most."""
        self._evaluations = Evaluations(self._engines, self.wait_s)
        self._warm_up = WarmUp(publisher, self._engines, self.policies)
        self._breakers = Breakers(
            publisher, settings.breaker, settings.health, self.policies, on_breaker
        )
        self.demands = PodDemands(
            publisher, settings, self.policies, lambda: self.profile, self.breaker, clock, now
        )
        """What pods demand, and how long they wait."""
        self._tables = KeptTables(publisher, self._new_table, self.breaker, engine.now, clock)

    @property
    def view(self) -> View:
        return self.publisher.view

    @property
    def version(self) -> str:
        """The schedulers' version of Kubernetes ("v1.37.1"), as far as known; "" if not."""
        return self._version

    @property
    def edition(self) -> tuple[int, int]:
        """While this is the same, so is the answer to any demand."""
        return self.publisher.view.basis, self._profile_changes

    def mode_of(self, pod: core.Pod) -> Mode:
        """How far Fettle may go with the pod."""
        return resolve_policy(pod, self.view, self.policies).mode.mode

    def demand(self, pod: core.Pod) -> Demand | None:
        """The pod's demand in the newest view; None if it needs no devices."""
        return self.demands.of(pod)

    def demand_in(self, view: View, pod: core.Pod) -> Demand | None:
        """The pod's demand in a view that need not be the newest one."""
        return self.demands.in_view(view, pod)

    def demand_now(self, pod: core.Pod) -> Demand | None:
        """As `demand`, with the number of pods with the same needs in flight."""
        return self.demands.with_in_flight(pod)

    def on_nodes_given(self, callback: Callable[[Demand, core.Pod], None]) -> None:
        """Call back for each pod that filter gives suitable nodes."""
        self._on_nodes_given.append(callback)

    def note_nodes_given(self, demand: Demand, pod: core.Pod) -> None:
        """Note that filter gave the pod suitable nodes, so it may be placed any moment."""
        self.demands.note_nodes_given(demand, pod)
        for callback in self._on_nodes_given:
            callback(demand, pod)
        self._tables.count_pod(demand)

    def predict_as(self, version: str) -> None:
        """Predict as this API server's version ("v1.37.1") allocates, unless settings name one."""
        self._version = self._settings.scheduler.version or version
        if (profile := profile_of_version(self._version, self._gates)) != self.profile:
            self.profile = profile
            self._profile_changes += 1
            self.demands.clear()
            self._tables.clear()

    def allocator_notes(self) -> list[str]:
        """Sentences about the allocator that is predicted, for people."""
        return describe_allocator(self._version, self._gates, self.profile)

    def set_aside(self) -> list[reasons.RuleSetAside]:
        """What breakers set aside for any policy, what condemns most first."""
        return self._breakers.set_aside()

    @property
    def inspector(self) -> SelectorEngine:
        """Says what devices lack to meet selectors."""
        return self._engine

    def outcomes(self) -> SelectorOutcomes:
        """The outcomes of selectors in the engine's memory."""
        return SelectorOutcomes(self._engine)

    def breaker(self, placement: Placement) -> Breaker:
        """The breaker of a placement, counted on the newest view."""
        return self._breakers.of(placement)

    def acceptance(self, placement: Placement) -> Acceptance:
        """What a placement accepts while no breaker is open."""
        return Acceptance(
            placement,
            thresholds=self._settings.health,
            requirements=Requirements(placement.requires, self._engines),
        )

    def table(self, demand: Demand) -> Table:
        """The demand's table, without verdicts that are stale in the newest view."""
        return self._tables.of(demand)

    def _new_table(self, demand: Demand) -> Table:
        acceptance = msgspec.structs.replace(
            self.acceptance(demand.policy.placement), patience_over=demand.patience_over
        )
        return Table(demand, acceptance, self.profile)

    async def keep_ready(self) -> None:
        """Evaluate the selectors in each new view before a pod asks, until cancelled."""
        await self._warm_up.keep()

    def ignored_requirements(self) -> int:
        """How many requirements of all policies are ignored, since they do not compile."""
        policies = self._warm_up.policies_of(self.publisher.view)
        return sum(len(self._engines.ignored(policy)) for policy in policies)

    async def ignored(self, policy: Policy) -> list[str]:
        """Sentences about requirements of a policy that are ignored, since they do not compile."""
        await self._engines.evaluate(policy.placement.requires)
        return self._engines.ignored(policy)

    async def evaluate_requirements(self) -> None:
        """Evaluate what all policies require, on all nodes: only what is in memory counts for pods
        that have a node."""
        policies = self._warm_up.policies_of(self.view)
        required = [r for policy in policies for r in policy.placement.requires]
        await self._engines.evaluate(required, *rows_of(self.view.nodes.values()))

    async def keep_complete(self) -> None:
        """Complete shared tables, count breakers and follow how long pods wait, in the background,
        until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tables.keep(self._complete))
            group.create_task(self._breakers.keep())
            group.create_task(self.demands.waits.keep(self.publisher))

    async def _complete(self, demand: Demand) -> None:
        """Judge all that is open in the demand's table."""
        table = await self.judged(demand)
        if table.may_try_again:
            names = [name for name in table.try_again() if name in self.view.nodes]
            await self._judge(table, names, self.outcomes())

    def at_once(self, demand: Demand, names: list[str]) -> Table | None:
        """The demand's table with a settled verdict for each of these nodes, within a time slice.

        None if that takes longer. It does not if only a few nodes changed since the last view.
        """
        if demand.claims:
            self._engine.use(demand.selectors)
        table = self.table(demand)
        missing = table.open_among(names, self.view)
        return table if not missing or self._judge_in_a_slice(table, missing) else None

    def _judge_in_a_slice(self, table: Table, names: list[str]) -> bool:
        """Judge these nodes; false if that takes longer, or needs a selector to be evaluated."""
        try:
            within(SLICE_S, lambda: self._fill(table, names, self.outcomes()))
        except TimeoutError:
            return False
        return table.provisional.isdisjoint(names)

    async def judged(self, demand: Demand, names: Iterable[str] | None = None) -> Table:
        """The demand's table with a verdict for each of these nodes (None: all) the view knows.

        Waits once, within a bound, for selectors that are not evaluated yet. What was open until
        then is judged again, whatever views are published meanwhile.
        """
        outcomes, waited = self.outcomes(), False
        again: set[str] = set()  # the nodes that are left to judge again after the wait
        while True:
            table = self.table(demand)
            nodes = self.view.nodes
            again &= table.provisional
            still_open = table.open_among(nodes if names is None else names, self.view)
            known = table.verdicts
            if missing := [name for name in still_open if name not in known]:
                await self._judge(table, missing, outcomes)
            elif again:
                await self._judge(table, list(again), outcomes, again)
            elif waited or not still_open:
                return table
            else:
                await self._evaluations.wait(demand, [nodes[name] for name in still_open])
                outcomes, waited = self.outcomes(), True
                again.update(still_open)

    async def explained(self, demand: Demand) -> dict[str, Verdict]:
        """A verdict for each node that names the node's own devices. Nothing is kept of it."""
        await self.judged(demand)  # waits for selectors
        outcomes = self.outcomes()
        verdicts = await self.judge_apart(self._of_all(demand), outcomes, explains=True)
        if outcomes.missing:  # an explanation may need more selectors than the verdict did
            await self.evaluate_selectors(demand, list(self.view.nodes.values()))
            verdicts = await self.judge_apart(self._of_all(demand), outcomes, explains=True)
        return verdicts

    def _of_all(self, demand: Demand) -> list[tuple[Demand, NodeView]]:
        return [(demand, node) for node in self.view.nodes.values()]

    async def evaluate_selectors(self, demand: Demand, nodes: Sequence[NodeView]) -> None:
        """Wait, within a bound, until what a demand selects by is evaluated on these nodes."""
        await self._evaluations.wait(demand, nodes)

    async def judge_apart(
        self,
        cases: Sequence[tuple[Demand, NodeView]],
        outcomes: SelectorOutcomes,
        *,
        explains: bool = False,
        emptied: bool = False,
    ) -> dict[str, Verdict]:
        """A pod's verdict on each node, apart from all tables. Nothing is kept of it.

        The pod's demand may differ between nodes, as when preemption releases its own claims.
        """
        # Before the time slices begin: to update a table may count breakers, which only one may do.
        of_demand = {d: self.table(d).acceptance for d in dict.fromkeys(d for d, _ in cases)}

        def judge_all() -> dict[str, Verdict]:
            verdicts: dict[str, Verdict] = {}
            began = self._working_s()
            for demand, node in cases:
                acceptance = of_demand[demand]
                budget = budget_after(self._working_s() - began)
                allocator = outcomes.allocator(self.profile, budget, explains=explains)
                verdicts[node.name] = judge(demand, node, acceptance, allocator, emptied=emptied)
                pause()
            return verdicts

        return await run_within(judge_all)

    async def _judge(
        self,
        table: Table,
        names: Sequence[str],
        outcomes: SelectorOutcomes,
        left: set[str] | None = None,
    ) -> None:
        """Judge these nodes in time slices, until a newer view is published.

        Removes those that were judged from `left`.
        """
        basis = self.view.basis
        work = partial(self._fill, table, names, outcomes, left)
        with suppress(Superseded):
            await run_within(work, superseded=lambda: self.view.basis != basis)

    def _fill(
        self,
        table: Table,
        names: Sequence[str],
        outcomes: SelectorOutcomes,
        left: set[str] | None = None,
    ) -> None:
        sibling = self._tables.sibling(table, names)
        began = self._working_s()

        def charge() -> None:
            nonlocal began
            now = self._working_s()
            if now - began > SLICE_S:  # shorter work is free
                table.spent_s += now - began
                began = now

        def on_judged(some: Collection[str]) -> None:
            if left:
                left.difference_update(some)
            charge()

        try:
            fill(table, names, self.view.nodes, outcomes, sibling, on_judged)
        finally:
            charge()


def accepted_by_state(answers: Answers) -> Mapping[State, Acceptance] | None:
    """For Unhealthy and Degraded, what is set aside for those that refuse it: nothing is done by
    that. None while devices are not counted yet."""
    breakers = {state: answers.breaker(placement) for state, placement in _REFUSES.items()}
    if not breakers[State.UNHEALTHY].has_counted:
        return None
    return {
        state: msgspec.structs.replace(
            answers.acceptance(breaker.placement), set_aside=breaker.not_acted_on
        )
        for state, breaker in breakers.items()
    }


def devices_counted(answers: Answers, pool: str) -> int | None:
    """How many devices of a driver, or units of a resource, there are; None if they are on too few
    nodes to have a breaker."""
    return answers.breaker(_REFUSES[State.UNHEALTHY]).devices(pool)
