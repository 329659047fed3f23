"""Keeps refusals from emptying a cluster: beyond a set share of a pool, a policy may only score.

A pool is all devices of one DRA driver, or all allocatable units of one extended resource. `Census`
counts devices by health, `Breaker` compares that with what one placement refuses, `Alarms` tells
operators, and `Breakers` keeps all of it up to date with the newest view. Stands between view and
verdict. Pure, except for the task that follows views.
"""

import asyncio
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple, NoReturn, TypeVar

import structlog

from fettle.cluster import NodeView, Publisher
from fettle.config import BreakerSettings
from fettle.dra import PoolView
from fettle.model import SOUND, DeviceId, Health, Placement, Policies, Policy, State
from fettle.pacing import pause, run_within
from fettle.scheduling.judge.acceptance import complaint
from fettle.scheduling.judge.units import allocatable_units

_LOG = structlog.get_logger(__name__)

MAX_BREAKERS = 64
"""Bounded: there is one for each placement, and annotations can set any minimum score."""
PAUSE_S = 1.0
"""A pause after an error in counting."""
REFRESH_S = 60.0
"""How often alarms are refreshed while no view is published."""
FORGET_S = 3600.0
"""The alarms of a policy end this long after it last placed a pod."""
CLOSED = "refusals by this policy count again"
FORGOTTEN = "no pod was placed by this policy for an hour, or it was changed or removed"

# What is counted

_Key = TypeVar("_Key")

_LEFT_OUT = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Taints of nodes that are cordoned or lost; the scheduler leaves these out by itself.

Nodes with any other taint count: a taint like `nvidia.com/gpu` is on every node with GPUs, and
their pods tolerate it.
"""
_KEEPS_OFF = ("NoSchedule", "NoExecute")


class Tally(NamedTuple):
    """A pool: its nodes, its devices, and how healthy they are.

    `ranked` has, for each state, the healths other than sound, the worst first, and how many
    devices have one of the first 0, 1, 2... of them. `disputed` are network devices whose health
    differs between nodes: the healths, and how many devices have them. `devices` leaves them out.
    """

    nodes: int
    devices: int
    ranked: tuple[tuple[list[Health], list[int]], ...]
    disputed: tuple[tuple[frozenset[Health], int], ...]

    def share(self, placement: Placement) -> float:
        """The share (0..1) of the devices that a placement refuses.

        A device that it refuses on some nodes and accepts on others counts as two.
        """

        def is_accepted(health: Health) -> bool:
            return complaint(health, placement) is None

        devices, refused = self.devices, 0
        for healths, numbers in self.ranked:  # any health better than an accepted one is accepted
            refused += numbers[bisect_left(healths, True, key=is_accepted)]
        for seen_as, number in self.disputed:
            verdicts = set(map(is_accepted, seen_as))
            devices += number * len(verdicts)
            refused += number * (False in verdicts)
        return refused / devices if devices else 0.0


class _Total:
    """A running `Tally`; `network` counts network devices by the healths that nodes see."""

    def __init__(self) -> None:
        self.nodes = 0
        self.local = 0
        self.unsound: Counter[Health] = Counter()
        self.network: Counter[frozenset[Health]] = Counter()

    def tally(self) -> Tally:
        devices, unsound = self.local, Counter(self.unsound)
        disputed = []
        for seen_as, number in self.network.items():
            if len(seen_as) > 1:
                disputed.append((seen_as, number))
                continue
            devices += number
            (health,) = seen_as
            if health != SOUND:
                unsound[health] += number
        ranked: dict[State, tuple[list[Health], list[int]]] = {}
        for health in sorted(unsound, key=attrgetter("score")):
            healths, numbers = ranked.setdefault(health.state, ([], [0]))
            healths.append(health)
            numbers.append(numbers[-1] + unsound[health])
            pause()
        return Tally(self.nodes, devices, tuple(ranked.values()), tuple(disputed))


class _Local(NamedTuple):
    """A node's own devices of one pool, and the healths of those that are not sound."""

    devices: int
    unsound: tuple[tuple[Health, int], ...]


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

    def __init__(self) -> None:
        self.tallies: Mapping[str, Tally] = {}
        self._clear()

    def _clear(self) -> None:
        self._by_node: dict[str, _Counted] = {}
        self._shared: dict[int, _Shared] = {}
        """By the identity of the record: what nodes share of a pool is counted once for all."""
        self._seen_as: dict[DeviceId, dict[Health, int]] = {}
        """Network devices: in how many records each has which health."""
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
            self._add(counted, 1)
        self._add(before, -1)

    def _add(self, counted: _Counted, sign: int) -> None:
        """Add what a node contributes (sign 1), or take it away (sign -1)."""
        for name, (devices, unsound) in counted.local:
            total = self._totals[name]
            total.nodes += sign
            total.local += sign * devices
            for health, number in unsound:
                _shift(total.unsound, health, sign * number)
            self._touched.add(name)
        for shared in counted.shared:
            before, shared.nodes = shared.nodes, shared.nodes + sign
            if not shared.nodes:
                del self._shared[id(shared.pool)]
            if 0 in (before, shared.nodes):  # the first node that has it, or the last one that did
                self._add_network(shared.pool, sign)

    def _add_network(self, pool: PoolView, sign: int) -> None:
        """Add a record's network devices, or take them away."""
        network = self._totals[pool.driver].network
        for device in pool.devices:
            if device.published.local:
                continue
            seen_as = self._seen_as.setdefault(device.id, {})
            health = _decisive(device.health)
            if _shift(seen_as, health, sign):
                after = frozenset(seen_as)
                for healths, change in ((after ^ {health}, -1), (after, 1)):
                    if healths:
                        _shift(network, healths, change)
            if not seen_as:
                del self._seen_as[device.id]
            pause()

    def _counted(self, node: NodeView) -> _Counted:
        local: dict[str, _Local] = {}
        for resource, plugin in node.plugins.items():
            if plugin.allocatable > 0:
                drawn = allocatable_units(plugin)
                units = (*drawn.named, (node.health, drawn.rest))
                local[resource] = _local(plugin.allocatable, units)
        shared = []
        for pool in node.pools:
            known = self._shared.get(id(pool))
            if known is None:
                own = [d.health for d in pool.devices if d.published.local]
                of_pool = _local(len(own), [(health, 1) for health in own])
                if len(own) < len(pool.devices):
                    known = self._shared[id(pool)] = _Shared(pool, of_pool)
            if known is not None:
                shared.append(known)
                of_pool = known.local
            devices, unsound = local.get(pool.driver, (0, ()))
            local[pool.driver] = _Local(devices + of_pool.devices, unsound + of_pool.unsound)
        return _Counted(tuple(local.items()), tuple(shared))


