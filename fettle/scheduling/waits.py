"""How long pods have waited for devices, and when their policy's patience ends.

A pod waits from its creation, or since its scheduling gates are gone, until it is bound. No object
says when gates were removed, so a process that did not see it counts from the creation. Pure; the
clock is an argument.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import inf

from fettle.api import core
from fettle.api.meta import unix_s
from fettle.cluster import EMPTY, Publisher, View, changed_keys
from fettle.model import Placement
from fettle.pacing import pause, run_within
from fettle.scheduling.gangs import Gangs

EVERY_S = 1.0
"""The shortest pause between two looks at the newest view."""
REST = 4.0
"""After a look, pause for so many times as long."""


def bound_at(pod: core.Pod) -> float:
    """When a pod got its node, in Unix seconds; if nobody says, when it started or was created."""
    status = pod.status
    told = next(
        (
            condition.last_transition_time
            for condition in (status.conditions if status is not None else None) or ()
            if condition.type == "PodScheduled" and condition.status == "True"
        ),
        None,
    )
    started = status.start_time if status is not None else None
    return unix_s(told or started or pod.metadata.creation_timestamp, 0.0)


class PodWaits:
    """`now` is the clock, in Unix seconds."""

    def __init__(self, now: Callable[[], float], gangs: Gangs) -> None:
        self._now = now
        self._gangs = gangs
        self._view = EMPTY
        self._ungated: dict[str, float] = {}
        """By UID: when the last scheduling gate of a pod was seen to be gone."""

    async def keep(self, publisher: Publisher) -> None:
        """Follow the views until cancelled."""

        async def look(view: View) -> None:
            await run_within(None, partial(self.follow, view))

        await publisher.keep_looking("waits of pods", look, every_s=EVERY_S, rest=REST)

    def follow(self, view: View) -> None:
        """Take in which pods have scheduling gates no more."""
        before, self._view = self._view, view
        for key in changed_keys(before.pods, view.pods):
            pause()
            old, new = before.pods.get(key), view.pods.get(key)
            if old is None:
                continue
            if new is None or new.metadata.uid != old.metadata.uid:
                self._ungated.pop(old.metadata.uid, None)
            elif old.scheduling_gates and not new.scheduling_gates:
                self._ungated[new.metadata.uid] = self._now()

    def ends_at(self, pod: core.Pod, placement: Placement) -> float | None:
        """When the pod's patience ends or ended, in Unix seconds; None if it has no end, or has not
        begun."""
        if not placement.ends or pod.scheduling_gates:
            return None
        patience_s = placement.patience_s(in_gang=self._gangs.is_member(pod))
        return None if patience_s is None else self._began(pod) + patience_s

    def waited_s(self, pod: core.Pod) -> float:
        """For how many seconds the pod has waited for devices, or did before it was bound."""
        until = bound_at(pod) if pod.node_name else self._now()
        return 0.0 if pod.scheduling_gates else until - self._began(pod)

    def is_over(self, pod: core.Pod, placement: Placement) -> bool:
        """Whether the pod's patience is over, or was when it was bound."""
        if not placement.ends or pod.scheduling_gates:
            return False
        waited_s = self.waited_s(pod)
        alone_s, together_s = _ends_after_s(placement)
        if (waited_s < alone_s) == (waited_s < together_s):  # usually: no need to look for others
            return waited_s >= alone_s
        return waited_s >= (together_s if self._gangs.is_member(pod) else alone_s)

    def _began(self, pod: core.Pod) -> float:
        began = unix_s(pod.metadata.creation_timestamp, self._now())
        return max(began, self._ungated.get(pod.metadata.uid, began)) if self._ungated else began


@lru_cache(maxsize=256)
def _ends_after_s(placement: Placement) -> tuple[float, float]:
    """How many seconds a single pod and one of a gang wait."""
    alone_s, together_s = (placement.patience_s(in_gang=gang) for gang in (False, True))
    return inf if alone_s is None else alone_s, inf if together_s is None else together_s
