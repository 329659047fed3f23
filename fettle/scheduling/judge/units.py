"""Units of device plugins: which ones a pod may be given, what they are worth, how many are taken.

Nobody chooses units: the draw is random over all that are free. Units that the device plugin has
withdrawn are never drawn. Verdicts, the breaker and metrics all count by this module. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import exp, lgamma
from typing import NamedTuple

from fettle.api import core
from fettle.cluster import NodeView, PluginView, UnitView
from fettle.dra import device_units
from fettle.health import gpu_names
from fettle.model import BAD_STATES, Health, reasons
from fettle.model.reasons import Reason
from fettle.pacing import pause
from fettle.scheduling.demand import Demand, Units
from fettle.scheduling.judge.acceptance import Acceptance, complaint
from fettle.scheduling.judge.parts import UNDECIDED_VALUE, Part, leftover_units
from fettle.scheduling.judge.scores import value_of_draw

# Draws


class Draw(NamedTuple):
    """The units that a pod may be given.

    `named` are units with evidence, the worst first, as health and count. `rest` counts the others,
    which are as healthy as their node.
    """

    named: tuple[tuple[Health, int], ...]
    rest: int

    @property
    def size(self) -> int:
        return self.rest + sum(number for _, number in self.named)


def allocatable_units(plugin: PluginView) -> Draw:
    """All units that may be allocated, in use or not."""
    return _draw([(u.health, u.left) for u in _distinct(plugin.units)], plugin.allocatable)


def free_units(plugin: PluginView, least: int) -> Draw:
    """The units that are not known to be in use. The scheduler has found at least `least` free."""
    # Only a pod's status names the units in use. Where it does not, a random part of the units is
    # free, and a draw from a random part is a draw from the whole.
    used = plugin.others_held + sum(min(unit.left, unit.allocated) for unit in plugin.units)
    units = _distinct(plugin.units)
    if plugin.allocatable - used < least:
        # A pod has ended that seems to hold units still. It may have held any of them.
        return _draw([(unit.health, unit.left) for unit in units], least)
    unused = [(unit.health, max(0, unit.left - unit.allocated)) for unit in units]
    return _draw(unused, plugin.allocatable - used)


def _distinct(units: tuple[UnitView, ...]) -> Sequence[UnitView]:
    """The units, without those that may be another one of them: one source names a GPU by its index
    alone, another one by its UUID, and nothing tells whether these are one. The worse counts."""
    by_index = [unit for unit in units if gpu_names.is_index(unit.unit)]
    if not by_index:
        return units
    by_uuid = [
        unit
        for unit in units
        if not any(map(gpu_names.is_index, (unit.unit, *unit.others)))
        and not unit.unit.startswith("MIG-")
    ]
    pairs = zip(sorted(by_index, key=_score), sorted(by_uuid, key=_score), strict=False)
    same = {id(max(pair, key=_score)) for pair in pairs}
    return [unit for unit in units if id(unit) not in same]


def _score(unit: UnitView) -> float:
    return unit.health.score


def _draw(units: list[tuple[Health, int]], size: int) -> Draw:
    """A draw of `size` units, of which these are named; if they are more, the worst ones count."""
    named = []
    rest = size
    for health, number in sorted(units, key=lambda unit: unit[0].score):
        if number := min(number, rest):
            named.append((health, number))
            rest -= number
    return Draw(tuple(named), rest)


# Verdicts


def units_part(
    units: Units, plugin: PluginView, node: NodeView, acceptance: Acceptance, *, emptied: bool
) -> Part:
    """What the units that a pod asks for are worth on the node; `emptied`: none is in use."""
    placement = acceptance.placement
    part = Part(frozenset((units.resource,)), notes=_withdrawn(plugin))
    if plugin.allocatable < units.count:
        part.value = UNDECIDED_VALUE * node.health.score
        part.rejected.append(too_few(units, plugin))
        return part
    drawn = allocatable_units(plugin) if emptied else free_units(plugin, units.count)
    healths = [*drawn.named, *([(node.health, drawn.rest)] if drawn.rest else [])]
    tally = _tally((health.score, number) for health, number in healths)
    part.value = value_of_draw(tally, units.count, placement.aggregate)
    part.may_be_bad = any(health.shown_state in BAD_STATES for health, _ in healths)
    left = healths
    if not all(acceptance.accepts(health) for health, _ in healths):
        left = [(acceptance.refuses_by(health, units.resource), n) for health, n in healths]
        part.risk = _risk(units.count, left, acceptance)
    if why := _refusal(units, healths, acceptance):
        still = _refusal(units, left, acceptance)
        if still is not None:
            part.refusals.append(still)
        else:
            part.overruled.append(why)
    part.leftover = leftover_units(plugin, (health for health, _ in healths))
    return part


def too_few(units: Units, plugin: PluginView) -> reasons.NotEnoughUnits:
    return reasons.NotEnoughUnits(
        units.resource, plugin.allocatable, units.count, plugin.capacity, plugin.fewer
    )


def _refusal(
    units: Units, healths: Sequence[tuple[Health, int]], acceptance: Acceptance
) -> Reason | None:
    """Why the policy refuses a draw from units of these healths; None if it does not."""
    placement = acceptance.placement
    size = sum(number for _, number in healths)
    refused = [(health, number) for health, number in healths if not acceptance.accepts(health)]
    sound = size - sum(number for _, number in refused)
    if sound < units.count:
        worst = min((health for health, _ in refused), key=lambda h: h.proven)
        found = complaint(worst, placement)
        assert found is not None
        return reasons.TooFewAcceptableUnits(
            units.resource, sound, size, units.count, found, worst, placement.min_score
        )
    tally = _tally((acceptance.counted(health), number) for health, number in healths)
    counted = value_of_draw(tally, units.count, placement.aggregate)
    if counted < placement.min_score:
        worst = min((health for health, _ in healths), key=lambda h: h.proven)
        return reasons.UnitsWorthTooLittle(
            units.resource, units.count, size, counted, placement.min_score, worst
        )
    if (risk := _risk(units.count, healths, acceptance)) > placement.risk_bound:
        worst = min((health for health, _ in refused), key=lambda h: h.proven)
        return reasons.RiskTooHigh(
            units.resource, sound, size, units.count, risk, placement.risk_bound, worst
        )
    return None


def _risk(count: int, healths: Sequence[tuple[Health, int]], acceptance: Acceptance) -> float:
    """The chance that a draw of so many has a unit that the policy does not accept."""
    size = sum(number for _, number in healths)
    sound = sum(number for health, number in healths if acceptance.accepts(health))
    if sound == size:
        return 0.0
    return 1.0 - exp(_ways(sound, count) - _ways(size, count)) if sound >= count else 1.0


def _ways(size: int, count: int) -> float:
    """The logarithm of how many draws there are; a resource may have billions of units."""
    return lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)


def _withdrawn(plugin: PluginView) -> list[Reason]:
    """A note about withdrawn units, if some of them are known by name."""
    named = tuple(unit.unit for unit in plugin.units if unit.withdrawn)
    if not named:
        return []
    known = sum(unit.withdrawn for unit in plugin.units)
    return [
        reasons.UnitsWithdrawn(
            plugin.resource,
            plugin.withdrawn,
            plugin.capacity,
            named,
            known,
            plugin.counts_withdrawn,
        )
    ]


def _tally(units: Iterable[tuple[float, int]]) -> dict[float, int]:
    """How many units have each score."""
    tally: Counter[float] = Counter()
    for score, number in units:
        tally[score] += number
    return tally


# Units that pods have taken, as the scheduler counts them. Verdicts leave them out: records of
# nodes do not follow each binding, which would make verdicts stale again and again, and the
# scheduler asks only about nodes that have enough. Whoever looks at all nodes counts them here.

Taken = Mapping[tuple[str, str], Mapping[int, int]]
"""By node and resource: how many units pods of each priority have taken."""


def count_taken(pods: Iterable[core.Pod]) -> Taken:
    """How many units these pods have taken."""
    taken: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for pod in pods:
        if pod.node_name and not pod.terminal:
            for resource, count in device_units(pod):
                taken[pod.node_name, resource][pod.priority] += count
        pause()
    return dict(taken)


def lacking_units(
    demand: Demand, node: NodeView, taken: Taken, *, preemptor: core.Pod | None = None
) -> Iterator[reasons.UnitsTaken]:
    """The reasons why too few units are free on the node, though it has enough in all.

    Units of pods that a `preemptor` may evict count as free.
    """
    for units in demand.units:
        plugin = node.plugins.get(units.resource)
        if plugin is None or plugin.allocatable < units.count:
            continue
        number = sum(
            count
            for level, count in taken.get((node.name, units.resource), {}).items()
            if preemptor is None or level >= preemptor.priority
        )
        if plugin.allocatable - number < units.count:
            yield reasons.UnitsTaken(units.resource, number, plugin.allocatable, units.count)


def nodes_lacking_units(
    demand: Demand, nodes: Iterable[NodeView], taken: Taken, *, preemptor: core.Pod | None = None
) -> frozenset[str]:
    """The names of the nodes where too few units are free; see `lacking_units`."""
    found = []
    for node in nodes:
        if any(lacking_units(demand, node, taken, preemptor=preemptor)):
            found.append(node.name)
        pause()
    return frozenset(found)
