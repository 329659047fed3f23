"""Events that say what Fettle knows of a pod, so that `kubectl describe pod` says it: it waits
because Fettle refused it, it is on what its own policy refuses, it is stuck on a device that has
failed or crashed as one failed, or its workload starts nowhere. Nothing follows from them.

A pod that waits has one when it is first refused everywhere, and one when the reasons change. Of
the others there is one for each pod and code. Its name is made of both, so that it is not written
again after a restart or by another leader, as long as the API server keeps it.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from fettle.api import core
from fettle.client import Event, EventRecorder, Regarding
from fettle.cluster import EMPTY, Publisher, View
from fettle.explain import text
from fettle.model import Mode, Policy
from fettle.model.reasons import Reason, WorkloadStartsNowhere
from fettle.pacing import keep, pause, run_within
from fettle.records import Act, Counted, Summaries
from fettle.scheduling import Answers, Narrowed, OwnerRefusals, Table
from fettle.scheduling.placed import AtRisk, Crashes, stuck, worst_first
from fettle.steward.waking import waiting

EVERY_S = 2.0
REST = 4.0
"""After looking at all waiting pods, pause for so many times as long."""
# The Events' reasons, interfaces.
REFUSED = "RefusedByHealth"
"""An Event on a Pod: Fettle refused every node that the scheduler asked about; why, and how long
the pod waits.

What to do: Repair a device, release a hold, or let the pod accept more (`fettle.dev/min-score`,
another policy). `fettle explain pod` has every node."""
AT_RISK = "AtRisk"
"""An Event on a Pod: its own policy refuses where it is now.

What to do: Nothing happens for this alone. End the pod when its work allows, or mend the device.
`fettle pods --at-risk` lists them."""
STUCK = "StuckOnFailedDevice"
"""An Event on a Pod: it does not end, does not become ready or crashes again and again, and a
device that it certainly holds has failed.

What to do: Delete the pod to place it anew. If it does not terminate, reboot its node."""
CRASHED = "CrashedByDevice"
"""An Event on a Pod: a container ended within a minute of the fault of a device that it held.

What to do: Mend the device. The crash itself is no evidence against it."""
MAYBE_CRASHED = "MaybeCrashedByDevice"
"""An Event on a Pod: a container ended within a minute of the fault of a device that it may have
held: nobody knows which units it has.

What to do: The same, if it had the device."""
DOES_NOT_START = "WorkloadDoesNotStart"
"""An Event on a Pod or its controller: the workload's pods start on none of several nodes, so its
own image, configuration or claims are the likely cause.

What to do: Mend the image, a claim's configuration or a volume. No node is blamed. If pods of other
namespaces fail there, too, look at `fettle devices --all`."""
MOST_AT_ONCE = 100
MOST_CODES = 5
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
        self._recorded: set[str] = set()
        """Names of Events, also of what holds no more: it may come back."""
        self._full: dict[str, float] = {}
        """By namespace: until when no further Event is tried."""

    async def keep(self) -> None:
        """Never returns."""
        await keep(f"events on {self._what}", self._look, every_s=EVERY_S)

    async def _look(self) -> None:
        await run_within(self.record)

    def record(self) -> None:
        """Record an Event about all that has none yet; the rest of it at the next time."""
        now = time.monotonic()
        self._full = {name: until for name, until in self._full.items() if until > now}
        found = {once_name(one.pod, one.code): one for one in self._find()}
        if len(self._recorded) > MOST_REMEMBERED:
            self._recorded &= found.keys()
        due = (
            name
            for name in found
            if name not in self._recorded and self._may_record(found[name].pod)
        )
        for name in islice(due, MOST_AT_ONCE):
            if self._recorder.record(_event(found[name], name)):
                self._recorded.add(name)
            else:
                self._full[found[name].pod.metadata.namespace] = now + HELD_BACK_S

    def _may_record(self, pod: core.Pod) -> bool:
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


def about_pod(pod: core.Pod) -> Regarding:
    """What an Event on a pod is about."""
    metadata = pod.metadata
    return Regarding("v1", "Pod", metadata.name, metadata.namespace, metadata.uid)


def act_on(pod: core.Pod, policy: Policy, mode: Mode, what: str, words: str) -> Act:
    """What the steward did to a pod, for the records: a code, and why in words."""
    metadata = pod.metadata
    owner = metadata.controller
    workload = f"{owner.kind}/{owner.name}" if owner is not None else ""
    return Act(what, words, "Pod", metadata.key, metadata.uid, workload, policy.name, mode)


def once_name(pod: core.Pod, code: str) -> str:
    """The name of the one Event about a pod with this code."""
    return event_name(pod.metadata.name, pod.metadata.uid, code)


def event_name(name: str, uid: str, code: str) -> str:
    """The name of the one Event about an object with this code. As clients name Events: the
    object's name, and digits."""
    digits = hashlib.sha256(f"{uid} {code}".encode()).hexdigest()[:16]
    return f"{name[: _LONGEST_NAME - 17]}.{digits}"


