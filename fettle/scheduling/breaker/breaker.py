"""Keeps refusals from emptying a cluster: beyond a set share of a pool, a policy may only score.

A pool is all devices of one DRA driver, or all allocatable units of one extended resource. They are
counted by health, once for all placements, and again only where a node changed; a placement then
looks up how many of them it refuses. A device of the network counts once, however many nodes see
it, and what nodes share of a pool is walked once for all of them. Nodes that the scheduler leaves
out by itself do not count: a refusal takes them from nobody. Pure.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple, TypeVar

from fettle.cluster import NodeView
from fettle.config import BreakerSettings
from fettle.dra import PoolView
from fettle.model import SOUND, DeviceId, Health, Placement, State
from fettle.pacing import pause
from fettle.scheduling.judge import draws
from fettle.scheduling.judge.acceptance import complaint

_Key = TypeVar("_Key")

_LEFT_OUT = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Taints of nodes that are cordoned or lost. With any other a node counts: one like
`nvidia.com/gpu` is on every node with GPUs, and tolerated by their pods."""
_KEEPS_OFF = ("NoSchedule", "NoExecute")


class Tally(NamedTuple):
    """A pool: on how many nodes it is, how many devices it has there, and how healthy they are.

    `ranked` has, for each state, the healths other than sound, worst first, and how many devices
    are among the first 0, 1, 2... of them. `disputed` are devices of the network that nodes see
    differently, not in `devices`: how they are seen, and how many are seen so.
    """

    nodes: int
    devices: int
    ranked: tuple[tuple[list[Health], list[int]], ...]
    disputed: tuple[tuple[frozenset[Health], int], ...]

    def share(self, placement: Placement) -> float:
        """The share (0..1) of the devices that a placement refuses. A device that it refuses as
        some nodes see it, and not as others do, counts as two."""

        def is_accepted(health: Health) -> bool:
            return complaint(health, placement) is None

        devices, refused = self.devices, 0
        for healths, numbers in self.ranked:  # what is accepted, is so in any better health
            refused += numbers[bisect_left(healths, True, key=is_accepted)]
        for seen_as, number in self.disputed:
            verdicts = set(map(is_accepted, seen_as))
            devices += number * len(verdicts)
            refused += number * (False in verdicts)
        return refused / devices if devices else 0.0


class _Total:
    """A running `Tally`. `network` has the devices of the network, by how nodes see them."""

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
    """Devices of one pool that are a node's own, and the healths of those that are not sound."""

    devices: int
    unsound: tuple[tuple[Health, int], ...]


class _Shared:
    """A record of a pool with devices of the network, and how many nodes have it."""

    def __init__(self, pool: PoolView, local: _Local) -> None:
        self.pool = pool
        self.local = local
        self.nodes = 0


class _Counted(NamedTuple):
    """What counts of a node: by pool its own, and records that it may share."""

    local: tuple[tuple[str, _Local], ...]
    shared: tuple[_Shared, ...]


_NONE = _Counted((), ())


class Census:
    """The devices of all nodes, but those left out, by health; `tallies` are by pool, as the last
    `update` left them."""

    def __init__(self) -> None:
        self.tallies: Mapping[str, Tally] = {}
        self._clear()

    def _clear(self) -> None:
        self._by_node: dict[str, _Counted] = {}
        self._shared: dict[int, _Shared] = {}
        """By the identity of the record."""
        self._seen_as: dict[DeviceId, dict[Health, int]] = {}
        """Devices of the network: in how many records each has which health."""
        self._totals: dict[str, _Total] = defaultdict(_Total)
        self._touched: set[str] = set(self.tallies)

    @property
    def nodes(self) -> Collection[str]:
        """The names of those that count."""
        return self._by_node.keys()

    def update(self, names: Iterable[str], nodes: Mapping[str, NodeView]) -> None:
        """Count these nodes again; those not among `nodes` are gone. Pauses between two of them.

        If it is left in the middle, no node is counted, and the tallies are those of before.
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
        """Add what a node counts (1), or take it away (-1)."""
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
                self._see(shared.pool, sign)

    def _see(self, pool: PoolView, sign: int) -> None:
        """Add a record's devices of the network, or take them away."""
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
                drawn = draws.allocatable(plugin)
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
    """For one placement, over what a census counted; `open` names the pools where it may not
    refuse."""

    def __init__(self, placement: Placement, settings: BreakerSettings, census: Census) -> None:
        self.placement = placement
        self._settings = settings
        self._census = census
        self._tallies: Mapping[str, Tally] = {}
        self.open: frozenset[str] = frozenset()

    def judge(self) -> bool:
        """Go by what is counted now; true if the set of open pools changed by it."""
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
    """Whether the scheduler places no pods there, whatever Fettle says."""
    return any(taint.key in _LEFT_OUT and taint.effect in _KEEPS_OFF for taint in node.taints)


def _local(devices: int, healths: Iterable[tuple[Health, int]]) -> _Local:
    unsound: dict[Health, int] = {}
    for health, number in healths:
        if number and (decisive := _decisive(health)) is not SOUND:
            _shift(unsound, decisive, number)
    return _Local(devices, tuple(unsound.items()))


def _decisive(health: Health) -> Health:
    """What a refusal depends on, so that many are the same. An operator's hold is meant: it neither
    counts here nor is overruled."""
    return SOUND if health is SOUND or health.held else Health(health.proven, health.state)


def _shift(numbers: dict[_Key, int], key: _Key, by: int) -> bool:
    """Count a key up or down; true if it is there since, or no more: one of zero is not kept."""
    before = numbers.get(key, 0)
    numbers[key] = now = before + by
    if not now:
        del numbers[key]
    return not (before and now)
