"""A node's answer to an ask: it fits, with a value and the devices, or it is refused, with reasons.

Pure: ask + node + acceptance → verdict. Whatever cannot be decided is allowed and scored low;
nothing here refuses for lack of knowledge.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import msgspec

from fettle import ranking
from fettle.allocator import Allocated, Found, Match, allocate
from fettle.asks import Ask, Request, Units
from fettle.model import DeviceId, Health, State
from fettle.policy import Aggregate, Degraded, Placement, Unknown
from fettle.view import DeviceView, NodeView, PluginView

UNDECIDED_VALUE = 0.5
"""What a node is worth, times its own score, where its devices cannot be told."""


class Choice(msgspec.Struct, frozen=True):
    """One device a pod would get: `request` is the DRA request it would satisfy."""

    request: str
    device: DeviceId
    health: Health


class Verdict(msgspec.Struct, frozen=True):
    """`score` is the extender's 0..10. `overruled` are refusals that an open breaker set aside.

    `undecided` are the reasons why a part could not be judged; that part was allowed.
    """

    fits: bool
    value: float
    score: int
    refusals: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    overruled: tuple[str, ...] = ()
    devices: tuple[Choice, ...] = ()


class Acceptance(msgspec.Struct, frozen=True):
    """What a policy accepts now. `open_breakers` are drivers or resources it may not refuse on."""

    placement: Placement
    open_breakers: frozenset[str] = frozenset()

    def refusal(self, health: Health) -> str:
        """Why a device or node of this health is not acceptable; "" if it is."""
        return refusal(health, self.placement)

    def counted(self, health: Health) -> float:
        """A score as it counts towards the policy's minimum: not knowing refuses nobody."""
        tolerated = health.state is State.UNKNOWN and self.placement.unknown is Unknown.ALLOW
        return 1.0 if tolerated else health.score


def refusal(health: Health, placement: Placement) -> str:
    """Why a policy turns down something of this health; "" if it does not."""
    if health.state is State.HEALTHY and health.score >= placement.min_score:
        return ""
    if health.state is State.UNKNOWN:
        return "Unknown" if placement.unknown is Unknown.REFUSE else ""
    if health.state is State.UNHEALTHY:
        return _told("Unhealthy", health)
    if health.state is State.DEGRADED and placement.degraded is Degraded.REFUSE:
        return _told("Degraded", health)
    if health.score < placement.min_score:
        return _told(f"score below {placement.min_score:g}", health)
    return ""


def _told(what: str, health: Health) -> str:
    top = f": {health.evidence[0].evidence.text}" if health.evidence else ""
    return f"{what} ({health.score:.2f}){top}"


class _Part(msgspec.Struct):
    """What one part of an ask says of a node; `key` is the driver or resource it concerns."""

    key: str
    value: float | None = None
    refusals: list[str] = []
    undecided: list[str] = []
    devices: list[Choice] = []
    held: bool = False


def judge(
    ask: Ask, node: NodeView, acceptance: Acceptance, match: Match, *, emptied: bool = False
) -> Verdict:
    """The node's verdict on the ask.

    `emptied` judges it as preemption would leave it: every device-plugin unit may be in the draw.
    """
    parts = [_node_part(node, acceptance)]
    requests: list[Request] = list(ask.requests)
    for units in ask.units:
        plugin = node.plugins.get(units.resource)
        if plugin is not None and plugin.allocatable > 0:
            parts.append(_units_part(units, plugin, node, acceptance, emptied=emptied))
        elif units.backing is not None and node.pools:
            requests.append(units.backing)
        else:
            why = f"this node has no {units.resource} to allocate"
            parts.append(_open_part(why, node))
    if ask.held:
        parts.append(_held_part(ask.held, node, acceptance))
    if requests:
        parts.append(_requests_part(requests, node, acceptance, match))
    parts += [_open_part(why, node) for why in ask.unsettled]
    if node.quarantined:
        parts.append(_Part("", undecided=[*node.quarantined]))
    return _combine(parts, node, acceptance)


def _node_part(node: NodeView, acceptance: Acceptance) -> _Part:
    """The node's own health counts once more than through its devices only when it is refused."""
    part = _Part("")
    if why := acceptance.refusal(node.health):
        part.refusals = [f"node is {why}"]
        part.held = node.health.held
    return part


def _open_part(why: str, node: NodeView) -> _Part:
    """What cannot be decided: allowed, and scored low."""
    return _Part("", value=UNDECIDED_VALUE * node.health.score, undecided=[why])


