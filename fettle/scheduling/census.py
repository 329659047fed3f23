"""How much of each pool each cause alone condemns, counted node by node as views change.

A pool is all devices of one DRA driver, or all allocatable units of one extended resource. Capacity
is the word of each kubelet, so a node counts as two ordinary nodes at most. The breaker compares
the tallies with its limits. Pure.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from fettle.cluster import NodeView
from fettle.config import HealthSettings
from fettle.dra import PoolView
from fettle.model import BAD_STATES, DeviceId, Health, Placement, State
from fettle.pacing import pause
from fettle.scheduling.judge.acceptance import Cause, Causes, by_cause, complaint, onsets
from fettle.scheduling.judge.units import allocatable_units

MOST_OF_MEDIAN = 2
"""A node counts as so many times the median node of its pool, at most."""
BURST_S = 600.0
"""What a cause condemns within this time counts as one burst."""

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
    for (cause, health), number in sorted(condemned.items(), key=lambda each: each[0][1].proven):
        of_state = found[cause]
        if (ranked := of_state.get(health.state)) is None:
            ranked = of_state[health.state] = Ranked([], [0])
        ranked.healths.append(health)
        ranked.numbers.append(ranked.numbers[-1] + number)
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
