"""Which devices a pod was given, also once it has ended: its claims are unreserved and deleted at
once then, and that can be seen before its end is.
"""

from cachetools import FIFOCache

from fettle.api import core
from fettle.api.resource import ResourceClaim
from fettle.cluster import Publisher, View, changed_keys
from fettle.pacing import pause
from fettle.scheduling.demand import Bound, bound_by, held_claims

MOST = 2000


class PodClaims:
    """`follow` the views."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._gone: FIFOCache[str, dict[str, ResourceClaim]] = FIFOCache(MOST)
        """By the pod's UID: its claims, by `namespace/name`, as they were while it had them."""

    def follow(self, before: View, view: View, _changed: frozenset[str] = frozenset()) -> None:
        """Take in which pods have a claim no more."""
        for key in changed_keys(before.claims, view.claims):
            pause()
            old, new = before.claims.get(key), view.claims.get(key)
            if old is None or old.allocation is None:
                continue
            still = new.reserved_for if new is not None and new.allocation is not None else ()
            for uid in old.reserved_for.difference(still):
                self._gone.setdefault(uid, {})[key] = old

    def of(self, pod: core.Pod) -> tuple[Bound, ...]:
        """The claims of a pod with a node, as in `held_claims`, or as they were last."""
        held = tuple(held_claims(pod, self._publisher.view))
        if held or (gone := self._gone.get(pod.metadata.uid)) is None:
            return held
        return tuple(bound_by(pod, gone))
