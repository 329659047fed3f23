"""When a pod that Fettle's refusal keeps waiting should be looked at again. The scheduler does not
retry a pod because Fettle changed its mind: in a quiet cluster that takes five minutes, so the
steward nudges it. Pure: what is allowed now, what was allowed before and the time are arguments.
"""

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from fettle.api import core
from fettle.cluster import View
from fettle.pacing import Backoff, pause

MARK = "fettle:"
"""What every refusal text of the extender begins with."""
SCHEDULER_RETRIES_S = 300.0
"""After so long a scheduler tries a pod again by itself."""

Allowed = Mapping[str, Set[str]]


def is_waiting(pod: core.Pod) -> bool:
    """Pending, on no node, and last refused with a text of ours in it."""
    if pod.terminal or pod.metadata.deletion_timestamp is not None:
        return False
    if pod.spec is None or pod.node_name or pod.status is None:
        return False
    return any(
        condition.type == "PodScheduled"
        and condition.status != "True"
        and MARK in condition.message
        for condition in pod.status.conditions or ()
    )


def waiting(view: View) -> Iterator[tuple[str, core.Pod]]:
    """Pods that wait because of us, each under a key that no later pod of its name shares."""
    for key, pod in view.pods.items():
        if is_waiting(pod):
            yield f"{key}/{pod.metadata.uid}", pod
        pause()


class _Wake(NamedTuple):
    """When a pod is woken next, and how it goes on after that."""

    at: float
    backoff: Backoff


class Waking:
    """Which pods are due to be woken, and when. A pod seen for the first time is due if any node is
    allowed: the fault may have cleared between its refusal and our seeing it.

    A pod that still waits is woken again, after pauses that double until the scheduler would have
    retried by itself: another replica answers the scheduler, and its view may be a moment behind,
    or it may remember more of a fault than ours and hold it against a node for longer.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._before: Allowed = {}
        self._wakes: dict[str, _Wake] = {}

    def look(self, allowed: Allowed, now: float) -> None:
        """Take what is allowed now for every waiting pod; pods that are not in it wait no more."""
        self._wakes = {key: wake for key, wake in self._wakes.items() if allowed.get(key)}
        for key, nodes in allowed.items():
            if nodes - self._before.get(key, frozenset()):
                self._wakes[key] = _Wake(now, Backoff(self._interval_s))
        self._before = dict(allowed)

    def due(self, now: float) -> Set[str]:
        """Keys of pods to wake."""
        return {key for key, wake in self._wakes.items() if wake.at <= now}

    def next_at(self) -> float | None:
        """When a pod is due next; None where none is to be."""
        return min((wake.at for wake in self._wakes.values()), default=None)

    def woken(self, now: float) -> None:
        """All that were due have been woken once more."""
        for key in self.due(now):
            backoff = self._wakes.pop(key).backoff
            pause_s = backoff.next_s()
            if pause_s <= max(self._interval_s, SCHEDULER_RETRIES_S / 2):
                self._wakes[key] = _Wake(now + pause_s, backoff)
