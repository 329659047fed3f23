"""Pods with devices that have ended, which a view no longer shows, and which devices they had.

A pod's claims are unreserved and deleted at once when it ends, and that can be seen before its end.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from cachetools import FIFOCache

from fettle.api import core
from fettle.api.kinds import WireObject
from fettle.api.meta import unix_s
from fettle.api.resource import ResourceClaim
from fettle.cluster import Publisher, View, changed_keys
from fettle.dra import device_units, uses_devices
from fettle.pacing import pause
from fettle.scheduling.demand import Bound, bound_by, held_claims
from fettle.scheduling.judge.placed import held_units

MOST = 2000


class PodClaims:
    """The claims of pods, also once they have none any more: `observe_view` each view."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._gone: FIFOCache[str, dict[str, ResourceClaim]] = FIFOCache(MOST)
        """By the pod's UID: its claims, by `namespace/name`, as they were while it had them."""

    def observe_view(
        self, before: View, view: View, _changed: frozenset[str] = frozenset()
    ) -> None:
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


class FinishedPod(NamedTuple):
    """A pod as it ended, and the claims that it held when that was seen."""

    pod: core.Pod
    claims: tuple[Bound, ...] = ()

    @property
    def units(self) -> tuple[str, ...]:
        """The units that it held, as the kubelet reported."""
        return tuple(
            f"{resource} {id_}"
            for resource, _ in device_units(self.pod)
            for id_ in held_units(self.pod, resource)
        )


class FinishedPods:
    """The last `most` pods that were seen to be finished, by `namespace/name`."""

    def __init__(self, claims: PodClaims, most: int = MOST) -> None:
        self._most = most
        self._claims = claims
        self._pods: OrderedDict[str, FinishedPod] = OrderedDict()

    def observe(self, new: WireObject) -> None:
        """An object as it is now, before a view shows it."""
        if not isinstance(new, core.Pod):
            return
        key = new.metadata.key
        before = self._pods.pop(key, None)
        if not new.terminal or not uses_devices(new):
            return
        if before is not None and before.pod.metadata.uid == new.metadata.uid:
            self._pods[key] = before._replace(pod=new)  # its claims may be gone by now
            return
        self._pods[key] = FinishedPod(new, self._claims.of(new))
        if len(self._pods) > self._most:
            self._pods.popitem(last=False)

    def failed_since(self, since: float) -> Iterator[FinishedPod]:
        """Those that failed at that Unix time or later, as far as their kubelets say when."""
        for one in [*self._pods.values()]:
            ready = one.pod.condition("Ready")
            ended = unix_s(ready.last_transition_time, 0.0) if ready is not None else 0.0
            failed = one.pod.status is not None and one.pod.status.phase == "Failed"
            if failed and ended >= since:
                yield one
            pause()

    def get(self, key: str) -> FinishedPod | None:
        return self._pods.get(key)
