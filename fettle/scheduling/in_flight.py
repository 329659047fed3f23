"""Pods in flight: answered a moment ago, and their devices are not visible as allocated yet.

In a burst, the scheduler asks about the next pod before the allocation of the last one is visible,
so predictions from the view alone would be stale. This module knows how many pods with the same
needs are in flight, but not where they went. Verdicts count them. Pure; the clock is an argument.

The pods of a PodGroup are placed together or not at all, and Kubernetes 1.37 asks about each of
them in a row, for each placement that it tries. What came to nothing is not in flight (decision
0063).
"""

from collections import Counter, OrderedDict, defaultdict
from functools import lru_cache
from typing import NamedTuple

import msgspec
from cachetools import LRUCache

from fettle.api import core
from fettle.api.meta import Condition
from fettle.cluster import View
from fettle.dra import Claim, Request, claim_name, entries_with_claims, in_order
from fettle.scheduling.demand import Demand

SECONDS = 1.0
"""How long a pod counts as in flight; an allocation is visible after 0.35 s at the latest."""
STEPS = (0, 1, 2, 4, 8)
"""Counts are rounded up to one of these, at most the last."""
MOST_GROUPS = 1000
"""PodGroups of which it is kept what they were given. Any pod may name one."""

_Needs = frozenset[tuple[Claim, int]]
"""Claims without names, each with its count."""
_Claims = frozenset[str]
"""The claims of a pod; pods that name the same claim get the same devices."""


class _PodInFlight(NamedTuple):
    at: float
    pod: core.Pod
    claims: _Claims


class InFlight:
    """The pods in flight: note each that gets nodes, `count` those with the needs of another."""

    def __init__(self) -> None:
        self._by_needs: dict[_Needs, OrderedDict[str, _PodInFlight]] = defaultdict(OrderedDict)
        self._cycles: LRUCache[str, dict[str, _Needs]] = LRUCache(MOST_GROUPS)
        """The pods that each PodGroup was last given nodes for, in order, and what they need."""

    def note_attempt(self, pod: core.Pod) -> None:
        """The scheduler begins to place a pod. If its PodGroup was given nodes for it before,
        that came to nothing, and so did what the group was given since."""
        if not (group := pod.pod_group) or (cycle := self._cycles.get(group)) is None:
            return
        key = pod.metadata.key
        while key in cycle:
            later, needs = cycle.popitem()
            self._by_needs[needs].pop(later, None)

    def note_nodes_given(self, demand: Demand, pod: core.Pod, now: float) -> None:
        """Filter gave the pod nodes, so it may be placed any moment."""
        if not demand.allocates:
            return
        needs, key = _needs(demand), pod.metadata.key
        pods = self._by_needs[needs]
        pods[key] = _PodInFlight(now, pod, _claims(demand, pod))
        pods.move_to_end(key)
        if group := pod.pod_group:
            self._cycles.setdefault(group, {})[key] = needs
        if len(self._by_needs) > 1000:
            self._forget(now)

    def count(self, demand: Demand, pod: core.Pod, view: View, now: float) -> int:
        """How many pods with the same needs are in flight, rounded up to one of STEPS.

        Pods count as one if they share the claims that they name, and not at all if the pod itself
        shares all of theirs.
        """
        if not demand.allocates:
            return 0
        pods = self._by_needs.get(_needs(demand))
        if pods is None:
            return 0
        while pods and now - next(iter(pods.values())).at > SECONDS:
            pods.popitem(last=False)
        own = _claims(demand, pod)
        waiting: set[_Claims] = set()
        settled: list[str] = []
        for key, other in reversed(pods.items()):
            if _settled(other.pod, view):
                settled.append(key)
            elif not other.claims <= own:
                waiting.add(other.claims)
            if len(waiting) >= STEPS[-1]:
                break
        for key in settled:
            del pods[key]
        return next(step for step in STEPS if step >= len(waiting))

    def _forget(self, now: float) -> None:
        for needs, pods in list(self._by_needs.items()):
            if all(now - given.at > SECONDS for given in pods.values()):
                del self._by_needs[needs]


@lru_cache(maxsize=1024)
def _needs(demand: Demand) -> _Needs:
    """Equal for demands that ask the allocator for the same devices, by whatever request names."""
    backing = in_order([request for units in demand.units for request in units.backing])
    claims = (*demand.claims, Claim("", backing)) if backing else demand.claims
    return frozenset(Counter(map(_unnamed, claims)).items())


def _unnamed(claim: Claim) -> Claim:
    """A claim without names; its constraints name alternatives by their position."""
    names = [
        (request.name, each.name) for request in claim.requests for each in request.alternatives
    ]
    requests = tuple(
        Request(
            "",
            tuple(msgspec.structs.replace(each, name="") for each in request.alternatives),
            request.listed,
        )
        for request in claim.requests
    )
    constraints = tuple(
        msgspec.structs.replace(
            constraint,
            requests=frozenset(
                str(i) for i, each in enumerate(names) if constraint.concerns(*each)
            ),
        )
        for constraint in claim.constraints
    )
    return Claim("", requests, constraints)


def _claims(demand: Demand, pod: core.Pod) -> _Claims:
    """The keys of the pod's claims; claims that are made for it alone have keys of its own."""
    names = {
        f"{pod.metadata.namespace}/{entry.resource_claim_name}"
        if entry.resource_claim_name
        else f"{pod.metadata.key}:{entry.name}"  # made for this pod
        for entry in entries_with_claims(pod)
    }
    if any(units.backing for units in demand.units):
        names.add(f"{pod.metadata.key}:")
    return frozenset(names)


def _settled(pod: core.Pod, view: View) -> bool:
    """Whether the view shows the pod bound, its claims allocated, or that it was not placed since
    the scheduler asked about it."""
    known = view.pods.get(pod.metadata.key)
    if known is None:
        return False
    if known.node_name:
        return True
    if (failed := _not_scheduled(known)) is not None and failed != _not_scheduled(pod):
        return True
    names = [claim_name(known, entry) for entry in entries_with_claims(known)]
    claims = [view.claims.get(f"{pod.metadata.namespace}/{name}") for name in names]
    return bool(claims) and all(
        claim is not None and claim.allocation is not None for claim in claims
    )


def _not_scheduled(pod: core.Pod) -> Condition | None:
    """The condition by which the scheduler says that it could not place the pod."""
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    return next((c for c in conditions if c.type == "PodScheduled" and c.status == "False"), None)
