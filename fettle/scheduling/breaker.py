"""Keeps a wrong rule from stopping a cluster, and changes nothing for a bad day (decision 0074).

It counts by cause: what the evidence of one source alone would refuse of a pool. A source over its
share is set aside there: what it condemns is the last choice of pods that have waited as long as
they must. It changes nothing of what Fettle says, and undoes nothing. Faults of several causes
never add up. A pool is all devices of one DRA driver, or all allocatable units of one extended
resource. Capacity is the word of each kubelet, so a node counts as two ordinary nodes at most, and
the nodes have to be over the share, too.

`Census` counts devices by cause, `Breaker` compares that with the limits for one placement, and
`Breakers` keeps all of it up to date with the newest view and tells operators. Stands between view
and verdict. Pure, except for the task that follows views.
"""

from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn, TypeVar

from fettle.cluster import NodeView, Publisher, View
from fettle.config import BreakerSettings, HealthSettings
from fettle.dra import PoolView
from fettle.model import BAD_STATES, DeviceId, Health, Placement, Policies, State, reasons
from fettle.pacing import pause, run_within
from fettle.scheduling.demand import Demand, WaitStage
from fettle.scheduling.judge.acceptance import Cause, Causes, by_cause, complaint, onsets
from fettle.scheduling.judge.units import allocatable_units

MAX_BREAKERS = 64
"""Bounded: there is one for each placement, and annotations can set any minimum score."""
MOST_CONDEMNED = 0.5
"""Hard evidence is set aside only where it alone condemns a larger share of a pool."""
MOST_OF_MEDIAN = 2
"""A node counts as so many times the median node of its pool, at most."""
BURST_S = 600.0
"""What a cause condemns within this time counts as one burst."""

# What is counted

_Key = TypeVar("_Key")