def _event(news: PodNews, name: str) -> Event:
    return Event(
        regarding=about_pod(news.pod),
        reason=news.reason,
        action="Observe",
        note=news.begins + text(news.why),
        series_key=news.code,
        type="Warning",
        name=name,
    )


class RefusalEvents:
    """`record` takes an Event at once and writes it later; false if it is held back.

    After a change of the leader, the new one records once more what the old one did.
    """

    def __init__(
        self,
        answers: Answers,
        publisher: Publisher,
        record: Callable[[Event], bool],
        refusals: OwnerRefusals,
    ) -> None:
        self._answers = answers
        self._publisher = publisher
        self._record = record
        self._owner_refusals = refusals
        self._summaries = Summaries()
        self._recorded: dict[str, frozenset[str]] = {}
        """The codes that were recorded of each waiting pod."""

    async def run(self) -> None:
        """Tell of each view's waiting pods, until cancelled."""
        await self._publisher.keep_looking(
            "events on refused pods", self.record, every_s=EVERY_S, rest=REST
        )

    async def record(self, _: View = EMPTY) -> None:
        """Record an Event about each pod that waits for reasons of which it has none."""
        view = self._publisher.view
        pods = await run_within(lambda: [*waiting(view)])
        recorded: dict[str, frozenset[str]] = {}
        for key, pod in pods:
            found = await self._refusals(pod)
            if found is None:
                continue
            why, how_many = found
            codes = frozenset(why.codes)
            patience = self._answers.demands.patience(pod)
            event = _refusal_event(pod, why, how_many, patience)
            if self._recorded.get(key) == codes or self._record(event):
                recorded[key] = codes
        self._recorded = recorded

    async def _refusals(self, pod: core.Pod) -> tuple[Counted, str] | None:
        """Why nodes are refused, and how many of how many, in words; None if none is."""
        demand = self._answers.demand(pod)
        if demand is None or demand.mode is not Mode.ENFORCE:
            return None
        table = await self._answers.judged(demand)
        refused = len(table.refusing)
        if not refused:
            return None
        why = self._summaries.refusals(table, table.refusing, refused, self._publisher.view.nodes)
        # Beside other reasons only: because of this one alone, no pod is refused everywhere.
        avoided = self._avoided(pod, table)
        anyway = len(table.refusing & table.rejected)
        rejected = f" ({anyway} of them have no room for it anyway)" if anyway else ""
        how_many = f"{refused + len(avoided)} of {len(table.verdicts)} nodes{rejected}"
        return why.adding(avoided), how_many

    def _avoided(self, pod: core.Pod, table: Table) -> Mapping[str, Reason]:
        """The nodes that are left out for the sake of the pod's owner, while others are left."""
        if not (avoided := self._owner_refusals.nodes_for(pod)):
            return {}
        open_ = [n for n in table.verdicts if n not in table.refusing and n not in table.rejected]
        return Narrowed(open_, open_).avoiding(avoided).besides


def _refusal_event(pod: core.Pod, why: Counted, how_many: str, patience: Reason | None) -> Event:
    counts = sorted(why.codes.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{code} ×{n}" for code, n in counts[:MOST_CODES])
    more = f" and {len(counts) - MOST_CODES} more" if len(counts) > MOST_CODES else ""
    such = f"; such as: {text(why.commonest)}" if why.commonest is not None else ""
    wait = f"; {text(patience)}" if patience is not None else ""
    return Event(
        regarding=about_pod(pod),
        reason=REFUSED,
        action="Filter",
        note=f"Fettle refuses {how_many}: {listed}{more}{such}{wait}. "
        f"All of it: fettle explain pod {pod.metadata.key}",
        series_key=" ".join(sorted(why.codes)),
        type="Warning",
    )
