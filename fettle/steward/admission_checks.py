"""Answers Kueue's AdmissionChecks of `fettle.dev/sound-devices`: whether there are enough sound
devices for a workload that holds quota, by the code that answers filter.

Only health lets a workload wait: what Fettle does not understand, what no policy refuses, and what
only growth or somebody else's end could satisfy, is Ready (decision 0102). Needs the setting
`kueue.admissionCheck` and the rights in `deploy/rbac/optional/kueue.yaml`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Set
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, NamedTuple

import msgspec

from fettle.api import Bad, Change, Gone, ListEnded, ListStarted, Lost, Put, Unserved, core, kinds
from fettle.api.kueue import (
    AdmissionCheck,
    CheckState,
    PodSet,
    QueuedWorkload,
    ResourceFlavor,
    WorkloadOutline,
)
from fettle.api.meta import ObjectMeta, rfc3339_at, unix_s
from fettle.client import Reflector, Session, decoded
from fettle.cluster import View
from fettle.config import Settings
from fettle.health import one_line
from fettle.logs import Logger
from fettle.model import ClusterError, Conflict, Mode, NotFound
from fettle.pacing import keep, pause, run_within
from fettle.scheduling import (
    Answers,
    Demand,
    Taken,
    count_taken,
    nodes_lacking_units,
    side_by_side,
)
from fettle.scheduling.plans import node_fit
from fettle.steward.paced_writes import PacedWrites, concerns_all

SOUND_DEVICES = "fettle.dev/sound-devices"
"""`spec.controllerName` of the AdmissionChecks that are answered, an interface."""
EVERY_S = 1.0
ANSWERS_PER_S = 10.0
HOLDS_QUOTA_S = 60.0
"""So long a workload keeps the quota that it waits with. Then others may have it."""
PROMISED_S = 10.0
"""So long the devices of a workload that was let start count as taken: its pods take them."""
MOST_ON_A_NODE = 16
"""Pods of one pod set that are counted one by one on a node. Where that many fit, any number does,
except that a device plugin says how many units there are."""
MOST_STEPS = 16
"""So many more numbers are tried for nodes with more units. Undecided after these, most fit."""
AGAIN_S = 10.0
"""So often at least a workload is judged again, whatever has changed: patience ends by time."""
MOST_NODES_NAMED = 3
RIGHTS = "deploy/rbac/optional/kueue.yaml grants the rights"
_UNREAD = "what waits for Kueue's checks cannot be read"
_READY, _PENDING, _RETRY = "Ready", "Pending", "Retry"

_LOG = Logger(__name__)


class _Answer(NamedTuple):
    """A state of the check, and why."""

    state: str
    message: str


class Room(NamedTuple):
    """How many pods of a pod set are to start (`own`), how many must fit so that these do beside
    what was promised to others (`needed`), how many fit now on sound devices, and how many if
    Fettle refused nothing: at most `needed`."""

    name: str
    what: str
    own: int
    needed: int
    sound: int
    at_all: int
    refused: tuple[str, ...]
    must_grow: bool
    """No node is refused, and too few would fit if all devices were free and back again."""

    @property
    def by_health(self) -> bool:
        """Whether more pods would fit if nothing were bad, and enough for its own. What others
        were promised is no matter of that: they start as long as anybody comes."""
        return self.sound < self.at_all and self.own <= self.at_all

    @property
    def takes(self) -> int:
        """How many of its pods find devices: it takes no more than there are."""
        return max(0, min(self.own, self.sound - (self.needed - self.own)))


class Promise(NamedTuple):
    """Devices of these kinds that were given away and are not seen to be taken."""

    until: float
    kinds: frozenset[str]
    devices: float


class AdmissionChecks:
    """`keep` while leading; `notes` say what is amiss. `clock` is in Unix seconds."""

    def __init__(
        self,
        session: Session,
        answers: Answers,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        *,
        every_s: float = EVERY_S,
        answers_per_s: float = ANSWERS_PER_S,
    ) -> None:
        """`every_s`: how often it looks at those that wait."""
        self._every_s = every_s
        self._session = session
        self._answers = answers
        self._is_on = settings.kueue.admission_check
        self._clock = clock
        self._seen = _Seen()
        self._writes = PacedWrites(
            f"Kueue's checks of {SOUND_DEVICES} cannot be answered", RIGHTS, per_s=answers_per_s
        )
        self._promises: list[Promise] = []
        self._promised = 0
        """How often the promises have changed."""
        self._first_seen: dict[str, float] = {}
        """By key, of those that wait: since when they do, as far as was seen."""
        self._judged: dict[str, tuple[object, ...] | None] = {}
        """By key, of those that had a turn: from what they were judged; None if they were not."""
        self._generation = -1
        self._taken: Taken = {}

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        return [*self._writes.notes(), *self._seen.notes()]

    async def keep(self) -> None:
        """Never returns."""
        if not self._is_on:
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            for kind in kinds.KUEUE_KINDS:
                group.create_task(self._watch(kind))
            group.create_task(keep("admission checks of Kueue", self.look, every_s=self._every_s))

    async def _watch(self, kind: kinds.Kind) -> None:
        async def watch() -> None:
            await Reflector(self._session, kind, self._seen, goes_without=True).run()

        await keep(f"reading of Kueue's {kind.name}", watch)

    async def look(self) -> None:
        """Answer the workloads that wait, as many as may be answered now."""
        view = self._answers.view
        ours = [
            one for one in self._seen.checks.values() if one.spec.controller_name == SOUND_DEVICES
        ]
        if not ours or not view.synced or not self._seen.is_complete:
            return
        names = frozenset(one.metadata.name for one in ours)
        self._seen.failed = ""
        waiting, now = self._seen.waiting, self._clock()
        self._first_seen = {key: self._first_seen.get(key, now) for key in waiting}
        self._judged = {key: basis for key, basis in self._judged.items() if key in waiting}
        self._end_promises(now)
        due = [key for key in waiting if self._is_due(key, view, now)]
        due.sort(key=lambda key: key in self._judged)  # those that had no turn come first
        await self._writes.do(
            [partial(self._activate, one) for one in ours if not one.is_active],
            [partial(self._try, key, names, view) for key in due],
        )

    def _is_due(self, key: str, view: View, now: float) -> bool:
        workload, before = self._seen.waiting[key], self._judged.get(key)
        return workload is None or before is None or before != self._basis(workload, view, now)

    def _basis(self, workload: QueuedWorkload, view: View, now: float) -> tuple[object, ...]:
        """What its answer depends on."""
        return (
            workload.metadata.uid,
            workload.metadata.resource_version,
            view.generation,
            self._promised,
            self._held_s(workload, now) >= HOLDS_QUOTA_S,
            now // AGAIN_S,
        )

    def _held_s(self, workload: QueuedWorkload, now: float) -> float:
        """How long it holds quota. Where Kueue gives no time, or one to come, since it was seen."""
        seen = self._first_seen.get(workload.metadata.key, now)
        reserved = workload.status.condition("QuotaReserved")
        since = unix_s(reserved.last_transition_time if reserved is not None else None, seen)
        return now - (since if since <= now else seen)

    def _end_promises(self, now: float) -> None:
        lasting = [one for one in self._promises if one.until > now]
        if len(lasting) < len(self._promises):
            self._promises = lasting
            self._promised += 1

    async def _activate(self, check: AdmissionCheck) -> None:
        """Say that somebody answers it: until then Kueue admits nothing to its queues."""
        condition = {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "Fettle answers it",
            "lastTransitionTime": rfc3339_at(self._clock()),
            "observedGeneration": check.metadata.generation,
        }
        with suppress(NotFound, Conflict):
            await self._apply(
                kinds.ADMISSION_CHECK, "AdmissionCheck", check.metadata, conditions=[condition]
            )

    async def _try(self, key: str, names: frozenset[str], view: View) -> None:
        """Who was looked at comes last, so that everybody has a turn. What fails for this one alone
        has no other wait."""
        try:
            await self._look_at(key, names, view)
        except (NotFound, Conflict):
            pass  # it has changed, so the watch brings it again
        except ClusterError as error:
            if concerns_all(error):
                raise
            self._seen.failed = f"Workload {key}: {error}"

    async def _look_at(self, key: str, names: frozenset[str], view: View) -> None:
        waiting = self._seen.waiting
        if key not in waiting:
            return
        workload = waiting[key] = waiting.pop(key)
        self._judged[key] = None
        if workload is None:
            workload = await self._outline(key)
        pending = workload.status.pending() if workload is not None else ()
        checks = [one for one in pending if one.name in names]
        if workload is None or not checks:
            waiting.pop(key, None)  # the watch brings it again if that changes
            return
        basis = self._basis(workload, view, self._clock())
        answer, promises = await self._answer(workload, view)
        due = [one for one in checks if (one.state, one.message) != (answer.state, answer.message)]
        if due:
            entries = [self._entry(one, answer) for one in checks]
            await self._apply(
                kinds.KUEUE_WORKLOAD, "Workload", workload.metadata, admissionChecks=entries
            )
        if answer.state == _RETRY:
            self._first_seen.pop(key, None)  # when it gets quota again, it has another minute
        if answer.state == _READY and promises:
            self._promises += promises
            self._promised += 1
        self._judged[key] = basis

    def _entry(self, check: CheckState, answer: _Answer) -> dict[str, Any]:
        return {
            "name": check.name,
            "state": answer.state,
            "message": answer.message,
            "lastTransitionTime": rfc3339_at(self._clock()),
        }

    async def _apply(
        self, kind: kinds.Kind, name: str, metadata: ObjectMeta, **status: object
    ) -> None:
        """Only if nobody has changed the object meanwhile."""
        about = {"name": metadata.name, "resourceVersion": metadata.resource_version}
        if metadata.namespace:
            about["namespace"] = metadata.namespace
        body = {"apiVersion": kind.api_version, "kind": name, "metadata": about, "status": status}
        path = kind.path_of(metadata.name, metadata.namespace, subresource="status")
        await self._session.apply(path, body, manager="fettle")

    async def _outline(self, key: str) -> QueuedWorkload | None:
        """A workload whose pods cannot be read, without them."""
        namespace, _, name = key.rpartition("/")
        try:
            raw = await self._session.get(kinds.KUEUE_WORKLOAD.path_of(name, namespace))
        except NotFound:
            return None
        outline = decoded(raw, WorkloadOutline, f"Workload {key}")
        return QueuedWorkload(metadata=outline.metadata, status=outline.status)

    async def _answer(self, workload: QueuedWorkload, view: View) -> tuple[_Answer, list[Promise]]:
        if workload.metadata.key in self._seen.unread:
            return _Answer(_READY, "Fettle cannot read its pods, so it does not judge them"), []
        if view.generation != self._generation:
            self._taken = await run_within(lambda: count_taken(view.pods.values()))
            self._generation = view.generation
        now = self._clock()
        self._end_promises(now)
        given: list[Promise] = []
        rooms: list[Room] = []
        for pod, demand, name, count in sorted(self._demands(workload), key=_size, reverse=True):
            of_kinds, each = frozenset(demand.kinds), _devices(demand)
            others = sum(one.devices for one in (*self._promises, *given) if one.kinds & of_kinds)
            room = await self._room(pod, demand, name, (count, count + int(others // each)), view)
            rooms.append(room)
            given.append(Promise(now + PROMISED_S, of_kinds, room.takes * each))
        return _answer_of(rooms, self._held_s(workload, now)), given

    def _demands(self, workload: QueuedWorkload) -> Iterator[tuple[core.Pod, Demand, str, int]]:
        """Of each pod set that needs devices and that Fettle may keep waiting: one of its pods,
        what it demands, its name, and how many pods are to start."""
        admission = workload.status.admission
        assigned = {
            one.name: one for one in (admission.pod_set_assignments if admission else None) or ()
        }
        for pod_set in workload.spec.pod_sets or ():
            there = assigned.get(pod_set.name)
            flavors = {*(there.flavors or {}).values()} if there is not None else set[str]()
            count = pod_set.count if there is None or there.count is None else there.count
            pod = self._pod(workload, pod_set, flavors)
            demand = self._answers.demand(pod) if count > 0 else None
            if demand is not None and demand.mode is Mode.ENFORCE and not demand.unsettled:
                yield pod, demand, pod_set.name, count

    def _pod(self, workload: QueuedWorkload, pod_set: PodSet, flavors: Collection[str]) -> core.Pod:
        """A pod as Kueue lets it start: with the labels and tolerations of its flavors. It has
        waited since the workload was made."""
        template = pod_set.template
        wanted = dict(template.spec.node_selector or {})
        tolerations = [*(template.spec.tolerations or ())]
        for name in sorted(flavors):
            if (flavor := self._seen.flavors.get(name)) is not None:
                wanted |= flavor.spec.node_labels
                tolerations += flavor.spec.tolerations or ()
        spec = msgspec.structs.replace(
            template.spec, node_selector=wanted, tolerations=tuple(tolerations)
        )
        metadata = ObjectMeta(
            name=f"{workload.metadata.name}-{pod_set.name}",
            namespace=workload.metadata.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            creation_timestamp=workload.metadata.creation_timestamp,
        )
        return core.Pod(metadata=metadata, spec=spec)

    async def _room(
        self, pod: core.Pod, demand: Demand, name: str, counts: tuple[int, int], view: View
    ) -> Room:
        """Counted by what filter answers about one pod, two, and so on, on one node. `counts`: its
        own pods, and how many are needed with what others were promised."""
        own, needed = counts
        fits = node_fit(pod)
        at_all = await run_within(lambda: {node.name for node in view.nodes.values() if fits(node)})
        grows = await run_within(partial(_must_grow, demand, frozenset(at_all), own, view))
        sound = set(at_all)
        refused: set[str] = set()
        counted_sound = counted = 0
        for number in range(1, MOST_ON_A_NODE + 1):
            of_all = side_by_side(demand, pod, number)
            table = await self._answers.judged(of_all, at_all)
            at_all &= table.verdicts.keys() - table.rejected - await self._full(of_all, view)
            sound &= at_all - table.refused
            refused = refused or at_all & table.refused
            counted += len(at_all)
            counted_sound += len(sound)
            if counted_sound >= needed or not at_all:
                break
        else:
            most = await run_within(partial(self._most_fit, demand, at_all, needed, view))
            counted += sum(most.values()) - MOST_ON_A_NODE * len(most)
            most = await self._most_sound(demand, pod, {name: most[name] for name in sound})
            counted_sound += sum(most.values()) - MOST_ON_A_NODE * len(most)
        return Room(
            name,
            ", ".join(demand.kinds),
            own,
            needed,
            min(needed, counted_sound),
            min(needed, counted),
            tuple(sorted(refused)[:MOST_NODES_NAMED]),
            grows and not refused,
        )

    def _most_fit(self, demand: Demand, names: Set[str], needed: int, view: View) -> dict[str, int]:
        """How many pods fit on each of these nodes, where MOST_ON_A_NODE do, by the units that a
        device plugin counts; `needed` where nobody counts."""
        most = dict.fromkeys(names, max(needed, MOST_ON_A_NODE))
        if demand.allocates:
            return most
        for name in names:
            for units in demand.units:
                node = view.nodes.get(name)
                plugin = node.plugins.get(units.resource) if node is not None else None
                if plugin is not None and units.count > 0:
                    free = plugin.allocatable - sum(
                        self._taken.get((name, units.resource), {}).values()
                    )
                    most[name] = min(most[name], max(MOST_ON_A_NODE, free // units.count))
            pause()
        return most

    async def _most_sound(
        self, demand: Demand, pod: core.Pod, most: dict[str, int]
    ) -> dict[str, int]:
        """How many of at most so many pods filter takes on each of these nodes, where it takes
        MOST_ON_A_NODE. Sought by halves, for as many nodes at once as have the same next number."""
        if demand.allocates:
            return most
        least = dict.fromkeys(most, MOST_ON_A_NODE)
        most, next_of = dict(most), dict(most)  # a node without bad devices takes the most
        for _ in range(MOST_STEPS):
            numbers = Counter(next_of[name] for name in most if least[name] < most[name])
            if not numbers:
                break
            number = numbers.most_common(1)[0][0]
            names = {name for name in most if least[name] < number <= most[name]}
            table = await self._answers.judged(side_by_side(demand, pod, number), names)
            good = table.verdicts.keys() - table.rejected - table.refused
            for name in names:
                if name in good:
                    least[name] = number
                else:
                    most[name] = number - 1
                next_of[name] = (least[name] + most[name] + 1) // 2
        return most

    async def _full(self, demand: Demand, view: View) -> Set[str]:
        if not demand.units:
            return frozenset()
        nodes = view.nodes.values()
        return await run_within(lambda: nodes_lacking_units(demand, nodes, self._taken))


def _size(one: tuple[core.Pod, Demand, str, int]) -> float:
    return _devices(one[1])


def _devices(demand: Demand) -> float:
    """How many devices one pod takes at most, and 1 at least."""
    most = sum(demand.most_devices(kind) for kind in {u.resource for u in demand.units} or {""})
    return max(1.0, most) if most < inf else 1.0


def _must_grow(demand: Demand, names: Set[str], own: int, view: View) -> bool:
    """Whether these nodes had too few devices also if all were free and no driver restarted."""
    nodes = [view.nodes[name] for name in names if name in view.nodes]
    if demand.allocates or not demand.units:
        return not any(node.pools for node in nodes)
    fit = 0
    for node in nodes:
        plugins = [(units, node.plugins.get(units.resource)) for units in demand.units]
        fit += min(p.capacity // max(1, u.count) if p is not None else 0 for u, p in plugins)
        pause()
    return fit < own


def _answer_of(rooms: Collection[Room], held_s: float) -> _Answer:
    short = [room for room in rooms if room.sound < room.needed]
    if not rooms:
        return _Answer(_READY, "nothing of it is refused by device health")
    if not short:
        return _Answer(_READY, "enough sound devices for all of its pods")
    told = "; ".join(map(_told, short))
    if held_s < HOLDS_QUOTA_S and not all(room.must_grow for room in short):
        return _Answer(_PENDING, told)
    if not any(room.by_health for room in short):
        return _Answer(_READY, f"{told}; that is not for their health alone, so it may start")
    # Without requeueAfterSeconds: Kueue 0.17.0 lets the workload keep its quota for so long.
    return _Answer(_RETRY, told)


def _told(room: Room) -> str:
    refused = f"; refused: {', '.join(room.refused)}" if room.refused else ""
    return one_line(
        f"{room.name}: {room.sound} of {room.needed} pods fit on sound devices now ({room.what})"
        f"{refused}"
    )


class _Seen:
    """What Kueue's objects say now; a sink of their reflectors."""

    def __init__(self) -> None:
        self.checks: dict[str, AdmissionCheck] = {}
        self.flavors: dict[str, ResourceFlavor] = {}
        self.waiting: dict[str, QueuedWorkload | None] = {}
        """By key: those that hold quota and wait for some check; None of one that is unread."""
        self.unread: set[str] = set()
        self.failed = ""
        """Which could not be answered last, and why."""
        self._listed: dict[str, set[str]] = {}
        """By kind: the keys that a list has shown so far."""
        self._complete: set[str] = set()
        self._lost: dict[str, str] = {}

    @property
    def is_complete(self) -> bool:
        return len(self._complete) == len(kinds.KUEUE_KINDS)

    def notes(self) -> list[str]:
        notes = [f"{_UNREAD}: {why} ({RIGHTS})" for why in self._lost.values()]
        if self.failed:
            notes.append(f"Kueue: the last that could not be answered is {self.failed}")
        if self.unread:
            key = min(self.unread)
            notes.append(f"Kueue: {len(self.unread)} Workloads cannot be read, such as {key}")
        return notes

    async def send(self, changes: list[Change]) -> None:
        for change in changes:
            self._take(change)

    def _take(self, change: Change) -> None:
        name = change.kind.name
        match change:
            case Put(_, new):
                self._lost.pop(name, None)
                self._listed.get(name, set()).add(new.metadata.key)
                self._store(new)
            case Bad(kind, key):
                self._listed.get(name, set()).add(key)
                if kind is kinds.KUEUE_WORKLOAD:
                    self.unread.add(key)
                    self.waiting[key] = None
            case Gone(_, key):
                self._forget(name, key)
            case ListStarted():
                self._listed[name] = set()
            case ListEnded():
                listed = self._listed.pop(name, set())
                for key in [key for key in self._of(name) if key not in listed]:
                    self._forget(name, key)
                self._complete.add(name)
            case Lost(_, note) | Unserved(_, note):
                if not self._lost:
                    _LOG.warning(_UNREAD, reason=note, remedy=RIGHTS)
                self._lost[name] = note

    def _of(self, name: str) -> dict[str, Any]:
        of_kind: dict[str, dict[str, Any]] = {
            kinds.ADMISSION_CHECK.name: self.checks,
            kinds.RESOURCE_FLAVOR.name: self.flavors,
            kinds.KUEUE_WORKLOAD.name: self.waiting,
        }
        return of_kind[name]

    def _forget(self, name: str, key: str) -> None:
        self._of(name).pop(key, None)
        if name == kinds.KUEUE_WORKLOAD.name:
            self.unread.discard(key)

    def _store(self, new: object) -> None:
        match new:
            case AdmissionCheck():
                self.checks[new.metadata.key] = new
            case ResourceFlavor():
                self.flavors[new.metadata.key] = new
            case QueuedWorkload():
                key = new.metadata.key
                self.unread.discard(key)
                if new.status.pending():
                    self.waiting[key] = new
                else:
                    self.waiting.pop(key, None)
