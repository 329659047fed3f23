"""Events on pods that are on what their own policy refuses, so that `kubectl describe pod` says it.

One Event for each pod and reason. Its name is made of both, so that it is not written again after a
restart or by another leader, as long as the API server keeps it. What the recorder holds back is
tried again later.
"""

import asyncio
import hashlib
from collections.abc import Callable

import structlog

from fettle.api import core
from fettle.client import Event, EventRecorder, Regarding
from fettle.explain import text
from fettle.model.reasons import Reason
from fettle.pacing import pause, run_within
from fettle.scheduling import AtRisk, PlacedPod, worst_first

EVERY_S = 2.0
REASON = "AtRisk"
"""The Events' reason, an interface."""
_LONGEST_NAME = 253

_LOG = structlog.get_logger(__name__)


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

    async def keep(self) -> None:
        """Never returns."""
        while True:
            try:
                await run_within(None, self._tell_all)
            except Exception:
                _LOG.exception("pods at risk cannot be told")
            await asyncio.sleep(self._every_s)

    def _tell_all(self) -> None:
        for placed in worst_first(self._at_risk.found.values()):
            if placed.at_risk and (worst := placed.worst) is not None:
                self._tell(placed, worst)
            pause()
        for uid in [uid for uid in self._told if not self._at_risk.has_node(uid)]:
            del self._told[uid]

    def _tell(self, placed: PlacedPod, worst: Reason) -> None:
        name = _name(placed.pod, worst)
        told = self._told.setdefault(placed.pod.metadata.uid, set())
        if name in told or not self._writes_about(placed.pod):
            return
        if self._recorder.record(risk_event(placed, worst, name)):
            told.add(name)


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


def _name(pod: core.Pod, worst: Reason) -> str:
    """As clients name Events: the object's name, and digits."""
    digits = hashlib.sha256(f"{pod.metadata.uid} {worst.code}".encode()).hexdigest()[:16]
    return f"{pod.metadata.name[: _LONGEST_NAME - 17]}.{digits}"
