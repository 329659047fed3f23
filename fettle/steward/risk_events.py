"""Events on pods that are on what their own policy refuses, so that `kubectl describe pod` says it.

One Event for each pod and reason. Its name is made of both, so that it is not written again after a
restart or by another leader, as long as the API server keeps it. What the recorder holds back is
tried again later.
"""

import hashlib
import time
from collections.abc import Callable

from fettle.api import core
from fettle.client import Event, EventRecorder, Regarding
from fettle.explain import text
from fettle.model.reasons import Reason
from fettle.pacing import keep, pause, run_within
from fettle.scheduling import AtRisk, PlacedPod, worst_first

EVERY_S = 2.0
REASON = "AtRisk"
"""The Events' reason, an interface."""
MOST_AT_ONCE = 100
HELD_BACK_S = 60.0
_LONGEST_NAME = 253


class RiskEvents:
    """`writes_about` says whether anything may be written about a pod."""

    def __init__(
        self,
        at_risk: AtRisk,
        recorder: EventRecorder,
        writes_about: Callable[[core.Pod], bool] = lambda _: True,
        every_s: float = EVERY_S,
    ) -> None:
        self._at_risk = at_risk
        self._recorder = recorder
        self._writes_about = writes_about
        self._every_s = every_s
        self._told: dict[str, set[str]] = {}
        """By the pod's UID: the names of its Events."""
        self._full: dict[str, float] = {}
        """By namespace: until when no further Event is tried, since one was held back."""

    async def keep(self) -> None:
        """Never returns."""
        await keep("events on pods at risk", self._look, every_s=self._every_s)

    async def _look(self) -> None:
        await run_within(None, self._tell_all)

    def _tell_all(self) -> None:
        now = time.monotonic()
        untold = [placed for placed in self._at_risk.found.values() if self._is_due(placed, now)]
        for placed in worst_first(untold, MOST_AT_ONCE):
            worst, pod = placed.worst, placed.pod
            if worst is None or not self._is_due(placed, now):
                continue
            name = once_name(pod, worst.code)
            if self._recorder.record(risk_event(placed, worst, name)):
                self._told.setdefault(pod.metadata.uid, set()).add(name)
            else:
                self._full[pod.metadata.namespace] = now + HELD_BACK_S
        for uid in [uid for uid in self._told if not self._at_risk.has_node(uid)]:
            del self._told[uid]

    def _is_due(self, placed: PlacedPod, now: float) -> bool:
        """Whether the pod's gravest reason is not told yet, and may be told now."""
        pause()
        worst, metadata = placed.worst, placed.pod.metadata
        if worst is None or not placed.at_risk:
            return False
        if now < self._full.get(metadata.namespace, 0.0) or not self._writes_about(placed.pod):
            return False
        return once_name(placed.pod, worst.code) not in self._told.get(metadata.uid, ())


def risk_event(placed: PlacedPod, worst: Reason, name: str) -> Event:
    """The Event of a pod at risk, for this reason."""
    pod = placed.pod
    about = Regarding("v1", "Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
    return Event(
        regarding=about,
        reason=REASON,
        action="Observe",
        note=(
            f"policy {placed.policy.name} refuses where the pod is, on node {pod.node_name}: "
            f"{text(worst)}"
        ),
        series_key=worst.code,
        type="Warning",
        name=name,
    )


def once_name(pod: core.Pod, code: str) -> str:
    """The name of the one Event about a pod with this code."""
    return event_name(pod.metadata.name, pod.metadata.uid, code)


def event_name(name: str, uid: str, code: str) -> str:
    """The name of the one Event about an object with this code. As clients name Events: the
    object's name, and digits."""
    digits = hashlib.sha256(f"{uid} {code}".encode()).hexdigest()[:16]
    return f"{name[: _LONGEST_NAME - 17]}.{digits}"
