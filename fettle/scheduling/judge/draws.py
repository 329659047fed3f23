"""Which units of an extended resource a pod may be given: all that are free, since nobody chooses.

One answer for verdicts, the breaker and metrics; units that the device plugin has withdrawn are not
in it. Pure.
"""

from typing import NamedTuple

from fettle.cluster import PluginView
from fettle.model import Health


class Draw(NamedTuple):
    """`named`: units of which something is said, the worst first, as health and how many; `rest`:
    how many others, which are as well as their node."""

    named: tuple[tuple[Health, int], ...]
    rest: int

    @property
    def size(self) -> int:
        return self.rest + sum(number for _, number in self.named)


def allocatable(plugin: PluginView) -> Draw:
    """All units that may be allocated, in use or not."""
    return _draw([(unit.health, unit.left) for unit in plugin.units], plugin.allocatable)


def free(plugin: PluginView, least: int) -> Draw:
    """Those that are not known to be in use.

    Which units are is known only where a pod's status names them; a random part of the others is
    free, and a draw from a random part is a draw from the whole. The scheduler finds `least` free.
    """
    unused = [(unit.health, max(0, unit.left - unit.allocated)) for unit in plugin.units]
    used = sum(min(unit.left, unit.allocated) for unit in plugin.units)
    return _draw(unused, max(plugin.allocatable - used, least))


def _draw(units: list[tuple[Health, int]], size: int) -> Draw:
    """Of units and others, so many together; the worst count where there are more."""
    named = []
    rest = size
    for health, number in sorted(units, key=lambda unit: unit[0].score):
        if number := min(number, rest):
            named.append((health, number))
            rest -= number
    return Draw(tuple(named), rest)
