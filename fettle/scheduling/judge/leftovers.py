"""What is left of a node beside a bad device: sound devices that no whole-node pod can use. Pure.

A pod that gets only sound devices there leaves whole nodes to those that need them, so such a node
scores higher. Nothing is said of a pod that may get the bad device, or of one that asks for all.
"""

from collections.abc import Iterable, Sequence

from fettle.cluster import PluginView
from fettle.dra import PoolView
from fettle.model import BAD_STATES, SOUND, Health, State, reasons
from fettle.scheduling.judge.parts import Choice, Part


def leftover_units(plugin: PluginView, drawn: Iterable[Health]) -> reasons.NodeNotWhole | None:
    """Why the units that are `drawn` from are no whole node; None if they are, or are not sound."""
    if not plugin.units and not plugin.withdrawn:
        return None
    bad = [unit for unit in plugin.units if unit.withdrawn or unit.health.shown_state in BAD_STATES]
    unnamed = plugin.withdrawn - sum(unit.withdrawn for unit in bad)
    if not (bad or unnamed > 0) or not all(health.shown_state is State.HEALTHY for health in drawn):
        return None
    named = [
        reasons.BadDevice(unit.unit, "withdrawn" if unit.withdrawn else _word(unit.health))
        for unit in bad
    ]
    return reasons.NodeNotWhole(plugin.resource, tuple(named), max(0, unnamed))


def leftover_devices(
    part: Part, given: Sequence[Choice], pools: Iterable[PoolView]
) -> reasons.NodeNotWhole | None:
    """Why the devices that a pod is `given` are left over; None if they are not."""
    sound = all(one.health.shown_state is State.HEALTHY and not one.tolerated for one in given)
    if not given or not sound:
        return None
    bad = [
        device
        for pool in pools
        if pool.driver in part.pools
        for device in (*pool.devices, *pool.withheld)
        if device.health is not SOUND and device.health.shown_state in BAD_STATES
    ]
    if not bad:
        return None
    named = tuple(reasons.BadDevice(str(one.id), _word(one.health)) for one in bad)
    return reasons.NodeNotWhole(", ".join(sorted(part.pools)), named)


def _word(health: Health) -> str:
    return "held" if health.held else str(health.shown_state)
