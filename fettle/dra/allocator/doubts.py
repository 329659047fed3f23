"""Pools of which it cannot be told what the allocator takes: whatever follows them is undecided."""

from fettle.dra.allocator.profiles import Profile
from fettle.dra.pools import PoolView


def doubt(pool: PoolView, profile: Profile) -> str:
    """What cannot be told about a pool, for people; "" if nothing."""
    why = pool.unclear or (_of_1_34(pool) if profile.rules.pools_by_node else "")
    return f"{pool.told}: {why}" if why else ""


def _of_1_34(pool: PoolView) -> str:
    """What views do not say of a pool where a node sees only its own slices of it: they are made
    by the rules of 1.35, by which pools that are not whole have nothing to take."""
    if pool.flaw or pool.withheld:
        flaw = pool.flaw or "being replaced"
        return f"it is {flaw}, and what Kubernetes 1.34 makes of that is not modelled"
    if pool.counters:
        return (
            "it has shared counters, which Kubernetes 1.34 keeps by slice, and that is not modelled"
        )
    return ""
