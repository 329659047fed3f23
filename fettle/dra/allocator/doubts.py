"""Pools of which it cannot be told what the allocator takes: whatever follows them is undecided."""

from fettle.dra.allocator.profiles import Profile
from fettle.dra.pools import PoolView
from fettle.model import reasons
from fettle.model.reasons import Reason, Unmodelled


def doubt(pool: PoolView, profile: Profile) -> Reason | None:
    """What cannot be told about a pool; None if nothing."""
    if pool.unclear:
        return reasons.PoolUnclear(pool.ref, pool.unclear)
    return _of_1_34(pool) if profile.rules.pools_by_node else None


def _of_1_34(pool: PoolView) -> Reason | None:
    """What views do not say of a pool where a node sees only its own slices of it: they are made
    by the rules of 1.35, by which pools that are not whole have nothing to take."""
    if pool.flaw or pool.withheld:
        flaw = pool.flaw or "being replaced"
        return reasons.NotModelled(Unmodelled.POOLS_OF_1_34, pool=pool.ref, detail=flaw)
    if pool.counters:
        return reasons.NotModelled(Unmodelled.COUNTERS_OF_1_34, pool=pool.ref)
    return None