_CORDON = "node.kubernetes.io/unschedulable"
_LEFT_OUT = (
    _CORDON,
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Taints of nodes that are cordoned or lost; the scheduler leaves these out by itself.

Nodes with any other taint count: a taint like `nvidia.com/gpu` is on every node with GPUs, and
their pods tolerate it.
"""
_KEEPS_OFF = ("NoSchedule", "NoExecute")


SetAside = Mapping[str, frozenset[Cause]]
"""By pool, causes that condemn too much there."""
_NOTHING: SetAside = {}
_Condemned = tuple[Cause, Health]
"""A cause, and the health that it alone would give a device."""


_GRAVITY = (State.UNHEALTHY, State.DEGRADED, State.UNKNOWN, State.HEALTHY)


class Ranked(NamedTuple):
    """Devices with one state: their healths, the worst proven one first. `numbers[i]` counts the
    devices that have one of the first `i` of these."""

    healths: list[Health]
    numbers: list[float]


_Ranking = Mapping[Cause, tuple[Ranked, ...]]


class Tally(NamedTuple):
    """A pool: its nodes, its devices, and how healthy they would be by each cause alone.

    `causes` counts devices, less of each on a node that has far more of them than others, and
    `network` those of the network among them. `worst` counts nodes, each by its worst device: that
    of the gravest state, and among those the least by what is proven. A network device whose
    health differs between nodes counts once for each of its healths, and for no node. `bursts`: how
    many devices a cause began to condemn within `BURST_S`, at most.
    """

    nodes: int
    devices: float
    causes: _Ranking
    network: _Ranking
    worst: _Ranking
    bursts: Mapping[Cause, float]

    def condemned(self, cause: Cause, placement: Placement) -> float:
        """How many devices a placement would refuse by this cause alone."""
        return _refused(self.causes, cause, placement)

    def is_over(self, cause: Cause, placement: Placement, limit: float) -> bool:
        """Whether it would refuse more than this share of the devices, and of the nodes that have
        them."""
        most = limit * self.devices
        return self.condemned(cause, placement) > most and (
            _refused(self.worst, cause, placement) > limit * self.nodes
            or _refused(self.network, cause, placement) > most
        )


def _refused(ranking: _Ranking, cause: Cause, placement: Placement) -> float:
    def is_accepted(health: Health) -> bool:
        return complaint(health, placement) is None

    # Any health better than an accepted one of the same state is accepted.
    return sum(
        numbers[bisect_left(healths, True, key=is_accepted)]
        for healths, numbers in ranking.get(cause, ())
    )


def _ranking(condemned: Mapping[_Condemned, float]) -> _Ranking:
    found: dict[Cause, dict[State, Ranked]] = defaultdict(dict)
    for cause, health in sorted(condemned, key=lambda each: each[1].proven):
        ranked = found[cause].setdefault(health.state, Ranked([], [0]))
        ranked.healths.append(health)
        ranked.numbers.append(ranked.numbers[-1] + condemned[cause, health])
        pause()
    return {cause: tuple(of_state.values()) for cause, of_state in found.items()}


class _Total:
    """A running `Tally`. What nodes have of their own is kept by how many devices the node has."""

    def __init__(self) -> None:
        self.nodes = 0
        self.sizes: Counter[int] = Counter()
        self.unsound: Counter[tuple[int, _Condemned]] = Counter()
        self.begun: Counter[tuple[int, Cause, int]] = Counter()
        self.worst: Counter[_Condemned] = Counter()
        self.network_devices = 0
        self.network: Counter[_Condemned] = Counter()

    def tally(self) -> Tally:
        weights = _weights(self.sizes)
        causes: dict[_Condemned, float] = defaultdict(float, self.network)
        for (size, condemned), number in self.unsound.items():
            causes[condemned] += number * weights[size]
            pause()
        devices = sum(size * number * weights[size] for size, number in self.sizes.items())
        return Tally(
            self.nodes,
            self.network_devices + devices,
            _ranking(causes),
            _ranking(self.network),
            _ranking(self.worst),
            self._bursts(weights),
        )

    def _bursts(self, weights: Mapping[int, float]) -> Mapping[Cause, float]:
        begun: dict[Cause, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for (size, cause, window), number in self.begun.items():
            begun[cause][window] += number * weights[size]
            pause()
        # Two windows, since a burst may begin at the end of one.
        return {
            cause: max(number + by.get(window + 1, 0.0) for window, number in by.items())
            for cause, by in begun.items()
        }


def _weights(sizes: Mapping[int, int]) -> Mapping[int, float]:
    """How much each device counts of a node with so many devices."""
    seen, nodes, median = 0, sum(sizes.values()), 0
    for size in sorted(sizes):
        seen += sizes[size]
        if not median and 2 * seen >= nodes:
            median = size
    return {size: min(1.0, MOST_OF_MEDIAN * median / size) for size in sizes}


class _Local(NamedTuple):
    """A node's own devices of one pool, how many of them would have which health by which cause
    alone, and how many each cause began to condemn in which window."""

    devices: int
    unsound: tuple[tuple[_Condemned, int], ...] = ()
    begun: tuple[tuple[tuple[Cause, int], int], ...] = ()

    def __add__(self, other: tuple[Any, ...]) -> "_Local":
        return _Local(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def worst(self) -> Iterable[_Condemned]:
        """What each cause alone makes of the worst device."""
        found: dict[Cause, Health] = {}
        for (cause, health), _ in self.unsound:
            if cause not in found or _is_worse(health, found[cause]):
                found[cause] = health
        return found.items()


def _is_worse(one: Health, other: Health) -> bool:
    if one.state is not other.state:
        return _GRAVITY.index(one.state) < _GRAVITY.index(other.state)
    return one.proven < other.proven


class _Shared:
    """A record of a pool with network devices, and how many nodes share it."""

    def __init__(self, pool: PoolView, local: _Local) -> None:
        self.pool = pool
        self.local = local
        self.nodes = 0


class _Counted(NamedTuple):
    """What a node contributes: its own devices by pool, and pool records that it may share."""

    local: tuple[tuple[str, _Local], ...]
    shared: tuple[_Shared, ...]


_NONE = _Counted((), ())


class Census:
    """The devices of all nodes that are not left out, by health.

    `tallies` are by pool, as of the last `update`. Each device is counted once for all placements,
    and again only if a node changed. A network device counts once, however many nodes see it.
    """

    def __init__(self, thresholds: HealthSettings) -> None:
        self.tallies: Mapping[str, Tally] = {}
        self._thresholds = thresholds
        self._clear()

    def _clear(self) -> None:
        self._by_node: dict[str, _Counted] = {}
        self._shared: dict[int, _Shared] = {}
        """By the identity of the record: what nodes share of a pool is counted once for all."""
        self._seen_as: dict[DeviceId, dict[Causes, int]] = {}
        """Network devices: in how many records each has which causes."""
        self._totals: dict[str, _Total] = defaultdict(_Total)
        self._touched: set[str] = set(self.tallies)

    @property
    def nodes(self) -> Collection[str]:
        """The names of the nodes that count."""
        return self._by_node.keys()

    def update(self, names: Iterable[str], nodes: Mapping[str, NodeView]) -> None:
        """Count these nodes again; those not among `nodes` are gone. Pauses between two of them.

        If it is ended in the middle, no node is counted, and the tallies stay as they were.
        """
        try:
            for name in names:
                self._count(name, nodes.get(name))
                pause()
        except BaseException:
            self._clear()
            raise
        self._settle()

    def _settle(self) -> None:
        if not self._touched:
            return
        tallies = dict(self.tallies)
        for pool in self._touched:
            if self._totals[pool].nodes:
                tallies[pool] = self._totals[pool].tally()
            else:
                del self._totals[pool]
                tallies.pop(pool, None)
        self._touched.clear()
        self.tallies = tallies

    def _count(self, name: str, node: NodeView | None) -> None:
        before = self._by_node.pop(name, _NONE)
        if node is not None and not _is_left_out(node):
            counted = self._by_node[name] = self._counted(node)
            # Added before the old ones go: records that stay are never without a node, and so their
            # devices are not counted anew.
            self._add(counted, 1)
        self._add(before, -1)

    def _add(self, counted: _Counted, sign: int) -> None:
        """Add what a node contributes (sign 1), or take it away (sign -1)."""
        for name, local in counted.local:
            total = self._totals[name]
            total.nodes += sign
            if local.devices:
                _shift(total.sizes, local.devices, sign)
            for condemned, number in local.unsound:
                _shift(total.unsound, (local.devices, condemned), sign * number)
            for (cause, window), number in local.begun:
                _shift(total.begun, (local.devices, cause, window), sign * number)
            for condemned in local.worst():
                _shift(total.worst, condemned, sign)
            self._touched.add(name)
        for shared in counted.shared:
            before, shared.nodes = shared.nodes, shared.nodes + sign
            if not shared.nodes:
                del self._shared[id(shared.pool)]
            if 0 in (before, shared.nodes):  # the first node that has it, or the last one that did
                self._add_network(shared.pool, sign)

    def _add_network(self, pool: PoolView, sign: int) -> None:
        """Add a record's network devices, or take them away."""
        total = self._totals[pool.driver]
        for device in pool.devices:
            if device.published.local:
                continue
            seen_as = self._seen_as.setdefault(device.id, {})
            causes = by_cause(device.health, self._thresholds)
            if _shift(seen_as, causes, sign):
                total.network_devices += sign
                for condemned in causes:
                    _shift(total.network, condemned, sign)
            if not seen_as:
                del self._seen_as[device.id]
            pause()

    def _counted(self, node: NodeView) -> _Counted:
        local: dict[str, _Local] = {}
        for resource, plugin in node.plugins.items():
            if plugin.allocatable > 0:
                drawn = allocatable_units(plugin)
                units = (*drawn.named, (node.health, drawn.rest))
                local[resource] = self._local(plugin.allocatable, units)
        shared = []
        for pool in node.pools:
            known = self._shared.get(id(pool))
            if known is None:
                own = [d.health for d in pool.devices if d.published.local]
                of_pool = self._local(len(own), [(health, 1) for health in own])
                if len(own) < len(pool.devices):  # else no other node shares the record
                    known = self._shared[id(pool)] = _Shared(pool, of_pool)
            if known is not None:
                shared.append(known)
                of_pool = known.local
            local[pool.driver] = local.get(pool.driver, _Local(0)) + of_pool
        return _Counted(tuple(local.items()), tuple(shared))

    def _local(self, devices: int, healths: Iterable[tuple[Health, int]]) -> _Local:
        unsound: dict[_Condemned, int] = {}
        begun: dict[tuple[Cause, int], int] = {}
        for health, number in healths:
            if number and (causes := by_cause(health, self._thresholds)):
                since = onsets(health)
                for cause, alone in causes:
                    _shift(unsound, (cause, alone), number)
                    if cause in since and alone.state in BAD_STATES:
                        _shift(begun, (cause, int(since[cause] // BURST_S)), number)
        return _Local(devices, tuple(unsound.items()), tuple(begun.items()))


def _is_left_out(node: NodeView) -> bool:
    """Whether the scheduler places no pods there anyway: then a refusal takes it from nobody. Our
    own cordon is such a refusal, so what it goes by still counts."""
    return any(
        taint.key in _LEFT_OUT
        and taint.effect in _KEEPS_OFF
        and not (taint.key == _CORDON and node.marks.cordon)
        for taint in node.taints
    )


def _shift(numbers: dict[_Key, int], key: _Key, by: int) -> bool:
    """Count a key up or down; true if that added the key or removed it. No key has a count of 0."""
    before = numbers.get(key, 0)
    numbers[key] = now = before + by
    if not now:
        del numbers[key]
    return not (before and now)


# What is set aside


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
                and not (cause.hard and self._is_small(tally))
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
    return sorted(joined, key=lambda one: (-one.condemned / one.devices, one.pool, one.rule))


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
            self._tell()
        return _joined(self._alarms.values())

    async def keep(self) -> NoReturn:
        """Count whenever a view is published, until cancelled."""
        self._keeping = True
        try:
            await self._publisher.keep_looking("breakers", self._follow)
        finally:
            self._keeping = False

    async def _follow(self, _: View) -> None:
        if self._basis == self._publisher.view.basis:
            return
        await run_within(None, self._count_and_judge)
        if self._late:
            self._late = False
            self._publisher.republish()

    def _count_and_judge(self) -> None:
        self._count()
        for breaker in list(self._kept.values()):
            self._late |= breaker.judge()
            pause()
        self._tell()

    def _tell(self) -> None:
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
