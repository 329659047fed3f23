"""How many devices there are of each kind in each state."""

from collections import Counter

from fettle.cluster import View
from fettle.model import DeviceId, State
from fettle.pacing import pause
from fettle.scheduling import draws

MOST_UNITS = 10_000
"""More units of a resource on one node are an amount, such as bytes of a GPU's memory."""


def devices(view: View) -> Counter[tuple[str, State]]:
    """By driver or resource, and state; of device plugins, the units that may be allocated. What
    many nodes see is still one device, and what is measured rather than counted is none."""
    counts: Counter[tuple[str, State]] = Counter()
    network: dict[DeviceId, State] = {}
    for node in view.nodes.values():
        for plugin in node.plugins.values():
            if plugin.capacity > MOST_UNITS:
                continue
            drawn = draws.allocatable(plugin)
            for health, number in (*drawn.named, (node.health, drawn.rest)):
                counts[plugin.resource, health.state] += number
        for pool in node.pools:
            for device in pool.devices:
                if device.published.local:
                    counts[pool.driver, device.health.state] += 1
                else:
                    network[device.id] = device.health.state
        pause()
    for id_, state in network.items():
        counts[id_.driver, state] += 1
    return counts
