"""What makes two nodes the same to a demand, whatever they are called. Pure.

Tables give nodes with the same fingerprint one verdict.
"""

from collections.abc import Callable, Collection, Hashable, Iterator
from itertools import compress

from fettle.cel import rows
from fettle.cluster import EVERYTHING, Attribute, NodeView, attribute_digests
from fettle.dra import Profile, equality_pattern
from fettle.scheduling.demand import Bound, Demand
from fettle.scheduling.judge.acceptance import new_driver
from fettle.scheduling.judge.claims import is_usable
from fettle.scheduling.judge.requirements import Requirements

Fingerprinter = Callable[[NodeView], Hashable | None]
"""Returns the same for nodes that are the same to a demand but for names.

None for a node that must be judged by itself.
"""


def fingerprinter_for(
    demand: Demand,
    requirements: Requirements,
    profile: Profile,
    attributes: Callable[[], tuple[Attribute, ...]],
) -> Fingerprinter:
    """The function that fingerprints nodes for this demand.

    `attributes` returns those of devices that its selectors and its policy read.
    """
    # What is the same for all nodes is found out here, once.
    allocates_always = bool(demand.claims)
    resources = [(units.resource, bool(units.backing)) for units in demand.units]
    has_requirements = bool(requirements)
    placement = demand.policy.placement
    read = attributes() if allocates_always or any(backed for _, backed in resources) else ()
    compared = tuple(_compared_attributes(demand, read))
    by_pool_name = profile.quirks.counters_by_pool_name

    def fingerprint(node: NodeView) -> Hashable:
        allocates = allocates_always
        seen: list[Hashable] = [
            node.health,
            node.quarantined,
            node.unread,
            requirements.labels(node) if has_requirements else (),
            new_driver(node, placement),
        ]
        for resource, backed in resources:
            plugin = node.plugins.get(resource)
            if backed and (plugin is None or plugin.allocatable == 0):
                allocates = True
            seen.append(plugin)
        for bound in demand.bound:
            if _has_pool_of(bound, node):
                return None  # that very claim's devices are judged here
            seen.append(is_usable(bound, node))
        if not allocates:
            return tuple(seen)
        seen.append(node.malformed)
        for pool in node.pools:
            if not pool.fingerprint:
                return None
            seen.append(pool.fingerprint)
            if read:
                seen += attribute_digests(pool, read)
        if compared:
            seen += [_pattern_of(name, node) for name in compared]
        if by_pool_name and len(node.pools) > 1:
            names = [pool.name for pool in node.pools]
            seen += map(names.index, names)
        return tuple(seen)

    return fingerprint


def _compared_attributes(demand: Demand, read: Collection[Attribute]) -> Iterator[str]:
    """The attributes that constraints compare, except those whose values are `read` anyway."""
    if EVERYTHING in read:
        return
    for name in dict.fromkeys(c.attribute for claim in demand.claims for c in claim.constraints):
        if name and rows.split_name(name, "") not in read:
            yield name


def _pattern_of(name: str, node: NodeView) -> Hashable:
    """Which of the node's devices have equal values of an attribute.

    The values are left out: a GPU's UUID is the same on no other node.
    """
    having = [any(attribute_digests(pool, [rows.split_name(name, "")])) for pool in node.pools]
    devices = (device for pool in compress(node.pools, having) for device in pool.devices)
    return tuple(having), equality_pattern(name, devices)


def _has_pool_of(bound: Bound, node: NodeView) -> bool:
    """Whether an allocated claim holds devices of a pool that is available on this node."""
    pools = {(held.device.driver, held.device.pool) for held in bound.held}
    return any((pool.driver, pool.name) in pools for pool in node.pools)
