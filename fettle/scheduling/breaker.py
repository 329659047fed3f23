"""Keeps a wrong rule from stopping a cluster, and changes nothing for a bad day (decision 0074).

It counts by cause: what the evidence of one source alone would refuse of a pool. A source over its
share is set aside there: what it condemns is the last choice of pods that have waited as long as
they must. It changes nothing of what Fettle says, and undoes nothing. Faults of several causes
never add up, and the nodes have to be over the share, too.

`Census` counts devices by cause, `Breaker` compares that with the limits for one placement, and
`Breakers` keeps all of it up to date with the newest view and tells operators. Stands between view
and verdict. Pure, except for the task that follows views.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple, NoReturn

from fettle.cluster import Publisher, View
from fettle.config import BreakerSettings, HealthSettings
from fettle.model import Placement, Policies, reasons
from fettle.pacing import pause, run_within
from fettle.scheduling.census import Census, Tally
from fettle.scheduling.demand import Demand, WaitStage
from fettle.scheduling.judge.acceptance import Cause, SetAside

MAX_BREAKERS = 64
"""Bounded: there is one for each placement, and annotations can set any minimum score."""
MOST_CONDEMNED = 0.5
"""Hard evidence is set aside only where it alone condemns a larger share of a pool."""
ALL = 0.999
"""As much of a small pool: else a few dead devices would be set aside there."""
FEWEST = 3
"""Hard evidence is set aside on no fewer nodes: one that is dead tells nothing of a rule."""
_NOTHING: SetAside = {}


class Breaker:
    """For one placement, by what a census counted.

    `set_aside` are, by pool, the causes that condemn too much there. `bursts` are those among them
    that began to condemn too much within minutes, and may: as a wrong rule does.
    """

    def __init__(self, placement: Placement, settings: BreakerSettings, census: Census) -> None:
        self.placement = placement
        self._settings = settings
        self._census = census
        self._tallies: Mapping[str, Tally] = {}
        self.set_aside: SetAside = {}
        self.bursts: SetAside = {}

    @property
    def has_counted(self) -> bool:
        """Whether any pool was counted yet."""
        return bool(self._tallies)

    def devices(self, pool: str) -> int | None:
        """How many devices a pool has, as far as they count; None if it is so small that a single
        node may be most of it."""
        tally = self._tallies.get(pool)
        return None if tally is None or self._is_small(tally) else int(tally.devices)

    def judge(self) -> bool:
        """Judge by the newest tallies; true if that set other causes aside."""
        if self._tallies is self._census.tallies:
            return False
        self._tallies = self._census.tallies
        before = self.set_aside, self.bursts
        self.set_aside, self.bursts = {}, {}
        for pool, tally in self._tallies.items():
            limits = {cause: self._limit(cause, tally) for cause in tally.causes}
            over = {
                cause
                for cause, limit in limits.items()
                if tally.is_over(cause, self.placement, limit)
                and not (cause.hard and tally.nodes < FEWEST)
            }
            if over:
                self.set_aside[pool] = frozenset(over)
            sudden = {c for c in over if tally.bursts.get(c, 0.0) > limits[c] * tally.devices}
            if sudden:
                self.bursts[pool] = frozenset(sudden)
        return before != (self.set_aside, self.bursts)

    @property
    def not_acted_on(self) -> SetAside:
        """The causes by which nothing is begun. In a small pool it is, as a single bad node may be
        most of it: only waits are bounded there."""
        return {
            pool: causes
            for pool, causes in self.set_aside.items()
            if not self._is_small(self._tallies[pool])
        }

    def shares(self, pool: str) -> dict[Cause, float]:
        """The share (0..1) of a pool's devices that each cause alone would refuse."""
        if (tally := self._tallies.get(pool)) is None:
            return {}
        return {c: tally.condemned(c, self.placement) / tally.devices for c in tally.causes}

    def set_aside_from(self, demand: Demand) -> SetAside:
        """By what pods with this demand may not be refused any more."""
        match demand.waited:
            case WaitStage.ENOUGH:
                return self.set_aside
            case WaitStage.ENOUGH_FOR_A_BURST:
                return self.bursts
        return _NOTHING

    def _is_small(self, tally: Tally) -> bool:
        return tally.nodes < self._settings.min_nodes

    def _limit(self, cause: Cause, tally: Tally) -> float:
        """The share (0..1) of a pool that a cause may condemn."""
        share = self._settings.max_excluded_share
        if cause.hard and self._is_small(tally):
            return max(share, ALL)
        return max(share, MOST_CONDEMNED) if cause.hard or self._is_small(tally) else share

    def alarms(self, policy: str) -> Iterator["Alarm"]:
        """What operators are told of it, for a policy of this placement. In a small pool one bad
        node is no news about a rule."""
        for pool, causes in sorted(self.not_acted_on.items()):
            tally = self._tallies[pool]
            for cause in sorted(causes):
                condemned = tally.condemned(cause, self.placement)
                yield Alarm(
                    policy,
                    pool,
                    cause,
                    round(condemned),
                    round(tally.devices),
                    self._limit(cause, tally),
                    cause in self.bursts.get(pool, ()),
                )


