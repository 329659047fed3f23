"""Verdicts kept ready: one table per demand, updated by what changed between views.

Equal demands share a table, nodes with the same fingerprint share a verdict, and a new view costs
only the nodes that it changed. Outcomes of selectors come from the engine's memory; if some are
missing, `warmup` waits for them within a bound. Extender, steward and explain ask here.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from math import inf

import msgspec

from fettle.api import core
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher, View
from fettle.config import Settings
from fettle.dra import Binding, describe_allocator, profile_of_version
from fettle.model import Mode, Placement, Policy, State, reasons
from fettle.pacing import SLICE_S, Superseded, keep, pause, run_within, within, working_s
from fettle.scheduling.breaker import Alarm, Breaker, Breakers
from fettle.scheduling.demand import Demand, DemandCache, WaitStage, demand_of, resolve_policy
from fettle.scheduling.gangs import Gangs
from fettle.scheduling.in_flight import STEPS, InFlight
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.requirements import Engines, Requirements
from fettle.scheduling.judge.verdicts import Verdict, judge
from fettle.scheduling.tables import FEW, SelectorOutcomes, Table, budget_after, fill
from fettle.scheduling.waits import PodWaits
from fettle.scheduling.warmup import Evaluations, WarmUp

MAX_TABLES = 512
MAX_VERDICTS = 500_000
"""In all tables together, at about 350 bytes each."""
SHARED = 2
"""Once this many pods share a demand, judge it for all nodes in the background."""


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
    ) -> None:
        """`working_s` measures work; `now` is the time of day, in seconds since the Unix epoch.

        `on_breaker` is called as `Breakers` calls `on_change`.
        """
        self.publisher = publisher
        self.policies = settings.all_policies()
        self._gates = settings.scheduler.gates
        self._version = settings.scheduler.version
        self.profile = profile_of_version(self._version, self._gates)
        """The allocator of the cluster's version of Kubernetes, with the feature gates set."""
        self._profiles_followed = 0
        self._engine = engine
        self._engines = Engines(engine)
        self._settings = settings
        self.sound = settings.health.degraded_below
        """The value from which a node is sound."""
        self._clock = clock
        self._now = now
        self._working_s = working_s
        self._demands = DemandCache(self._demand_of)
        self.gangs = Gangs()
        """Which pods run together; it follows the views by itself."""
        self.waits = PodWaits(now, self.gangs)
        """How long pods have waited."""
        self._in_flight = InFlight()
        self._on_answered: list[Callable[[Demand, core.Pod], None]] = []
        self._tables: OrderedDict[Demand, Table] = OrderedDict()
        self._incomplete: set[Demand] = set()
        self._has_incomplete = asyncio.Event()
        self.wait_s = settings.extender.wait_seconds
        """How long a request waits for selectors at most."""
        self._evaluations = Evaluations(self._engines, self.wait_s)
        self._warm_up = WarmUp(publisher, self._engines, self.policies)
        self._breakers = Breakers(
            publisher, settings.breaker, settings.health, self.policies, on_breaker
        )

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
        return self.publisher.view.basis, self._profiles_followed

    def mode_of(self, pod: core.Pod) -> Mode:
        """How far Fettle may go with the pod."""
        return resolve_policy(pod, self.view, self.policies).mode.mode

    def demand(self, pod: core.Pod) -> Demand | None:
        """The pod's demand in the newest view; None if it needs no devices."""
        return self._of_this_pod(self._demands.of(pod, self.view), pod)

    def _demand_of(self, pod: core.Pod) -> Demand | None:
        return self._whatever_its_wait(self.view, pod)

    def demand_in(self, view: View, pod: core.Pod) -> Demand | None:
        """The pod's demand in a view that need not be the newest one."""
        return self._of_this_pod(self._whatever_its_wait(view, pod), pod)

    def _of_this_pod(self, demand: Demand | None, pod: core.Pod) -> Demand | None:
        """By its gang, and by its wait."""
        if demand is None:
            return None
        placement = demand.policy.placement
        if self.gangs.is_member(pod):
            demand = _in_gang(demand, self._others_are_sound(pod, placement))
        if self.waits.is_over(pod, placement):
            demand = _with_patience_over(demand)
        waited = self._waited(pod, demand.policy.placement)
        return demand if waited is WaitStage.NOT_YET else _having_waited(demand, waited)

    def _waited(self, pod: core.Pod, placement: Placement) -> WaitStage:
        breaker = self.breaker(placement)
        if not breaker.set_aside:
            return WaitStage.NOT_YET
        waited_s, (burst_s, enough_s) = (
            self.waits.waited_s(pod),
            self._longest_waits_s(pod, placement),
        )
        if waited_s >= enough_s:
            return WaitStage.ENOUGH
        sudden = bool(breaker.bursts) and waited_s >= burst_s
        return WaitStage.ENOUGH_FOR_A_BURST if sudden else WaitStage.NOT_YET

    def _longest_waits_s(self, pod: core.Pod, placement: Placement) -> tuple[float, float]:
        """How many seconds the pod waits at most for a rule that is set aside: in a burst, and
        otherwise."""
        own_s = placement.patience_s(in_gang=self.gangs.is_member(pod))
        settings = self._settings.breaker
        enough_s = settings.patience_seconds if own_s is None else own_s
        return min(settings.burst_patience_seconds, enough_s), enough_s

    def _others_are_sound(self, pod: core.Pod, placement: Placement) -> bool:
        """Whether no other member of its gang is on a Degraded device, where that matters."""
        if placement.gang_degraded is None:
            return False
        slowest = self.gangs.slowest(pod, self.view)
        return slowest is None or slowest.health.state not in (State.DEGRADED, State.UNHEALTHY)

    def patience(self, pod: core.Pod) -> reasons.PatienceLasts | reasons.PatienceOver | None:
        """Until when the pod waits for what its policy accepts; None if without end, if it need not
        wait, or if it has a node."""
        placement = resolve_policy(pod, self.view, self.policies).policy.placement
        ends = None if pod.node_name else self.waits.ends_at(pod, placement)
        if ends is None:
            return None
        if self.waits.is_over(pod, placement):
            return reasons.PatienceOver(ends)
        return reasons.PatienceLasts(ends, self.gangs.is_member(pod))

    def refused_until(self, demand: Demand, pod: core.Pod) -> float:
        """Until when the same view refuses the pod the same nodes, in Unix seconds: while its
        policy is patient, or has to be for a rule that is set aside."""
        placement = demand.policy.placement
        ends = None if demand.patience_over else self.waits.ends_at(pod, placement)
        now = self._now()
        later = (at for at in self._last_choices_at(pod, placement) if at > now)
        return min(inf if ends is None else ends, *later, inf)

    def last_choices_at(self, pod: core.Pod) -> tuple[float, ...]:
        """When rules that are set aside refuse the pod no more, in Unix seconds."""
        return self._last_choices_at(
            pod, resolve_policy(pod, self.view, self.policies).policy.placement
        )

    def _last_choices_at(self, pod: core.Pod, placement: Placement) -> tuple[float, ...]:
        breaker = self.breaker(placement)
        if not breaker.set_aside or pod.node_name or pod.scheduling_gates:
            return ()
        began = self._now() - self.waits.waited_s(pod)
        burst_s, enough_s = self._longest_waits_s(pod, placement)
        return (began + burst_s, began + enough_s) if breaker.bursts else (began + enough_s,)

    def _whatever_its_wait(self, view: View, pod: core.Pod) -> Demand | None:
        features = self.profile.features
        binding = Binding(
            self._now(),
            self._settings.scheduler.binding_timeout_seconds,
            features.device_binding_and_status,
        )
        return demand_of(pod, view, self.policies, binding, backed=features.extended_resource)

    def demand_now(self, pod: core.Pod) -> Demand | None:
        """As `demand`, with the number of pods with the same needs in flight."""
        demand = self.demand(pod)
        if demand is None or not demand.allocates:
            return demand
        in_flight = self._in_flight.count(demand, pod, self.view, self._clock())
        return msgspec.structs.replace(demand, in_flight=in_flight) if in_flight else demand

    def asked(self, pod: core.Pod) -> None:
        """Note that the scheduler begins to place the pod."""
        self._in_flight.asked(pod)
        self.gangs.asked(pod)

    def unplaced(self, pod: core.Pod) -> int:
        """How many members of the pod's gang are still to be placed; 0 if it runs alone."""
        return self.gangs.unplaced(pod, self._clock())

    def on_answered(self, callback: Callable[[Demand, core.Pod], None]) -> None:
        """Call back for each pod that is answered with suitable nodes."""
        self._on_answered.append(callback)

    def answered(self, demand: Demand, pod: core.Pod) -> None:
        """Note that the pod was answered with suitable nodes, so it may be placed any moment."""
        now = self._clock()
        self._in_flight.note(demand, pod, now)
        self.gangs.answered(pod, now)
        for callback in self._on_answered:
            callback(demand, pod)
        if (table := self._tables.get(demand)) is not None:
            table.pods += 1
            if table.pods == SHARED and table.needs_completion(self.view):
                self._complete_later(demand)

    def follow_version(self, version: str) -> None:
        """Predict as this API server's version ("v1.37.1") allocates, unless settings name one."""
        self._version = self._settings.scheduler.version or version
        if (profile := profile_of_version(self._version, self._gates)) != self.profile:
            self.profile = profile
            self._profiles_followed += 1
            self._demands.clear()
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
        table = self._tables.get(demand)
        if table is None:
            acceptance = msgspec.structs.replace(
                self.acceptance(demand.policy.placement), patience_over=demand.patience_over
            )
            table = self._tables[demand] = Table(demand, acceptance, self.profile)
            self._forget_oldest()
        self._tables.move_to_end(demand)
        table.rest(self._clock())
        if table.may_try_again:
            self._complete_later(demand)
        if table.given_up_until < inf and table.given_up_until <= self._engine.now():
            table.make_provisional()
            self._complete_later(demand)
        if table.basis != (view := self.view).basis:
            changed = self.publisher.changed_since(table.basis) if table.basis >= 0 else None
            set_aside = self.breaker(demand.policy.placement).set_aside_from(demand)
            table.update(view, changed, set_aside)
            if table.pods >= SHARED and table.needs_completion(self.view):
                self._complete_later(demand)
        return table

    def _forget_oldest(self) -> None:
        """Forget tables beyond the limits, the oldest first, but never the one asked for last."""
        kept = sum(table.size for table in self._tables.values())
        while len(self._tables) > 1 and (len(self._tables) > MAX_TABLES or kept > MAX_VERDICTS):
            _, oldest = self._tables.popitem(last=False)
            kept -= oldest.size

    def _complete_later(self, demand: Demand) -> None:
        """Have the background task judge what is open in the demand's table."""
        self._incomplete.add(demand)
        self._has_incomplete.set()

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

    async def keep_complete(self) -> None:
        """Complete shared tables, count breakers and follow how long pods wait, in the background,
        until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_tables())
            group.create_task(self._breakers.keep())
            group.create_task(self.waits.keep(self.publisher))

    async def _keep_tables(self) -> None:
        """Judge the open nodes of tables whose demand several pods share."""
        # A scheduler samples other nodes each time, and a complete table need not look up each name
        # to know that it is settled. For the demand of a single pod, as when its claim is allocated
        # already, this would be the work of a whole fleet for one reply.
        await keep("tables of verdicts", self._complete_all, when=self._has_incomplete.wait)

    async def _complete_all(self) -> None:
        self._has_incomplete.clear()
        failed: Exception | None = None
        while self._incomplete:
            demand = self._incomplete.pop()
            table = self._tables.get(demand)
            if table is not None and table.failed_on != self.view.basis:
                try:
                    await self._complete(table)
                except Exception as error:  # told once the others have had their turn
                    failed = failed or error
            await asyncio.sleep(0)
        if failed is not None:
            raise failed

    async def _complete(self, table: Table) -> None:
        """Judge all open nodes of a table."""
        basis = self.view.basis
        try:
            table = await self.judged(table.demand)
            self._forget_oldest()
            if table.may_try_again:
                names = [name for name in table.try_again() if name in self.view.nodes]
                await self._judge(table, names, self.outcomes())
        except Exception:
            table.failed_on = basis
            raise

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
            if missing := [name for name in still_open if name not in table.verdicts]:
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

        return await run_within(None, judge_all)

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
            await run_within(None, work, superseded=lambda: self.view.basis != basis)

    def _fill(
        self,
        table: Table,
        names: Sequence[str],
        outcomes: SelectorOutcomes,
        left: set[str] | None = None,
    ) -> None:
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
            fill(table, names, self.view.nodes, outcomes, self._sibling(table, names), on_judged)
        finally:
            charge()

    def _sibling(self, table: Table, names: Sequence[str]) -> Table | None:
        """A table for the same needs with another number of pods in flight, as new as this one.

        Its nodes have the same fingerprints. None if there is none, or if it is not worth looking
        for: the names are few, or some have verdicts already.
        """
        if len(names) <= FEW or not table.verdicts.keys().isdisjoint(names):
            return None
        for in_flight in STEPS:
            other = self._tables.get(msgspec.structs.replace(table.demand, in_flight=in_flight))
            if (
                other is not None
                and other is not table
                and other.basis == table.basis
                and other.acceptance.set_aside == table.acceptance.set_aside
            ):
                return other
        return None


@lru_cache(maxsize=1024)
def _with_patience_over(demand: Demand) -> Demand:
    return msgspec.structs.replace(demand, patience_over=True)


@lru_cache(maxsize=1024)
def _having_waited(demand: Demand, waited: WaitStage) -> Demand:
    return msgspec.structs.replace(demand, waited=waited)


@lru_cache(maxsize=1024)
def _in_gang(demand: Demand, others_sound: bool) -> Demand:
    placement = demand.policy.placement.in_gang(others_sound=others_sound)
    policy = msgspec.structs.replace(demand.policy, placement=placement)
    return msgspec.structs.replace(demand, policy=policy)
