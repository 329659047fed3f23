"""Pods in flight: answered a moment ago, and their devices are not visible as allocated yet.

In a burst, the scheduler asks about the next pod before the allocation of the last one is visible,
so predictions from the view alone would be stale. This module knows how many pods with the same
needs are in flight, but not where they went. Verdicts count them. Pure; the clock is an argument.
"""

from collections import Counter, OrderedDict, defaultdict
from functools import lru_cache
from typing import NamedTuple

import msgspec

from fettle.api import core
from fettle.cluster import View
from fettle.dra import Claim, Request, claim_name, entries_with_claims, in_order
from fettle.scheduling.demand import Demand

SECONDS = 1.0
"""How long a pod counts as in flight; an allocation is visible after 0.35 s at the latest."""
STEPS = (0, 1, 2, 4, 8)
"""Counts are rounded up to one of these, at most the last."""

_Needs = frozenset[tuple[Claim, int]]
"""Claims without names, each with its count."""
_Claims = frozenset[str]
"""The claims of a pod; pods that name the same claim get the same devices."""


class _Answered(NamedTuple):
    at: float
    pod: core.Pod
    claims: _Claims


class InFlight:
    """The pods in flight: `note` each that is answered, `count` those with the needs of another."""

    def __init__(self) -> None:
        self._by_needs: dict[_Needs, OrderedDict[str, _Answered]] = defaultdict(OrderedDict)

    def note(self, demand: Demand, pod: core.Pod, now: float) -> None:
        """Note that the pod was answered, so it may be placed any moment."""
        if not demand.allocates:
            return
        pods = self._by_needs[_needs(demand)]
        pods[pod.metadata.key] = _Answered(now, pod, _claims(demand, pod))
        pods.move_to_end(pod.metadata.key)
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
        placed: list[str] = []
        for key, other in reversed(pods.items()):
            if _visible(other.pod, view):
                placed.append(key)
            elif not other.claims <= own:
                waiting.add(other.claims)
            if len(waiting) >= STEPS[-1]:
                break
        for key in placed:
            del pods[key]
        return next(step for step in STEPS if step >= len(waiting))

    def _forget(self, now: float) -> None:
        for needs, pods in list(self._by_needs.items()):
            if all(now - answered.at > SECONDS for answered in pods.values()):
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


def _visible(pod: core.Pod, view: View) -> bool:
    """Whether the view shows the pod bound, or its claims allocated."""
    known = view.pods.get(pod.metadata.key)
    if known is None:
        return False
    if known.node_name:
        return True
    names = [claim_name(known, entry) for entry in entries_with_claims(known)]
    claims = [view.claims.get(f"{pod.metadata.namespace}/{name}") for name in names]
    return bool(claims) and all(
        claim is not None and claim.allocation is not None for claim in claims
    )
