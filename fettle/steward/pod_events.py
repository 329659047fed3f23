"""Events that say of a pod, once, what Fettle knows of it, so that `kubectl describe pod` says it:
it is on what its own policy refuses, it is stuck on a device that has failed or crashed as one
failed, or its workload starts nowhere. Nothing follows from them.

There is one Event for each pod and code. Its name is made of both, so that it is not written again
after a restart or by another leader, as long as the API server keeps it.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from fettle.api import core
from fettle.client import Event, EventRecorder, Regarding
from fettle.cluster import Publisher
from fettle.explain import text
from fettle.model.reasons import Reason, WorkloadStartsNowhere
from fettle.pacing import keep, pause, run_within
from fettle.scheduling.placed import AtRisk, Crashes, stuck, worst_first

EVERY_S = 2.0
# The Events' reasons, interfaces.
AT_RISK = "AtRisk"
STUCK = "StuckOnFailedDevice"
CRASHED = "CrashedByDevice"
MAYBE_CRASHED = "MaybeCrashedByDevice"
"""Where nobody knows which units the pod held."""
DOES_NOT_START = "WorkloadDoesNotStart"
MOST_AT_ONCE = 100
HELD_BACK_S = 60.0
"""So long nothing more is tried in a namespace, after the recorder held back an Event there."""
MOST_REMEMBERED = 20_000
_LONGEST_NAME = 253


class PodNews(NamedTuple):
    """What holds of a pod now. `code` tells it from other news of the pod; the Event says `why`,
    after the words `begins`."""

    pod: core.Pod
    reason: str
    code: str
    why: Reason
    begins: str = ""


class EventsOnPods:
    """Tells what `find` finds, the gravest first. `writes_about` says whether anything may be
    written about a pod."""

    def __init__(
        self,
        what: str,
        find: Callable[[], Iterable[PodNews]],
        recorder: EventRecorder,
        writes_about: Callable[[core.Pod], bool] = lambda _: True,
    ) -> None:
        self._what = what
        self._find = find
        self._recorder = recorder
        self._writes_about = writes_about
        self._told: set[str] = set()
        """Names of Events, also of what holds no more: it may come back."""
        self._full: dict[str, float] = {}
        """By namespace: until when no further Event is tried."""

    async def keep(self) -> None:
        """Never returns."""
        await keep(f"events on {self._what}", self._look, every_s=EVERY_S)

    async def _look(self) -> None:
        await run_within(None, self.tell)

    def tell(self) -> None:
        """Record an Event about all that is not told yet; the rest of it at the next time."""
        now = time.monotonic()
        self._full = {name: until for name, until in self._full.items() if until > now}
        found = {once_name(one.pod, one.code): one for one in self._find()}
        if len(self._told) > MOST_REMEMBERED:
            self._told &= found.keys()
        due = (name for name in found if name not in self._told and self._may_tell(found[name].pod))
        for name in islice(due, MOST_AT_ONCE):
            if self._recorder.record(_event(found[name], name)):
                self._told.add(name)
            else:
                self._full[found[name].pod.metadata.namespace] = now + HELD_BACK_S

    def _may_tell(self, pod: core.Pod) -> bool:
        pause()
        return pod.metadata.namespace not in self._full and self._writes_about(pod)


def news_of_risks(at_risk: AtRisk) -> Iterator[PodNews]:
    """Pods that are on what their own policy refuses."""
    found = [placed for placed in at_risk.found.values() if placed.at_risk]
    for placed in worst_first(found, len(found)):
        pause()
        if (worst := placed.worst) is not None:
            where = f"policy {placed.policy.name} refuses where the pod is, on node "
            yield PodNews(
                placed.pod, AT_RISK, worst.code, worst, f"{where}{placed.pod.node_name}: "
            )


def news_of_failures(
    at_risk: AtRisk, crashes: Crashes, clock: Callable[[], float] = time.time
) -> Iterator[PodNews]:
    """Pods that are stuck on a device that has failed, or that crashed as one failed. `clock` is in
    Unix seconds."""
    for placed in at_risk.found.values():
        pause()
        if (why := stuck(placed, clock())) is not None:
            yield PodNews(placed.pod, STUCK, f"{STUCK} {why.stuck_in}", why)
    for pod, crash in crashes.explained():
        pause()
        reason = CRASHED if crash.certain else MAYBE_CRASHED
        yield PodNews(pod, reason, f"{reason} {crash.at}", crash)


def news_of_starts(publisher: Publisher) -> Iterator[PodNews]:
    """Pods whose workload starts on none of several nodes. Nothing is said of the nodes."""
    for start in publisher.view.failed_starts.values():
        if start.blamed:
            workload = f"{start.workload.kind} {start.workload.name}"
            why = WorkloadStartsNowhere(workload, start.blamed, start.message)
            yield PodNews(start.pod, DOES_NOT_START, DOES_NOT_START, why)


def once_name(pod: core.Pod, code: str) -> str:
    """The name of the one Event about a pod with this code."""
    return event_name(pod.metadata.name, pod.metadata.uid, code)


def event_name(name: str, uid: str, code: str) -> str:
    """The name of the one Event about an object with this code. As clients name Events: the
    object's name, and digits."""
    digits = hashlib.sha256(f"{uid} {code}".encode()).hexdigest()[:16]
    return f"{name[: _LONGEST_NAME - 17]}.{digits}"


def _event(news: PodNews, name: str) -> Event:
    metadata = news.pod.metadata
    return Event(
        regarding=Regarding("v1", "Pod", metadata.name, metadata.namespace, metadata.uid),
        reason=news.reason,
        action="Observe",
        note=news.begins + text(news.why),
        series_key=news.code,
        type="Warning",
        name=name,
    )