class Breaker:
    """For one placement, by what a census counted; `open` are the pools where it may not refuse."""

    def __init__(self, placement: Placement, settings: BreakerSettings, census: Census) -> None:
        self.placement = placement
        self._settings = settings
        self._census = census
        self._tallies: Mapping[str, Tally] = {}
        self.open: frozenset[str] = frozenset()

    def judge(self) -> bool:
        """Judge by the newest tallies; true if the set of open pools changed."""
        if self._tallies is self._census.tallies:
            return False
        self._tallies = self._census.tallies
        was_open, self.open = self.open, frozenset(k for k in self._tallies if self._tripped(k))
        return was_open != self.open

    def share(self, pool: str) -> float:
        """The share (0..1) of a pool's devices that this placement refuses."""
        tally = self._tallies.get(pool)
        return tally.share(self.placement) if tally is not None else 0.0

    def _tripped(self, pool: str) -> bool:
        enough_nodes = self._tallies[pool].nodes >= self._settings.min_nodes
        return enough_nodes and self.share(pool) > self._settings.max_excluded_share


def _is_left_out(node: NodeView) -> bool:
    """Whether the scheduler places no pods there anyway: then a refusal takes it from nobody."""
    return any(taint.key in _LEFT_OUT and taint.effect in _KEEPS_OFF for taint in node.taints)


def _local(devices: int, healths: Iterable[tuple[Health, int]]) -> _Local:
    unsound: dict[Health, int] = {}
    for health, number in healths:
        if number and (decisive := _decisive(health)) is not SOUND:
            _shift(unsound, decisive, number)
    return _Local(devices, tuple(unsound.items()))


def _decisive(health: Health) -> Health:
    """The part of a health that refusals depend on, so that many devices count together."""
    # An operator means what they hold: a hold neither counts here nor is overruled.
    return SOUND if health is SOUND or health.held else Health(health.proven, health.state)


def _shift(numbers: dict[_Key, int], key: _Key, by: int) -> bool:
    """Count a key up or down; true if that added the key or removed it. No key has a count of 0."""
    before = numbers.get(key, 0)
    numbers[key] = now = before + by
    if not now:
        del numbers[key]
    return not (before and now)


# What operators are told


class Alarm(NamedTuple):
    """Refusals by a policy are off, since they would exclude this share (0..1) of a pool."""

    policy: str
    pool: str
    share: float


