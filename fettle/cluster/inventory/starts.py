"""Which workloads' pods do not start, and where: what is the node's fault, and what the workload's.

A start that fails speaks against its node, and the devices that it was given as far as they are
known, as the word of its namespace. A workload that fails on
several nodes and runs on none is the likelier cause: then it speaks against none of them, except
where pods of other namespaces fail, too (decision 0054).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from heapq import heappop, heappush

import msgspec

from fettle.api import core, known_as
from fettle.api.meta import OwnerReference
from fettle.cluster.inventory.kept_events import PodEvents
from fettle.health import (
    AWAITED_S,
    FailedStart,
    SignalReport,
    SignalRules,
    awaited_since,
    devices_meant,
    failed_start,
    start_evidence,
    starts_of,
)
from fettle.model import Evidence, NodeId, Subject

KEEP_S = 600.0
"""How long a failed start counts once its pod is over or gone. Then what it said of its node
fades."""
SEVERAL = 2
"""On so many nodes a workload has to fail before it is the likelier cause."""

DevicesOf = Callable[[core.Pod], tuple[Subject, ...]]
"""The devices that a pod was given."""
OnFailure = Callable[[OwnerReference, str, float], None]
"""Called with a workload and a node on which it does not start, and when that was last so."""


class _Here(msgspec.Struct, gc=False):
    """The failed starts of one workload on one node: those of pods that are there, and the latest,
    with the time when there last was one."""

    last: FailedStart
    at: float
    living: dict[str, FailedStart] = {}

    @property
    def starts(self) -> list[FailedStart]:
        return [*self.living.values()] or [self.last]


class _Failing(msgspec.Struct, gc=False):
    """A workload, the nodes on which it fails, and those on which it started after all."""

    workload: OwnerReference
    namespace: str
    nodes: dict[str, _Here] = {}
    recovered: set[str] = set()
    reported: dict[str, frozenset[Subject]] = {}
    """By node: the devices there that something was said of."""
    blamed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.workload.kind} {self.namespace}/{self.workload.name}"


class Starts:
    """Follows all pods with devices. `pods` are those that have not ended, by key.

    `changed`: whether `shown` would show something new.
    """

    def __init__(
        self,
        rules: SignalRules,
        pods: Mapping[str, core.Pod],
        on_failure: OnFailure = lambda *_: None,
        devices_of: DevicesOf = lambda _: (),
    ) -> None:
        self._rules = rules
        self._devices_of = devices_of
        self._pods = pods
        self._on_failure = on_failure
        self._failing: dict[str, _Failing] = {}
        """By the workload's UID."""
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        """By node: the workloads that fail there."""
        self._running: Counter[str] = Counter()
        """By workload: how many of its pods run."""
        self._dirty: set[str] = set()
        self._failed: dict[str, FailedStart] = {}
        """By pod, as long as it counts."""
        self._events = PodEvents()
        self._due: list[tuple[float, str]] = []
        """When to look again at pods that wait: a heap."""
        self._awaited: dict[str, float] = {}
        """By pod: its time in the heap."""
        self._shown: Mapping[str, FailedStart] = {}
        self.changed = False

    def put(self, pod: core.Pod, now: float) -> None:
        """A pod as it is now."""
        key = pod.metadata.key
        if pod.metadata.deletion_timestamp is not None:
            self.gone(key, now)  # it will not start any more, and may take long to end
            return
        before = self._failed.get(key)
        start = failed_start(pod, self._rules, now, self._events.of(key, pod.metadata.uid))
        if start is not None and start.message:
            meant = devices_meant(start.message, self._devices_of(pod))
            start = msgspec.structs.replace(start, devices=meant)
        is_same = before is not None and _is_same(pod, before)
        # A controller may adopt a pod, or let it go.
        if before is not None and not (
            is_same and start is not None and start.workload.uid == before.workload.uid
        ):
            started = start is None and not pod.terminal and is_same
            self._leave(key, before, now, started=started)
            before = None
        if start is None:
            self._await(key, pod, now)
        elif not start.is_over or now - start.at < KEEP_S:
            self._fail(key, start, before, now)

    def note_running(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod that is kept comes, changes, or goes. A workload that runs is not to blame."""
        for pod, change in ((old, -1), (new, 1)):
            if pod is None or not _runs(pod):
                continue
            uid = known_as(pod).uid
            self._running[uid] += change
            if not self._running[uid]:
                del self._running[uid]
            if uid in self._failing:
                self._dirty.add(uid)

    def gone(self, key: str, now: float) -> None:
        """A pod was deleted."""
        self._events.gone(key)
        self._awaited.pop(key, None)
        if (before := self._failed.get(key)) is not None:
            self._leave(key, before, now, started=False)

    def observe_event(self, event: core.WatchedEvent, now: float) -> None:
        """What the kubelet says of a pod whose devices it cannot prepare."""
        key = self._events.add(event, self._pods.__contains__)
        if (pod := self._pods.get(key)) is not None:
            self.put(pod, now)

    def listed(self, pods: Container[str]) -> None:
        """All pods that are there, also those that have ended."""
        self._events.keep(pods)

    def age(self, now: float) -> None:
        """Look at pods that have waited for long, and forget starts that failed long ago."""
        while self._due and self._due[0][0] <= now:
            due, key = heappop(self._due)
            if self._awaited.get(key) == due:
                del self._awaited[key]
                if (pod := self._pods.get(key)) is not None:
                    self.put(pod, now)
        for uid, failing in [*self._failing.items()]:
            for node, here in [*failing.nodes.items()]:
                if here.living:
                    here.at = now
                    self._report(here, now)
                elif now - here.at >= KEEP_S:
                    self._forget(uid, node)
        for key, one in [*self._failed.items()]:
            if one.is_over and now - one.at >= KEEP_S:
                del self._failed[key]
                self.changed = True

    def reports(self) -> Iterator[SignalReport]:
        """What is to be said anew of nodes, one workload at a time."""
        while self._dirty:
            uid = self._dirty.pop()
            failing = self._failing[uid]
            suspect = len(failing.nodes) >= SEVERAL and not self._running[uid]
            blamed = tuple(sorted(failing.nodes)) if suspect else ()
            self.changed |= blamed != failing.blamed
            failing.blamed = blamed
            counting = {
                node: here
                for node, here in failing.nodes.items()
                if not blamed or self._is_corroborated(node, failing.namespace)
            }
            spared = (failing.nodes.keys() | failing.recovered) - counting.keys()
            failing.recovered = set()
            if not failing.nodes:
                del self._failing[uid]
            wrong = {
                subject
                for node in spared
                for subject in (NodeId(node), *failing.reported.pop(node, ()))
            }
            yield SignalReport(
                reporter=starts_of(failing.name),
                evidence=tuple(self._evidence(failing, counting)),
                retracted=frozenset(wrong),
                uid=failing.workload.uid,
            )

    def _evidence(self, failing: _Failing, counting: Mapping[str, _Here]) -> Iterator[Evidence]:
        """What is said of these nodes, and of the devices there that its pods were given."""
        for node, here in counting.items():
            starts = here.starts
            is_beside = self._is_of_devices(node)
            yield start_evidence(
                starts, self._rules, NodeId(node), failing.name, is_beside=is_beside
            )
            given = defaultdict(list)
            for start in starts:
                for device in start.devices:
                    given[device].append(start)
            failing.reported[node] = frozenset(given)
            for device, theirs in given.items():
                yield start_evidence(theirs, self._rules, device, failing.name)

    def shown(self) -> Mapping[str, FailedStart]:
        """The failed starts that count, by pod."""
        if self.changed:
            self.changed = False
            self._shown = {
                key: msgspec.structs.replace(one, blamed=failing.blamed)
                for key, one in self._failed.items()
                if (failing := self._failing.get(one.workload.uid)) is not None
            }
        return self._shown

    def _fail(self, key: str, start: FailedStart, before: FailedStart | None, now: float) -> None:
        if before is not None:
            start = msgspec.structs.replace(start, at=before.at)
        self._failed[key] = start
        if before is not None and (before.message, before.is_over) == (
            start.message,
            start.is_over,
        ):
            return
        uid, node = start.workload.uid, start.node
        failing = self._failing.setdefault(uid, _Failing(start.workload, start.namespace))
        at = start.at if start.is_over else now
        here = failing.nodes.get(node)
        if here is None:
            here = failing.nodes[node] = _Here(start, at)
            self._on[node].add(uid)
        here.last, here.at = start, max(here.at, at)
        if start.is_over:
            here.living.pop(key, None)
        else:
            here.living[key] = start
        self._report(here, here.at)
        self._mark(node)
        self.changed = True

    def _report(self, here: _Here, at: float) -> None:
        self._on_failure(here.last.workload, here.last.node, at)

    def _leave(self, key: str, before: FailedStart, now: float, *, started: bool) -> None:
        """The pod has started after all, or it will not any more."""
        del self._failed[key]
        self.changed = True
        uid, node = before.workload.uid, before.node
        failing = self._failing.get(uid)
        here = failing.nodes.get(node) if failing is not None else None
        if failing is None or here is None:
            return
        if here.living.pop(key, None) is not None:
            here.at = now
        if started and not here.living:
            failing.recovered.add(node)
            self._forget(uid, node)
        self._dirty.add(uid)
        self._mark(node)

    def _forget(self, uid: str, node: str) -> None:
        del self._failing[uid].nodes[node]
        self._on[node].discard(uid)
        self._dirty.add(uid)
        self._mark(node)
        if not self._on[node]:
            del self._on[node]

    def _mark(self, node: str) -> None:
        """Who fails on a node, or with what, has changed: so may what the others there count."""
        self._dirty.update(self._on.get(node, ()))

    def _await(self, key: str, pod: core.Pod, now: float) -> None:
        since = awaited_since(pod, now)
        if since is None:
            self._awaited.pop(key, None)
        elif self._awaited.get(key) != (due := since + AWAITED_S) and due > now:
            self._awaited[key] = due
            heappush(self._due, (due, key))

    def _is_of_devices(self, node: str) -> bool:
        """Whether all that fails on the node has a device in common, so that it is less likely the
        node."""
        starts = [s for uid in self._on[node] for s in self._failing[uid].nodes[node].starts]
        if any(start.whole_node for start in starts):
            return False
        return bool(set.intersection(*(set(start.devices) for start in starts)))

    def _is_corroborated(self, node: str, namespace: str) -> bool:
        """Whether pods of another namespace fail on the node, too."""
        return any(self._failing[uid].namespace != namespace for uid in self._on[node])


def _is_same(pod: core.Pod, before: FailedStart) -> bool:
    return (pod.metadata.uid, pod.node_name) == (before.pod.metadata.uid, before.node)


def _runs(pod: core.Pod) -> bool:
    """Whether its containers run: while they are restarted, its phase is Running, too."""
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    return any(c.type == "Ready" and c.status == "True" for c in conditions)
