"""Pods that were answered a moment ago and whose devices cannot be seen as taken yet.

In a burst the scheduler asks about the next pod long before the allocation of the one before is
visible, so what is predicted from a view is stale. How many pods with the same needs are on their
way is known here, for a second; where they went is not. Pure; the clock is an argument.
"""

from collections import OrderedDict, defaultdict

from fettle.asks.asks import Ask
from fettle.asks.claims import Claim
from fettle.view import View
from fettle.wire import core

SECONDS = 1.0
"""How long a pod is expected; an allocation is visible after 0.35 s at the latest."""
STEPS = (0, 1, 2, 4, 8)
"""Numbers that are told apart; more than the last one count as that."""

_Needs = tuple[tuple[Claim, ...], tuple[str, ...]]


class Unseen:
    """Note pods as they are answered; ask how many with the same needs are on their way."""

    def __init__(self) -> None:
        self._by_needs: dict[_Needs, OrderedDict[str, tuple[float, core.Pod]]] = defaultdict(
            OrderedDict
        )

    def note(self, ask: Ask, pod: core.Pod, now: float) -> None:
        """The pod may be placed now."""
        if not _allocates(ask):
            return
        pods = self._by_needs[_needs(ask)]
        pods[pod.metadata.key] = (now, pod)
        pods.move_to_end(pod.metadata.key)
        if len(self._by_needs) > 1000:
            self._forget(now)

    def number(self, ask: Ask, pod: core.Pod, view: View, now: float) -> int:
        """Other pods on their way, rounded up to one of STEPS."""
        if not _allocates(ask):
            return 0
        pods = self._by_needs.get(_needs(ask))
        if pods is None:
            return 0
        while pods and now - next(iter(pods.values()))[0] > SECONDS:
            pods.popitem(last=False)
        waiting = 0
        placed: list[str] = []
        for key, (_, other) in reversed(pods.items()):
            if _visible(other, view):
                placed.append(key)
            elif key != pod.metadata.key:
                waiting += 1
            if waiting >= STEPS[-1]:
                break
        for key in placed:
            del pods[key]
        return next(step for step in STEPS if step >= waiting)

    def _forget(self, now: float) -> None:
        for needs, pods in list(self._by_needs.items()):
            if all(now - at > SECONDS for at, _ in pods.values()):
                del self._by_needs[needs]


def _allocates(ask: Ask) -> bool:
    return bool(ask.claims) or any(units.backing for units in ask.units)


def _needs(ask: Ask) -> _Needs:
    return ask.claims, tuple(units.resource for units in ask.units if units.backing)


def _visible(pod: core.Pod, view: View) -> bool:
    """Whether the view shows the pod bound, or its claims allocated."""
    known = view.pods.get(pod.metadata.key)
    if known is None or known.spec is None:
        return False
    if known.spec.node_name:
        return True
    statuses = known.status.resource_claim_statuses if known.status is not None else None
    names = [s.resource_claim_name for s in statuses or () if s.resource_claim_name]
    claims = [view.claims.get(f"{pod.metadata.namespace}/{name}") for name in names]
    return bool(claims) and all(
        claim is not None and claim.status is not None and claim.status.allocation is not None
        for claim in claims
    )
