"""How long pods have waited for devices, and for how long they must: until their policy's patience
ends, and until a rule that a breaker set aside refuses them no more.

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
from fettle.config import BreakerSettings
from fettle.model import Placement, reasons
from fettle.pacing import pause, run_within
from fettle.scheduling.breaker import Breaker
from fettle.scheduling.demand import Demand, WaitStage
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
    """`now` is the clock, in Unix seconds. `settings` say how long a pod waits for a rule that a
    breaker set aside, if its own patience has no end."""

    def __init__(self, now: Callable[[], float], gangs: Gangs, settings: BreakerSettings) -> None:
        self._now = now
        self._gangs = gangs
        self._settings = settings
        self._view = EMPTY
        self._ungated: dict[str, float] = {}
        """By UID: when the last scheduling gate of a pod was seen to be gone."""

    async def keep(self, publisher: Publisher) -> None:
        """Follow the views until cancelled."""

        async def look(view: View) -> None:
            await run_within(partial(self.observe_view, view))

        await publisher.keep_looking("waits of pods", look, every_s=EVERY_S, rest=REST)

    def observe_view(self, view: View) -> None:
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

    def patience(
        self, pod: core.Pod, placement: Placement
    ) -> reasons.PatienceLasts | reasons.PatienceOver | None:
        """Until when the pod waits for what its policy accepts; None if without end, if it need not
        wait, or if it has a node."""
        ends = None if pod.node_name else self.ends_at(pod, placement)
        if ends is None:
            return None
        if self.is_over(pod, placement):
            return reasons.PatienceOver(ends)
        return reasons.PatienceLasts(ends, self._gangs.is_member(pod))

    # Rules that a breaker set aside

    def stage(self, pod: core.Pod, placement: Placement, breaker: Breaker) -> WaitStage:
        """Whether the pod has waited long enough for what the breaker set aside."""
        if not breaker.set_aside:
            return WaitStage.NOT_YET
        waited_s, (burst_s, enough_s) = self.waited_s(pod), self._longest_s(pod, placement)
        if waited_s >= enough_s:
            return WaitStage.ENOUGH
        sudden = bool(breaker.bursts) and waited_s >= burst_s
        return WaitStage.ENOUGH_FOR_A_BURST if sudden else WaitStage.NOT_YET

    def last_choices_at(
        self, pod: core.Pod, placement: Placement, breaker: Breaker
    ) -> tuple[float, ...]:
        """When rules that are set aside refuse the pod no more, in Unix seconds."""
        if not breaker.set_aside or pod.node_name or pod.scheduling_gates:
            return ()
        began = self._now() - self.waited_s(pod)
        burst_s, enough_s = self._longest_s(pod, placement)
        return (began + burst_s, began + enough_s) if breaker.bursts else (began + enough_s,)

    def refused_until(self, pod: core.Pod, demand: Demand, breaker: Breaker) -> float:
        """Until when the same view refuses the pod the same nodes, in Unix seconds: while its
        policy is patient, or has to be for a rule that is set aside."""
        placement, now = demand.policy.placement, self._now()
        ends = None if demand.patience_over else self.ends_at(pod, placement)
        later = (at for at in self.last_choices_at(pod, placement, breaker) if at > now)
        return min(inf if ends is None else ends, *later, inf)

    def _longest_s(self, pod: core.Pod, placement: Placement) -> tuple[float, float]:
        """How many seconds the pod waits at most for a rule that is set aside: in a burst, and
        otherwise."""
        own_s = placement.patience_s(in_gang=self._gangs.is_member(pod))
        enough_s = self._settings.patience_seconds if own_s is None else own_s
        return min(self._settings.burst_patience_seconds, enough_s), enough_s

    def _began(self, pod: core.Pod) -> float:
        began = unix_s(pod.metadata.creation_timestamp, self._now())
        return max(began, self._ungated.get(pod.metadata.uid, began)) if self._ungated else began


@lru_cache(maxsize=256)
def _ends_after_s(placement: Placement) -> tuple[float, float]:
    """How many seconds a single pod and one of a gang wait."""
    alone_s, together_s = (placement.patience_s(in_gang=gang) for gang in (False, True))
    return inf if alone_s is None else alone_s, inf if together_s is None else together_s
