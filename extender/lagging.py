"""A view that is behind the scheduler's.

kube-scheduler watches the same API, and may ask some milliseconds after what made it ask. An answer
by an older view would let a pod have whatever came free meanwhile, a dead device too. Two things
show that this may be so:

- A node has devices that would be refused, though not those that the pod would get. Before such an
  answer all that has come is looked at (`Latest`): that takes no time where nothing did.
- By what we know, the pod fits on none of the nodes, but the scheduler asks only about those that
  passed its own filters. So it knows something that we do not, and a newer view is waited for.
  Where none tells otherwise we are wrong in another way, and the scheduler, which asks about one
  pod after another, is not kept waiting for that again soon.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol

from fettle.api import core
from fettle.cluster import NodeView
from fettle.scheduling import Demand, Table

WAIT_S = 0.15
"""A change may take so long from the API server to one of two who watch it where it is busy."""
LOOK_S = 0.005
"""So often it is looked whether something came."""
AGAIN_S = 10.0
"""After a wait in vain, how long there is none for the same ask,"""
REST_S = 1.5
"""none for its namespace,"""
REST_OF_ALL_S = 0.3
"""and none for any."""


class Freshness(Protocol):
    """What has come from the cluster, whether a view shows it or not."""

    @property
    def stale(self) -> bool:
        """Whether no view shows yet what has come."""

    async def catch_up(self) -> None:
        """Until one does."""


class AlwaysFresh:
    """Where nothing comes but by views."""

    stale = False

    async def catch_up(self) -> None:
        pass


def retry_pauses_s(demand: Demand, pod: core.Pod) -> Mapping[Hashable, float]:
    """What a pod is that was waited for in vain, and for how long in seconds nothing of it is."""
    return {demand: AGAIN_S, f"namespace {pod.metadata.namespace}": REST_S, "any": REST_OF_ALL_S}


def is_near_refusal(table: Table, passed: Sequence[str]) -> bool:
    """Whether a newer view might refuse one of these nodes."""
    return bool(table.near_refusal) and not table.near_refusal.isdisjoint(passed)


def is_table_stale(table: Table, passed: Iterable[str], nodes: Mapping[str, NodeView]) -> bool:
    """Whether the table knows no node among these that the pod fits on, but there are some."""
    odd = False
    for name in passed:
        if not _is_odd(name, table, nodes):
            return False
        odd = True
    return odd


def _is_odd(name: str, table: Table, nodes: Mapping[str, NodeView]) -> bool:
    """What stays undecided whatever comes, as by a selector, tells nothing."""
    if name in table.rejected or name not in table.verdicts:
        return True
    if name not in table.undecided:
        return False
    return bool(table.demand.unsettled) or any(pool.unclear for pool in nodes[name].pools)
