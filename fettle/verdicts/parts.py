"""What one part of an ask says of a node: the node itself, or device-plugin units on it. Pure."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import msgspec

from fettle.asks.asks import Units
from fettle.model import DeviceId, Health, Taint
from fettle.verdicts import ranking
from fettle.verdicts.acceptance import Acceptance, told
from fettle.verdicts.requirements import Met
from fettle.view import NodeView, PluginView

UNDECIDED_VALUE = 0.5
"""What a node is worth, times its own score, where its devices cannot be told."""


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One device a pod would get: `request` is the DRA request it would satisfy.

    `health` is the device's without what the request tolerates, which is `tolerated`; `met` says
    what the policy requires of it in vain.
    """

    request: str
    device: DeviceId
    health: Health
    tolerated: tuple[Taint, ...] = ()
    met: Met = Met()


class Part(msgspec.Struct, gc=False):
    """What one part of an ask says of a node; `keys` are the drivers or the resource concerned.

    `required` are refusals that no breaker overrules: they are for what the policy requires.
    `unfit` are reasons for which the scheduler itself does not place the pod here: that is decided,
    and needs no refusal.
    """

    keys: frozenset[str] = frozenset()
    value: float | None = None
    refusals: list[str] = []
    required: list[str] = []
    undecided: list[str] = []
    unfit: list[str] = []
    devices: list[Choice] = []
    notes: list[str] = []
    held: bool = False


def node_part(node: NodeView, acceptance: Acceptance) -> Part:
    """The node's own health counts once more than through its devices only when it is refused."""
    met = acceptance.requirements.of_node(node)
    unmet, undecided = met.unmet, met.undecided
    if node.unread:  # its labels are not known
        unmet, undecided = (), (*unmet, *undecided)
    part = Part(
        required=[f"node does not meet the policy: {what}" for what in unmet],
        undecided=[f"what the policy requires of the node: {what}" for what in undecided],
    )
    if why := acceptance.refusal(node.health):
        part.refusals = [f"node is {why}"]
        part.held = node.health.held
    return part


def unfit_part(why: str, node: NodeView) -> Part:
    """What the scheduler's own checks refuse: allowed, and scored low."""
    return Part(value=UNDECIDED_VALUE * node.health.score, unfit=[why])


def open_part(why: str, node: NodeView) -> Part:
    """What cannot be decided: allowed, and scored low."""
    return Part(value=UNDECIDED_VALUE * node.health.score, undecided=[why])


def units_part(
    units: Units, plugin: PluginView, node: NodeView, acceptance: Acceptance, *, emptied: bool
) -> Part:
    """Device plugins: units are not chosen, so the draw is over every unit that may be free.

    Which units are in use is known only where a pod's status names them; a random part of the
    rest is free, and a draw from a random part is a draw from the whole.
    """
    part = Part(frozenset((units.resource,)))
    named = [u.health for u in plugin.units if emptied or not u.allocated]
    size = plugin.allocatable - (len(plugin.units) - len(named))
    if plugin.allocatable < units.count:
        part.value = UNDECIDED_VALUE * node.health.score
        part.unfit.append(
            f"{units.resource}: {plugin.allocatable} allocatable, {units.count} requested, "
            "which the scheduler's own check refuses"
        )
        return part
    size = max(size, units.count)
    named = sorted(named, key=lambda h: h.score)[:size]
    bulk = size - len(named)
    draw = partial(
        ranking.drawn_at_random, count=units.count, aggregate=acceptance.placement.aggregate
    )
    part.value = draw(_tally([h.score for h in named], node.health.score, bulk))
    refused = [h for h in named if acceptance.refusal(h)]
    sound = size - len(refused)
    if bulk and acceptance.refusal(node.health):
        refused.append(node.health)
        sound -= bulk
    part.held = any(h.held for h in refused)
    counted = [acceptance.counted(h) for h in named]
    worth = draw(_tally(counted, acceptance.counted(node.health), bulk))
    if sound < units.count:
        worst = min(refused, key=lambda h: h.proven)
        part.refusals.append(
            f"{units.resource}: {sound} acceptable of {size}, {units.count} requested; "
            f"the worst is {acceptance.refusal(worst)}"
        )
    elif worth < acceptance.placement.min_score:
        worst = min((*named, node.health), key=lambda h: h.proven)
        part.refusals.append(
            f"{units.resource}: {units.count} drawn from {size} are worth {worth:.2f}, "
            f"less than {acceptance.placement.min_score:g}; "
            f"the worst is {told(worst.state, worst)}"
        )
    return part


def _tally(named: Sequence[float], rest: float, number: int) -> dict[float, int]:
    """Scores and how many units have each: some by name, and `number` more with `rest`."""
    units = dict(Counter(named))
    if number:
        units[rest] = units.get(rest, 0) + number
    return units
