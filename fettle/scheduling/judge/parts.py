"""What one part of an ask says of a node: the node itself, or device-plugin units on it. Pure."""

from collections import Counter
from collections.abc import Iterable
from functools import partial

import msgspec

from fettle.cluster import NodeView, PluginView
from fettle.model import DeviceId, Health, TaintRef
from fettle.scheduling.demand import Units
from fettle.scheduling.judge import draws, ranking
from fettle.scheduling.judge.acceptance import Acceptance, describe_health
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

    def refusal(self, acceptance: Acceptance) -> str:
        """Why its health is not acceptable; "" if it is."""
        return "" if self.admin_access else acceptance.refusal(self.health)


class Part(msgspec.Struct, gc=False):
    """What one part of an ask says of a node; `keys` are the drivers or the resource concerned.

    `required` are refusals that no breaker overrules: they are for what the policy requires.
    `rejected` are reasons for which the scheduler itself does not place the pod here: decided,
    and needs no refusal.
    """

    keys: frozenset[str] = frozenset()
    value: float | None = None
    refusals: list[str] = []
    required: list[str] = []
    undecided: list[str] = []
    rejected: list[str] = []
    devices: list[Choice] = []
    notes: list[str] = []
    held: bool = False


def node_part(node: NodeView, acceptance: Acceptance, *, only_admin_access: bool = False) -> Part:
    """The node's own health counts once more than through its devices only when it is refused;
    which it is not for an ask that `only_admin_access` at devices."""
    met = acceptance.requirements.of_node(node)
    unmet, undecided = met.unmet, met.undecided
    if node.unread:  # its labels are not known
        unmet, undecided = (), (*unmet, *undecided)
    part = Part(
        required=[f"node does not meet the policy: {what}" for what in unmet],
        undecided=[f"what the policy requires of the node: {what}" for what in undecided],
    )
    if not only_admin_access and (why := acceptance.refusal(node.health)):
        part.refusals = [f"node is {why}"]
        part.held = node.health.held
    return part


def rejected_part(why: str, node: NodeView) -> Part:
    """What the scheduler's own checks refuse: allowed, and scored low."""
    return Part(value=UNDECIDED_VALUE * node.health.score, rejected=[why])


def undecided_part(why: str, node: NodeView) -> Part:
    """What cannot be decided: allowed, and scored low."""
    return Part(value=UNDECIDED_VALUE * node.health.score, undecided=[why])


def units_part(
    units: Units, plugin: PluginView, node: NodeView, acceptance: Acceptance, *, emptied: bool
) -> Part:
    """Device plugins: units are not chosen, so the draw is over every unit that may be free."""
    part = Part(frozenset((units.resource,)), notes=_withdrawn(plugin))
    if plugin.allocatable < units.count:
        part.value = UNDECIDED_VALUE * node.health.score
        part.rejected.append(
            f"{units.resource}: {plugin.allocatable} allocatable, {units.count} requested, "
            "which the scheduler's own check refuses"
        )
        return part
    drawn = draws.allocatable(plugin) if emptied else draws.free(plugin, units.count)
    healths = [*drawn.named, *([(node.health, drawn.rest)] if drawn.rest else [])]
    refused = [(health, number) for health, number in healths if acceptance.refusal(health)]
    sound = drawn.size - sum(number for _, number in refused)
    part.held = any(health.held for health, _ in refused)
    worth = partial(
        ranking.drawn_at_random, count=units.count, aggregate=acceptance.placement.aggregate
    )
    part.value = worth(_tally((health.score, number) for health, number in healths))
    counted = worth(_tally((acceptance.counted(health), number) for health, number in healths))
    if sound < units.count:
        worst = min((health for health, _ in refused), key=lambda h: h.proven)
        part.refusals.append(
            f"{units.resource}: {sound} acceptable of {drawn.size}, {units.count} requested; "
            f"the worst is {acceptance.refusal(worst)}"
        )
    elif counted < acceptance.placement.min_score:
        worst = min((health for health, _ in healths), key=lambda h: h.proven)
        part.refusals.append(
            f"{units.resource}: {units.count} drawn from {drawn.size} are worth {counted:.2f}, "
            f"less than {acceptance.placement.min_score:g}; "
            f"the worst is {describe_health(worst.state, worst)}"
        )
    return part


def _withdrawn(plugin: PluginView) -> list[str]:
    """What there is to know of units that are not in any draw, where some are known by name."""
    named = [unit.unit for unit in plugin.units if unit.withdrawn]
    if not named:
        return []
    if not plugin.counts_withdrawn:
        offers = f"no longer offered by the device plugin, which has {plugin.capacity}"
        return [f"{plugin.resource}: {offers}: {', '.join(named)}"]
    known = sum(unit.withdrawn for unit in plugin.units)
    among = ":" if known == plugin.withdrawn else ", among them"
    count = f"{plugin.withdrawn} of {plugin.capacity} withdrawn by the device plugin"
    return [f"{plugin.resource}: {count}{among} {', '.join(named)}"]


def _tally(units: Iterable[tuple[float, int]]) -> dict[float, int]:
    """Scores and how many units have each."""
    tally: Counter[float] = Counter()
    for score, number in units:
        tally[score] += number
    return tally
