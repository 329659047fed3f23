"""Events on pods that are stuck on a device that has failed, or that crashed as one failed, so that
`kubectl describe pod` says it.

One Event for each pod, state and device, named as those on pods at risk. Nothing follows from it.
"""

import time
from collections.abc import Callable

from fettle.api import core
from fettle.client import Event, EventRecorder, Regarding
from fettle.explain import text
from fettle.model.reasons import Reason
from fettle.pacing import keep, pause, run_within
from fettle.scheduling import AtRisk, Crashes, stuck
from fettle.steward.risk_events import once_name

EVERY_S = 2.0
# The Events' reasons, interfaces.
STUCK = "StuckOnFailedDevice"
CRASHED = "CrashedByDevice"
MAYBE_CRASHED = "MaybeCrashedByDevice"
"""Where nobody knows which units the pod held."""


class FailureEvents:
    """`writes_about` says whether anything may be written about a pod. `clock` is in Unix
    seconds."""

    def __init__(
        self,
        at_risk: AtRisk,
        crashes: Crashes,
        recorder: EventRecorder,
        writes_about: Callable[[core.Pod], bool] = lambda _: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._at_risk = at_risk
        self._crashes = crashes
        self._recorder = recorder
        self._writes_about = writes_about
        self._clock = clock
        self._told: set[str] = set()
        """Names of Events that were told of what still holds."""

    async def keep(self) -> None:
        """Never returns."""
        await keep("events on pods on failed devices", self._look, every_s=EVERY_S)

    async def _look(self) -> None:
        await run_within(None, self._tell_all)

    def _tell_all(self) -> None:
        holding: set[str] = set()
        for placed in self._at_risk.found.values():
            pause()
            if (why := stuck(placed, self._clock())) is not None:
                holding.add(self._tell(placed.pod, STUCK, f"{STUCK} {why.stuck_in}", why))
        for pod, crash in self._crashes.explained():
            pause()
            reason = CRASHED if crash.certain else MAYBE_CRASHED
            holding.add(self._tell(pod, reason, f"{reason} {crash.at}", crash))
        self._told &= holding

    def _tell(self, pod: core.Pod, reason: str, code: str, why: Reason) -> str:
        """Tell it if it was not told; returns the name of the Event."""
        name, metadata = once_name(pod, code), pod.metadata
        if name not in self._told and self._writes_about(pod):
            about = Regarding("v1", "Pod", metadata.name, metadata.namespace, metadata.uid)
            event = Event(
                about, reason, "Observe", text(why), series_key=code, type="Warning", name=name
            )
            if self._recorder.record(event):
                self._told.add(name)
        return name
