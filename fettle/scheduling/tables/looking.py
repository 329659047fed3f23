"""What an ask sees of a node, names left out: nodes of which it sees the same share a verdict.

Between the digests of pools (`cluster/inventory/fingerprints.py`) and the tables of verdicts. Pure.
"""

from collections.abc import Callable, Collection, Hashable, Iterator
from itertools import compress

from fettle.cel import rows
from fettle.cluster import EVERYTHING, Attribute, NodeView, attribute_digests
from fettle.dra import Profile, equality_pattern
from fettle.scheduling.demand import Bound, Demand
from fettle.scheduling.judge.claimed import is_usable
from fettle.scheduling.judge.requirements import Requirements

Fingerprint = Callable[[NodeView], Hashable | None]
"""Equal for nodes that are the same to the ask; None for one of which it sees more than that."""


def fingerprint_for(
    demand: Demand,
    requirements: Requirements,
    profile: Profile,
    attributes: Callable[[], tuple[Attribute, ...]],
) -> Fingerprint:
    """How the ask looks at nodes; `attributes` of devices are those that its selectors and its
    policy can see. What is the same for all nodes is found out here, once."""
    allocates_always = bool(demand.claims)
    resources = [(units.resource, bool(units.backing)) for units in demand.units]
    read = attributes() if allocates_always or any(backed for _, backed in resources) else ()
    compared = tuple(_compared_unseen(demand, read))
    by_pool_name = profile.quirks.counters_by_pool_name

    def look(node: NodeView) -> Hashable | None:
        allocates = allocates_always
        seen: list[Hashable] = [
            node.health,
            node.quarantined,
            node.unread,
            requirements.labels(node),
        ]
        for resource, backed in resources:
            plugin = node.plugins.get(resource)
            if backed and (plugin is None or plugin.allocatable == 0):
                allocates = True
            seen.append(plugin)
        for bound in demand.bound:
            if _is_near(bound, node):
                return None
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
        seen += [_compared(name, node) for name in compared]
        if by_pool_name and len(node.pools) > 1:
            names = [pool.name for pool in node.pools]
            seen += map(names.index, names)
        return tuple(seen)

    return look


def _compared_unseen(demand: Demand, seen: Collection[Attribute]) -> Iterator[str]:
    """The attributes that constraints compare, but for those whose very values are `seen`."""
    if EVERYTHING in seen:
        return
    for name in dict.fromkeys(c.attribute for claim in demand.claims for c in claim.constraints):
        if name and rows.split_name(name, "") not in seen:
            yield name


def _compared(name: str, node: NodeView) -> Hashable:
    """What constraints can tell of an attribute: a GPU's UUID is the same on no other node."""
    having = [any(attribute_digests(pool, [rows.split_name(name, "")])) for pool in node.pools]
    devices = (device for pool in compress(node.pools, having) for device in pool.devices)
    return tuple(having), equality_pattern(name, devices)


def _is_near(bound: Bound, node: NodeView) -> bool:
    """Whether a claim that is allocated holds devices of a pool that this node sees."""
    pools = {(held.device.driver, held.device.pool) for held in bound.held}
    return any((pool.driver, pool.name) in pools for pool in node.pools)
