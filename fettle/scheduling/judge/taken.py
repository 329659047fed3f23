"""Units of device plugins that pods have taken on each node, as the scheduler counts them.

Records of nodes do not follow each binding, which would overtake verdicts again and again. A
request of the scheduler needs none of it, being about nodes that have enough; who looks at all
nodes counts here. Pure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from fettle.api import core
from fettle.cluster import NodeView
from fettle.dra import device_units
from fettle.model import reasons
from fettle.pacing import pause
from fettle.scheduling.demand import Demand

Taken = Mapping[tuple[str, str], Mapping[int, int]]
"""By node and resource: how many units pods of each priority have taken."""


def counted(pods: Iterable[core.Pod]) -> Taken:
    """What these pods have taken."""
    taken: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for pod in pods:
        if pod.node_name and not pod.terminal:
            for resource, count in device_units(pod):
                taken[pod.node_name, resource][pod.priority] += count
        pause()
    return dict(taken)


def lacking(
    demand: Demand, node: NodeView, taken: Taken, *, preemptor: core.Pod | None = None
) -> Iterator[reasons.UnitsTaken]:
    """Why the scheduler does not place the pod here, of units that would be enough if all were
    free. A `preemptor` has those of pods that it may evict.
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
            taken_units = min(number, plugin.allocatable)
            yield reasons.UnitsTaken(units.resource, taken_units, plugin.allocatable, units.count)


def full(
    demand: Demand, nodes: Iterable[NodeView], taken: Taken, *, preemptor: core.Pod | None = None
) -> frozenset[str]:
    """Names of the nodes of which `lacking` says anything."""
    found = []
    for node in nodes:
        if any(lacking(demand, node, taken, preemptor=preemptor)):
            found.append(node.name)
        pause()
    return frozenset(found)