def _units_part(
    units: Units, plugin: PluginView, node: NodeView, acceptance: Acceptance, *, emptied: bool
) -> _Part:
    """Device plugins: nobody chooses, so the draw is over every unit that may be free.

    Which units are in use is known only where a pod's status names them; a random part of the
    rest is free, and a draw from a random part is a draw from the whole.
    """
    part = _Part(units.resource)
    named = [u.health for u in plugin.units if emptied or not u.allocated]
    size = plugin.allocatable - (len(plugin.units) - len(named))
    if plugin.allocatable < units.count:
        part.value = UNDECIDED_VALUE * node.health.score
        part.undecided.append(
            f"{units.resource}: {plugin.allocatable} allocatable, {units.count} asked for, "
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
        worst = min(refused, key=lambda h: h.score)
        part.refusals.append(
            f"{units.resource}: {sound} acceptable of {size}, {units.count} asked for; "
            f"the worst is {acceptance.refusal(worst)}"
        )
    elif worth < acceptance.placement.min_score:
        worst = min((*named, node.health), key=lambda h: h.score)
        part.refusals.append(
            f"{units.resource}: {units.count} drawn from {size} are worth {worth:.2f}, "
            f"less than {acceptance.placement.min_score:g}; "
            f"the worst is {_told(worst.state, worst)}"
        )
    return part


def _tally(named: Sequence[float], rest: float, number: int) -> dict[float, int]:
    """Scores and how many units have each: some by name, and `number` more with `rest`."""
    units = dict(Counter(named))
    if number:
        units[rest] = units.get(rest, 0) + number
    return units


def _held_part(held: Sequence[DeviceId], node: NodeView, acceptance: Acceptance) -> _Part:
    """Claims that are allocated already pin the pod: their very devices are judged."""
    here = {d.id: d for pool in node.pools for d in pool.devices}
    part = _Part(held[0].driver)
    chosen = [("allocated", here[d]) for d in held if d in here]
    if not chosen:
        return part  # the claim's node selector keeps the pod elsewhere, or the device has left
    return _judged(part, chosen, acceptance)


def _requests_part(
    requests: Sequence[Request], node: NodeView, acceptance: Acceptance, match: Match
) -> _Part:
    predicted = allocate(requests, node.pools, match)
    part = _Part("")
    if predicted.found is not Found.FITS:
        part.undecided.append(_why_open(predicted))
        part.value = UNDECIDED_VALUE * node.health.score
        return part
    part.key = predicted.devices[0][1].id.driver if predicted.devices else ""
    _judged(part, predicted.devices, acceptance)
    if part.refusals:
        feasible = allocate(requests, node.pools, match, lambda d: not acceptance.refusal(d.health))
        if feasible.found is Found.FITS:
            part.refusals.append(
                "acceptable devices exist here, but the scheduler would not take them"
            )
    return part


def _why_open(predicted: Allocated) -> str:
    if predicted.found is Found.NONE:
        return f"no allocation is possible here as far as Fettle sees ({predicted.reason})"
    return predicted.reason


def _judged(
    part: _Part, devices: Sequence[tuple[str, DeviceView]], acceptance: Acceptance
) -> _Part:
    part.devices = [Choice(request, d.id, d.health) for request, d in devices]
    if not devices:
        return part
    together = partial(ranking.taken, aggregate=acceptance.placement.aggregate)
    part.value = together([d.health.score for _, d in devices])
    for request, device in devices:
        if why := acceptance.refusal(device.health):
            part.refusals.append(f"{request} would get {device.id}, which is {why}")
            part.held = part.held or device.health.held
    worth = together([acceptance.counted(d.health) for _, d in devices])
    if not part.refusals and worth < acceptance.placement.min_score:
        part.refusals.append(
            f"the devices are worth {worth:.2f} together, "
            f"less than {acceptance.placement.min_score:g}"
        )
    return part


def _combine(parts: Sequence[_Part], node: NodeView, acceptance: Acceptance) -> Verdict:
    placement = acceptance.placement
    values = [p.value for p in parts if p.value is not None] or [node.health.score]
    value = min(values) if placement.aggregate is Aggregate.MIN else sum(values) / len(values)
    refusals: list[str] = []
    overruled: list[str] = []
    broken = {p.key for p in parts} & acceptance.open_breakers
    for part in parts:
        excused = not part.held and (part.key in broken if part.key else bool(broken))
        (overruled if excused else refusals).extend(part.refusals)
    return Verdict(
        fits=not refusals,
        value=round(value, 4),
        score=ranking.host_score(value, placement.degraded),
        refusals=tuple(refusals),
        undecided=tuple(why for p in parts for why in p.undecided),
        overruled=tuple(overruled),
        devices=tuple(d for p in parts for d in p.devices),
    )
