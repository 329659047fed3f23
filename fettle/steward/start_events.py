"""Events on pods whose workload starts on none of several nodes, so that `kubectl describe pod`
says that the workload is the likely cause.

One Event for each pod, named as those on pods at risk. Nothing is said of the nodes.
"""

from collections.abc import Callable

from fettle.api import core
from fettle.client import Event, EventRecorder, Regarding
from fettle.cluster import Publisher
from fettle.explain import text
from fettle.health import FailedStart
from fettle.model.reasons import WorkloadStartsNowhere
from fettle.pacing import keep
from fettle.steward.risk_events import once_name

EVERY_S = 5.0
REASON = "WorkloadDoesNotStart"
"""The Events' reason, an interface."""


class StartEvents:
    """`writes_about` says whether anything may be written about a pod."""

    def __init__(
        self,
        publisher: Publisher,
        recorder: EventRecorder,
        writes_about: Callable[[core.Pod], bool] = lambda _: True,
        every_s: float = EVERY_S,
    ) -> None:
        self._publisher = publisher
        self._recorder = recorder
        self._writes_about = writes_about
        self._every_s = every_s
        self._told: set[str] = set()
        """Names of Events on pods that still fail."""

    async def keep(self) -> None:
        """Never returns."""
        await keep("events on pods that do not start", self._look, every_s=self._every_s)

    async def _look(self) -> None:
        self._tell_all()

    def _tell_all(self) -> None:
        named = {
            once_name(start.pod, REASON): start
            for start in self._publisher.view.failed_starts.values()
            if start.blamed
        }
        self._told &= named.keys()
        for name in named.keys() - self._told:
            start = named[name]
            if self._writes_about(start.pod) and self._recorder.record(_event(start, name)):
                self._told.add(name)


def _event(start: FailedStart, name: str) -> Event:
    metadata, workload = start.pod.metadata, f"{start.workload.kind} {start.workload.name}"
    return Event(
        regarding=Regarding("v1", "Pod", metadata.name, metadata.namespace, metadata.uid),
        reason=REASON,
        action="Observe",
        note=text(WorkloadStartsNowhere(workload, start.blamed, start.message)),
        type="Warning",
        name=name,
    )