class Alarms:
    """The alarms that operators see, by what a census counted; `clock` is in seconds.

    `on_change` is called with each alarm and "" when it begins, and with the reason when it ends.
    Alarms are only for policies as administrators wrote them, and that placed pods lately. Breakers
    open for other placements too, as for a pod with its own minimum score; explanations show that.
    """

    def __init__(
        self,
        publisher: Publisher,
        settings: BreakerSettings,
        census: Census,
        policies: Policies,
        on_change: Callable[[Alarm, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._publisher = publisher
        self._settings = settings
        self._census = census
        self._policies = policies
        self._on_change = on_change
        self._clock = clock
        self._breakers: dict[str, Breaker] = {}
        """By the name of the policy."""
        self._placed_at: dict[str, float] = {}

    def placed_by(self, policy: Policy) -> None:
        """Note that this policy, maybe changed by annotations of the pod, placed a pod."""
        name, placement = policy.name, policy.placement
        if placement != self._placement(name):
            return
        breaker = self._breakers.get(name)
        if breaker is None or breaker.placement != placement:
            self._forget(name)
            self._breakers[name] = Breaker(placement, self._settings, self._census)
        self._placed_at[name] = self._clock()
        self._judge(name)

    def refresh(self) -> None:
        """Begin and end alarms by the newest tallies."""
        for name in list(self._breakers):
            too_long = self._clock() - self._placed_at[name] > FORGET_S
            if too_long or self._breakers[name].placement != self._placement(name):
                self._forget(name)
            else:
                self._judge(name)
            pause()

    def notes(self) -> list[str]:
        """A sentence about each alarm, for people."""
        return [
            self._describe(alarm) for name in sorted(self._breakers) for alarm in self._of(name)
        ]

    def _describe(self, alarm: Alarm) -> str:
        limit = self._settings.max_excluded_share
        return (
            f"breaker open: refusals by policy {alarm.policy} are off for {alarm.pool}, since they "
            f"would exclude {_percent(alarm.share)} of it (breaker.maxExcludedShare: "
            f"{_percent(limit)}), so its pods may get unsound devices; `fettle devices` shows what "
            "is wrong with them"
        )

    def _of(self, name: str) -> Iterator[Alarm]:
        breaker = self._breakers[name]
        for pool in sorted(breaker.open):
            yield Alarm(name, pool, breaker.share(pool))

    def _judge(self, name: str) -> None:
        """Report where a policy's breaker opens or closes by the newest tallies."""
        breaker = self._breakers[name]
        before = breaker.open
        if breaker.judge():
            for pool in sorted(before ^ breaker.open):
                reason = "" if pool in breaker.open else CLOSED
                self._on_change(Alarm(name, pool, breaker.share(pool)), reason)

    def _forget(self, name: str) -> None:
        if name in self._breakers:
            for alarm in self._of(name):
                self._on_change(alarm, FORGOTTEN)
            del self._breakers[name], self._placed_at[name]

    def _placement(self, name: str) -> Placement | None:
        """The placement of the policy of that name now; None if there is none."""
        policy, _ = self._policies.find(name, self._publisher.view.policies)
        return policy.placement if policy is not None else None


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


# Up to date with views


class Breakers:
    """The breakers of placements that were asked for lately, up to date with the newest view.

    While `keep` runs, nodes are counted in time slices after a view is published, and requests are
    answered by the counts of before. So a breaker may open or close some milliseconds late; then
    the view is published once more, and whatever was answered meanwhile is answered anew.
    `on_change` and `clock` are as for `Alarms`.
    """

    def __init__(
        self,
        publisher: Publisher,
        settings: BreakerSettings,
        policies: Policies,
        on_change: Callable[[Alarm, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._publisher = publisher
        self._settings = settings
        self._census = Census()
        self.alarms = Alarms(publisher, settings, self._census, policies, on_change, clock)
        self._basis = -1
        """The basis of the view that was counted last; -1: none."""
        self._keeping = False
        self._kept: OrderedDict[Placement, Breaker] = OrderedDict()
        """The one asked for last comes last."""
        self._late = False
        """Whether a breaker opened, closed or was forgotten since a view was published for that."""

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

    async def keep(self) -> NoReturn:
        """Count whenever a view is published, until cancelled."""
        # Alarms must not depend on whether a pod asks.
        generation = 0
        self._keeping = True
        try:
            while True:
                until = asyncio.get_running_loop().time() + REFRESH_S
                generation = (await self._publisher.newer_than(generation, until)).generation
                try:
                    await self._follow()
                    await run_within(None, self.alarms.refresh)
                except Exception:
                    _LOG.exception("breakers cannot be counted")
                    await asyncio.sleep(PAUSE_S)
        finally:
            self._keeping = False

    async def _follow(self) -> None:
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
