"""What one part of an ask says of a node: the node itself, or device-plugin units on it. Pure."""

from collections import Counter
from collections.abc import Iterable
from functools import partial

import msgspec

from fettle.cluster import NodeView, PluginView
from fettle.model import DeviceId, Health, TaintRef, reasons
from fettle.model.reasons import Reason
from fettle.scheduling.demand import Units
from fettle.scheduling.judge import draws, ranking
from fettle.scheduling.judge.acceptance import Acceptance, complaint, node_refusal
from fettle.scheduling.judge.requirements import Met

UNDECIDED_VALUE = 0.5
"""What a node is worth, times its own score, where its devices cannot be told."""


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One device a pod would get: `request` is the DRA request it would satisfy.

    `health` is the device's without what the request tolerates, which is `tolerated`; `met` says
    what the policy requires of it in vain. With `admin_access` its health counts for nothing: who
    watches a device or clears its fault gets to it whatever is wrong with it.
    """

    request: str
    device: DeviceId
    health: Health
    tolerated: tuple[TaintRef, ...] = ()
    met: Met = Met()
    admin_access: bool = False

    def is_acceptable(self, acceptance: Acceptance) -> bool:
        """Whether its health is."""
        return self.admin_access or acceptance.accepts(self.health)


class Part(msgspec.Struct, gc=False):
    """What one part of an ask says of a node; `keys` are the drivers or the resource concerned.

    `required` are refusals that no breaker overrules: they are for what the policy requires.
    `rejected` are reasons for which the scheduler itself does not place the pod here: decided,
    and needs no refusal.
    """

    keys: frozenset[str] = frozenset()
    value: float | None = None
    refusals: list[Reason] = []
    required: list[Reason] = []
    undecided: list[Reason] = []
    rejected: list[Reason] = []
    devices: list[Choice] = []
    notes: list[Reason] = []
    held: bool = False

    def pass_over(self, *, taint_would_help: bool) -> None:
        """Note on the first refusal that acceptable devices are here, and whether a taint would
        have the scheduler take them; it does not help against what the policy requires."""
        of = self.required or self.refusals
        first, *others = of
        if isinstance(first, reasons.DeviceRequirementNotMet):
            first = msgspec.structs.replace(first, passed_over=True)
        elif isinstance(first, reasons.DeviceRefusal):
            first = msgspec.structs.replace(
                first, passed_over=True, taint_would_help=taint_would_help
            )
        of[:] = [first, *others]


def node_part(node: NodeView, acceptance: Acceptance, *, only_admin_access: bool = False) -> Part:
    """The node's own health counts once more than through its devices only when it is refused;
    which it is not for an ask that `only_admin_access` at devices."""
    met = acceptance.requirements.of_node(node)
    unmet, undecided = met.unmet, met.undecided
    if node.unread:  # its labels are not known
        unmet, undecided = (), (*((one, "") for one in met.unmet), *undecided)
    part = Part(
        required=[reasons.NodeRequirementNotMet(what) for what in unmet],
        undecided=[reasons.NodeRequirementUndecided(what, why) for what, why in undecided],
    )
    if not only_admin_access and (why := node_refusal(node.health, acceptance.placement)):
        part.refusals = [why]
        part.held = node.health.held
    return part


def rejected_part(why: Reason, node: NodeView) -> Part:
    """What the scheduler's own checks refuse: allowed, and scored low."""
    return Part(value=UNDECIDED_VALUE * node.health.score, rejected=[why])


def undecided_part(why: Reason, node: NodeView) -> Part:
    """What cannot be decided: allowed, and scored low."""
    return Part(value=UNDECIDED_VALUE * node.health.score, undecided=[why])


def units_part(
    units: Units, plugin: PluginView, node: NodeView, acceptance: Acceptance, *, emptied: bool
) -> Part:
    """Device plugins: units are not chosen, so the draw is over every unit that may be free."""
    placement = acceptance.placement
    part = Part(frozenset((units.resource,)), notes=_withdrawn(plugin))
    if plugin.allocatable < units.count:
        part.value = UNDECIDED_VALUE * node.health.score
        part.rejected.append(
            reasons.NotEnoughUnits(units.resource, plugin.allocatable, units.count)
        )
        return part
    drawn = draws.allocatable(plugin) if emptied else draws.free(plugin, units.count)
    healths = [*drawn.named, *([(node.health, drawn.rest)] if drawn.rest else [])]
    refused = [(health, number) for health, number in healths if not acceptance.accepts(health)]
    sound = drawn.size - sum(number for _, number in refused)
    part.held = any(health.held for health, _ in refused)
    worth = partial(ranking.drawn_at_random, count=units.count, aggregate=placement.aggregate)
    part.value = worth(_tally((health.score, number) for health, number in healths))
    counted = worth(_tally((acceptance.counted(health), number) for health, number in healths))
    if sound < units.count:
        worst = min((health for health, _ in refused), key=lambda h: h.proven)
        found = complaint(worst, placement)
        assert found is not None
        part.refusals.append(
            reasons.TooFewAcceptableUnits(
                units.resource, sound, drawn.size, units.count, found, worst, placement.min_score
            )
        )
    elif counted < placement.min_score:
        worst = min((health for health, _ in healths), key=lambda h: h.proven)
        part.refusals.append(
            reasons.UnitsWorthTooLittle(
                units.resource, units.count, drawn.size, counted, placement.min_score, worst
            )
        )
    return part


def _withdrawn(plugin: PluginView) -> list[Reason]:
    """What there is to know of units that are not in any draw, where some are known by name."""
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
    """Scores and how many units have each."""
    tally: Counter[float] = Counter()
    for score, number in units:
        tally[score] += number
    return tally
