"""How healthy nodes are as a whole, for those who place pods by nodes alone; and which nodes are to
be cordoned, also for devices that they have lost. Pure.

Stands between health and what the steward writes. As with taints, only states count. What the
breaker has set aside counts, too, but begins no cordon.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import ceil, inf
from typing import NamedTuple

import msgspec

from fettle.cluster import NodeView, PluginView, Shortage
from fettle.config import BreakerSettings, NodeMarkSettings
from fettle.model import (
    BAD_STATES,
    LEFT_ALONE,
    NO_FAULTS,
    SOUND,
    Evidence,
    Health,
    SourceKind,
    State,
    Tier,
)
from fettle.pacing import pause
from fettle.scheduling.answers import Answers, accepted_by_state
from fettle.scheduling.breaker import FEWEST
from fettle.scheduling.judge.acceptance import Acceptance, SetAside

_ECHOES = frozenset(
    (
        "nvsentinel-quarantined",
        "nvsentinel-draining",
        "nvsentinel-remediating",
        "nvsentinel-remediation-failed",
        "nvsentinel-gpus-missing",
        "nvsentinel-nics-missing",
    )
)
"""Rules of labels by which NVSentinel says what it finds and does about a node. If it does that
because of our condition, and we believed it for that, neither would ever end."""
_ORDER = [*Tier]
_BADNESS = {State.HEALTHY: 0, State.UNKNOWN: 1, State.DEGRADED: 2, State.UNHEALTHY: 3}


class UnsoundDevice(NamedTuple):
    """A device that is not Healthy. `name`: "" for units that nothing names; then `number` is how
    many there are. `pool`: its driver or resource."""

    pool: str
    name: str
    health: Health
    number: int = 1


class NodeHealth(NamedTuple):
    """What counts of the health of a node's own devices.

    - `state`: Unhealthy if every device of some driver or resource is, else Degraded if any device
      is Degraded or Unhealthy, else Unknown if one is that.
    - `devices`: how many there are, `pools`: of which drivers and resources. `bad`: those that are
      not Healthy, the worst first. `lowered`: the least score of the others by what tenants could
      cause, which changes no state. `suspected`: how many of these are Degraded by the word of
      tenants; `corroborated`: of several namespaces.
    - `proven`: its tier by what no breaker sets aside and no tenant could cause. `units`: the same
      by extended resource, of the units that the node still offers.
    - `missing`: what it has fewer of than expected. That is no state of what is there; `pools` has
      its names, too.
    - `since_any`, `since_every`: from when it was Unhealthy in part and as a whole, in Unix
      seconds. `acted_on`: these two by what no breaker sets aside.
    """

    state: State
    devices: int
    pools: frozenset[str]
    bad: tuple[UnsoundDevice, ...] = ()
    lowered: float = 1.0
    suspected: int = 0
    corroborated: bool = False
    since_any: float = inf
    since_every: float = inf
    acted_on: tuple[float, float] = (inf, inf)
    proven: Tier = Tier.HEALTHY
    units: Mapping[str, Tier] = {}
    missing: tuple[Shortage, ...] = ()

    @property
    def tier(self) -> State:
        """The state for who chooses nodes by it: what several namespaces suspect counts, too."""
        is_worse = self.corroborated and self.state is not State.UNHEALTHY
        return State.DEGRADED if is_worse else self.state

    @property
    def score(self) -> float:
        """That of the worst device."""
        return self.bad[0].health.score if self.bad else self.lowered

    @property
    def unhealthy(self) -> tuple[UnsoundDevice, ...]:
        return tuple(one for one in self.bad if one.health.state is State.UNHEALTHY)


class NodeHealths:
    """The healths of all nodes with devices, kept up to date: what Fettle says of them, whatever is
    set aside. `of_hardware`: without what operators and remediation say and what is planned, which
    are no faults to act on."""

    def __init__(self, answers: Answers, *, of_hardware: bool = False) -> None:
        self._answers = answers
        self._of_hardware = of_hardware
        self._set_aside: list[SetAside] = []
        self._known: dict[str, tuple[NodeView, NodeHealth | None]] = {}

    def look(self, nodes: Mapping[str, NodeView]) -> Mapping[str, NodeHealth] | None:
        """By name. None while the devices are not counted yet. It pauses."""
        accepted = accepted_by_state(self._answers)
        if accepted is None:
            return None
        set_aside = [one.set_aside for one in accepted.values()]
        known = self._known if set_aside == self._set_aside else {}
        self._set_aside, self._known = set_aside, {}
        found = {}
        for name, node in nodes.items():
            before = known.get(name)
            if before is not None and before[0] is node:
                health = before[1]
            else:
                health = node_health(node, accepted, of_hardware=self._of_hardware)
            self._known[name] = node, health
            if health is not None:
                found[name] = health
            pause()
        return found


def node_health(
    node: NodeView, accepted: Mapping[State, Acceptance], *, of_hardware: bool = False
) -> NodeHealth | None:
    """`accepted` knows, for each state, what is set aside for those that refuse it. None for a node
    that has no devices of its own, and should have none."""
    total = Counter[str]()
    bad, acted_on, lowered, suspected, corroborated = [], [], 1.0, 0, False
    tiers = {Tier.HEALTHY}
    for one in _devices(node):
        total[one.pool] += one.number
        if one.health is SOUND:  # all devices share it of which nobody says anything: most
            continue
        said = _without_words(one.health, accepted) if of_hardware else one.health
        if said.state is not State.HEALTHY:
            bad.append(one._replace(health=said))
            acted_on.append(one._replace(health=_refused(one.pool, said, accepted)))
            tiers.add(_proven_tier(one.pool, said, accepted))
        elif one.health.tenant_caused:
            lowered = min(lowered, one.health.score)
            suspected += one.number if one.health.suspected else 0
            corroborated |= one.health.is_corroborated
    if not total and not node.missing:
        return None
    pools = frozenset((*total, *(one.name for one in node.missing)))
    units = {
        resource: offered
        for resource, plugin in node.plugins.items()
        if (offered := _offered(plugin, node.health, accepted)) is not None
    }
    if not bad:
        return NodeHealth(
            State.HEALTHY,
            total.total(),
            pools,
            (),
            lowered,
            suspected,
            corroborated,
            units=units,
            missing=node.missing,
        )
    bad.sort(key=lambda one: (-_BADNESS[one.health.state], one.health.score, one.pool, one.name))
    since_any, since_every = _unhealthy_since(bad, total)
    worst = bad[0].health.state
    acted_on_since = _unhealthy_since(acted_on, total)
    # One bad device makes a node Degraded at most: pods may use the others.
    proven = min(_worst(tiers), Tier.DEGRADED, key=_ORDER.index)
    if acted_on_since[1] < inf:
        proven = Tier.UNHEALTHY
    state = State.UNHEALTHY if since_every < inf else State.UNKNOWN
    if since_every == inf and worst is not State.UNKNOWN:
        state = State.DEGRADED
    return NodeHealth(
        state,
        total.total(),
        pools,
        tuple(bad),
        lowered,
        suspected,
        corroborated,
        since_any,
        since_every,
        acted_on_since,
        proven,
        units,
        node.missing,
    )


def _offered(
    plugin: PluginView, of_others: Health, accepted: Mapping[State, Acceptance]
) -> Tier | None:
    """What the units of a resource are together that may still be given to pods; None if there are
    none. `of_others`: the health of those that nothing names."""
    left = [(unit.health, unit.left) for unit in plugin.units if unit.left > 0]
    others = plugin.allocatable - sum(number for _, number in left)
    if others > 0:
        left.append((of_others, others))
    tiers = {_proven_tier(plugin.resource, health, accepted) for health, _ in left}
    if len(tiers) > 1 and Tier.UNHEALTHY in tiers:
        return Tier.PARTLY_UNHEALTHY
    return _worst(tiers) if tiers else None


def _worst(tiers: Iterable[Tier]) -> Tier:
    return max(tiers, key=_ORDER.index)


def _proven_tier(pool: str, health: Health, accepted: Mapping[State, Acceptance]) -> Tier:
    """A state by what no breaker sets aside for those that refuse it."""
    if accepted[State.UNHEALTHY].refuses_by(health, pool).state is State.UNHEALTHY:
        return Tier.UNHEALTHY
    if accepted[State.DEGRADED].refuses_by(health, pool).state in BAD_STATES:
        return Tier.DEGRADED
    return Tier.UNKNOWN if health.state is State.UNKNOWN else Tier.HEALTHY


def _unhealthy_since(
    devices: Iterable[UnsoundDevice], total: Mapping[str, int]
) -> tuple[float, float]:
    """From when one of these was Unhealthy, and from when all devices of a pool were."""
    number, last, first = Counter[str](), dict[str, float](), inf
    for one in devices:
        if one.health.state is State.UNHEALTHY:
            number[one.pool] += one.number
            last[one.pool] = max(one.health.since, last.get(one.pool, one.health.since))
            first = min(first, one.health.since)
    spoiled = (since for pool, since in last.items() if number[pool] == total[pool])
    return first, min(spoiled, default=inf)


def devices_by_state(node: NodeView) -> Counter[State]:
    """How many devices a node has in each state, as people are told it."""
    found = Counter[State]()
    for one in _devices(node):
        found[one.health.shown_state] += one.number
    return found


def _devices(node: NodeView) -> Iterator[UnsoundDevice]:
    """All of its devices, whatever their health."""
    for pool in node.pools:
        for device in chain(pool.devices, pool.withheld):
            if device.published.local:
                yield UnsoundDevice(pool.driver, device.id.device, device.health)
    for plugin in node.plugins.values():
        for unit in plugin.units:
            yield UnsoundDevice(plugin.resource, unit.unit, unit.health, unit.count)
        if (rest := plugin.capacity - sum(unit.count for unit in plugin.units)) > 0:
            yield UnsoundDevice(plugin.resource, "", node.health, rest)


def _without_words(health: Health, accepted: Mapping[State, Acceptance]) -> Health:
    """Without what operators and remediation say and what is planned; it is not known since when,
    but surely no longer than by all."""
    left = accepted[State.UNHEALTHY].without(health, _is_no_fault)
    return msgspec.structs.replace(left, since=health.since)


def _refused(pool: str, health: Health, accepted: Mapping[State, Acceptance]) -> Health:
    """What no breaker sets aside, since when it was as bad."""
    left = accepted[State.UNHEALTHY].refuses_by(health, pool)
    return msgspec.structs.replace(left, since=health.since)


def _is_no_fault(evidence: Evidence) -> bool:
    source = evidence.source
    is_echo = source.kind is SourceKind.LABEL and source.name in _ECHOES
    return evidence.family in NO_FAULTS or is_echo


# Lost devices


class LostDevices(NamedTuple):
    """The devices that nodes have lost.

    - `nodes`: all of them, by node. `set_aside`: by driver or resource of which too many nodes lack
      devices, how many do, and how many nodes there are. `due`: when more will be lost, in Unix
      seconds.
    """

    nodes: Mapping[str, tuple[Shortage, ...]] = {}
    set_aside: Mapping[str, tuple[int, int]] = {}
    due: float = inf

    def acted_on(self, name: str) -> tuple[Shortage, ...]:
        """Those by which something may be begun at a node."""
        return tuple(one for one in self.nodes.get(name, ()) if one.name not in self.set_aside)


NOTHING_LOST = LostDevices()


def lost_devices(
    healths: Mapping[str, NodeHealth], settings: BreakerSettings, now: float
) -> LostDevices:
    """What is lost by now. Where several nodes of a pool lack devices, and more than the breaker's
    share of them, it is likelier that too many are expected: who repairs nodes by that would take
    down all of them."""
    lost, of_pool, lacking, due = {}, Counter[str](), Counter[str](), inf
    for name, health in healths.items():
        of_pool.update(health.pools)
        if health.missing:
            due = min(due, *(one.lost_at for one in health.missing if one.lost_at > now), inf)
            if found := tuple(one for one in health.missing if one.lost_at <= now):
                lost[name] = found
                lacking.update({one.name for one in found})
        pause()
    set_aside = {
        pool: (number, of_pool[pool])
        for pool, number in lacking.items()
        if number >= FEWEST and number > settings.max_excluded_share * of_pool[pool]
    }
    return LostDevices(lost, set_aside, due)


# Cordons


class Cordons(NamedTuple):
    """`nodes`: those that are to be cordoned by us, by name. `over`: how many more are as bad, for
    which the budget is too small. `due`: before this time (Unix seconds), time changes nothing."""

    nodes: Mapping[str, NodeHealth]
    over: int = 0
    due: float = inf
    left: frozenset[str] = frozenset()


def plan_cordons(
    nodes: Mapping[str, NodeView],
    healths: Mapping[str, NodeHealth],
    settings: NodeMarkSettings,
    now: float,
    lost: LostDevices = NOTHING_LOST,
) -> Cordons:
    """Those that we have cordoned stay so while they are bad, within the budget; others come after
    them, those first that have been bad for longest. A node that somebody else has cordoned, or
    uncordoned after us, is left alone, and an uncordoned one takes nothing of the budget."""
    if settings.cordon is None:
        return Cordons({})
    every = settings.cordon == "EveryDevice"
    left: set[str] = set()
    ours: list[tuple[float, str]] = []
    new: list[tuple[float, str]] = []
    of_pool, cordoned = Counter[str](), Counter[str]()
    kept_off = 0
    due = inf
    for name, health in healths.items():
        node = nodes[name]
        of_pool.update(health.pools)
        gone, acted_on = lost.nodes.get(name, ()), lost.acted_on(name)
        since = min(health.since_every if every else health.since_any, _lost_since(gone, every))
        is_bad = since < inf
        may_be_new = min(health.acted_on[every], _lost_since(acted_on, every)) < inf
        is_left = node.marks.cordon == LEFT_ALONE
        if node.marks.cordon and is_bad and node.unschedulable and not is_left:
            ours.append((since, name))
        elif node.marks.cordon and is_bad and not node.unschedulable:
            left.add(name)
        elif node.unschedulable:  # by somebody else, or still by us
            if is_left and is_bad:
                left.add(name)
            kept_off += 1
            cordoned.update(health.pools)
        elif not may_be_new:  # a breaker sets aside why it is bad, so nothing is begun
            pass
        elif is_bad and since + settings.confirm_seconds > now:
            due = min(due, since + settings.confirm_seconds)
        elif is_bad:
            new.append((since, name))
        pause()
    budget = _Budget(settings, of_pool)
    granted = [name for _, name in sorted(ours) if budget.grants(healths[name].pools)]
    budget.take(kept_off, cordoned)
    granted += [name for _, name in sorted(new) if budget.grants(healths[name].pools)]
    over = len(ours) + len(new) - len(granted)
    return Cordons({name: healths[name] for name in granted}, over, due, frozenset(left))


def _lost_since(lost: Iterable[Shortage], every: bool) -> float:
    """From when on a device was lost, or every one of a driver or resource, in Unix seconds."""
    return min((one.lost_at for one in lost if not every or not one.found), default=inf)


class _Budget:
    """How many nodes may be cordoned, in all and of each pool."""

    def __init__(self, settings: NodeMarkSettings, of_pool: Mapping[str, int]) -> None:
        self._left = settings.max_cordoned
        self._left_of = {
            pool: ceil(number * settings.max_cordoned_share) for pool, number in of_pool.items()
        }

    def take(self, number: int, of_pool: Mapping[str, int]) -> None:
        self._left -= number
        for pool, each in of_pool.items():
            self._left_of[pool] -= each

    def grants(self, pools: Iterable[str]) -> bool:
        """Whether there is room for one more node, which is taken then."""
        if self._left <= 0 or any(self._left_of[pool] <= 0 for pool in pools):
            return False
        self.take(1, dict.fromkeys(pools, 1))
        return True