class Alarm(NamedTuple):
    """A cause that is set aside for a policy: it alone condemns so many of a pool's devices.

    `limit` is the share (0..1) that it may condemn. `burst`: it began to within minutes.
    """

    policy: str
    pool: str
    cause: Cause
    condemned: int
    devices: int
    limit: float
    burst: bool = False

    @property
    def key(self) -> tuple[str, str, Cause]:
        """What stays the same while the numbers change."""
        return self.policy, self.pool, self.cause


def _joined(alarms: Iterable[Alarm]) -> list[reasons.RuleSetAside]:
    """One reason for each pool and cause, with all its policies: those that it condemns most for
    first."""
    found: dict[tuple[str, Cause], list[Alarm]] = defaultdict(list)
    for alarm in alarms:
        found[alarm.pool, alarm.cause].append(alarm)
    joined = []
    for (pool, cause), of_policies in found.items():
        most = max(of_policies, key=attrgetter("condemned"))
        policies = tuple(sorted(alarm.policy for alarm in of_policies))
        joined.append(
            reasons.RuleSetAside(
                cause.source,
                pool,
                policies,
                most.condemned,
                most.devices,
                most.limit,
                cause.hard,
                most.burst,
            )
        )
    return sorted(joined, key=lambda one: (-one.condemned / one.devices, one.pool, str(one.rule)))


# Up to date with views


class Breakers:
    """The breakers of placements that were asked for lately, and what operators are told of the
    policies, up to date with the newest view.

    While `keep` runs, nodes are counted in time slices after a view is published, and requests are
    answered by the counts of before. So a cause may be set aside some milliseconds late; then the
    view is published once more, and whatever was answered meanwhile is answered anew. `on_change`
    is called with each alarm that begins (True) or ends (False). There are alarms for policies
    only: a pod's own minimum score has a breaker too, but must not page anybody.
    """

    def __init__(
        self,
        publisher: Publisher,
        settings: BreakerSettings,
        thresholds: HealthSettings,
        policies: Policies,
        on_change: Callable[[Alarm, bool], None],
    ) -> None:
        self._publisher = publisher
        self._settings = settings
        self._policies = policies
        self._on_change = on_change
        self._census = Census(thresholds)
        self._alarms: dict[tuple[str, str, Cause], Alarm] = {}
        self._basis = -1
        """The basis of the view that was counted last; -1: none."""
        self._keeping = False
        self._kept: OrderedDict[Placement, Breaker] = OrderedDict()
        """The one asked for last comes last."""
        self._late = False
        """Whether a breaker changed or was forgotten since a view was published for that."""

    def of(self, placement: Placement) -> Breaker:
        """The breaker of a placement, on the newest view; while `keep` runs, as last counted."""
        if not self._keeping and self._basis != self._publisher.view.basis:
            self._count()
        if placement not in self._kept:
            if len(self._kept) >= MAX_BREAKERS:
                self._forget_oldest()
            self._kept[placement] = Breaker(placement, self._settings, self._census)
        self._kept.move_to_end(placement)
        breaker = self._kept[placement]
        self._late |= breaker.judge()
        return breaker

    def set_aside(self) -> list[reasons.RuleSetAside]:
        """What is set aside for any policy, what condemns most first."""
        if not self._keeping:
            if self._basis != self._publisher.view.basis:
                self._count()
            self._update_alarms()
        return _joined(self._alarms.values())

    async def keep(self) -> NoReturn:
        """Count whenever a view is published, until cancelled."""
        self._keeping = True
        try:
            await self._publisher.keep_looking("breakers", self._look)
        finally:
            self._keeping = False

    async def _look(self, _: View) -> None:
        if self._basis == self._publisher.view.basis:
            return
        await run_within(self._count_and_judge)
        if self._late:
            self._late = False
            self._publisher.republish()

    def _count_and_judge(self) -> None:
        self._count()
        for breaker in list(self._kept.values()):
            self._late |= breaker.judge()
            pause()
        self._update_alarms()

    def _update_alarms(self) -> None:
        """Begin and end alarms by the newest counts."""
        found = {alarm.key: alarm for alarm in self._of_policies()}
        before, self._alarms = self._alarms, found
        for key in before.keys() - found.keys():
            self._on_change(before[key], False)
        for key in found.keys() - before.keys():
            self._on_change(found[key], True)

    def _of_policies(self) -> Iterator[Alarm]:
        installed = self._publisher.view.policies
        for name in self._policies.names(installed):
            policy, _ = self._policies.find(name, installed)
            if policy is not None:
                # Not one that is kept: what nobody asks for is forgotten.
                breaker = Breaker(policy.placement, self._settings, self._census)
                breaker.judge()
                yield from breaker.alarms(name)
            pause()

    def _count(self) -> None:
        """Bring the census up to date with the newest view."""
        view, changed = self._publisher.view, self._changed()
        self._basis = -1  # in case this ends in the middle
        self._census.update(changed, view.nodes)
        self._basis = view.basis

    def _changed(self) -> Collection[str]:
        """The nodes to count again for the newest view."""
        changed = self._publisher.changed_since(self._basis)
        return {*self._publisher.view.nodes, *self._census.nodes} if changed is None else changed

    def _forget_oldest(self) -> None:
        self._kept.popitem(last=False)
        self._late = True
