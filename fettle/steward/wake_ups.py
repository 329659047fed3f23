"""Which pods wait because Fettle refused them, when to wake them, and the write that wakes them.
The scheduler does not know that Fettle would allow a pod now: in a quiet cluster it retries after
five minutes.
"""

from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from typing import NamedTuple

from fettle.api import api_path, core, kinds
from fettle.api.meta import micro_time
from fettle.client import Session
from fettle.cluster import View
from fettle.model import PURPOSE, WOKEN_AT, ClusterError, Conflict, Forbidden, NotFound, utc
from fettle.pacing import Backoff, pause

MARK = "fettle:"
"""Every refusal text of the extender begins with this."""
SCHEDULER_RETRIES_S = 300.0
"""After so long a scheduler retries a pod by itself."""
_RIGHTS = "deploy/rbac/optional/wake-by-node.yaml grants the right"
_NO_CLASS = "never-allocated.fettle.dev"

AllowedByPod = Mapping[str, Set[str]]
"""Names of the nodes that each waiting pod could be placed on."""


def is_waiting(pod: core.Pod, saying: str = MARK) -> bool:
    """Whether a pod is pending, on no node, and was last refused with this text; by default one of
    ours."""
    if pod.terminal or pod.metadata.deletion_timestamp is not None:
        return False
    if pod.spec is None or pod.node_name or pod.status is None:
        return False
    return any(
        condition.type == "PodScheduled"
        and condition.status != "True"
        and saying in condition.message
        for condition in pod.status.conditions or ()
    )


def waiting(view: View, saying: str = MARK) -> Iterator[tuple[str, core.Pod]]:
    """Pods that wait with this text, each with a key that no later pod of its name has."""
    for key, pod in view.pods.items():
        if is_waiting(pod, saying):
            yield f"{key}/{pod.metadata.uid}", pod
        pause()


class _Wake(NamedTuple):
    """When a pod is woken next, and how it goes on after that."""

    at: float
    backoff: Backoff


class WakeUps:
    """Which pods are due to be woken, and when. Pure.

    A pod is due when it gains an allowed node, and when it is seen for the first time with one: the
    fault may have ended since the pod was refused. A pod that still waits is woken again, after
    pauses that double. For another replica answers the scheduler: its view may be stale, or it may
    remember more of a fault than ours.
    """

    def __init__(self, interval_s: float, longest_pause_s: float = SCHEDULER_RETRIES_S / 2) -> None:
        """`interval_s` is the first pause before a pod is woken again; after `longest_pause_s` it
        is not."""
        self.interval_s = interval_s
        self._longest_pause_s = max(interval_s, longest_pause_s)
        self._before: AllowedByPod = {}
        self._wakes: dict[str, _Wake] = {}

    def update(self, allowed: AllowedByPod, now: float) -> None:
        """Take what is allowed now for all waiting pods; pods that are not in it wait no more."""
        self._wakes = {key: wake for key, wake in self._wakes.items() if allowed.get(key)}
        for key, nodes in allowed.items():
            if nodes - self._before.get(key, frozenset()):
                self._wakes[key] = _Wake(now, Backoff(self.interval_s))
        self._before = dict(allowed)

    def due(self, now: float) -> Set[str]:
        """Keys of pods to wake."""
        return {key for key, wake in self._wakes.items() if wake.at <= now}

    def next_at(self) -> float | None:
        """When a pod is due next; None if no pod will be."""
        return min((wake.at for wake in self._wakes.values()), default=None)

    def woken(self, now: float) -> None:
        """All pods that were due have been woken."""
        for key in self.due(now):
            backoff = self._wakes.pop(key).backoff
            pause_s = backoff.next_s()
            if pause_s <= self._longest_pause_s:
                self._wakes[key] = _Wake(now + pause_s, backoff)


class Nudge:
    """Makes the scheduler retry pods that an extender refused.

    By default it annotates a ResourceClaim of our own, which no pod uses and no driver serves: that
    wakes all of them, and needs no right outside our namespace. Without DRA it annotates one node.
    """

    def __init__(self, session: Session, namespace: str, claim: str) -> None:
        self._session = session
        self._namespace = namespace
        self._name = claim

    async def wake(self, view: View, now: float) -> None:
        """Wake all pods that wait; raises ClusterError if the write is refused."""
        at = micro_time(utc(now))
        stamp = {"metadata": {"annotations": {WOKEN_AT: at}}}
        if view.served.get("ResourceClaim", True):
            await self._by_claim(stamp)
        elif view.nodes:
            try:
                await self._session.patch(kinds.NODE.path_of(min(view.nodes)), stamp)
            except Forbidden as error:
                raise ClusterError(f"{error}; {_RIGHTS}") from error

    async def _by_claim(self, stamp: Mapping[str, object]) -> None:
        path = kinds.CLAIM.path_of(self._name, self._namespace)
        try:
            await self._session.patch(path, stamp)
        except NotFound:
            await self._create()
            await self._session.patch(path, stamp)

    async def _create(self) -> None:
        request = {"name": "none", "exactly": {"deviceClassName": _NO_CLASS}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": self._name,
                "labels": {"app.kubernetes.io/name": "fettle"},
                "annotations": {
                    PURPOSE: "Its annotation wakes pods that Fettle refused. "
                    "No pod uses it, so it is never allocated."
                },
            },
            "spec": {"devices": {"requests": [request]}},
        }
        with suppress(Conflict):  # another replica was first
            await self._session.create(
                api_path(kinds.CLAIM.api_version, kinds.CLAIM.plural, namespace=self._namespace),
                claim,
            )
